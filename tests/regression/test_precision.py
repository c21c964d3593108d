"""Priors that let the data speak, and responses that float32 rounds, against exact posteriors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats as st
import tensorflow as tf

import sgmcmc
from sgmcmc.regression.building import make_model, sample_arguments
from sgmcmc.regression.families import read_family
from sgmcmc.regression.formula import parse
from sgmcmc.results.loo import leave_one_out

N = 400
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


def _quantile(log_density: np.ndarray, grid: np.ndarray, p: float) -> float:
    """Return a quantile of a density on a grid of equal steps."""
    weights = np.exp(log_density - log_density.max())
    return float(grid[np.searchsorted(np.cumsum(weights) / weights.sum(), p)])


@pytest.mark.parametrize("slope", [pytest.param(20.0, marks=pytest.mark.slow), 1e6])
def test_responses_far_from_zero(slope: float) -> None:
    """Seconds of a clock, and a response that the terms explain to nine digits, in float32."""
    y = 1.7e9 + slope * X + 0.06 * RNG.normal(size=N)
    fit = sgmcmc.glm("y ~ x", {"x": X, "y": y}, **QUIET)
    design = np.column_stack([np.ones(N), X])
    beta, rest, *_ = np.linalg.lstsq(design, y - 1.7e9, rcond=None)
    sigma = np.sqrt(rest[0] / (N - 2))
    errors = sigma * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    table = fit.summary()
    assert abs(table["estimate"]["Intercept"] - 1.7e9 - beta[0]) < 0.3 * errors[0]
    assert abs(table["estimate"]["x"] - beta[1]) < 0.3 * errors[1]
    np.testing.assert_allclose(table["error"][:2], errors, rtol=0.2)
    assert table["estimate"]["sigma"] == pytest.approx(sigma, rel=0.02)
    np.testing.assert_allclose(
        fit.predict({"x": [0.5]}), 1.7e9 + beta @ [1, 0.5], rtol=1e-11
    )
    assert fit.loo().elpd == pytest.approx(
        st.norm.logpdf(0, 0, sigma) * N - N / 2 - 3, abs=2
    )
    assert fit.warnings == []


def test_counts_of_a_million_keep_their_density() -> None:
    y = RNG.poisson(1e6 * np.exp(0.3 * X))
    loo = sgmcmc.glm("y ~ x", {"x": X, "y": y}, "poisson", **QUIET).loo()
    best = st.poisson.logpmf(y, 1e6 * np.exp(0.3 * X)).sum()
    assert (
        abs(loo.elpd - best) < 5.0
        and loo.pareto_k.max() < 0.5
        and 1.0 < loo.p_loo < 3.5
    )


@pytest.mark.slow
def test_counts_that_are_all_zero() -> None:
    fit = sgmcmc.glm("q ~ 1", {"q": np.zeros(50)}, "poisson", **QUIET)
    rates = np.exp(fit._draws["Intercept"])
    # Gamma(1, 50 + 1) has its 97.5 % quantile at 0.0723; a flat prior gives 0.0738.
    exact = st.gamma.ppf(0.975, 1, scale=1 / 51)
    assert np.quantile(rates, 0.975) == pytest.approx(exact, rel=0.2)
    assert any(
        "'Intercept' is held by its prior" in warning for warning in fit.warnings
    )


@pytest.mark.parametrize("exposure", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("name", "ones"), [("poisson", 0), ("bernoulli", 0), ("binomial", 0),
    ("bernoulli", 40), ("exponential", 40)])  # fmt: skip
def test_intercepts_of_responses_that_are_all_alike(
    name: str, ones: int, exposure: float
) -> None:
    """Posteriors of one rate or probability, on a grid: those of flat priors, nearly."""
    n, left = (
        40,
        {"binomial": "y | trials(1)", "exponential": "y | cens(c)"}.get(name, "y"),
    )
    y = np.full(n, exposure) if name == "exponential" else np.repeat(float(ones > 0), n)
    frame = pd.DataFrame({"y": y, "c": 1, "t": np.log(exposure)})
    counted = name == "poisson"
    model, _ = make_model(
        parse(f"{left} ~ 1" + " + offset(t)" * counted),
        frame,
        read_family(name, None),
        None,
    )
    made = sample_arguments(model, y, frame, None, np.float64)
    grid = np.linspace(-25.0, 25.0, 20001)

    def height(b: tf.Tensor) -> tf.Tensor:
        params = {"b": b[tf.newaxis]}
        rows = {key: tf.constant(np.asarray(v)) for key, v in made["dataset"].items()}
        return made["log_prior"](params) + tf.reduce_sum(made["log_lik"](params, rows))

    log_density = tf.vectorized_map(height, tf.constant(grid)).numpy()
    censored = name == "exponential"
    value = _quantile(log_density, grid + model.origin[0], 0.025 if censored else 0.975)
    if counted or censored:
        # A flat rate has the density exp(−n exposure rate).
        exact = st.gamma.ppf(0.975, 1, scale=1 / n) / exposure
        assert np.exp(-value if censored else value) == pytest.approx(exact, rel=0.03)
    else:
        exact = st.beta.ppf(0.975, 1 + ones, 1 + n - ones)
        assert scipy.special.expit(value) == pytest.approx(exact, rel=1e-3)


def test_shapes_are_those_of_the_data() -> None:
    """A gamma of shape 10 000: the posterior by integration over a grid of mean and shape."""
    y = RNG.gamma(1e4, 5e6 / 1e4, size=50)
    fit = sgmcmc.glm("y ~ 1", {"y": y}, "gamma", **QUIET)
    table = fit.summary()
    log_k = np.linspace(np.log(2e3), np.log(5e4), 400)[:, np.newaxis]
    mean = np.log(y.mean()) + np.linspace(-6, 6, 401) * 1e-2 / np.sqrt(50)
    k = np.exp(log_k)
    density = (
        50 * (k * (log_k - mean) - scipy.special.gammaln(k)) + (k - 1) * np.log(y).sum()
    )
    density += (
        -k * np.exp(-mean) * y.sum() - log_k - 0.1 / k
    )  # 1/shape is exponential(0.1)
    p = np.exp(density - density.max())
    p /= p.sum()
    wanted = (p * k).sum()
    sd = np.sqrt((p * (k - wanted) ** 2).sum())
    assert abs(table["estimate"]["shape"] - wanted) < 0.25 * sd
    assert table["error"]["shape"] == pytest.approx(sd, rel=0.2)
    assert table["error"]["Intercept"] == pytest.approx(1e-2 / np.sqrt(50), rel=0.35)
    assert fit.warnings == []


@pytest.mark.slow
def test_a_shape_without_upper_bound_is_held_by_its_prior() -> None:
    y = RNG.poisson(np.exp(1 + 0.3 * X[:200]))
    frame = {"x": X[:200], "y": y}
    fit = sgmcmc.glm("y ~ x", frame, "negative_binomial", **QUIET)
    assert any("'shape' is held by its prior" in warning for warning in fit.warnings)
    design = np.column_stack([np.ones(200), X[:200]])
    covariance = np.linalg.inv(
        design.T @ (np.exp(1 + 0.3 * X[:200, np.newaxis]) * design)
    )
    ratio = fit.summary()["error"][:2] / np.sqrt(np.diag(covariance))
    assert (np.abs(ratio - 1.0) < 0.2).all()


def test_leave_one_out_of_weighted_rows_is_that_of_repeated_ones() -> None:
    rng = np.random.default_rng(1)
    weights = np.array([1.0, 3.0, 0.0, 2.0, 5.0])
    terms = rng.normal(size=(1000, 5)) * 0.1 - 1.0
    repeated = np.repeat(np.arange(5), weights.astype(int))
    rows = np.flatnonzero(weights)
    one = leave_one_out(terms[:, rows], rows, 5, lambda: terms.mean(0), weights)
    other = leave_one_out(terms[:, repeated], np.arange(11), 11, lambda: terms.mean(0))
    for name in ("elpd", "se", "p_loo"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)


def test_responses_without_noise_are_refused_among_rows_that_count() -> None:
    frame = {"x": X, "y": np.where(np.arange(N) < 3, 7.0, 3.0 - 2.0 * X)}
    with pytest.raises(ValueError, match="is a linear combination of the terms"):
        sgmcmc.glm("y ~ x", frame, weights=(np.arange(N) >= 3) * 1.0, **QUIET)


def test_weights_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="`weights` are zero for every row"):
        sgmcmc.glm(
            "y ~ x", {"x": X, "y": X + RNG.normal(size=N)}, weights=np.zeros(N), **QUIET
        )


@pytest.mark.parametrize("unit", [1e-45, 1e45])
def test_slopes_of_groups_in_units_beyond_single_precision(unit: float) -> None:
    rng = np.random.default_rng(2)
    x, g = rng.normal(size=200), rng.integers(0, 8, 200)
    y = 1 + 2 * x + rng.normal(size=8)[g] + rng.normal(size=200)
    table = sgmcmc.glm(
        "y ~ x + (x | g)", {"y": y, "x": x * unit, "g": g}, seed=1, verbose=False
    ).summary()
    assert np.isfinite(table["estimate"]).all() and np.isfinite(table["error"]).all()
    assert abs(table["estimate"]["x"] * unit - 2) < 0.3
    assert 0.01 < table["estimate"]["sd(g: x)"] * unit < 1
