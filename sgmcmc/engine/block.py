"""A block of iterations: what goes in, what comes out, and how long it is.

The block is the unit of everything that happens outside the compiled loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.minibatch import Tensors
from sgmcmc.dynamics import Dynamics, ExactDynamics
from sgmcmc.gradients.latents import LatentState
from sgmcmc.minibatches.stream import Stream
from sgmcmc.target.target import Target

BLOCK_BYTES = 64 * 2**20
LONGEST_BLOCK = 4096
LONGEST_EXACT = 128
"""The same of dynamics whose every iteration takes many gradients over the whole dataset."""


class Carry(NamedTuple):
    """What goes from iteration to iteration.

    Attributes:
        state: the state of the dynamics.
        gradient: the gradient estimate at the state's position.
        estimator: the state of the gradient estimator.
        reductions: the states of the running reductions.
        latents: a :class:`LatentState`, or nothing where there are no latent variables.
        stepsize_factor: what the stepsizes of the phase are multiplied by, 1 unless the phase
            changes it between blocks.
    """

    state: Any
    gradient: tf.Tensor
    estimator: Any
    reductions: dict[str, Any]
    latents: LatentState | tuple[()]
    stepsize_factor: tf.Tensor


class BlockInputs(NamedTuple):
    """What a block of iterations consumes.

    Attributes:
        minibatches: the arrays of the data stream.
        noise: standard normals, (iterations, vectors, d).
        stepsizes: one row for each iteration, or a single row where they never change; one
            column for each parameter, or for each coordinate, or a single column where all share
            a stepsize.
        seeds: pairs of int32, (steps, seeds, 2): for latent variables, then for the dynamics.
    """

    minibatches: Tensors
    noise: tf.Tensor
    stepsizes: tf.Tensor
    seeds: tf.Tensor


class BlockResult(NamedTuple):
    """What a block of iterations gives.

    Attributes:
        carry: what the next block starts from.
        records: what was written down; the first axis is the kept draws of the block.
        log_post: the log posterior estimate at the end, from the last minibatch; NaN step by step.
        finite: whether the position at the end is finite.
        params: step by step, the user's parameters at the end; else nothing.
    """

    carry: Carry
    records: Tensors
    log_post: tf.Tensor
    finite: tf.Tensor
    params: Tensors


def block_length(stream: Stream, dynamics: Dynamics, target: Target) -> int:
    """Return how many iterations make a block: as many as ``BLOCK_BYTES`` hold.

    The costs of a block outside the compiled loop are those of up to 30 iterations, which weigh
    little among hundreds. The length depends only on the shapes of the problem, so that the random
    streams, which are named by the block, do not depend on how a chain is run or stored.
    """
    vectors = dynamics.normals + 2
    weight = dynamics.steps * stream.bytes_per_step + vectors * target.size * target.dtype.size
    longest = LONGEST_EXACT if isinstance(dynamics, ExactDynamics) else LONGEST_BLOCK
    return int(np.clip(BLOCK_BYTES // max(1, weight), 1, longest))
