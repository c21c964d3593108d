"""Iterations on minibatches that the user passes, as TensorFlow 1's feeds did.

They continue the chain as :func:`sgmcmc_step` does, except for where the data come from: the
gradient is estimated from the same minibatch at the beginning and after each move. They are
counted apart, and have their own random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Minibatch, Tensors
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.dynamics import ExactDynamics
from sgmcmc.engine.iteration import (
    BlockInputs,
    BlockTensors,
    Carry,
    Iteration,
    UpdateOrder,
)
from sgmcmc.engine.recorder import Recorder
from sgmcmc.engine.runner import Diverged
from sgmcmc.graphs.tracing import trace
from sgmcmc.minibatches.streams import Stream
from sgmcmc.run.driver import divergence
from sgmcmc.run.sampler import Sampler
from sgmcmc.run.stepwise import Session, StepwiseSampler


def step_on(
    sampler: StepwiseSampler,
    sess: Session,
    minibatch: Mapping[str, Any],
    parameter: str | None = None,
) -> None:
    """Run one more iteration of a session, on a given minibatch.

    Args:
        sampler: Sampler, as a ``*_setup`` function returns it.
        sess: Session.
        minibatch: Dict of arrays or tensors that share their first axis.
        parameter: Name of the parameter that moves, while the others stay; ``None`` moves all,
            together or in turn as the sampler does.

    Raises:
        ValueError: The sampler needs more of a minibatch than its columns.
        DivergenceError: A chain became NaN or infinite.
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
        sess: Session, which keeps the graphs that are made here.
        carry: State of the chain.
        columns: Columns of the minibatch.
        stepsizes: Stepsizes of the iteration, a row.
        rng: Random numbers.
        parameter: Name of the parameter that moves; ``None`` moves all.
    """
    sampler = sess._sampler
    chain, target = sampler.chain, sampler.target
    dynamics, gradient, layout = chain.dynamics, chain.gradient, target.space.layout
    if (
        isinstance(dynamics, ExactDynamics)
        or gradient.needs_rows
        or sampler.latents is not None
    ):
        raise ValueError(
            "`minibatch`: this sampler needs more of a minibatch than its columns, so that you "
            "cannot pass one. Call sgmcmc_step."
        )
    blockwise = _blockwise_updates(sampler, carry, parameter)
    weight = sampler.data.size / next(iter(columns.values())).shape[0]
    dtype = np.dtype(target.dtype.as_numpy_dtype)
    normals = rng.standard_normal((1, dynamics.normals, layout.size)).astype(dtype)
    of_step = dynamics.seeds * (1 if blockwise is None else len(blockwise.movers))
    seeds = rng.integers(-(2**31), 2**31, (dynamics.steps, of_step, 2), dtype=np.int32)

    def one_iteration(
        carry: Carry,
        columns: Tensors,
        stepsizes: tf.Tensor,
        normals: tf.Tensor,
        seeds: tf.Tensor,
    ) -> Carry:
        minibatch = Minibatch(columns, weight)
        stream = cast(Stream, _SingleMinibatch(minibatch))
        recorder = chain.recorder or Recorder(target)
        iteration = Iteration(
            target,
            dynamics,
            gradient,
            stream,
            recorder,
            order=blockwise,
            unseen=max(0.0, 1.0 - 1.0 / weight),
        )
        started = iteration.begin(carry, carry.state.position, minibatch, seeds)
        inputs = BlockInputs(
            {}, normals, carry.stepsize_factor * stepsizes[tf.newaxis], seeds
        )
        first, last, number = (tf.constant(k) for k in (0, dynamics.steps - 1, 1))
        carry = carry._replace(gradient=started.gradient)
        block = BlockTensors({}, inputs, last)
        return iteration.run(carry, block, first, number)

    row = tf.constant(stepsizes, target.dtype)
    arguments = carry, columns, row, tf.constant(normals), tf.constant(seeds)
    key = (
        parameter,
        tuple((name, tuple(value.shape)) for name, value in columns.items()),
    )
    if key not in sess.graphs:
        sess.graphs[key] = trace(one_iteration, *arguments)
    return sess.graphs[key](*arguments)


class _SingleMinibatch(NamedTuple):
    """A stream of one minibatch, which the user passes."""

    only: Minibatch

    def minibatch(self, fixed: Tensors, block: Tensors, step: tf.Tensor) -> Minibatch:
        """Return the minibatch."""
        return self.only


def _blockwise_updates(
    sampler: Sampler, carry: Carry, parameter: str | None
) -> UpdateOrder | None:
    """Return who moves; ``None`` if all move together."""
    if parameter is None:
        return sampler.chain.turns
    layout = sampler.target.space.layout
    blockwise = UpdateOrder(layout, [list(layout.names).index(parameter)])
    if len(blockwise) == 1:
        return None
    if not blockwise.divides(carry.state):
        raise ValueError(
            "`parameter`: with this dynamics no parameter moves without the others."
        )
    return blockwise


def ascended(
    sampler: StepwiseSampler,
    position: np.ndarray,
    minibatch: Mapping[str, Any],
    iteration: int,
) -> np.ndarray:
    """Return a flat position one step of stochastic gradient ascent further.

    Args:
        sampler: Sampler of a control variate method, as a ``*_setup`` function returns it.
        position: Flat position, in the coordinates of the chain.
        minibatch: Dict of arrays or tensors that share their first axis.
        iteration: Number of the step, from 1, for a stepsize that is a schedule.
    """
    inner, columns = sampler._sampler, sampler.columns_of(minibatch)
    search = inner.phases[0]
    target = inner.target
    weight = inner.data.size / next(iter(columns.values())).shape[0]
    point = tf.constant(position, target.dtype)
    stepsizes = tf.constant(search.stepsizes.at(iteration, 1)[0], target.dtype)
    gradient = target.gradient(point, Minibatch(columns, weight))
    space = target.space
    step = space.layout.per_coordinate(stepsizes) * space.tangent(point, gradient)
    return space.retracted(point + step).numpy()
