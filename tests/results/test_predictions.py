"""Predictions and terms of the log-likelihood at all draws, and comparison through ArviZ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import Samples, libraries
from tests import seams
from tests.conftest import observations, short_call

RNG = np.random.default_rng(1)
DRAWS = {
    "beta": RNG.normal(size=(3, 40, 2)),
    "bias": RNG.normal(size=(3, 40)),
}
DATA = {"X": RNG.normal(size=(50, 2)), "y": RNG.normal(size=50)}
SAMPLES = Samples(DRAWS, settings={"n_chains": 3, "dtype": "float64"})


def lines(params: Any, dataset: Any) -> tf.Tensor:
    """Return the fitted values of a regression."""
    return params["bias"] + tf.linalg.matvec(dataset["X"], params["beta"])


def pairs(params: Any, dataset: Any) -> tf.Tensor:
    """Return two numbers for each row."""
    return tf.stack([lines(params, dataset), dataset["y"]], axis=1)


def densities(params: Any, dataset: Any) -> tf.Tensor:
    """Return the terms of the log-likelihood."""
    return -0.5 * (dataset["y"] - lines(params, dataset)) ** 2


def in_sum(params: Any, dataset: Any) -> tf.Tensor:
    """Return their sum."""
    return tf.reduce_sum(densities(params, dataset))


def near(found: np.ndarray, wanted: np.ndarray) -> None:
    """Check that arrays agree up to rounding."""
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


FITTED = DRAWS["bias"][..., None] + np.einsum("cdj,nj->cdn", DRAWS["beta"], DATA["X"])
BOTH = np.stack([FITTED, np.broadcast_to(DATA["y"], FITTED.shape)], axis=-1)
TERMS = -0.5 * (DATA["y"] - FITTED) ** 2


@pytest.fixture(params=[2**6, None, 2**10], ids=["small pieces", "whole", "pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut rows and draws into pieces that do not come out even."""
    if request.param is not None:
        small = seams.changed(seams.EVALUATION, numbers=request.param, draws=7)
        monkeypatch.setattr(seams.EVALUATION, small)


@pytest.mark.some(1)
@pytest.mark.parametrize(("f", "values"), [(lines, FITTED), (pairs, BOTH)])
def test_predictions_are_those_of_numpy(
    f: Any, values: np.ndarray, pieces: None
) -> None:
    flat = values.reshape(-1, *values.shape[2:])
    near(SAMPLES.predict(f, DATA, reduce=None), values)
    near(SAMPLES.predict(f, DATA), flat.mean(axis=0))
    found = SAMPLES.predict(f, DATA, reduce="quantiles", quantiles=[0.1, 0.9])
    near(found, np.quantile(flat, [0.1, 0.9], axis=0))


@pytest.mark.some(2)
@pytest.mark.parametrize("function", [densities, in_sum])
def test_terms_are_those_of_numpy(function: Any, pieces: None) -> None:
    np.testing.assert_allclose(
        SAMPLES.log_lik(DATA, log_lik=function), TERMS, rtol=1e-12
    )


@pytest.mark.some(1)
def test_values_go_to_a_file(tmp_path: Path, pieces: None) -> None:
    path = tmp_path / "terms"
    for function, values in (
        (densities, TERMS),
        (lambda p, d: 2 * densities(p, d), 2 * TERMS),
    ):
        found = SAMPLES.log_lik(DATA, log_lik=function, store=path)
        assert isinstance(found, np.memmap)
        np.testing.assert_allclose(found, values, rtol=1e-12)
        np.testing.assert_array_equal(np.load(path), found)
    assert SAMPLES.predict(pairs, DATA, reduce=None, store=path).shape == BOTH.shape
    assert [entry.name for entry in tmp_path.iterdir()] == ["terms"]


def test_a_full_disk_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "terms").write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(seams.FILE_VALUES_WRITE, full)
    with pytest.raises(OSError, match="`store`: cannot write .* No space left"):
        SAMPLES.log_lik(DATA, log_lik=densities, store=tmp_path / "terms")
    assert [entry.name for entry in tmp_path.iterdir()] == ["terms"]
    assert (tmp_path / "terms").read_text() == "before"


def test_data_on_disk(tmp_path: Path) -> None:
    mapped = {}
    for name, array in DATA.items():
        np.save(tmp_path / f"{name}.npy", array)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    np.testing.assert_array_equal(
        SAMPLES.log_lik(mapped, log_lik=densities),
        SAMPLES.log_lik(DATA, log_lik=densities),
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("n_chains", [None, 2])
def test_the_chain_knows_its_model_and_data(n_chains: int | None) -> None:
    chain = short_call(n_chains=n_chains)
    draws = chain["theta"].reshape(n_chains or 1, 20, 1)
    terms = -0.5 * (observations() - draws) ** 2
    np.testing.assert_allclose(chain.log_lik(), terms, rtol=1e-5)
    few = {"x": observations()[:3]}
    np.testing.assert_allclose(chain[::2].log_lik(few), terms[:, ::2, :3], rtol=1e-5)
    found = chain.predict(lambda params, dataset: params["theta"] + 0 * dataset["x"])
    np.testing.assert_allclose(found, draws.mean(dtype=np.float64), rtol=1e-6)


def test_points_of_the_simplex() -> None:
    counts = {"z": np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]}

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return tf.linalg.matvec(dataset["z"], tf.math.log(params["omega"]))

    chain = sgmcmc.scir(
        log_lik, counts, {"omega": np.ones(3) / 3}, 0.1, alpha=1.0, minibatch_size=4,
        n_iters=20, verbose=False, seed=1,
    )  # fmt: skip
    np.testing.assert_allclose(
        chain.log_lik()[0], np.log(chain["omega"]) @ counts["z"].T, rtol=1e-5
    )


def test_random_predictions_differ_by_draw_and_row() -> None:
    def noise(params: Any, dataset: Any) -> tf.Tensor:
        return lines(params, dataset) + tf.random.normal(
            [dataset["y"].shape[0]], dtype=tf.float64
        )

    found = SAMPLES.predict(noise, DATA, reduce=None) - FITTED
    assert len(np.unique(found)) == found.size
    assert abs(found.std() - 1) < 5 / np.sqrt(2 * found.size)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: SAMPLES.predict(in_sum, DATA), ValueError, r"`f` must return an entry for each"),
        (lambda: SAMPLES.predict(lambda p, d: None, DATA), TypeError, "`f` returned None"),
        (lambda: SAMPLES.predict(lambda p: p, DATA), TypeError, "`f` must be a function of"),
        (lambda: SAMPLES.predict(lambda p, d: d["z"], DATA), ValueError, "`f` failed when it was"),
        (lambda: SAMPLES.predict(3, DATA), TypeError, "`f` must be a function"),  # type: ignore
        (lambda: SAMPLES.predict(lines), ValueError, "`dataset` must be given"),
        (lambda: SAMPLES.predict(lines, 3), TypeError, "`dataset`"),  # type: ignore[arg-type]
        (lambda: SAMPLES.predict(lines, DATA, reduce="max"), ValueError, "`reduce`"),
        (lambda: SAMPLES.predict(lines, DATA, store="x"), ValueError, "`store`.*reduce=None"),
        (
            lambda: SAMPLES.predict(lines, DATA, reduce="quantiles", quantiles=[2]),
            ValueError,
            "`quantiles`",
        ),
        (lambda: SAMPLES.log_lik(DATA), ValueError, "`log_lik` must be given"),
        (lambda: SAMPLES.log_lik(DATA, log_lik=pairs), ValueError, "one number for each row"),
        (
            lambda: SAMPLES.log_lik(DATA, log_lik=lambda p, d: in_sum(p, d) ** 2),
            ValueError,
            "`log_lik` must be a sum over the observations",
        ),
        (
            lambda: SAMPLES.log_lik(
                DATA, log_lik=lambda p, d: in_sum(p, d) / tf.math.reduce_std(d["y"])
            ),
            ValueError,
            "`log_lik` must be a sum over the observations.* alone is -?(nan|inf)",
        ),
        (lambda: SAMPLES.log_lik(DATA, log_lik=densities, store=3), TypeError, "`store`"),  # type: ignore
        (lambda: SAMPLES.log_lik(DATA, log_lik=densities, store="."), ValueError, "is a folder"),
        (lambda: Samples({}).predict(lines, DATA), ValueError, "no draws"),
        (
            lambda: short_call(store_params=False, test_functions={"a": lambda p: p["theta"]})
            .log_lik(),
            ValueError,
            "no draws|lacks the draws",
        ),
        (
            lambda: SAMPLES.to_arviz(log_likelihood=np.zeros((2, 40, 5))),
            ValueError,
            "`log_likelihood` must have the shape",
        ),
    ],
)  # fmt: skip
def test_errors(call: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


def exact_normal(
    x: np.ndarray, sd: float, rng: np.random.Generator
) -> tuple[Samples, np.ndarray]:
    """Return draws from the posterior of a mean under N(0, 1), and the exact terms of LOO."""
    precision = 1 + len(x) / sd**2
    draws = rng.normal(x.sum() / sd**2 / precision, precision**-0.5, size=(4, 1000))
    without = precision - 1 / sd**2
    mean, variance = (x.sum() - x) / sd**2 / without, 1 / without + sd**2
    exact = -0.5 * np.log(2 * np.pi * variance) - 0.5 * (x - mean) ** 2 / variance
    return Samples(
        {"theta": draws}, settings={"n_chains": 4, "dtype": "float64"}
    ), exact


def normal(sd: float) -> Any:
    """Return the log-likelihood of a mean."""

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        z = (dataset["x"] - params["theta"]) / sd
        return -0.5 * z**2 - np.log(sd * np.sqrt(2 * np.pi))

    return log_lik


def test_leave_one_out_is_that_of_a_conjugate_model() -> None:
    x, rng = observations().astype(np.float64), np.random.default_rng(1)
    found, exact, errors = {}, {}, []
    for sd in (1.0, 2.0):
        samples, exact[sd] = exact_normal(x, sd, rng)
        terms = samples.log_lik({"x": x}, log_lik=normal(sd))
        found[str(sd)] = samples.to_arviz(log_likelihood=terms)
        weights = np.exp(-terms.reshape(-1, len(x)))
        errors.append(
            (weights / weights.mean(axis=0)).sum(axis=1).std() / np.sqrt(len(weights))
        )
        loo = az.loo(found[str(sd)])
        elpd = loo.elpd if libraries.arviz_is_new() else loo.elpd_loo
        assert abs(elpd - exact[sd].sum()) < 4 * errors[-1]
    table = az.compare(
        found, **({"round_to": "none"} if libraries.arviz_is_new() else {})
    )
    assert list(table.index) == ["1.0", "2.0"]
    difference = exact[1.0].sum() - exact[2.0].sum()
    worse = abs(table["elpd_diff"]["2.0"])  # ArviZ 1 has it negative
    assert abs(worse - difference) < 4 * np.hypot(*errors)


def test_arviz_gets_the_terms_of_the_chain_thinned_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = short_call(n_chains=2)
    data = chain.to_arviz(
        log_likelihood=True, coords={"row": range(20)}, dims={"log_lik": ["row"]}
    )
    np.testing.assert_array_equal(data.log_likelihood["log_lik"], chain.log_lik())
    assert data.log_likelihood["log_lik"].dims == ("chain", "draw", "row")
    few = chain.to_arviz(
        log_likelihood={"x": observations()[:5]}, log_likelihood_draws=20
    )
    assert few.log_likelihood["log_lik"].shape == (2, 10, 5)
    np.testing.assert_array_equal(few.posterior["theta"], chain["theta"][:, 1::2])
    small = seams.changed(seams.CONVERSIONS, largest_terms=4 * 20 * 2 * 7)
    monkeypatch.setattr(seams.CONVERSIONS, small)
    with pytest.warns(UserWarning, match="one draw in 3"):
        fewer = chain.to_arviz(log_likelihood=True)
    assert fewer.posterior["theta"].shape == (2, 6)
    if not libraries.arviz_is_new():
        assert np.isfinite(az.waic(data).elpd_waic)
    else:
        assert np.isfinite(az.loo(data).elpd)
