"""Regressions of few rows with several factors, by slices of scales and moves of effects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy.special import logsumexp

import sgmcmc
from sgmcmc.reduce.hamiltonian import HamiltonianMoves
from sgmcmc.regression.building import RegressionData, make_model
from sgmcmc.regression.compiled_density import CompiledDensity
from sgmcmc.regression.families import read_family
from sgmcmc.regression.few_rows import FewRowsCall, is_small
from sgmcmc.regression.formula import parse
from sgmcmc.regression.laplace import LaplaceCoordinates
from tests.regression.beside_chains import need_posterior_of_chain

QUIET: dict[str, Any] = {"seed": 1, "verbose": False}
SUBJECTS, ITEMS = 12, 7


def frame_of() -> pd.DataFrame:
    """Return crossed and nested factors, and responses."""
    rng = np.random.default_rng(5)
    subject = np.repeat(np.arange(SUBJECTS), ITEMS)
    item = np.tile(np.arange(ITEMS), SUBJECTS)
    x = rng.normal(size=len(item))
    eta = 0.2 + 0.6 * x + 0.8 * rng.normal(size=SUBJECTS)[subject]
    eta += 0.6 * rng.normal(size=ITEMS)[item]
    return pd.DataFrame(
        {
            "x": x,
            "subject": [f"s{k}" for k in subject],
            "item": [f"i{k}" for k in item],
            "school": [f"c{k // 4}" for k in subject],
            "yes": rng.random(len(x)) < 1.0 / (1.0 + np.exp(-eta)),
            "count": rng.poisson(np.exp(eta)),
        }
    )


FRAME = frame_of()


def call_of(formula: str, family: str) -> FewRowsCall:
    model, y = make_model(parse(formula), FRAME, read_family(family, None), None)
    data = RegressionData(model, y, FRAME, None, np.dtype(np.float64))
    assert is_small(data, {})
    return FewRowsCall(data, {"verbose": False})


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("yes ~ x + (1 | subject) + (1 + x | item)", "bernoulli"),
        ("count ~ x + (1 | subject) + (1 | school)", "negative_binomial"),
    ],
)
def test_the_density_with_effects_of_further_factors(formula: str, family: str) -> None:
    """A sum over a fine grid of the effects that are integrated out has the same value."""
    call = call_of(formula, family)
    density, model = call._start, call.data.model
    further = density.further
    assert further is not None and density.groups is not None
    assert density.groups.effects.by == "subject"
    rng = np.random.default_rng(2)
    d = len(density.prior.start)
    start = np.append(density.prior.start, np.zeros(further.size))
    position = start + 0.3 * rng.normal(size=call.size)
    prior, params = density.prior.at(tf.constant(position[:d]))
    params = {**params, **further.layout.split(tf.constant(position[d:]))}
    dataset = call.data.arguments()["dataset"]
    rows = {
        name: tf.constant(values)
        for name, values in dataset.items()
        if np.asarray(values).dtype.kind in "fi"
    }
    expected, of_rows = float(prior), dict(params)
    for effects, _ in further.factors:
        name = effects.effects_name
        expected += float(tf.reduce_sum(effects.log_density(params, params)))
        codes = pd.factorize(FRAME[effects.by], sort=True)[0]
        of_rows[name] = tf.gather(params[name], codes)
    own, name = pd.factorize(FRAME["subject"], sort=True)[0], "r_subject"
    sd = float(params["sd_subject"][0])
    axis = np.linspace(-8.0, 8.0, 401)
    heights = np.zeros((len(axis), SUBJECTS))
    for k, u in enumerate(axis):
        effect = tf.fill([len(FRAME), 1], tf.constant(sd * u, tf.float64))
        terms = model.log_lik({**of_rows, name: effect}, rows)
        heights[k] = np.bincount(own, terms.numpy(), SUBJECTS)
    normal = -0.5 * axis**2 + np.log((axis[1] - axis[0]) / np.sqrt(2.0 * np.pi))
    expected += logsumexp(heights + normal[:, np.newaxis], axis=0).sum()
    fine = replace(density, nodes=61)
    np.testing.assert_allclose(fine(position[np.newaxis])[0], expected, atol=1e-5)


@pytest.fixture(scope="module")
def crossed() -> FewRowsCall:
    return call_of("yes ~ x + (1 | subject) + (1 + x | item)", "bernoulli")


@pytest.fixture(scope="module")
def coordinates(crossed: FewRowsCall) -> LaplaceCoordinates:
    return LaplaceCoordinates.of(crossed._start)


def test_the_compiled_density_and_its_gradient(crossed: FewRowsCall) -> None:
    density = crossed._compared.target.density
    compiled = CompiledDensity(density)
    assert density.rule is not None
    rng = np.random.default_rng(1)
    positions = density.rule.center + 0.2 * rng.normal(size=(6, crossed.size))
    values, gradients = compiled.with_gradient(positions)
    np.testing.assert_allclose(values, density(positions), rtol=1e-12)
    np.testing.assert_allclose(compiled(positions), values, rtol=1e-12)
    step = 1e-5
    for k in range(crossed.size):
        along = step * np.eye(crossed.size)[k]
        change = density(positions + along) - density(positions - along)
        np.testing.assert_allclose(gradients[:, k], change / (2 * step), atol=1e-6)


def test_coordinates_are_one_to_one_with_their_jacobian(
    crossed: FewRowsCall, coordinates: LaplaceCoordinates
) -> None:
    k = len(coordinates.scales.mean)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, crossed.size))
    x[:, :k] = coordinates.scales.positions(0.7 * x[:, :k])
    steps = 1e-5 * np.eye(crossed.size)
    logs = []
    for point in x:
        above = coordinates.positions(point + steps)
        below = coordinates.positions(point - steps)
        logs.append(np.linalg.slogdet((above - below) / 2e-5)[1])
    logs = np.array(logs) - coordinates.log_jacobian(x)
    np.testing.assert_allclose(logs, logs[0], atol=1e-7)
    gradient = rng.normal(size=x.shape)
    slopes = [
        (coordinates.positions(x + step) - coordinates.positions(x - step)) / 2e-5
        for step in steps[k:]
    ]
    expected = np.stack([(slope * gradient).sum(1) for slope in slopes], 1)
    np.testing.assert_allclose(coordinates.along(x, gradient), expected, atol=1e-7)


def test_coordinates_follow_the_mode_and_its_precision(
    crossed: FewRowsCall, coordinates: LaplaceCoordinates
) -> None:
    """The mode to first order in the scales; given one, its precision to second order.

    A step of Newton that would gain g less changes no coordinate by more than √(2g) SDs.
    """
    modes, center = coordinates.modes, coordinates.scales.mean
    w = modes.at(center).w

    def at(scales: np.ndarray, v: np.ndarray) -> np.ndarray:
        x = np.append(scales, v)[np.newaxis]
        position = coordinates.positions(x)[0]
        d, of_b = len(crossed._start.prior.start), modes.of_b
        return np.append(position[of_b], position[d:])

    none = np.zeros(coordinates.size)
    np.testing.assert_allclose(at(center, none), w, atol=np.sqrt(2e-7))
    for step in 0.02 * np.eye(len(center)):
        moved = (modes.at(center + step).w - modes.at(center - step).w) / 0.04
        slope = (at(center + step, none) - at(center - step, none)) / 0.04
        # Of differences of modes: two such errors over the step.
        np.testing.assert_allclose(slope, moved, atol=2 * np.sqrt(2e-7) / 0.04)
    root = np.stack([at(center, v) - w for v in np.eye(coordinates.size)], 1)
    precision = modes.at(center).root
    expected = np.linalg.inv(precision @ precision.T)
    # That at a mode which is off by as much.
    np.testing.assert_allclose(root @ root.T, expected, atol=2 * np.sqrt(2e-7))


def test_moves_keep_a_law() -> None:
    """log v ~ log-gamma, of which E v = 1 and E v² = 2, after moves of exact draws."""
    rng = np.random.default_rng(0)
    count, size = 40_000, 3

    def slope(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = x[:, 1:] + x[:, :1]
        return (y - np.exp(y)).sum(1), 1.0 - np.exp(y)

    moves = HamiltonianMoves(slope, size)
    moves.stepsize = 0.9
    moves.end_tuning()
    first = rng.normal(size=(count, 1))
    x = np.concatenate([first, np.log(rng.exponential(size=(count, size))) - first], 1)
    start = x.copy()
    for _ in range(4):
        before = slope(x)[0]
        x, change = moves(
            x, rng.normal(size=(count, size)), rng.uniform(size=(count, 2))
        )
        np.testing.assert_allclose(slope(x)[0], before + change, atol=1e-9)
    np.testing.assert_array_equal(x[:, :1], first)
    assert 0.5 < (x != start)[:, 1:].mean() and moves.stepsize == 0.9
    v = np.exp(x[:, 1:] + first)
    assert (np.abs(v.mean(0) - 1.0) < 4.5 / np.sqrt(count)).all()
    assert (np.abs((v**2).mean(0) - 2.0) < 4.5 * np.sqrt(20.0 / count)).all()
    moved = np.corrcoef(start[:, 1] + first[:, 0], x[:, 1] + first[:, 0])[0, 1]
    assert abs(moved) < 0.2


@pytest.fixture(scope="module")
def fit() -> sgmcmc.Regression:
    return sgmcmc.glm(
        "yes ~ x + (1 | subject) + (1 | item)", FRAME, "bernoulli", **QUIET
    )


def test_what_is_done_is_in_the_report(fit: sgmcmc.Regression) -> None:
    report = fit.samples.report
    assert report is not None and report["method"] == "elliptical_slice"
    assert report["Groups"]["integrated out"] == "subject"
    assert report["Groups"]["levels of 'item'"] == ITEMS
    assert not report["Warnings"] and min(report["Draws"]["ESS, bulk"]) >= 400
    assert fit.samples["r_item"].shape[2:] == (ITEMS, 1)


def test_effects_predictions_and_files(fit: sgmcmc.Regression, tmp_path: Path) -> None:
    assert len(fit.effects("subject")) == SUBJECTS
    effects = fit.effects("item")
    draws = np.asarray(fit.samples["r_item"], np.float64)[..., 0]
    distance = np.ravel(effects["estimate"]) - draws.mean(
        (0, 1)
    )  # of part of the draws
    assert (np.abs(distance) < 4.5 * draws.std((0, 1)) / np.sqrt(400.0)).all()
    new = FRAME.iloc[:3].assign(item=["i0", "new", "i1"], subject=["s0", "s1", "new"])
    predicted = fit.predict(new)
    assert predicted.shape == (3,) and ((predicted > 0) & (predicted < 1)).all()
    fit.save(tmp_path / "fit")
    loaded = sgmcmc.Regression.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(loaded.effects("item"), effects)
    again = sgmcmc.glm(
        "yes ~ x + (1 | subject) + (1 | item)", FRAME, "bernoulli", **QUIET
    )
    np.testing.assert_array_equal(again.samples["r_item"], fit.samples["r_item"])


def test_longer_chains_begin_with_the_same_draws(fit: sgmcmc.Regression) -> None:
    more, count = fit.samples.extend(50, verbose=False), len(fit.samples["b"][0])
    assert len(more["b"][0]) == count + 50
    for name in fit.samples:
        np.testing.assert_array_equal(more[name][:, :count], fit.samples[name])


def test_scales_out_of_range_have_no_mode(crossed: FewRowsCall) -> None:
    modes = LaplaceCoordinates.of(crossed._start).modes
    start = crossed._start.prior.start[modes.of_scales]
    values = modes(np.array([start, start + 400.0, start - 400.0]))
    assert np.isfinite(values[0]) and (values[1:] < values[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("yes ~ x + (1 | subject) + (1 | item)", "bernoulli"),
        ("count ~ x + (1 | subject) + (1 | school)", "poisson"),
        ("yes ~ x + (1 | subject) + (1 + x | item)", "bernoulli"),
    ],
)
def test_draws_have_the_posterior_of_a_chain(formula: str, family: str) -> None:
    need_posterior_of_chain(formula, FRAME, family)
