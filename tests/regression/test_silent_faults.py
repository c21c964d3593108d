"""What would otherwise be wrong without a word: levels, offsets, rows dropped, priors in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tensorflow_probability import distributions as tfd

import sgmcmc
from sgmcmc.regression.building import make_model
from sgmcmc.regression.design import evaluated
from sgmcmc.regression.families import read_family
from sgmcmc.regression.formula import parse
from sgmcmc.regression.priors import described_priors

N = 60
RNG = np.random.default_rng(1)
FRAME = pd.DataFrame(
    {
        "x": RNG.normal(size=N),
        "f": np.arange(N) % 3 + 1,
        "b": RNG.uniform(size=N) < 0.5,
        "t": RNG.uniform(1, 9, N),
        "site": np.arange(N) % 5,
        "y": RNG.poisson(2.0, N),
        "e": 1.0,
        "w": 1.0,
    }
)
QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


def _model(
    formula: str, family: str = "gaussian", frame: Any = FRAME, priors: Any = None
) -> Any:
    return make_model(parse(formula), frame, read_family(family, None), priors)[0]


@pytest.fixture(scope="module")
def fit() -> sgmcmc.Regression:
    return sgmcmc.glm("y ~ x + C(f) + b", FRAME, **QUIET)


def test_new_levels_of_a_factor_of_integers_are_refused(fit: sgmcmc.Regression) -> None:
    with pytest.raises(ValueError, match="'f'.* has the level '9'"):
        fit.predict(FRAME.iloc[:2].assign(f=9))
    with pytest.raises(ValueError, match="outside of the nominated levels"):
        _model("y ~ C(f % 3)").design.matrix(FRAME.iloc[:2].assign(f=2.5))


def test_comparisons_of_factors_of_integers_and_of_flags(
    fit: sgmcmc.Regression,
) -> None:
    table, estimates = fit.comparisons(), fit.summary()["estimate"]
    assert list(table.index) == ["b: True - False", "f: 2 - 1", "f: 3 - 1", "x: +1"]
    # The model is linear; predictions are over fewer draws than the summary.
    wanted = [estimates[term] for term in list(fit.fixed.index) if str(term)[0] in "bC"]
    np.testing.assert_allclose(
        sorted(table["estimate"][:3]),
        sorted(wanted),
        atol=0.3 * fit.fixed["error"].max(),
    )
    with pytest.raises(ValueError, match="'f' is a factor"):
        fit.slopes("f")
    assert list(fit.slopes().index) == ["x"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("log(t) - log(e + 1)", np.log(FRAME["t"]) - np.log(2.0)),
        ("x * t", FRAME["x"] * FRAME["t"]),
        ("t / 10", FRAME["t"] / 10),
    ],
)
def test_offsets_are_arithmetic(text: str, values: Any) -> None:
    np.testing.assert_allclose(evaluated(text, FRAME, {}), values)


def test_terms_taken_out_of_a_formula_leave_the_others() -> None:
    assert parse("y ~ x + (1 | g) - 1").fixed == "x - 1"
    both = parse("y ~ offset(t) + x + offset(e)")
    assert both.fixed == "x" and both.offset is not None
    np.testing.assert_allclose(
        evaluated(both.offset, FRAME, {}), FRAME["t"] + FRAME["e"]
    )
    with pytest.raises(ValueError, match="must be added"):
        parse("y ~ x * (1 | g)")


def test_the_intercepts_prior_knows_the_offset() -> None:
    model = _model("y ~ x + offset(log(t))", "poisson")
    assert model.start == pytest.approx(
        np.log((FRAME["y"].sum() + 0.5) / FRAME["t"].sum())
    )


@pytest.mark.usefixtures("without_sampling")
def test_rows_are_dropped_for_columns_of_the_formula_alone() -> None:
    gaps = FRAME.assign(e=np.where(np.arange(N) < 9, np.nan, 1.0))
    assert sgmcmc.glm("y ~ site", gaps, missing="drop", **QUIET).dropped == 0
    gaps = FRAME.assign(
        x=np.where(np.arange(N) < 2, np.nan, FRAME["x"]),
        w=np.where(np.arange(N) == 5, np.nan, 1.0),
    )
    assert sgmcmc.glm("y ~ x", gaps, weights="w", missing="drop", **QUIET).dropped == 3
    assert (
        sgmcmc.glm("y ~ x", gaps, weights=np.ones(N), missing="drop", **QUIET).dropped
        == 2
    )


def test_priors_that_are_distributions_are_said() -> None:
    law = tfd.HalfNormal(1.0)
    said = described_priors(
        _model("y ~ x + (1 | site)", priors={"sigma": law, "sd": law})
    )
    assert "HalfNormal" in said["sigma"] and "HalfNormal" in said["sd"]
    with pytest.raises(TypeError, match=r"`priors\['zi'\]` must be .*log_prob"):
        _model("y ~ x", "zero_inflated_poisson", priors={"zi": 3.0})
    said = _model("y ~ x", "zero_inflated_poisson", priors={"zi": tfd.Beta(1.0, 9.0)})
    assert "Beta" in described_priors(said)["zi"]


def test_a_column_far_from_zero_is_not_collinear() -> None:
    assert _model("y ~ t", frame=FRAME.assign(t=1.7e9 + FRAME["t"])).terms == (
        "Intercept",
        "t",
    )
    with pytest.raises(ValueError, match="linear combination"):
        _model("y ~ t", frame=FRAME.assign(t=1.7e9))
    with pytest.raises(ValueError, match="linear combination"):
        _model("y ~ t + I(2 * t + 1)")
