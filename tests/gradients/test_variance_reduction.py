"""SVRG and SAGA: exact over all minibatches, step by step, in their laws, and however they are run.

Each statistical test fails by chance for one seed in ten thousand.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.data.minibatch import Minibatch
from sgmcmc.engine.runner import Runner
from sgmcmc.gradients import SAGA, SVRG, Gradient, WholeData
from sgmcmc.gradients.control_variate import CentredState
from sgmcmc.gradients.saga import SAGAState
from sgmcmc.graphs.tracing import trace
from sgmcmc.target.geometry import Space
from sgmcmc.target.target import Target
from tests.linear_chains import (
    DRAWS,
    Array,
    Choice,
    Found,
    Line,
    Model,
    Moves,
    choices,
    compare_line,
    flat,
    line,
    logistic,
    remade,
    variance,
    weights_of,
)

ROUNDING = 1e-12

# ------------------------------------------------------------------------ over all minibatches


class Estimates(NamedTuple):
    """What an estimator gives of every minibatch that there is.

    Attributes:
        choices: the minibatches.
        values: the estimate of each, (minibatches, d).
        states: the state after each.
    """

    choices: list[Choice]
    values: Array
    states: list[Any]

    def moments(self) -> tuple[Array, Array]:
        """Return the exact mean and covariance of the estimate."""
        chances = np.array([choice.chance for choice in self.choices])
        np.testing.assert_allclose(chances.sum(), 1.0, rtol=ROUNDING)
        mean = chances @ self.values
        gap = self.values - mean
        return mean, (gap * chances[:, None]).T @ gap


def whole(model: Model, n: int) -> WholeData:
    """Return a model with its dataset at hand, as an estimator is handed it."""
    shapes = {name: part.shape for name, part in model.start.items()}
    target = Target(model.log_lik, model.log_prior, Space(shapes), tf.float64)
    columns = {name: ArrayColumn(array) for name, array in model.data.items()}
    return WholeData(target, Data(columns, model.size), n)


def over_all(
    estimator: Gradient, state: Any, model: Model, position: Array, draws: str, n: int
) -> Estimates:
    """Return the estimates of all minibatches from one state."""
    target, found = whole(model, n).target, Estimates(list(choices(draws, model.size, n)), [], [])
    graph: Any = None
    for _, rows, weights in found.choices:
        columns = {name: tf.constant(array[rows]) for name, array in model.data.items()}

        def estimate(
            state: Any, position: tf.Tensor, columns: Any, rows: tf.Tensor, weights: tf.Tensor
        ) -> Any:
            counts = weights if draws == "weighted" else model.size / n
            minibatch = Minibatch(columns, counts, rows)
            return estimator.estimate(target, state, position, minibatch, minibatch)

        given = (
            state, tf.constant(position), columns, tf.constant(rows), tf.constant(weights)
        )  # fmt: skip
        graph = graph or trace(estimate, *given)
        value, after = graph(*given)
        found.values.append(value.numpy())
        found.states.append(after)
    return found._replace(values=np.array(found.values))


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


@each_size
def test_svrg_over_all_minibatches(draws: str, n: int, d: int, summed: bool) -> None:
    """SVRG's estimate has the full gradient as its mean and the formula's covariance."""
    model = logistic(d, 6, summed=summed)
    centre = model.origin + np.linspace(0.4, -0.3, d)
    state = CentredState(tf.constant(centre), tf.constant(model.full(centre)))
    found = over_all(SVRG(5), state, model, model.origin, draws, n)
    mean, covariance = found.moments()
    np.testing.assert_allclose(mean, model.full(model.origin), rtol=ROUNDING, atol=ROUNDING)
    terms = model.terms(model.origin) - model.terms(centre)
    np.testing.assert_allclose(covariance, variance(draws, terms, n), rtol=1e-11, atol=ROUNDING)


def a_table(model: Model) -> Array:
    """Return gradients of the terms at positions of their own."""
    rng = np.random.default_rng(5)
    positions = model.origin + rng.normal(size=(model.size, model.origin.size))
    return np.stack([model.terms(position)[i] for i, position in enumerate(positions)])


def saga(model: Model, n: int) -> SAGA:
    """Return SAGA as it is bound."""
    return SAGA().bind(whole(model, n))


@each_size
def test_saga_over_all_minibatches(draws: str, n: int, d: int, summed: bool) -> None:
    """SAGA's estimate has the full gradient as its mean and the formula's covariance, whatever
    its table holds."""
    model = logistic(d, 6, summed=summed)
    table = a_table(model)
    state = SAGAState(tf.constant(table), tf.constant(table.sum(0)))
    found = over_all(saga(model, n), state, model, model.origin, draws, n)
    mean, covariance = found.moments()
    np.testing.assert_allclose(mean, model.full(model.origin), rtol=ROUNDING, atol=ROUNDING)
    terms = model.terms(model.origin) - table
    np.testing.assert_allclose(covariance, variance(draws, terms, n), rtol=1e-11, atol=ROUNDING)


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
    np.testing.assert_allclose(state.total, model.terms(model.origin).sum(0), rtol=ROUNDING)


# -------------------------------------------------------------------------------- step by step


class SVRGByHand:
    """SVRG in NumPy."""

    def __init__(self, model: Model, draws: str, every: int) -> None:
        self.model, self.draws, self.every = model, draws, every
        self.refresh(model.origin)

    def refresh(self, position: Array) -> Array:
        self.centre, self.exact = position, self.model.full(position)
        return self.exact

    def __call__(self, position: Array, rows: Array) -> Array:
        change = (self.model.terms(position) - self.model.terms(self.centre))[rows]
        prior = self.model.prior(position) - self.model.prior(self.centre)
        return self.exact + prior + weights_of(self.draws, self.model.size, rows) @ change


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
        model, draws, n, vectors=vectors, steps=steps, iterations=ITERATIONS, length=length
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


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("draws", list(DRAWS))
@pytest.mark.parametrize("dynamics", ["sgld", "sghmc"])
@pytest.mark.parametrize("method", ["svrg", "saga"])
def test_step_by_step(
    method: str, dynamics: str, draws: str, jit_compile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty iterations are those of a transcription in NumPy, over three blocks and refreshes
    that do not fall on their ends."""
    length, n = 16, 2
    monkeypatch.setattr("sgmcmc.engine.block.LONGEST_BLOCK", length)
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


def test_the_centre_moves_to_the_present_position_and_the_gradient_there_is_exact() -> None:
    """Every m iterations SVRG is centred where the chain is and its next step takes the exact
    gradient there."""
    model, m = logistic(3, 6), 5
    sampler = model.stepwise(gradient=SVRG(every=m), minibatch_size=2)
    session = sgmcmc.init_sess(sampler)
    runner = session._runners[0]
    centre = model.origin
    for i in range(23):
        before = runner.position()
        sgmcmc.sgmcmc_step(sampler, session)
        if i % m == 0:
            centre = before
        state = runner._carry.estimator
        np.testing.assert_array_equal(state.centre, centre)
        np.testing.assert_allclose(state.full_gradient, model.full(centre), rtol=ROUNDING)


@pytest.mark.parametrize(("size", "n", "every"), [(6, 2, 3), (7, 2, 4), (6, 6, 1)])
def test_svrg_refreshes_once_a_pass_unless_told(size: int, n: int, every: int) -> None:
    """Without a number SVRG takes the full gradient every N/n iterations."""
    model = logistic(1, size)
    assert SVRG().refresh_every(whole(model, n)) == every
    draws = [
        flat(model.chain(gradient=gradient, minibatch_size=n)) for gradient in ("svrg", SVRG(every))
    ]
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("every", [0, -1, 2.5, "5", True])
def test_a_wrong_every_is_refused(every: Any) -> None:
    """SVRG refuses what is no positive whole number and names the argument."""
    with pytest.raises((ValueError, TypeError), match="every"):
        logistic(1, 6).chain(gradient=SVRG(every), minibatch_size=2)


def test_the_total_is_summed_anew_before_rounding_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """SAGA's total stays the sum of its table over thousands of steps in float32."""
    model = logistic(3, 6)
    sampler = model.stepwise(gradient="saga", minibatch_size=2, dtype=tf.float32)
    session = sgmcmc.init_sess(sampler)
    every = SAGA().refresh_every(whole(model, 2))
    assert every == 30
    sgmcmc.sgmcmc_step(sampler, session, 100 * every + 1)
    state = session._runners[0]._carry.estimator
    total = state.table.numpy().sum(0, dtype=np.float64)
    scale = np.abs(state.table.numpy()).sum(0)
    assert (np.abs(state.total - total) < 4 * np.finfo(np.float32).eps * scale).all()
