"""Regressions × units, shifts and weights: what must not change the posterior.

No chain runs. Two regressions have the same posterior if their log posteriors, at positions that
belong together, differ by a constant: that of the first position is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from sgmcmc.regression.building import make_model, sample_arguments
from sgmcmc.regression.families import read_family
from sgmcmc.regression.formula import parse
from sgmcmc.regression.model import RegressionModel
from sgmcmc.regression.priors import described_priors

N = 60
RNG = np.random.default_rng(4)
FRAME = pd.DataFrame(
    {
        # Eighths: sums with large powers of two are exact.
        "x": np.round(RNG.normal(2.0, 1.5, N) * 8) / 8,
        "z": np.round(RNG.uniform(1, 9, N) * 8) / 8,
        "f": RNG.choice(["a", "b", "c"], N),
        "g": np.arange(N) % 6,
        "t": RNG.uniform(1.0, 9.0, N),
        "o": np.round(RNG.normal(size=N) * 8) / 8,
        "size": RNG.integers(3, 12, N),
        "censored": (RNG.uniform(size=N) < 0.3).astype(int),
        "w": RNG.integers(0, 4, N),
    }
)
FRAME["real"] = np.round((1 + FRAME.x - 0.1 * FRAME.z + RNG.normal(size=N)) * 8) / 8
FRAME["count"] = RNG.poisson(3.0, N)
FRAME["yes"] = RNG.integers(0, 2, N)
FRAME["some"] = np.minimum(RNG.integers(0, 9, N), FRAME["size"])
FRAME["time"] = RNG.exponential(2.0, N)
FRAME["share"] = RNG.beta(2.0, 3.0, N)
FRAME["level"] = RNG.integers(0, 3, N)

RESPONSES = {
    "gaussian": "real", "student": "real", "bernoulli": "yes", "binomial": "some | trials(size)",
    "poisson": "count", "negative_binomial": "count", "zero_inflated_poisson": "count",
    "gamma": "time", "beta": "share", "exponential": "time | cens(censored)",
    "weibull": "time | cens(censored)", "ordinal": "level", "categorical": "level",
}  # fmt: skip
"""Left sides by family."""

REAL, TIMES = ("gaussian", "student"), ("gamma", "exponential", "weibull")
BARS = [family for family in RESPONSES if family != "categorical"]


def log_posterior(
    model: RegressionModel, y: np.ndarray, frame: pd.DataFrame, weights: Any
) -> np.ndarray:
    """Return log posteriors with effects of groups at five positions, less that at the first.

    Args:
        model, y: Model and response.
        frame: Rows, those of the model.
        weights: Their weights.
    """
    made = sample_arguments(model, y, frame, weights, np.float64)
    dataset = {
        name: tf.constant(np.asarray(values))
        for name, values in made["dataset"].items()
        if name not in {each.entry for each in model.effects}
    }
    rng, found = np.random.default_rng(2), []
    for _ in range(5):
        params = {}
        for name, start in made["params"].items():
            noise = 0.3 * rng.normal(size=np.shape(start))
            if name == "cut":
                noise = np.arange(len(start))
            # Those of the user's units are positive.
            positive = name in ("sigma", "nu", "shape", "phi", "zi") or name.startswith(
                "sd_"
            )
            value = start * np.exp(noise) if positive else noise + start
            params[name] = tf.constant(value, tf.float64)
        total = made["log_prior"](params)
        for each in model.effects:
            effects = tf.constant(0.5 * rng.normal(size=(6, len(each.terms))))
            total += tf.reduce_sum(
                each.log_density({f"r_{each.name}": effects}, params)
            )
            params[f"r_{each.name}"] = tf.gather(effects, frame["g"].to_numpy() % 6)
        found.append(float(total + tf.reduce_sum(made["log_lik"](params, dataset))))
    return np.array(found) - found[0]


def of(formula: str, family: str, frame: pd.DataFrame, weights: Any = None) -> Any:
    """Return model and response of a regression."""
    return make_model(parse(formula), frame, read_family(family, None), None, weights)


def _formula(family: str, more: str = "") -> str:
    bars = "" if family == "categorical" else " + (1 + x | g)"
    return f"{RESPONSES[family]} ~ x + z * f{bars}{more}"


def _same(
    family: str,
    change: Callable[[pd.DataFrame], pd.DataFrame],
    more: str = "",
    rtol: float = 1e-7,
) -> tuple[RegressionModel, RegressionModel]:
    """Compare regressions before and after a change, and return their models."""
    formula, other = _formula(family, more), change(FRAME)
    models = [of(formula, family, frame) for frame in (FRAME, other)]
    before, after = (
        log_posterior(*made, frame, None)
        for made, frame in zip(models, (FRAME, other), strict=True)
    )
    assert np.abs(before[1:]).min() > 1e-3
    np.testing.assert_allclose(after, before, rtol=rtol, atol=rtol)
    return models[0][0], models[1][0]


@pytest.mark.some(9)
@pytest.mark.parametrize("family", RESPONSES)
@pytest.mark.parametrize("c", [1e-12, 1e9])
def test_units_of_columns_divide_their_coefficients(family: str, c: float) -> None:
    one, other = _same(family, lambda frame: frame.assign(x=c * frame["x"]))
    b = np.random.default_rng(1).normal(size=len(one.terms))
    places = [term == "x" for term in one.terms]
    wanted = one.coefficients(b) / np.where(places, c, 1.0)
    np.testing.assert_allclose(other.coefficients(b), wanted, rtol=1e-6)
    for each, changed in zip(one.effects, other.effects, strict=True):
        effects = each.of_columns(np.ones(2)) / [1.0, c]
        np.testing.assert_allclose(changed.of_columns(np.ones(2)), effects, rtol=1e-6)


@pytest.mark.some(5)
@pytest.mark.parametrize("family", RESPONSES)
def test_columns_may_be_far_from_zero(family: str) -> None:
    """Slopes are as before; so is the predictor, and its distribution over groups."""
    one, other = _same(family, lambda frame: frame.assign(x=frame["x"] + 2.0**31))
    b = np.random.default_rng(1).normal(size=len(one.terms))
    coefficients, moved = one.coefficients(b), other.coefficients(b)
    first = int(one.terms[0] == "Intercept")
    np.testing.assert_allclose(moved[first:], coefficients[first:], rtol=1e-6)
    for each, changed in zip(one.effects, other.effects, strict=True):
        a, slope = each.of_columns(np.array([0.4, -0.7]))
        after = changed.of_columns(np.array([0.4, -0.7]))
        assert after == pytest.approx([a - 2.0**31 * slope, slope])


@pytest.mark.some(5)
@pytest.mark.parametrize("family", [*REAL, *TIMES])
@pytest.mark.parametrize("c", [1e-12, 1e9])
def test_units_of_the_response(family: str, c: float) -> None:
    name = "real" if family in REAL else "time"
    one, other = _same(family, lambda frame: frame.assign(**{name: c * frame[name]}))
    b = np.random.default_rng(1).normal(size=len(one.terms))
    if family in REAL:
        np.testing.assert_allclose(
            other.coefficients(b), c * one.coefficients(b), rtol=1e-6
        )
    else:
        gap = other.coefficients(b) - one.coefficients(b)
        np.testing.assert_allclose(
            gap, np.log(c) * (np.arange(len(gap)) == 0), atol=1e-6
        )


@pytest.mark.parametrize("family", REAL)
def test_responses_may_be_far_from_zero(family: str) -> None:
    one, other = _same(
        family, lambda frame: frame.assign(real=frame["real"] + 2.0**31), rtol=1e-5
    )
    b = np.random.default_rng(1).normal(size=len(one.terms))
    gap = other.coefficients(b) - one.coefficients(b)
    np.testing.assert_allclose(gap, 2.0**31 * (np.arange(len(gap)) == 0), atol=1e-5)


@pytest.mark.some(5)
@pytest.mark.parametrize("family", BARS)
def test_units_of_an_exposure_move_the_intercept_alone(family: str) -> None:
    one, other = _same(
        family,
        lambda frame: frame.assign(o=frame["o"] + 2.0**20),
        " + offset(o)",
        rtol=1e-6,
    )
    if family == "ordinal":
        assert other.level - one.level == pytest.approx(2.0**20)
        return
    b = np.random.default_rng(1).normal(size=len(one.terms))
    gap = other.coefficients(b) - one.coefficients(b)
    np.testing.assert_allclose(gap, -(2.0**20) * (np.arange(len(gap)) == 0), atol=1e-6)


@pytest.mark.parametrize("family", REAL)
def test_what_is_added_to_response_and_offset_is_nothing(family: str) -> None:
    plain = of(_formula(family), family, FRAME)
    frame = FRAME.assign(
        real=FRAME["real"] + 2.0**20 * FRAME["o"], o=2.0**20 * FRAME["o"]
    )
    added = of(_formula(family, " + offset(o)"), family, frame)
    assert described_priors(added[0]) == described_priors(plain[0])
    np.testing.assert_allclose(
        log_posterior(*added, frame, None),
        log_posterior(*plain, FRAME, None),
        rtol=1e-7,
    )


@pytest.mark.some(5)
@pytest.mark.parametrize("family", RESPONSES)
def test_weights_are_repeated_rows(family: str) -> None:
    """Default priors, and all that the numbers of the data are centered and scaled by, too."""
    weights = FRAME["w"].to_numpy(float)
    frame = FRAME.loc[FRAME.index.repeat(FRAME["w"])].reset_index(drop=True)
    more = "" if family == "categorical" else " + offset(o)"
    weighted = of(_formula(family, more), family, FRAME, weights)
    repeated = of(_formula(family, more), family, frame)
    assert described_priors(weighted[0]) == described_priors(repeated[0])
    for name in (
        "center",
        "scale",
        "origin",
        "unit",
        "start",
        "offset_mean",
        "cuts",
        "residual",
    ):
        np.testing.assert_allclose(
            getattr(weighted[0], name), getattr(repeated[0], name), rtol=1e-9, atol=1e-9
        )
    np.testing.assert_allclose(
        log_posterior(*weighted, FRAME, weights),
        log_posterior(*repeated, frame, None),
        rtol=1e-7,
    )


@pytest.mark.some(5)
@pytest.mark.parametrize("family", RESPONSES)
def test_rows_of_weight_zero_do_not_matter(family: str) -> None:
    """Not in priors, nor in the chain, whose numbers stay finite."""
    absurd = FRAME.iloc[:3].assign(x=1e200, z=-1e150, o=800.0, size=10**9)
    absurd["count"], absurd["time"], absurd["real"], absurd["some"] = (
        10**15,
        1e300,
        1e100,
        10**8,
    )
    frame = pd.concat([FRAME, absurd], ignore_index=True)
    weights = np.r_[np.ones(N), np.zeros(3)]
    more = "" if family == "categorical" else " + offset(o)"
    model, y = of(_formula(family, more), family, frame, weights)
    plain = of(_formula(family, more), family, FRAME)
    assert described_priors(model) == described_priors(plain[0])
    made = sample_arguments(model, y, frame, weights)["dataset"]
    assert all(np.isfinite(values).all() for values in made.values())
    np.testing.assert_allclose(
        log_posterior(model, y, frame, weights),
        log_posterior(*plain, FRAME, None),
        rtol=1e-7,
    )
