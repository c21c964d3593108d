"""A block of iterations: its inputs, its results, its length, and the loop over it.

The block is the unit of everything that happens outside the compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.dynamics import Dynamics, ExactDynamics
from sgmcmc.engine.recorder import Recorder
from sgmcmc.gradients.latents import LatentState
from sgmcmc.minibatches.streams import Stream
from sgmcmc.model.target import Target

BLOCK_BYTES = 64 * 2**20
LONGEST_BLOCK = 4096
LONGEST_EXACT = 128
"""The same for dynamics whose every iteration computes many gradients over the whole dataset."""


class Carry(NamedTuple):
    """State passed from iteration to iteration.

    Attributes:
        state: State of the dynamics.
        gradient: Gradient estimate at the state's position.
        estimator: State of the gradient estimator.
        reductions: States of the running reductions.
        latents: :class:`LatentState`, or nothing if there are no latent variables.
        stepsize_factor: Factor of the stepsizes of the phase, 1 unless the phase changes it between
            blocks.
    """

    state: Any
    gradient: tf.Tensor
    estimator: Any
    reductions: dict[str, Any]
    latents: LatentState | tuple[()]
    stepsize_factor: tf.Tensor


class BlockInputs(NamedTuple):
    """Inputs of a block of iterations.

    Attributes:
        minibatches: Arrays of the data stream.
        noise: Standard normals, (iterations, vectors, d).
        stepsizes: Stepsizes: one row for each iteration, or a single row if they never change; one
            column for each parameter, or for each coordinate, or a single column if all share a
            stepsize.
        seeds: Pairs of int32, (steps, seeds, 2): for latent variables, then for the dynamics.
    """

    minibatches: Tensors
    noise: tf.Tensor
    stepsizes: tf.Tensor
    seeds: tf.Tensor


class BlockResult(NamedTuple):
    """Result of a block of iterations.

    Attributes:
        carry: State from which the next block starts.
        records: Recorded values; the first axis is the kept draws of the block.
        log_post: Log posterior estimate at the end, from the last minibatch; NaN step by step.
        finite: Whether the position at the end is finite.
        params: User's parameters at the end, step by step; else nothing.
    """

    carry: Carry
    records: Tensors
    log_post: tf.Tensor
    finite: tf.Tensor
    params: Tensors


def block_length(stream: Stream, dynamics: Dynamics, target: Target) -> int:
    """Return the number of iterations in a block: as many as ``BLOCK_BYTES`` hold.

    The costs of a block outside the compiled loop are those of up to 30 iterations, which weigh
    little among hundreds. The length depends only on the shapes of the problem, so that the random
    streams, which are named by the block, do not depend on how a chain is run or stored.
    """
    vectors = dynamics.normals + 2
    weight = (
        dynamics.steps * stream.bytes_per_step
        + vectors * target.size * target.dtype.size
    )
    longest = LONGEST_EXACT if isinstance(dynamics, ExactDynamics) else LONGEST_BLOCK
    return int(np.clip(BLOCK_BYTES // max(1, weight), 1, longest))


Iterate = Callable[[tf.Tensor, tf.Tensor, Carry], tuple[Carry, Tensors]]
"""Function of an iteration's place, its number and the state; returns state and records."""


def recorded(
    recorder: Recorder,
    length: int,
    span: tf.Tensor,
    carry: Carry,
    iterate: Iterate,
    chains: tuple[int, ...] = (),
) -> tuple[Carry, Tensors]:
    """Run the iterations of a block from ``span``; return carry and recorded values.

    Args:
        recorder: Recorder of the draws.
        length: Number of iterations in a block.
        span: First iteration within the block, from 0; one past the last; and the number, from 1,
            of the first in the chain: (3,).
        carry: State that the iteration before left.
        iterate: Function that runs one iteration.
        chains: Number of chains that run together, if several do: the first axis of every record.
    """
    start, stop, first = tf.unstack(span)
    slots = recorder.slots(length)
    arrays = {
        name: tf.TensorArray(
            dtype, slots, element_shape=(*chains, *shape), clear_after_read=False
        )
        for name, (shape, dtype) in recorder.specs().items()
    }

    # XLA compiles again for every value of an argument that the index of a slice can be traced
    # back to; the index of a gather may be anything.
    def one_iteration(
        i: tf.Tensor,
        now: tf.Tensor,
        slot: tf.Tensor,
        carry: Carry,
        arrays: Mapping[str, Any],
    ) -> tuple:
        carry, values = iterate(i, now, carry)
        # The slot of a draw still in the making is written again until it is complete.
        arrays = {
            name: array.write(slot, values[name]) for name, array in arrays.items()
        }
        slot += recorder.completed(now) - recorder.completed(now - 1)
        return i + 1, now + 1, slot, carry, arrays

    *_, carry, arrays = tf.while_loop(
        lambda i, *_: i < stop,
        one_iteration,
        (start, first, tf.constant(0), carry, arrays),
        parallel_iterations=1,
    )
    return carry, {name: array.stack() for name, array in arrays.items()}


def folded(recorder: Recorder, carry: Carry, now: tf.Tensor) -> tuple[Carry, Tensors]:
    """Return the carry with the reductions one iteration on, and the values to record."""
    position = carry.state.position
    carry = carry._replace(reductions=recorder.fold(carry.reductions, position, now))
    return carry, recorder.values(position, carry.gradient, now)
