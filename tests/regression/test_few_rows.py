"""Regressions of few rows: their density, the integral over effects, and draws of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tensorflow as tf
from scipy.special import logsumexp

import sgmcmc
from sgmcmc.regression.building import RegressionData, make_model, parameters_of
from sgmcmc.regression.compiled_density import CompiledDensity
from sgmcmc.regression.families import read_family
from sgmcmc.regression.few_rows import FewRowsCall, is_small
from sgmcmc.regression.formula import parse
from sgmcmc.regression.priors import log_prior
from tests import seams
from tests.regression.beside_chains import need_posterior_of_chain

QUIET: dict[str, Any] = {"seed": 1, "verbose": False}
ROWS, GROUPS = 60, 8


def frame_of(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, GROUPS, rows)
    x, u = rng.normal(size=rows), 0.7 * rng.normal(size=GROUPS)
    eta = 0.3 + 0.5 * x + u[codes]
    p = 1.0 / (1.0 + np.exp(-eta))
    return pd.DataFrame(
        {
            "x": x,
            "f": rng.choice(list("abc"), rows),
            "g": np.array(list("stuvwxyz"))[codes],
            "exposure": rng.uniform(0.5, 2.0, rows),
            "weight": rng.integers(0, 3, rows),
            "trials": 10,
            "real": eta + rng.standard_t(4, rows),
            "yes": rng.random(rows) < p,
            "successes": rng.binomial(10, p),
            "count": rng.poisson(np.exp(eta)),
            "positive": rng.gamma(2.0, np.exp(eta)),
            "share": rng.beta(4.0 * p, 4.0 - 4.0 * p),
        }
    )


FRAME = frame_of()


def call_of(
    formula: str, family: str, weights: np.ndarray | None = None, **priors: Any
) -> FewRowsCall:
    parsed = parse(formula)
    model, y = make_model(parsed, FRAME, read_family(family, None), priors, weights)
    data = RegressionData(model, y, FRAME, weights, np.dtype(np.float64))
    assert is_small(data, {})
    return FewRowsCall(data, {"verbose": False})


def params_at(call: FewRowsCall, position: np.ndarray) -> tuple[dict[str, Any], float]:
    """Return the parameters at a position, and the log-Jacobian, one by one."""
    start, bijectors = parameters_of(call.data.model)
    params, log_jacobian, first = {}, 0.0, 0
    for name, value in start.items():
        shape = np.shape(value)
        last = first + int(np.prod(shape))
        u = tf.constant(position[first:last].reshape(shape))
        first = last
        if name in bijectors:
            slopes = bijectors[name].forward_log_det_jacobian(u, 0)
            log_jacobian += float(tf.reduce_sum(slopes))
            u = bijectors[name].forward(u)
        params[name] = u
    return params, log_jacobian


def rows_of(call: FewRowsCall) -> dict[str, tf.Tensor]:
    """Return the columns of the likelihood, in the order of rows."""
    dataset = call.data.arguments()["dataset"]
    arrays = {name: np.asarray(values) for name, values in dataset.items()}
    return {name: tf.constant(a) for name, a in arrays.items() if a.dtype.kind in "fi"}


@pytest.mark.parametrize(
    ("response", "family"),
    [
        ("yes", "bernoulli"),
        ("successes | trials(trials)", "binomial"),
        ("count", "poisson"),
        ("count", "negative_binomial"),
        ("count", "zero_inflated_poisson"),
        ("positive", "gamma"),
        ("positive", "weibull"),
        ("share", "beta"),
        ("real", "student"),
        ("real", "gaussian"),
    ],
)
def test_the_density_is_that_of_the_chain(response: str, family: str) -> None:
    weights = FRAME["weight"].to_numpy(float)
    call = call_of(f"{response} ~ x + f + offset(exposure)", family, weights)
    rng = np.random.default_rng(1)
    positions = call._start.prior.start + 0.3 * rng.normal(size=(3, call.size))
    values = call._start(positions)
    for position, value in zip(positions, values, strict=True):
        params, log_jacobian = params_at(call, position)
        terms = call.data.model.log_lik(params, rows_of(call)).numpy()
        expected = terms.sum() + log_jacobian
        expected += float(log_prior(call.data.model, params))
        np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("formula", "family", "nodes"),
    [
        ("yes ~ x + (1 | g)", "bernoulli", 61),
        ("count ~ x + (1 | g)", "negative_binomial", 61),
        ("real ~ x + (0 + x | g)", "student", 61),
        ("count ~ x + (1 + x | g)", "poisson", 21),
        ("real ~ (1 + x || g)", "gaussian", 3),
    ],
)
def test_the_integral_over_effects(formula: str, family: str, nodes: int) -> None:
    """A sum over a fine grid, of normal effects standardized, has the same value."""
    call = call_of(formula, family)
    (effects,) = call.data.model.effects
    q = len(effects.terms)
    density = replace(call._start, nodes=nodes)
    rng = np.random.default_rng(2)
    position = density.prior.start + 0.2 * rng.normal(size=call.size)
    params, log_jacobian = params_at(call, position)
    arrays = {name: value.numpy()[None] for name, value in params.items()}
    root = density.root(effects, arrays)
    axis = np.linspace(-8.0, 8.0, 161 if q == 1 else 49)
    grid = np.stack([a.ravel() for a in np.meshgrid(*[axis] * q, indexing="ij")], 1)
    codes, rows = pd.factorize(FRAME["g"])[0], rows_of(call)
    heights = np.zeros((len(grid), GROUPS))
    for number, u in enumerate(grid):
        of_rows = tf.constant(np.repeat((root[0] @ u)[np.newaxis], ROWS, 0))
        terms = call.data.model.log_lik({**params, "r_g": of_rows}, rows)
        heights[number] = np.bincount(codes, terms.numpy(), GROUPS)
    normal = -0.5 * (grid**2).sum(1) - 0.5 * q * np.log(2.0 * np.pi)
    cell = q * np.log(axis[1] - axis[0])
    integrals = logsumexp(heights + normal[:, np.newaxis] + cell, axis=0)
    expected = (
        integrals.sum() + log_jacobian + float(log_prior(call.data.model, params))
    )
    tolerance = 1e-9 if family == "gaussian" else 1e-5
    np.testing.assert_allclose(density(position[None])[0], expected, atol=tolerance)


@pytest.mark.parametrize("effect", ["1", "1 + x"])
def test_positions_far_out_have_no_density(effect: str) -> None:
    call = call_of(f"count ~ x + ({effect} | g)", "poisson")
    start = call._start.prior.start
    far = np.array([start, *(start + 40.0 * np.eye(call.size)), start + 800.0])
    with np.errstate(all="ignore"):
        values = call._start(far)
    assert np.isfinite(values[0]) and not np.isnan(values).any()
    assert (values[1:] < values[0]).all() and values[-1] == -np.inf


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("count ~ x + (1 | g)", "poisson"),
        ("yes ~ x + (1 | g)", "bernoulli"),
        ("yes ~ x + (1 + x | g)", "bernoulli"),
    ],
)
def test_nodes_whose_places_are_known_to_first_order(formula: str, family: str) -> None:
    """Also far from the center, where effects have no width, or much.

    Errors are far below 0.02, which a quadrature may have. SDs of effects below e⁻⁸ have a
    thousandth of the posterior.
    """
    call = call_of(formula, family)
    density = replace(call._start, nodes=15)
    center, d = density.prior.start, call.size
    near = density.around(center, np.full(d, 0.2))
    assert near.rule is not None
    rng = np.random.default_rng(4)
    positions = center + 0.3 * rng.normal(size=(5, d))
    np.testing.assert_allclose(near(positions), density(positions), atol=0.003)
    (effects,) = call.data.model.effects
    for k in np.arange(d)[density.prior.layout.slices[effects.sds_name]]:
        far = center + np.outer([-8.0, -5.0, -3.0, -2.0, -1.0, 1.0], np.eye(d)[k])
        np.testing.assert_allclose(near(far), density(far), atol=0.003)
    compiled = CompiledDensity(near)
    np.testing.assert_allclose(compiled(positions), near(positions), rtol=1e-12)
    assert compiled(positions + 1e4).tolist() == [-np.inf] * 5


def test_groups_that_do_not_differ() -> None:
    """Without effects their SD has the posterior that sums over a grid have."""
    rng = np.random.default_rng(1)
    groups, rows = 20, 200
    frame = pd.DataFrame(
        {"yes": rng.random(rows) < 0.5, "g": [f"g{k % groups}" for k in range(rows)]}
    )
    fit = sgmcmc.glm("yes ~ 1 + (1 | g)", frame, "bernoulli", ess=2000, **QUIET)
    assert fit.samples.settings["method"] == "elliptical_slice"
    density = replace(fit.samples.origin.run._start, nodes=25)
    b, log_sd = np.linspace(-1.0, 1.0, 41), np.linspace(-14.0, 1.5, 156)
    grid = np.array([[first, second] for first in b for second in log_sd])
    heights = density(grid + [density.prior.start[0], 0.0])
    masses = np.exp(heights - heights.max()).reshape(len(b), -1).sum(0)
    masses /= masses.sum()
    sds = np.exp(log_sd)
    mean = masses @ sds
    error = np.sqrt(masses @ (sds - mean) ** 2 / 2000.0)
    draws = np.asarray(fit.samples["sd_g"], np.float64)
    assert abs(draws.mean() - mean) < 4.5 * error
    below = masses[log_sd < -3.0].sum()
    share = (np.log(draws) < -3.05).mean()  # the grid's cells end between its nodes
    assert abs(share - below) < 4.5 * np.sqrt(below * (1.0 - below) / 2000.0)


@pytest.fixture(scope="module")
def fit() -> sgmcmc.Regression:
    return sgmcmc.glm("yes ~ x + (1 | g)", FRAME, "bernoulli", **QUIET)


def test_the_report_says_what_was_done(fit: sgmcmc.Regression) -> None:
    report = fit.samples.report
    assert report is not None and report["method"] == "elliptical_slice"
    assert report["Model"]["reduction"] == "60 rows as 8 groups of 'g', integrated out"
    assert report["Groups"]["integrated out"] == "g"
    assert report["Groups"]["nodes in each direction"] in (3, 5, 9)
    assert report["Draws"]["R-hat"] and not report["Warnings"]
    assert min(report["Draws"]["ESS, bulk"]) >= 400
    assert fit.samples.settings["N"] == ROWS


def test_the_log_posterior_is_that_of_the_draws(fit: sgmcmc.Regression) -> None:
    call = fit.samples.origin.run
    sd = np.log(np.asarray(fit.samples["sd_g"], np.float64)[0, :5])
    b = np.asarray(fit.samples["b"], np.float64)[0, :5]
    expected = call.draws.density(np.concatenate([b, sd], 1))
    np.testing.assert_allclose(fit.samples.log_post.values[0, :5], expected, atol=1e-3)


def test_effects_predictions_and_more_draws(
    fit: sgmcmc.Regression, tmp_path: Path
) -> None:
    effects = fit.effects("g")
    assert len(effects) == GROUPS
    new = FRAME.iloc[:3].assign(g=["s", "t", "new"])
    predicted = fit.predict(new)
    assert predicted.shape == (3,) and ((predicted > 0) & (predicted < 1)).all()
    more = fit.samples.extend(50, verbose=False)
    old = len(fit.samples["b"][0])
    np.testing.assert_array_equal(more["b"][:, :old], fit.samples["b"])
    assert len(more["b"][0]) == old + 50
    fit.save(tmp_path / "fit")
    loaded = sgmcmc.Regression.load(tmp_path / "fit")
    np.testing.assert_array_equal(loaded.samples["b"], fit.samples["b"])
    pd.testing.assert_frame_equal(loaded.effects("g"), effects)


@pytest.mark.parametrize(
    ("formula", "family"),
    [("yes ~ x + (1 | g)", "bernoulli"), ("count ~ x + (1 + x | g)", "poisson")],
)
def test_effects_have_their_law_given_parameters(formula: str, family: str) -> None:
    """Distances of distribution functions along each effect, against a fine grid."""
    call, draws = call_of(formula, family), 4000
    position = call._start.prior.start
    params = {
        name: np.repeat(value.numpy()[np.newaxis, np.newaxis], draws, 1)
        for name, value in params_at(call, position)[0].items()
    }
    sampled = call.effect_sampler(params, 5).draw("g", ["v", "s"]).effects["r_g"][0]
    (effects,) = call.data.model.effects
    q = len(effects.terms)
    nodes = 101 if q == 1 else 51
    axis = np.linspace(-4.0, 4.0, nodes)
    grid = np.stack([a.ravel() for a in np.meshgrid(*[axis] * q, indexing="ij")], 1)
    of_draw = {name: values[0, 0] for name, values in params.items()}
    rows = rows_of(call)
    arrays = {name: value[None] for name, value in of_draw.items()}
    root = call._start.root(effects, arrays)[0]
    for number, label in enumerate("vs"):
        of_group = np.flatnonzero(FRAME["g"] == label)
        own = {name: tf.gather(values, of_group) for name, values in rows.items()}
        standard = np.linalg.solve(root, grid.T).T
        heights = -0.5 * (standard**2).sum(1)
        for k, r in enumerate(grid):
            of_rows = tf.constant(np.repeat(r[np.newaxis], len(of_group), 0))
            terms = call.data.model.log_lik({**of_draw, "r_g": of_rows}, own)
            heights[k] += float(tf.reduce_sum(terms))
        masses = np.exp(heights - heights.max()).reshape([nodes] * q)
        for effect in range(q):
            others = tuple(k for k in range(q) if k != effect)
            along = np.cumsum(masses.sum(others))
            below = (sampled[:, number, effect, np.newaxis] <= axis).mean(0)
            # A node stands for half a step to each side.
            middle = (along - 0.5 * masses.sum(others)) / along[-1]
            distance = np.abs(below - middle).max()
            assert distance < 2.2 / np.sqrt(draws)


def test_terms_and_loo_without_groups() -> None:
    fit = sgmcmc.glm("count ~ x + f", FRAME, "poisson", n_iters=300, **QUIET)
    assert fit.samples["b"].shape == (4, 300, 4)
    draws = fit.samples[:3]
    x = np.column_stack(
        [np.ones(ROWS), FRAME["x"], FRAME["f"] == "b", FRAME["f"] == "c"]
    )
    eta = fit._model.coefficients(draws["b"].astype(np.float64)) @ x.T
    expected = scipy.stats.poisson.logpmf(FRAME["count"], np.exp(eta))
    np.testing.assert_allclose(draws.log_lik(), expected, rtol=1e-4, atol=1e-5)
    assert np.isfinite(fit.loo().elpd)
    again = sgmcmc.glm("count ~ x + f", FRAME, "poisson", n_iters=300, **QUIET)
    np.testing.assert_array_equal(again.samples["b"], fit.samples["b"])


@pytest.mark.parametrize(
    ("formula", "changes", "keywords"),
    [
        ("yes ~ x", {}, {"stepsize": 1e-3}),
        ("yes ~ x", {}, {"reduce": False}),
        ("yes ~ x + (1 | g) + (1 | f)", {"further": 2}, {}),
        ("yes ~ (1 + x + exposure | g)", {}, {}),
        ("yes ~ x", {"coordinates": 1}, {}),
        ("yes ~ x", {"rows": ROWS - 1}, {}),
        ("yes ~ x", {"distinct": ROWS - 1}, {}),
        ("yes ~ x + (1 | g)", {"terms": ROWS - 1}, {}),
        ("yes ~ x", {"effective": 1e9}, {}),
        ("yes ~ x + (1 | g)", {"error": 1e-30}, {}),
        ("yes ~ x + (1 | g)", {"largest_error": 1e-30}, {}),
        ("yes ~ x + (1 | g)", {"most_terms": ROWS}, {}),
    ],
)
def test_what_a_chain_does(
    monkeypatch: pytest.MonkeyPatch,
    formula: str,
    changes: dict[str, Any],
    keywords: dict[str, Any],
) -> None:
    def sample(**arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(seams.REGRESSION_SAMPLE, sample)
    constants = seams.changed(seams.REGRESSION_FEW_ROWS, **changes)
    monkeypatch.setattr(seams.REGRESSION_FEW_ROWS, constants)
    with pytest.raises(KeyboardInterrupt):
        sgmcmc.glm(formula, FRAME, "bernoulli", **keywords, **QUIET)


def test_a_chain_has_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = []

    def sample(**arguments: Any) -> None:
        seconds.append(arguments["max_seconds"])
        raise KeyboardInterrupt

    monkeypatch.setattr(seams.REGRESSION_SAMPLE, sample)
    constants = seams.changed(seams.REGRESSION_FEW_ROWS, effective=1e9)
    monkeypatch.setattr(seams.REGRESSION_FEW_ROWS, constants)
    for limit in (30, 1e-3):
        with pytest.raises(KeyboardInterrupt):
            sgmcmc.glm("yes ~ x", FRAME, "bernoulli", max_seconds=limit, **QUIET)
    assert 0.0 < seconds[0] < 30.0 and seconds[1] == 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("yes ~ x + f", "bernoulli"),
        ("count ~ x", "negative_binomial"),
        ("real ~ x", "student"),
        ("yes ~ x + (1 | g)", "bernoulli"),
        ("successes | trials(trials) ~ x + (1 | g)", "binomial"),
        ("count ~ x + (1 + x | g)", "poisson"),
    ],
)
def test_draws_have_the_posterior_of_a_chain(formula: str, family: str) -> None:
    need_posterior_of_chain(formula, FRAME, family)
