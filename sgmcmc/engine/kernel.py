"""The kernel: one compiled block of iterations, its length, and the loop over it.

The block is the unit of everything that happens outside the compiled loop.

Each iteration refreshes the state, then takes the dynamics' steps; each step moves with the
gradient estimate of the present position and then estimates the gradient at the new one. So the
chain always carries the estimate that belongs to its position.
Exact dynamics make one transition instead, given the log posterior over the whole dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Minibatch, Tensors
from sgmcmc.dynamics import Dynamics, ExactDynamics
from sgmcmc.engine.iteration import BlockInputs, BlockTensors, Carry, Iteration
from sgmcmc.engine.recorder import Recorder
from sgmcmc.gradients.latents import LatentState
from sgmcmc.graphs.compiler import Compiled, Compiler
from sgmcmc.graphs.tracing import trace
from sgmcmc.minibatches.streams import Stream
from sgmcmc.model.target import Target
from sgmcmc.model.whole_posterior import WholePosterior

BLOCK_BYTES = 64 * 2**20
LONGEST_BLOCK = 4096  # iterations
LONGEST_EXACT = 128  # the same if each computes many gradients over the whole dataset


class ChainStart(NamedTuple):
    """Inputs at the start of a chain.

    Attributes:
        position: Position, flat.
        estimator: State of the gradient estimator.
        minibatch: Minibatch of the gradient at the position.
        normals: Normals that the dynamics start with, (vectors, d).
        stepsizes: Stepsizes of the first iteration, a row.
        seeds: Seeds for the latent variables, (seeds, 2).
    """

    position: tf.Tensor
    estimator: Any
    minibatch: Minibatch
    normals: tf.Tensor
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


Iterate = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, Carry], tuple[Carry, Tensors]]
"""Function of an iteration and the state, which returns state and records.

The iteration comes as its place in the block, its number in the chain, and that after burn-in.
"""


@dataclass(frozen=True)
class BlockLoop:
    """The loop over the iterations of a block, which records draws.

    Args:
        recorder: Recorder of the draws.
        length: Number of iterations in a block.
        chains: Number of chains that run together, if several do: the first axis of every record.
    """

    recorder: Recorder
    length: int
    chains: tuple[int, ...] = ()

    def run(
        self, span: tf.Tensor, carry: Carry, iterate: Iterate
    ) -> tuple[Carry, Tensors]:
        """Run the iterations of a block from ``span``; return carry and recorded values.

        Args:
            span: Same as in :meth:`Kernel.run`.
            carry: State that the iteration before left.
            iterate: Function that runs one iteration.
        """
        start, stop, first, burn_in = tf.unstack(span)
        slots = self.recorder.slots(self.length)
        arrays = {
            name: tf.TensorArray(
                dtype,
                slots,
                element_shape=(*self.chains, *shape),
                clear_after_read=False,
            )
            for name, (shape, dtype) in self.recorder.specs().items()
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
            past = now - burn_in
            carry, values = iterate(i, now, past, carry)
            # The slot of a draw still in the making is written again until it is complete.
            arrays = {
                name: array.write(slot, values[name]) for name, array in arrays.items()
            }
            slot += tf.cast(self.recorder.completes(past), tf.int32)
            return i + 1, now + 1, slot, carry, arrays

        *_, carry, arrays = tf.while_loop(
            lambda i, *_: i < stop,
            one_iteration,
            (start, first, tf.constant(0), carry, arrays),
            parallel_iterations=1,
        )
        return carry, {name: array.stack() for name, array in arrays.items()}

    def fold(self, carry: Carry, past: tf.Tensor) -> tuple[Carry, Tensors]:
        """Return the carry with the reductions one iteration on, and the values to record."""
        recorder, position = self.recorder, carry.state.position
        reductions = recorder.fold(carry.reductions, position, past)
        carry = carry._replace(reductions=reductions)
        return carry, recorder.values(position, carry.gradient, past)


class Kernel:
    """The compiled function that runs a dynamics with a gradient estimator over a data stream.

    The parts of ``iteration`` are the kernel's too; ``length`` is the iterations in a block.
    """

    def __init__(self, iteration: Iteration) -> None:
        self.iteration = iteration
        self.target = iteration.target
        self.dynamics = iteration.dynamics
        self.gradient = iteration.gradient
        self.stream = iteration.stream
        self.recorder = iteration.recorder
        self.latents = iteration.latents
        self.length = block_length(self.stream, self.dynamics, self.target)
        self._loop = BlockLoop(self.recorder, self.length)
        self._layout = self.target.space.layout
        self._run: Compiled | None = None
        self._init: Any = None

    def compile(self, compiler: Compiler, carry: Carry, inputs: BlockInputs) -> bool:
        """Compile ``run`` for arguments like these; return whether XLA was able to.

        The user's functions are called here, in this thread.
        """
        arguments = (carry, self.stream.fixed, inputs, tf.constant([0, 1, 1, 0]))
        self._run = compiler.compile(self._block, *arguments)
        return self._run is not None

    def run(self, carry: Carry, inputs: BlockInputs, span: tf.Tensor) -> BlockResult:
        """Run the iterations of a block from ``span``.

        ``span`` is (4,): the first iteration within the block, from 0; one past the last; the
        number, from 1, that the first has in the chain; and the number of those of burn-in.
        """
        assert self._run is not None, "not compiled"
        return self._run(carry, self.stream.fixed, inputs, span)

    def init(self, start: ChainStart) -> Carry:
        """Return the carry at the start of a chain."""
        # A weight for all stays a number, as it is in the compiled chain.
        if isinstance(start.minibatch.weights, float):
            arguments = start._replace(minibatch=start.minibatch._replace(weights=()))
        else:
            arguments = start
        if self._init is None:
            self._init = trace(self.initialiser(start.minibatch), arguments)
        return self._init(arguments)

    def initialiser(self, example: Minibatch) -> Callable[..., Carry]:
        """Return the function of a :class:`ChainStart` that returns the carry there.

        The weight of the ``example`` minibatch, if it is one number for all rows, becomes a
        constant.
        """
        scale = example.weights

        def initialized(start: ChainStart) -> Carry:
            position, minibatch = start.position, start.minibatch
            if isinstance(scale, float):
                minibatch = minibatch._replace(weights=scale)
            latents: LatentState | tuple[()] = ()
            if self.latents is not None:
                latents = self.latents.state(self.gradient.centered, position.dtype)
            # The state is made of the position as soon as the gradient there is known.
            carry = Carry(
                None,
                position,
                start.estimator,
                self.recorder.start(position),
                latents,
                tf.ones([], position.dtype),
            )
            if isinstance(self.dynamics, ExactDynamics):
                whole = WholePosterior(self.target, minibatch.columns)
                state = self.dynamics.start(whole, position)
                has_log_post = self.dynamics.tells_log_post
                gradient = state.gradient if has_log_post else tf.zeros_like(position)
                return carry._replace(state=state, gradient=gradient)
            carry = self.iteration.begin(carry, position, minibatch, start.seeds)
            stepsize = self._layout.per_coordinate(start.stepsizes)
            state = self.dynamics.init(
                position, carry.gradient, stepsize, start.normals
            )
            return carry._replace(state=state)

        return initialized

    def _block(
        self,
        carry: Carry,
        fixed: Tensors,
        inputs: BlockInputs,
        span: tf.Tensor,
    ) -> BlockResult:
        inputs = inputs._replace(stepsizes=carry.stepsize_factor * inputs.stepsizes)
        last = tf.unstack(span)[1] * self.dynamics.steps - 1
        block = BlockTensors(fixed, inputs, last)

        def iterate(
            i: tf.Tensor, now: tf.Tensor, past: tf.Tensor, carry: Carry
        ) -> tuple[Carry, Tensors]:
            return self._loop.fold(self.iteration.run(carry, block, i, now), past)

        carry, records = self._loop.run(span, carry, iterate)
        return BlockResult(
            carry,
            records,
            self._log_post(carry, block),
            tf.reduce_all(tf.math.is_finite(carry.state.position)),
            self.target.space.constrain(carry.state.position)
            if self.recorder.stepwise
            else {},
        )

    def _log_post(self, carry: Carry, block: BlockTensors) -> tf.Tensor:
        """Return the log posterior estimate from the minibatch of the last step.

        Step by step it is not needed, and NaN.
        """
        if self.recorder.stepwise:
            return tf.constant(float("nan"), self.target.dtype)
        if isinstance(carry.latents, LatentState):
            return carry.latents.log_post
        if isinstance(self.dynamics, ExactDynamics):
            if self.dynamics.tells_log_post:
                return carry.state.log_post
            columns = self._minibatch(block, block.last).columns
            return WholePosterior(self.target, columns)(carry.state.position)[0]
        last = self._minibatch(block, block.last + self.iteration.lead)
        return self.target.log_post(carry.state.position, last)

    def _minibatch(self, block: BlockTensors, step: tf.Tensor) -> Minibatch:
        return self.stream.minibatch(block.fixed, block.inputs.minibatches, step)
