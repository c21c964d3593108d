"""A block of iterations: what goes in, what comes out, and how long it is.

The block is the unit of everything that happens outside the compiled loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics import Dynamics
from sgmcmc.latents import LatentState
from sgmcmc.layout import Layout
from sgmcmc.minibatches import Minibatches, Tensors

BLOCK_BYTES = 64 * 2**20
LONGEST_BLOCK = 4096


class Carry(NamedTuple):
    """What goes from iteration to iteration.

    Attributes:
        state: the state of the dynamics.
        gradient: the gradient estimate at the state's position.
        estimator: the state of the gradient estimator.
        reductions: the states of the running reductions.
        latents: a :class:`LatentState`, or nothing where there are no latent variables.
    """

    state: Any
    gradient: tf.Tensor
    estimator: Any
    reductions: dict[str, Any]
    latents: LatentState | tuple[()]


class BlockInputs(NamedTuple):
    """What a block of iterations consumes.

    Attributes:
        minibatches: the arrays of the data stream.
        noise: standard normals, (iterations, vectors, d).
        stepsizes: one row for each iteration, or a single row where they never change; one
            column for each parameter, or a single column where they share a stepsize.
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
        shown: step by step, the user's parameters at the end; else nothing.
    """

    carry: Carry
    records: Tensors
    log_post: tf.Tensor
    finite: tf.Tensor
    shown: Tensors


def block_length(
    minibatches: Minibatches, dynamics: Dynamics, layout: Layout, itemsize: int
) -> int:
    """Return how many iterations make a block: as many as ``BLOCK_BYTES`` hold.

    The costs of a block outside the compiled loop are those of up to 30 iterations, which weigh
    little among hundreds. The length depends only on the shapes of the problem, so that the random
    streams, which are named by the block, do not depend on how a chain is run or stored.
    """
    vectors = dynamics.normals + 2
    weight = dynamics.steps * minibatches.bytes_per_step + vectors * layout.size * itemsize
    return int(np.clip(BLOCK_BYTES // max(1, weight), 1, LONGEST_BLOCK))
