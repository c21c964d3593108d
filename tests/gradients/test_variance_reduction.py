"""SVRG and SAGA: exact over all minibatches, step by step, in their laws, and however they are run.

Each statistical test fails by chance for one seed in ten thousand.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.data.dataset import Minibatch
from sgmcmc.data.reading import read_dataset
from sgmcmc.engine.runner import Runner
from sgmcmc.gradients import SAGA, SVRG, Gradient, WholeData
from sgmcmc.gradients.control_variate import CenteredState
from sgmcmc.gradients.saga import SAGAState
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from tests import seams
from tests.linear_chains import (
    DRAWS,
    GRADIENT,
    THETA,
    Array,
    Choice,
    Found,
    Line,
    Model,
    Moves,
    bound,
    choices,
    compare_line,
    flat,
    line,
    logistic,
    moved,
    over_all,
    plain_law,
    remade,
    variance,
    weights_of,
    whole,
)

ROUNDING = 1e-12

# ------------------------------------------------------------------------ over all minibatches


def each_size(function: Any) -> Any:
    """Run a test for every way of drawing, two sizes of minibatches, and one or three parameters,
    with a log-likelihood that gives its terms or their sum."""
    for name, values in {
        "draws": list(DRAWS),
        "n": [2, 3],
        "d": [1, 3],
        "summed": [False, True],
    }.items():
        function = pytest.mark.parametrize(name, values)(function)
    return function


@pytest.mark.some(8)
@each_size
def test_svrg_over_all_minibatches(draws: str, n: int, d: int, summed: bool) -> None:
    """SVRG's estimate has the full gradient as its mean and the formula's covariance."""
    model = logistic(d, 6, summed=summed)
    center = model.origin + np.linspace(0.4, -0.3, d)
    state = CenteredState(tf.constant(center), tf.constant(model.full(center)))
    found = over_all(SVRG(5), state, model, model.origin, draws, n)
    mean, covariance = found.moments()
    np.testing.assert_allclose(
        mean, model.full(model.origin), rtol=ROUNDING, atol=ROUNDING
    )
    terms = model.terms(model.origin) - model.terms(center)
    np.testing.assert_allclose(
        covariance, variance(draws, terms, n), rtol=1e-11, atol=ROUNDING
    )


def a_table(model: Model) -> Array:
    """Return gradients of the terms at positions of their own."""
    rng = np.random.default_rng(5)
    positions = model.origin + rng.normal(size=(model.size, model.origin.size))
    return np.stack([model.terms(position)[i] for i, position in enumerate(positions)])


def saga(model: Model, n: int) -> SAGA:
    """Return SAGA as it is bound."""
    return SAGA().bind(whole(model, n))


@pytest.mark.some(8)
@each_size
def test_saga_over_all_minibatches(draws: str, n: int, d: int, summed: bool) -> None:
    """SAGA's estimate has the full gradient as its mean and the formula's covariance, whatever
    its table holds."""
    model = logistic(d, 6, summed=summed)
    table = a_table(model)
    state = SAGAState(tf.constant(table), tf.constant(table.sum(0)))
    found = over_all(saga(model, n), state, model, model.origin, draws, n)
    mean, covariance = found.moments()
    np.testing.assert_allclose(
        mean, model.full(model.origin), rtol=ROUNDING, atol=ROUNDING
    )
    terms = model.terms(model.origin) - table
    np.testing.assert_allclose(
        covariance, variance(draws, terms, n), rtol=1e-11, atol=ROUNDING
    )


@pytest.mark.some(8)
@each_size
def test_sagas_table_after_a_step(draws: str, n: int, d: int, summed: bool) -> None:
    """A step replaces the rows of its minibatch and no others, and the total stays their sum, also
    where a row is drawn twice."""
    model = logistic(d, 6, summed=summed)
    table, new = a_table(model), model.terms(model.origin)
    state = SAGAState(tf.constant(table), tf.constant(table.sum(0)))
    found = over_all(saga(model, n), state, model, model.origin, draws, n)
    twice = 0
    for (_, rows, _), after in zip(found.choices, found.states, strict=True):
        kept = np.delete(np.arange(6), rows)
        np.testing.assert_array_equal(after.table.numpy()[kept], table[kept])
        np.testing.assert_allclose(after.table.numpy()[rows], new[rows], rtol=ROUNDING)
        total = after.table.numpy().sum(0)
        np.testing.assert_allclose(after.total, total, rtol=ROUNDING, atol=ROUNDING)
        twice += len(set(rows.tolist())) < n
    assert (twice > 0) == (draws != "without")


def test_saga_starts_with_all_gradients_where_the_chain_starts() -> None:
    """SAGA's table at first holds every term's gradient at the start, and their sum."""
    model = logistic(3, 6)
    state = saga(model, 2).init(whole(model, 2), model.origin)
    np.testing.assert_allclose(state.table, model.terms(model.origin), rtol=ROUNDING)
    np.testing.assert_allclose(
        state.total, model.terms(model.origin).sum(0), rtol=ROUNDING
    )


# -------------------------------------------------------------------------------- step by step


class SVRGByHand:
    """SVRG in NumPy."""

    def __init__(self, model: Model, draws: str, every: int) -> None:
        self.model, self.draws, self.every = model, draws, every
        self.refresh(model.origin)

    def refresh(self, position: Array) -> Array:
        self.center, self.exact = position, self.model.full(position)
        return self.exact

    def __call__(self, position: Array, rows: Array) -> Array:
        change = (self.model.terms(position) - self.model.terms(self.center))[rows]
        prior = self.model.prior(position) - self.model.prior(self.center)
        return (
            self.exact + prior + weights_of(self.draws, self.model.size, rows) @ change
        )


class SAGAByHand:
    """SAGA in NumPy."""

    every = 10**9

    def __init__(self, model: Model, draws: str) -> None:
        self.model, self.draws = model, draws
        self.table = model.terms(model.origin)

    def __call__(self, position: Array, rows: Array) -> Array:
        terms, total = self.model.terms(position), self.table.sum(0)
        change = terms[rows] - self.table[rows]
        self.table[rows] = terms[rows]
        weights = weights_of(self.draws, self.model.size, rows)
        return self.model.prior(position) + total + weights @ change


ALPHA, STEPSIZE, ITERATIONS, STEPS = 0.3, 0.02, 40, 3


def by_hand(
    dynamics: str, estimate: Any, model: Model, draws: str, n: int, length: int
) -> tuple[Array, Array]:
    """Return the draws and the gradients at them of a chain that is remade in NumPy."""
    steps, vectors = (1, 1) if dynamics == "sgld" else (STEPS, 1 + STEPS)
    numbers = remade(
        model,
        draws,
        n,
        vectors=vectors,
        steps=steps,
        iterations=ITERATIONS,
        length=length,
    )
    theta, rows = model.origin, iter(numbers.rows)
    g, decay = estimate(theta, numbers.start_rows), np.exp(-ALPHA)
    found, gradients = [], []
    for i, normals in enumerate(numbers.noise):
        if i and i % estimate.every == 0:
            g = estimate.refresh(theta)
        if dynamics == "sgld":
            theta = theta + STEPSIZE / 2 * g + np.sqrt(STEPSIZE) * normals[0]
            g = estimate(theta, next(rows))
        else:
            nu = np.sqrt(STEPSIZE) * normals[0]
            for zeta in normals[1:]:
                nu = nu + STEPSIZE / 2 * g
                theta = theta + nu / 2
                nu = decay * nu + np.sqrt(STEPSIZE * (1 - decay**2)) * zeta
                theta = theta + nu / 2
                g = estimate(theta, next(rows))
                nu = nu + STEPSIZE / 2 * g
        found.append(theta)
        gradients.append(g)
    return np.array(found), np.array(gradients)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("draws", "jit_compile"),
    [
        *[(draws, True) for draws in DRAWS],
        ("without", False),
        *[
            pytest.param(draws, False, marks=pytest.mark.slow)
            for draws in ("with", "weighted")
        ],
    ],
)
@pytest.mark.parametrize("dynamics", ["sgld", "sghmc"])
@pytest.mark.parametrize("method", ["svrg", "saga"])
def test_step_by_step(
    method: str,
    dynamics: str,
    draws: str,
    jit_compile: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forty iterations are those of a transcription in NumPy, over three blocks and refreshes
    that do not fall on their ends."""
    length, n = 16, 2
    monkeypatch.setattr(seams.LONGEST_BLOCK, length)
    model = logistic(3, 6)
    hand = SVRGByHand(model, draws, 7) if method == "svrg" else SAGAByHand(model, draws)
    expected, gradients = by_hand(dynamics, hand, model, draws, n, length)
    chain = model.chain(
        dynamics="sgld" if dynamics == "sgld" else sgmcmc.dynamics.SGHMC(ALPHA, STEPS),
        gradient=SVRG(every=7) if method == "svrg" else SAGA(),
        minibatches=DRAWS[draws],
        minibatch_size=n,
        stepsize=STEPSIZE,
        n_iters=ITERATIONS,
        store_gradients=True,
        jit_compile=jit_compile,
    )
    np.testing.assert_allclose(flat(chain), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(flat(chain.gradients), gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_the_center_moves_to_the_present_position_and_the_gradient_there_is_exact() -> (
    None
):
    """Every m iterations SVRG is centered where the chain is and its next step takes the exact
    gradient there."""
    model, m = logistic(3, 6), 5
    sampler = model.stepwise(gradient=SVRG(every=m), minibatch_size=2)
    session = sgmcmc.init_sess(sampler)
    runner = session._runners[0]
    center = model.origin
    for i in range(23):
        before = runner.position()
        sgmcmc.sgmcmc_step(sampler, session)
        if i % m == 0:
            center = before
        state = runner.carry.estimator
        np.testing.assert_array_equal(state.center, center)
        np.testing.assert_allclose(
            state.full_gradient, model.full(center), rtol=ROUNDING
        )


@pytest.mark.parametrize(("size", "n", "every"), [(6, 2, 3), (7, 2, 4), (6, 6, 1)])
def test_svrg_refreshes_once_a_pass_unless_told(size: int, n: int, every: int) -> None:
    """Without a number SVRG takes the full gradient every N/n iterations."""
    model = logistic(1, size)
    assert SVRG().refresh_every(whole(model, n)) == every


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize(("size", "n", "every"), [(7, 2, 4), (6, 2, 3), (6, 6, 1)])
def test_svrg_draws_the_same_with_that_number(size: int, n: int, every: int) -> None:
    model = logistic(1, size)
    draws = [
        flat(model.chain(gradient=gradient, minibatch_size=n))
        for gradient in ("svrg", SVRG(every))
    ]
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("every", [0, -1, 2.5, "5", True])
def test_a_wrong_every_is_refused(every: Any) -> None:
    """SVRG refuses what is no positive whole number and names the argument."""
    with pytest.raises((ValueError, TypeError), match="every"):
        logistic(1, 6).chain(gradient=SVRG(every), minibatch_size=2)


def test_the_total_is_summed_anew_before_rounding_adds_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SAGA's total stays the sum of its table over thousands of steps in float32."""
    model = logistic(3, 6)
    sampler = model.stepwise(gradient="saga", minibatch_size=2, dtype=tf.float32)
    session = sgmcmc.init_sess(sampler)
    every = SAGA().refresh_every(whole(model, 2))
    assert every == 30
    sgmcmc.sgmcmc_step(sampler, session, 100 * every + 1)
    state = session._runners[0].carry.estimator
    total = state.table.numpy().sum(0, dtype=np.float64)
    scale = np.abs(state.table.numpy()).sum(0)
    assert (np.abs(state.total - total) < 4 * np.finfo(np.float32).eps * scale).all()


# ------------------------------------------------------------------------------ stationary laws

CENTRE, MOMENTUM = 3, 4
"""Places in z = (1, θ, ĝ, θ̃, ν) of SVRG; SAGA's table of positions begins at the third."""


def svrg_law(problem: Line, draws: str, n: int, m: int, stepsize: float) -> Array:
    """Return E[z zᵀ] of SGLD with SVRG in its stationary state, averaged over a period."""
    h, K, prior, H = *problem[1:], problem.total

    def drift(z: Array) -> None:
        z[THETA] += stepsize / 2 * z[GRADIENT]

    def estimate(choice: Choice) -> Callable[[Array], Array]:
        slope = prior + choice.weights @ K[choice.rows]

        def change(z: Array) -> None:
            z[GRADIENT] = (
                h.sum() * z[0] - H * z[CENTRE] - slope * (z[THETA] - z[CENTRE])
            )

        return moved(change)

    def refresh(z: Array) -> None:
        z[CENTRE] = z[THETA]
        z[GRADIENT] = h.sum() * z[0] - H * z[THETA]

    one = Moves(4).then([(1.0, moved(drift))]).noise(THETA, stepsize)
    one = one.then([(c.chance, estimate(c)) for c in choices(draws, len(h), n)])
    fresh = Moves(4).then([(1.0, moved(refresh))])
    second = fresh(fresh.before(one.repeated(m)).stationary())
    total = np.zeros((4, 4))
    for _ in range(m):
        second = one(second)
        total += second / m
    return total


def saga_law(
    problem: Line, draws: str, n: int, stepsize: float, *, replaced: bool = True
) -> Array:
    """Return E[z zᵀ] of SGLD with SAGA, z = (1, θ, ĝ, φ₁, …, φ_N).

    Term i was last seen at φ_i. ``replaced=False`` is a wrong law, whose table stays as it was at
    the start.
    """
    h, K, prior, _ = *problem[1:], problem.total
    N = len(h)

    def drift(z: Array) -> None:
        z[THETA] += stepsize / 2 * z[GRADIENT]

    def estimate(choice: Choice) -> Callable[[Array], Array]:
        def change(z: Array) -> None:
            table = z[3:]
            change = K[choice.rows] * (z[THETA] - table[choice.rows])
            z[GRADIENT] = (
                -prior * z[THETA] + h.sum() * z[0] - K @ table - choice.weights @ change
            )
            if replaced:
                table[choice.rows] = z[THETA]
            else:
                table[:] = problem.model.origin[0] * z[0]

        return moved(change)

    one = Moves(3 + N).then([(1.0, moved(drift))]).noise(THETA, stepsize)
    return one.then(
        [(c.chance, estimate(c)) for c in choices(draws, N, n)]
    ).stationary()


def sghmc_svrg_law(
    problem: Line, draws: str, n: int, m: int, stepsize: float, alpha: float, L: int
) -> Array:
    """Return E[z zᵀ] of SGHMC with SVRG, averaged over a period of m iterations."""
    h, K, prior, H = *problem[1:], problem.total
    c = np.exp(-alpha)

    def forget(z: Array) -> None:
        z[MOMENTUM] = 0.0

    def before_noise(z: Array) -> None:
        z[MOMENTUM] += stepsize / 2 * z[GRADIENT]
        z[THETA] += z[MOMENTUM] / 2
        z[MOMENTUM] *= c

    def after_noise(z: Array) -> None:
        z[THETA] += z[MOMENTUM] / 2

    def estimate(choice: Choice) -> Callable[[Array], Array]:
        slope = prior + choice.weights @ K[choice.rows]

        def change(z: Array) -> None:
            z[GRADIENT] = (
                h.sum() * z[0] - H * z[CENTRE] - slope * (z[THETA] - z[CENTRE])
            )
            z[MOMENTUM] += stepsize / 2 * z[GRADIENT]

        return moved(change)

    def refresh(z: Array) -> None:
        z[CENTRE] = z[THETA]
        z[GRADIENT] = h.sum() * z[0] - H * z[THETA]

    step = (
        Moves(5)
        .then([(1.0, moved(before_noise))])
        .noise(MOMENTUM, stepsize * (1 - c**2))
    )
    step = step.then([(1.0, moved(after_noise))])
    step = step.then(
        [(each.chance, estimate(each)) for each in choices(draws, len(h), n)]
    )
    one = (
        Moves(5)
        .then([(1.0, moved(forget))])
        .noise(MOMENTUM, stepsize)
        .before(step.repeated(L))
    )
    fresh = Moves(5).then([(1.0, moved(refresh))])
    second = fresh(fresh.before(one.repeated(m)).stationary())
    total = np.zeros((5, 5))
    for _ in range(m):
        second = one(second)
        total += second / m
    return total


CHAINS = 64
LARGE_STEPS = {"without": 0.15, "with": 0.15, "weighted": 0.08}
"""Stepsizes at which minibatches weigh: more would make a chain explode."""


def many(
    problem: Line, n: int, stepsize: float, draws: str, n_iters: int, **given: Any
) -> Array:
    """Return draws of many chains, (chains, draws), past a burn-in of 200."""
    samples = problem.model.chain(
        n_chains=CHAINS,
        minibatch_size=n,
        stepsize=stepsize,
        minibatches=DRAWS[draws],
        n_iters=n_iters,
        burn_in=200,
        **given,
    )
    return samples["theta"]


def check(found: Found) -> None:
    """Assert that draws agree with a law, and that they are enough to tell."""
    assert found.precision < 0.015, "the run is too short to tell"
    assert found.accepts, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draws", "m"), [("without", 40), *((draws, 10) for draws in DRAWS)]
)
def test_stationary_law_of_svrg(draws: str, m: int) -> None:
    """The variance of SGLD with SVRG is that of its own second moment equation, and not that of
    plain minibatches or of exact gradients."""
    problem, n, stepsize = line(6), 2, LARGE_STEPS[draws]
    found = many(
        problem, n, stepsize, draws, 900 if m == 40 else 1500, gradient=SVRG(m)
    )
    law = svrg_law(problem, draws, n, m, stepsize)
    check(compare_line(found, law))
    assert not compare_line(found, plain_law(problem, draws, n, stepsize)).accepts
    assert not compare_line(found, svrg_law(problem, draws, n, 1, stepsize)).accepts


@pytest.mark.slow
@pytest.mark.parametrize("draws", list(DRAWS))
def test_stationary_law_of_saga(draws: str) -> None:
    """The variance of SGLD with SAGA is that of its own second moment equation, and not that of
    plain minibatches or of a table that is never replaced."""
    problem, n, stepsize = line(6), 2, LARGE_STEPS[draws]
    found = many(problem, n, stepsize, draws, 1500, gradient="saga")
    check(compare_line(found, saga_law(problem, draws, n, stepsize)))
    assert not compare_line(found, plain_law(problem, draws, n, stepsize)).accepts
    frozen = saga_law(problem, draws, n, stepsize, replaced=False)
    assert not compare_line(found, frozen).accepts


@pytest.mark.slow
def test_stationary_law_of_sghmc_with_svrg() -> None:
    """The variance of SGHMC with SVRG is that of its own second moment equation."""
    problem, n, m, stepsize, alpha = line(6), 2, 10, 0.05, 0.4
    dynamics = sgmcmc.dynamics.SGHMC(alpha, 3)
    given = {"dynamics": dynamics, "gradient": SVRG(m)}
    found = many(problem, n, stepsize, "without", 1500, **given)
    law = sghmc_svrg_law(problem, "without", n, m, stepsize, alpha, 3)
    check(compare_line(found, law))
    exact = sghmc_svrg_law(problem, "without", 6, m, stepsize, alpha, 3)
    assert not compare_line(found, exact).accepts


# --------------------------------------------------------------------- however a chain is run

BOTH = pytest.mark.parametrize("gradient", [SVRG(7), SAGA()], ids=["svrg", "saga"])
SAGA_FIRST = pytest.mark.parametrize(
    "gradient",
    [
        pytest.param(SVRG(7), id="svrg", marks=pytest.mark.slow),
        pytest.param(SAGA(), id="saga"),
    ],
)
"""SAGA, whose state holds more, by default; SVRG among the slow."""
MODEL = logistic(3, 24)


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks 16 iterations long, and save after each."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, 16)
    monkeypatch.setattr(seams.SAVE_EVERY, 0.0)


def run(gradient: Gradient, **given: Any) -> sgmcmc.Samples:
    """Run a short chain that comes by several refreshes."""
    keeps = {
        "minibatch_size": 4, "n_iters": 150, "store_gradients": True, "jit_compile": False, **given
    }  # fmt: skip
    return MODEL.chain(gradient=gradient, **keeps)


def same(one: sgmcmc.Samples, other: sgmcmc.Samples) -> None:
    """Assert that draws, gradients and log posterior estimates are the same bit for bit."""
    for name in other:
        np.testing.assert_array_equal(one[name], other[name])
        assert one.gradients is not None and other.gradients is not None
        np.testing.assert_array_equal(one.gradients[name], other.gradients[name])
    np.testing.assert_array_equal(one.log_post.iterations, other.log_post.iterations)
    np.testing.assert_array_equal(one.log_post.values, other.log_post.values)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("dynamics", ["sgld", "sghmc"])
def test_step_by_step_in_uneven_portions(
    gradient: Gradient, dynamics: str, short_blocks: None
) -> None:
    """A session stepped in portions that cross blocks and refreshes gives the draws of one call."""
    expected = flat(run(gradient, dynamics=dynamics))
    sampler = MODEL.stepwise(
        gradient=gradient, minibatch_size=4, dynamics=dynamics, jit_compile=False
    )
    session, done = sgmcmc.init_sess(sampler), 0
    for steps in (1, 5, 1, 14, 3, 20, 35, 1, 40, 30):
        sgmcmc.sgmcmc_step(sampler, session, steps)
        done += steps
        params = sgmcmc.get_params(sampler, session)
        np.testing.assert_allclose(
            flat(params, 0), expected[done - 1], rtol=1e-9, atol=1e-9
        )
    assert done == 150


@pytest.mark.slow
@SAGA_FIRST
@pytest.mark.parametrize(
    "at",
    [
        pytest.param(6, marks=pytest.mark.slow),
        7,
        pytest.param(20, marks=pytest.mark.slow),
    ],
)
def test_a_session_that_was_saved_goes_on_with_the_same_bits(
    gradient: Gradient, at: int, tmp_path: Path, short_blocks: None
) -> None:
    """A session saved before, at and after a refresh and restored ends as one never saved."""

    def ends(restored: bool) -> dict[str, Array]:
        given = {
            "gradient": gradient,
            "minibatch_size": 4,
            "n_chains": 2,
            "jit_compile": False,
        }
        sampler = MODEL.stepwise(**given)
        session = sgmcmc.init_sess(sampler)
        sgmcmc.sgmcmc_step(sampler, session, at)
        if restored:
            session.save(tmp_path / "session.npz")
            sampler = MODEL.stepwise(**given)
            session = sgmcmc.init_sess(sampler, restore=tmp_path / "session.npz")
        sgmcmc.sgmcmc_step(sampler, session, 90)
        return sgmcmc.get_params(sampler, session)

    found, expected = ends(True), ends(False)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


class StopError(Exception):
    """In place of a kill."""


@pytest.mark.some(1)
@BOTH
@pytest.mark.parametrize(
    ("blocks", "large"),
    [
        pytest.param(0, 2**20, marks=pytest.mark.slow),
        (2, 2**20),
        pytest.param(1, 128, marks=pytest.mark.slow),
        (9, 128),
    ],
)
def test_a_stopped_run_goes_on_with_the_same_bits(
    gradient: Gradient,
    blocks: int,
    large: int,
    tmp_path: Path,
    short_blocks: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run with a store that fails after some blocks and is called again ends as one that never
    failed, with the table in the checkpoint or in files of its own."""
    monkeypatch.setattr(seams.LARGE_BYTES, large)
    monkeypatch.setattr(seams.LARGE_SHARE, 1e9)
    given: dict[str, Any] = {"n_chains": 2, "burn_in": 10, "thin": 3}
    expected = run(gradient, **given)
    keep, count = Runner._keep, 0

    def failing(self: Runner, *arguments: Any) -> None:
        nonlocal count
        keep(self, *arguments)
        count += 1
        if count > blocks:
            raise StopError

    monkeypatch.setattr(seams.RUNNER_KEEP, failing)
    store = tmp_path / "chain"
    with pytest.raises(StopError):
        run(gradient, **given, store=store)
    monkeypatch.setattr(seams.RUNNER_KEEP, keep)
    tables = {path.name for path in store.iterdir() if "large" in path.name}
    assert bool(tables) == (large == 128 and isinstance(gradient, SAGA))
    same(run(gradient, **given, store=store), expected)
    same(sgmcmc.Samples.open(store), expected)


CHILD = """
import sys
sys.path.insert(0, {root!r})
import sgmcmc.engine.kernel, sgmcmc.run.checkpoints
sgmcmc.engine.kernel.LONGEST_BLOCK = 16
sgmcmc.run.checkpoints.SAVE_EVERY = 0.001
sgmcmc.run.checkpoints.LARGE_BYTES = 256
from tests.gradients.test_variance_reduction import SAGA, SVRG, run
print("ready", flush=True)
run({gradient!r}, store={store!r}, n_iters=6000)
print("done", flush=True)
"""


@BOTH
@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_run_goes_on_with_the_same_bits(
    gradient: Gradient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process killed in the middle of a run with a store leaves what the same call ends as if
    nothing had happened."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, 16)
    store, root = tmp_path / "chain", str(Path(__file__).parents[2])
    script = CHILD.format(root=root, gradient=gradient, store=str(store))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    killed = 0
    for attempt in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            before = list(store.glob("*chain*")) if store.exists() else []
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and child.poll() is None:
                if len(list(store.glob("*chain*"))) > len(before) or attempt:
                    break
                time.sleep(0.01)
            time.sleep(0.1 + 1.5 * attempt)
            child.send_signal(signal.SIGKILL)
            killed += child.stdout.read() != "done\n"
    assert killed
    same(run(gradient, store=store, n_iters=6000), run(gradient, n_iters=6000))


@pytest.mark.slow
@BOTH
def test_a_chain_does_not_depend_on_how_many_there_are(
    gradient: Gradient, short_blocks: None
) -> None:
    """Chain c is the same among two chains as among three, and the first as it is alone."""
    one, two, three = (flat(run(gradient, n_chains=k), 2) for k in (1, 2, 3))
    np.testing.assert_allclose(one[0], flat(run(gradient)), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(two[:1], one, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(three[:2], two)
    assert (three[2] != three[1]).all()


@pytest.mark.slow
@BOTH
def test_burn_in_and_thin_are_dropping_and_slicing(
    gradient: Gradient, short_blocks: None
) -> None:
    """Draw i is the state after iteration burn_in + (i + 1) thin."""
    thinned = run(gradient, burn_in=31, thin=4, n_iters=119)
    expected = run(gradient)
    for found, full in ((thinned, expected), (thinned.gradients, expected.gradients)):
        assert found is not None and full is not None
        kept = flat(full)[34::4]
        np.testing.assert_allclose(flat(found), kept, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@BOTH
def test_the_whole_dataset_as_a_minibatch_gives_the_exact_gradient(
    gradient: Gradient,
) -> None:
    """With n = N the chain is that of the full gradient."""
    found = run(gradient, minibatch_size=MODEL.size)
    expected = run("full", minibatch_size=None)
    np.testing.assert_allclose(flat(found), flat(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@BOTH
def test_other_constants_are_another_run_to_a_store(
    gradient: Gradient, tmp_path: Path
) -> None:
    """A store of one estimator is refused for another, and SVRG's for another number."""
    run(gradient, store=tmp_path / "chain")
    other = SVRG(8) if isinstance(gradient, SVRG) else SVRG(7)
    with pytest.raises(ValueError, match="store"):
        run(other, store=tmp_path / "chain")


@pytest.mark.slow
def test_divergence_is_told() -> None:
    """A chain that explodes under SVRG or SAGA raises the error that names the iterations."""
    for gradient in (SVRG(7), SAGA()):
        with pytest.raises(sgmcmc.DivergenceError, match="stepsize"):
            line(6).model.chain(
                gradient=gradient, minibatch_size=2, stepsize=30.0, n_iters=4000
            )


# ------------------------------------------------------------------------ the table, and models


@pytest.mark.slow
def test_the_table_has_no_columns_for_parameters_in_the_prior_alone() -> None:
    """SAGA's table holds the coordinates on which the log-likelihood depends, wherever they lie,
    and the chain is still that of the transcription."""
    model = logistic(3, 6)
    shapes = {"before": (2,), "bias": (), "between": (), "beta": (2,), "after": (3, 1)}
    used = [2, 4, 5]

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        return model.log_lik({name: params[name] for name in ("bias", "beta")}, data)

    def log_prior(params: Any) -> tf.Tensor:
        return -0.7 * tf.add_n([tf.reduce_sum(part**2) for part in params.values()])

    def terms(position: Array) -> Array:
        table = np.zeros((6, 9))
        table[:, used] = model.terms(position[used])
        return table

    start = {name: np.full(shape, 0.3) for name, shape in shapes.items()}
    larger = Model(
        log_lik, log_prior, model.data, start, terms, lambda position: -1.4 * position
    )
    sampler = larger.stepwise(gradient="saga", minibatch_size=2)
    state = sgmcmc.init_sess(sampler)._runners[0].carry.estimator
    assert state.table.shape == (6, 3) and state.total.shape == (3,)
    expected, gradients = by_hand(
        "sgld", SAGAByHand(larger, "with"), larger, "with", 2, 4096
    )
    chain = larger.chain(
        gradient="saga",
        minibatches="replacement",
        minibatch_size=2,
        stepsize=STEPSIZE,
        store_gradients=True,
    )
    np.testing.assert_allclose(flat(chain), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(flat(chain.gradients), gradients, rtol=1e-10, atol=1e-10)


def test_the_table_is_not_copied_at_every_step() -> None:
    """The compiled loop writes the rows of SAGA's table where they lie: it copies the table once,
    as the loop begins, and never in it."""
    model, n, steps = logistic(3, 600), 5, 10
    estimator, target = saga(model, n), whole(model, n).target
    columns = {
        name: tf.constant(array[: n * steps]) for name, array in model.data.items()
    }
    block = {
        name: tf.reshape(a, [steps, n, *a.shape[1:]]) for name, a in columns.items()
    }
    rows = tf.reshape(tf.range(n * steps), [steps, n])

    def loop(state: SAGAState, position: tf.Tensor, block: Any, rows: tf.Tensor) -> Any:
        def step(i: tf.Tensor, state: SAGAState, position: tf.Tensor) -> Any:
            columns = {name: tf.gather(a, i) for name, a in block.items()}
            minibatch = Minibatch(columns, 600 / n, tf.gather(rows, i))
            g, state = estimator.estimate(target, state, position, minibatch, minibatch)
            return i + 1, state, position + 1e-3 * g

        return tf.while_loop(
            lambda i, *_: i < steps, step, (tf.constant(0), state, position)
        )

    state = estimator.init(whole(model, n), model.origin)
    given = (state, tf.constant(model.origin), block, rows)
    compiled = tf.function(loop, jit_compile=True, autograph=False)
    text = compiled.experimental_get_compiler_ir(*given)(stage="optimized_hlo")
    copies = [
        line
        for line in text.splitlines()
        if re.search(r"= f64\[600,3\]\S* copy\(", line)
    ]
    assert len(copies) <= 1, copies


def test_a_table_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """SAGA refuses a table that is too large for the memory there is, and says how large it is."""
    needed = 2 * 24 * 3 * 8
    monkeypatch.setattr(seams.AVAILABLE_BYTES, lambda: 3 * needed - 1)
    with pytest.raises(
        MemoryError, match=rf"`gradient`.* {needed:,} bytes .*2 chains.*SVRG"
    ):
        run(SAGA(), n_chains=2)
    monkeypatch.setattr(seams.AVAILABLE_BYTES, lambda: 3 * needed)
    run(SAGA(), n_chains=2, n_iters=3)


@pytest.mark.slow
@pytest.mark.some(1)
@BOTH
def test_bijectors_are_a_change_of_parameters(gradient: Gradient) -> None:
    """A positive parameter behind a bijector moves as its logarithm does that a user writes out,
    with the Jacobian."""
    x = np.random.default_rng(3).normal(0.0, 1.5, 20)

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        scale = params["scale"]
        return -0.5 * (data["x"] / scale) ** 2 - tf.math.log(scale)

    def log_prior(params: Any) -> tf.Tensor:
        return -params["scale"]

    given: dict[str, Any] = {
        "dynamics": "sgld",
        "gradient": gradient,
        "minibatches": "uniform",
        "minibatch_size": 3,
        "preconditioner": "none",
        "stepsize": 0.02,
        "n_chains": None,
        "n_iters": 60,
        "burn_in": 0,
        "seed": 1,
        "verbose": False,
        "dtype": tf.float64,
        "store_gradients": True,
        "jit_compile": False,
    }
    exp = tfp.bijectors.Exp()
    found = sgmcmc.sample(
        log_lik, {"x": x}, {"scale": 2.0}, log_prior, bijectors={"scale": exp}, **given
    )
    expected = sgmcmc.sample(
        lambda params, data: log_lik({"scale": tf.exp(params["log"])}, data),
        {"x": x},
        {"log": np.log(2.0)},
        lambda params: -tf.exp(params["log"]) + params["log"],
        **given,
    )
    np.testing.assert_allclose(found["scale"], np.exp(expected["log"]), rtol=1e-9)
    assert found.gradients is not None and expected.gradients is not None
    np.testing.assert_allclose(
        found.gradients["scale"], expected.gradients["log"], rtol=1e-8
    )


LATENT_X = np.random.default_rng(4).normal(1.0, 1.4, 12)


def gibbs(params: Any, minibatch: Any, seed: tf.Tensor) -> Any:
    """Draw z_i ~ N((θ + x_i)/2, 1/2), given x_i ~ N(z_i, 1) and z_i ~ N(θ, 1)."""
    x = minibatch["x"]
    noise = tf.random.stateless_normal(x.shape, seed, dtype=x.dtype)
    return {**minibatch, "z": (params["theta"] + x) / 2 + np.sqrt(0.5) * noise}


def autoregressive(params: Any, minibatch: Any, seed: tf.Tensor) -> Any:
    """Leave the same law as it is, from the value that was kept of the visit before."""
    x, middle = minibatch["x"], (params["theta"] + minibatch["x"]) / 2
    noise = tf.random.stateless_normal(x.shape, seed, dtype=x.dtype)
    kept = middle + 0.5 * (minibatch["z"] - middle)
    return {**minibatch, "z": kept + np.sqrt(0.5 * 0.75) * noise}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gradient", "kept"),
    [
        pytest.param(SVRG(50), False, id="svrg-fresh"),
        pytest.param(SVRG(50), True, id="svrg-kept"),
        pytest.param(SAGA(), False, id="saga-fresh"),
        pytest.param(SAGA(), True, id="saga-kept"),
    ],
)
def test_latent_variables(gradient: Gradient, kept: bool) -> None:
    """With latent variables drawn by Gibbs steps the mean of the chain is that of the posterior
    without them, and the same seed gives the same bits."""

    def chain(n_iters: int) -> Array:
        given = (
            {"latents": {"z": LATENT_X}, "gibbs": autoregressive}
            if kept
            else {"gibbs": gibbs}
        )
        return sgmcmc.sample(
            lambda params, data: -0.5 * (data["z"] - params["theta"]) ** 2,
            {"x": LATENT_X},
            {"theta": 0.0},
            lambda params: -0.5 * params["theta"] ** 2,
            dynamics="sgld",
            gradient=gradient,
            minibatches="uniform",
            minibatch_size=3,
            preconditioner="none",
            stepsize=0.02,
            n_chains=8,
            n_iters=n_iters,
            burn_in=100,
            seed=3,
            verbose=False,
            dtype=tf.float64,
            **given,
        )["theta"]

    draws, again = chain(1000), chain(150)
    np.testing.assert_allclose(draws[:, :150], again, rtol=1e-12)
    exact = LATENT_X.sum() / 2 / (1 + len(LATENT_X) / 2)
    means = draws.mean(1)
    error = means.std(ddof=1) / np.sqrt(len(means))
    assert error < 0.03 and abs(means.mean() - exact) < bound(1, len(means)) * error


def test_chains_share_a_full_gradient() -> None:
    """At one center there is one pass; elsewhere each has its own."""
    data = read_dataset({"x": np.arange(6.0)}, tf.float32)

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * (dataset["x"] - params["theta"]) ** 2

    target = Target(log_lik, None, Space({"theta": ()}, {}), tf.float32)
    whole = [WholeData(target, data, 2).of_chain(0)]
    whole.append(whole[0].of_chain(1))
    center, other = np.zeros(1, np.float32), np.ones(1, np.float32)
    assert whole[0].gradient(center) is whole[1].gradient(center)
    assert whole[1].gradient(other) == pytest.approx(9.0)
    assert whole[0].gradient(center) == pytest.approx(15.0)
