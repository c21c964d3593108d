"""Regressions of which many rows are identical: one row with a weight, and the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.reduce.rows import CountedRows, distinct_rows, number_of_rows
from tests import seams

QUICK: dict[str, Any] = {"seed": 1, "verbose": False, "ess": 100, "n_chains": 2}
N = 3000


def visits() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"plan": rng.choice(list("abc"), N), "young": rng.random(N) < 0.3}
    )
    eta = -0.5 + 0.8 * (frame["plan"] == "b") + 0.5 * frame["young"]
    return frame.assign(paid=rng.random(N) < 1 / (1 + np.exp(-eta)))


FRAME = visits()
X = np.column_stack(
    [np.ones(N), FRAME["plan"] == "b", FRAME["plan"] == "c", FRAME["young"]]
).astype(float)
FORMULA = "paid ~ plan + young"


def newton(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mode, SDs by the information, and SDs by the sandwich of weighted rows."""
    y, beta = FRAME["paid"].to_numpy(float), np.zeros(4)
    for _ in range(20):
        p = 1 / (1 + np.exp(-X @ beta))
        inverse = np.linalg.inv((X.T * (weights * p * (1 - p))) @ X)
        beta = beta + inverse @ X.T @ (weights * (y - p))
    squares = (X.T * (weights * (y - p) ** 2)) @ X
    sandwich = inverse @ squares @ inverse
    return beta, np.sqrt(np.diag(inverse)), np.sqrt(np.diag(sandwich))


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let chains make the draws of small regressions, too."""
    few = seams.changed(seams.REGRESSION_FEW_ROWS, coordinates=0)
    monkeypatch.setattr(seams.REGRESSION_FEW_ROWS, few)


@pytest.fixture(scope="module")
def fit() -> sgmcmc.Regression:
    with pytest.MonkeyPatch.context() as patch:
        few = seams.changed(seams.REGRESSION_FEW_ROWS, coordinates=0)
        patch.setattr(seams.REGRESSION_FEW_ROWS, few)
        return sgmcmc.glm(FORMULA, FRAME, "bernoulli", **QUICK)


def test_the_posterior_is_that_of_all_rows(fit: sgmcmc.Regression) -> None:
    report = fit.report
    assert report is not None
    assert report["Model"] == {
        "reduction": "3000 rows as 12 distinct ones, with their numbers"
    }
    mode, sds, robust = newton(np.ones(N))
    table = fit.summary(robust=True)
    errors = (table["estimate"] - mode) / sds
    assert (errors.abs() < 4 / np.sqrt(table["ess_bulk"]) + 0.05).all()
    np.testing.assert_allclose(table["error"], sds, rtol=0.03 + 4 / np.sqrt(200))
    # Of the same draws, moved; the default priors are wide.
    ratio = table["robust"] / table["error"]
    np.testing.assert_allclose(ratio, robust / sds, rtol=0.01)


def test_terms_predictions_and_loo_are_those_of_all_rows(
    fit: sgmcmc.Regression,
) -> None:
    draws = fit.samples[:5]
    terms = draws.log_lik()
    assert terms.shape == (2, 5, N)
    eta = fit._model.coefficients(draws["b"].astype(np.float64)) @ X.T
    expected = -np.logaddexp(0.0, np.where(FRAME["paid"], -eta, eta))
    np.testing.assert_allclose(terms, expected, rtol=1e-5)
    mean = draws.predict(lambda params, rows: tf.reduce_sum(rows["X"], -1))
    assert mean.shape == (N,) and len(np.unique(mean.round(5))) == 6
    by_rows, of_samples = fit.loo(), fit.samples.loo(rows=N)
    error = 4 * by_rows.subsampling_se + 0.5
    assert abs(by_rows.elpd - of_samples.elpd) < error
    with pytest.raises(ValueError, match="identical rows that are one with a weight"):
        draws.log_lik(store="terms.npy")
    with pytest.raises(ValueError, match="identical rows of this regression are one"):
        fit.samples.update({"X": np.zeros((1, 3))}, verbose=False)
    more = fit.samples.extend(100, verbose=False)
    assert more[:1].log_lik().shape == (2, 1, N)
    assert more.report["Model"] == fit.samples.report["Model"]


def test_more_rows_are_counted_too(fit: sgmcmc.Regression, chains: None) -> None:
    updated = fit.update(FRAME, verbose=False)
    reduction = updated.report["Model"]["reduction"]  # type: ignore[index]
    assert reduction.startswith("6000 rows as 12 distinct ones")
    mode, sds, _ = newton(np.full(N, 2.0))
    errors = (updated.summary()["estimate"] - mode) / sds
    assert (errors.abs() < 4 / np.sqrt(updated.summary()["ess_bulk"]) + 0.05).all()


def test_a_weight_is_a_number_of_rows_in_robust_sds() -> None:
    weights = np.arange(N) % 4
    fit = sgmcmc.glm(FORMULA, FRAME, "bernoulli", weights=weights, **QUICK)
    _, sds, robust = newton(weights.astype(float))
    table = fit.summary(robust=True)
    ratio = table["robust"] / table["error"]
    np.testing.assert_allclose(ratio, robust / sds, rtol=0.01)


def called(monkeypatch: pytest.MonkeyPatch, data: Any, **keywords: Any) -> int:
    """Return the number of rows that ``sample`` would be called with."""

    class CalledError(Exception):
        pass

    def sample(**arguments: Any) -> None:
        raise CalledError(len(arguments["dataset"]["X"]))

    monkeypatch.setattr(seams.REGRESSION_SAMPLE, sample)
    with pytest.raises(CalledError) as found:
        sgmcmc.glm(FORMULA, data, "bernoulli", **keywords)
    return int(found.value.args[0])


@pytest.mark.parametrize(
    ("data", "keywords", "rows"),
    [
        (FRAME, {}, 12),
        (FRAME, {"reduce": False}, N),
        (FRAME, {"minibatch_size": 100}, N),
        (FRAME, {"weights": np.ones(N)}, N),
        (FRAME.iloc[:1000], {}, 1000),
        (FRAME.assign(young=np.random.default_rng(1).random(N)), {}, N),
    ],
)
def test_rows_are_counted_where_that_may_and_can_pay(
    monkeypatch: pytest.MonkeyPatch,
    chains: None,
    data: Any,
    keywords: Any,
    rows: int,
) -> None:
    assert called(monkeypatch, data, **keywords) == rows


def test_distinct_rows_stand_for_all() -> None:
    rng = np.random.default_rng(2)
    dataset = {
        "X": rng.integers(0, 3, (5000, 2)).astype(np.float32),
        "k": rng.integers(0, 4, 5000),
    }
    counted = distinct_rows(dataset, "n")
    assert counted is not None and len(counted["k"]) == 36
    assert counted["n"].dtype == np.float32 and counted["n"].sum() == 5000
    rows = counted.every_row()
    np.testing.assert_array_equal(rows["X"], dataset["X"])
    np.testing.assert_array_equal(rows["k"], dataset["k"])
    assert (rows["n"] == 1).all()
    integers = distinct_rows({"k": dataset["k"]}, "n")
    assert integers is not None and integers["n"].dtype == np.float64


def test_rows_that_a_dataset_stands_for() -> None:
    weights = np.full(500, 1e-4, np.float32)
    weighted = CountedRows({"x": np.zeros(500), "n": weights}, "n")
    assert number_of_rows(weighted, 500) == pytest.approx(0.05)
    assert number_of_rows({"x": np.zeros(3)}, 3) == 3
