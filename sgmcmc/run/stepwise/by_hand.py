"""Iterations on minibatches that the user hands over, as TensorFlow 1's feeds did.

They take the chain further as :func:`sgmcmc_step` does, but for where the data come from: the
gradient is estimated from the same minibatch at the beginning and after each move. They are
counted apart, and take random numbers of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.rng import Purpose, RunPhase, generator
from sgmcmc.dynamics import ExactDynamics
from sgmcmc.engine.block import Carry
from sgmcmc.engine.iteration import Turns
from sgmcmc.engine.runner import Diverged
from sgmcmc.graphs.tracing import trace
from sgmcmc.run.driver import divergence
from sgmcmc.run.sampler import Sampler
from sgmcmc.run.stepwise.sampler import StepwiseSampler
from sgmcmc.run.stepwise.session import Session


def step_on(
    sampler: StepwiseSampler,
    sess: Session,
    minibatch: Mapping[str, Any],
    parameter: str | None = None,
) -> None:
    """Take a session one iteration further on a minibatch.

    Args:
        sampler: what a ``*_setup`` function returned.
        sess: the session.
        minibatch: dict of arrays or tensors that share their first axis.
        parameter: the one that moves, while the others stay; ``None`` moves all, together or in
            turn as the sampler does.

    Raises:
        ValueError: the sampler needs more of a minibatch than its columns.
        DivergenceError: a chain became NaN or infinite.
    """
    inner = sess._sampler
    columns = sampler.columns_of(minibatch)
    for number, runner in enumerate(sess._runners):
        start = inner.seed, number, RunPhase.CHAIN
        rng = generator(*start, Purpose.BY_HAND, sess.by_hand)
        stepsizes = inner.chain.stepsizes.at(runner.iteration + 1, 1)[0]
        carry = _iterated(sess, runner.carry, columns, stepsizes, rng, parameter)
        bad = np.flatnonzero(~np.isfinite(carry.state.position))
        if bad.size:
            space, now = inner.target.space, runner.iteration + 1
            name = space.layout.parameter_at(int(bad[0]))
            diverged = Diverged((now, now), name, space.geometries[name].advice)
            raise divergence(diverged, inner.chain.argument, None)
        runner.carry = carry
    sess.by_hand += 1
    sampler._show(sampler._split(inner, sess._positions()))


def _iterated(
    sess: Session,
    carry: Carry,
    columns: Tensors,
    stepsizes: np.ndarray,
    rng: np.random.Generator,
    parameter: str | None,
) -> Carry:
    """Return the carry of a chain after one iteration on a minibatch.

    Args:
        sess: the session, which keeps the graphs that are made here.
        carry: of the chain.
        columns: of the minibatch.
        stepsizes: of the iteration, a row.
        rng: random numbers.
        parameter: the one that moves; ``None`` moves all.
    """
    sampler = sess._sampler
    chain, target = sampler.chain, sampler.target
    dynamics, gradient, layout = chain.dynamics, chain.gradient, target.space.layout
    if isinstance(dynamics, ExactDynamics) or gradient.needs_rows or sampler.latents is not None:
        raise ValueError(
            "`minibatch`: this sampler needs more of a minibatch than its columns, so that none "
            "can be handed over. Call sgmcmc_step."
        )
    turns, order = _order(sampler, carry, parameter)
    weight = sampler.data.size / next(iter(columns.values())).shape[0]
    dtype = np.dtype(target.dtype.as_numpy_dtype)
    normals = rng.standard_normal((dynamics.normals, layout.size)).astype(dtype)
    moves = dynamics.steps * len(order)
    seeds = rng.integers(-(2**31), 2**31, (moves, dynamics.seeds, 2), dtype=np.int32)

    def one_iteration(
        carry: Carry, columns: Tensors, stepsizes: tf.Tensor, normals: tf.Tensor, seeds: tf.Tensor
    ) -> Carry:
        minibatch = Minibatch(columns, weight)
        stepsize = layout.spread(carry.stepsize_factor * stepsizes)

        def only(number: int | None, before: Any, after: Any) -> Any:
            return after if turns is None or number is None else turns.moved(number, before, after)

        def estimate(position: tf.Tensor) -> tf.Tensor:
            return gradient.estimate(target, carry.estimator, position, minibatch, minibatch)[0]

        slope, first = estimate(carry.state.position), dynamics.refresh_normals
        state = dynamics.refresh(carry.state, stepsize, normals[:first])
        if parameter is not None:
            state = only(order[0], carry.state, state)
        for step in range(dynamics.steps):
            noise = normals[first : first + dynamics.step_normals]
            first += dynamics.step_normals
            for place, number in enumerate(order):
                drawn = seeds[step * len(order) + place] if dynamics.seeds else noise
                state = only(number, state, dynamics.step(state, slope, stepsize, drawn))
                slope = estimate(state.position)
                state = only(number, state, dynamics.finish_step(state, slope, stepsize))
        return carry._replace(state=state, gradient=slope)

    row = tf.constant(stepsizes, target.dtype)
    arguments = carry, columns, row, tf.constant(normals), tf.constant(seeds)
    key = parameter, tuple((name, tuple(value.shape)) for name, value in columns.items())
    if key not in sess.graphs:
        sess.graphs[key] = trace(one_iteration, *arguments)
    return sess.graphs[key](*arguments)


def _order(
    sampler: Sampler, carry: Carry, parameter: str | None
) -> tuple[Turns | None, Sequence[int | None]]:
    """Return who moves, by number; ``None`` stands for all together."""
    if parameter is None:
        turns = sampler.chain.turns
        return (None, [None]) if turns is None else (turns, range(len(turns)))
    layout = sampler.target.space.layout
    turns = Turns(layout)
    if len(turns) > 1 and not turns.divides(carry.state):
        raise ValueError("`parameter`: with this dynamics no parameter moves without the others.")
    return turns, [list(layout.names).index(parameter)]


def ascended(
    sampler: StepwiseSampler, position: np.ndarray, minibatch: Mapping[str, Any], iteration: int
) -> np.ndarray:
    """Return a flat position one step of stochastic gradient ascent further.

    Args:
        sampler: what a ``*_setup`` function of a control variate method returned.
        position: flat, in the coordinates of the chain.
        minibatch: dict of arrays or tensors that share their first axis.
        iteration: number of the step, from 1, for a stepsize that is a schedule.
    """
    inner, columns = sampler._sampler, sampler.columns_of(minibatch)
    search = inner.phases[0]
    target = inner.target
    weight = inner.data.size / next(iter(columns.values())).shape[0]
    here = tf.constant(position, target.dtype)
    stepsizes = tf.constant(search.stepsizes.at(iteration, 1)[0], target.dtype)
    slope = target.gradient(here, Minibatch(columns, weight))
    space = target.space
    step = space.layout.spread(stepsizes) * space.tangent(here, slope)
    return space.retracted(here + step).numpy()
