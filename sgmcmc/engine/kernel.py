"""The kernel: one compiled block of iterations.

Each iteration refreshes the state, then takes the dynamics' steps; each step moves with the
gradient estimate of the present position and then estimates the gradient at the new one. So the
chain always carries the estimate that belongs to its position.
Exact dynamics make one transition instead, given the log posterior over the whole dataset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.data.dataset import Minibatch, Tensors
from sgmcmc.dynamics import ExactDynamics
from sgmcmc.engine.block import (
    BlockInputs,
    BlockResult,
    Carry,
    block_length,
    folded,
    recorded,
)
from sgmcmc.engine.iteration import Iteration
from sgmcmc.gradients.latents import LatentState
from sgmcmc.graphs.compiler import Compiled, Compiler
from sgmcmc.graphs.tracing import trace
from sgmcmc.model.whole_posterior import WholePosterior


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
        self._layout = self.target.space.layout
        self._run: Compiled | None = None
        self._init: Any = None

    def compile(self, compiler: Compiler, carry: Carry, inputs: BlockInputs) -> bool:
        """Compile ``run`` for arguments like these; return whether XLA was able to.

        The user's functions are called here, in this thread.
        """
        arguments = (carry, self.stream.fixed, inputs, tf.constant([0, 1, 1]))
        self._run = compiler.compile(self._block, *arguments)
        return self._run is not None

    def run(self, carry: Carry, inputs: BlockInputs, span: tf.Tensor) -> BlockResult:
        """Run the iterations of a block from ``span``.

        ``span`` is (3,): the first iteration within the block, from 0; one past the last; and the
        number, from 1, that the first has in the chain.
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
            self._init = trace(self.initialiser(start.minibatch), *arguments)
        return self._init(*arguments)

    def initialiser(self, example: Minibatch) -> Callable[..., Carry]:
        """Return the function of the entries of a :class:`Start` that returns the carry there.

        The weight of the ``example`` minibatch, if it is one number for all rows, becomes a
        constant.
        """
        scale = example.weights

        def initialized(
            position: tf.Tensor,
            estimator: Any,
            minibatch: Minibatch,
            normals: tf.Tensor,
            stepsizes: tf.Tensor,
            seeds: tf.Tensor,
        ) -> Carry:
            if isinstance(scale, float):
                minibatch = minibatch._replace(weights=scale)
            latents: LatentState | tuple[()] = ()
            if self.latents is not None:
                latents = self.latents.state(self.gradient.centered, position.dtype)
            # The state is made of the position as soon as the gradient there is known.
            carry = Carry(
                None,
                position,
                estimator,
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
            carry = self.iteration.begin(carry, position, minibatch, seeds)
            stepsize = self._layout.spread(stepsizes)
            state = self.dynamics.init(position, carry.gradient, stepsize, normals)
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
        recorder = self.recorder

        def iterate(
            i: tf.Tensor, now: tf.Tensor, carry: Carry
        ) -> tuple[Carry, Tensors]:
            return folded(
                recorder, self.iteration.run(carry, fixed, inputs, i, last, now), now
            )

        carry, records = recorded(recorder, self.length, span, carry, iterate)
        return BlockResult(
            carry,
            records,
            self._log_post(carry, fixed, inputs, last),
            tf.reduce_all(tf.math.is_finite(carry.state.position)),
            self.target.space.constrain(carry.state.position)
            if recorder.stepwise
            else {},
        )

    def _log_post(
        self, carry: Carry, fixed: Tensors, inputs: BlockInputs, step: tf.Tensor
    ) -> tf.Tensor:
        """Return the log posterior estimate from the minibatch of a step that was just taken.

        Step by step it is not needed, and NaN.
        """
        if self.recorder.stepwise:
            return tf.constant(float("nan"), self.target.dtype)
        if isinstance(carry.latents, LatentState):
            return carry.latents.log_post
        if isinstance(self.dynamics, ExactDynamics):
            if self.dynamics.tells_log_post:
                return carry.state.log_post
            columns = self.stream.minibatch(fixed, inputs.minibatches, step).columns
            return WholePosterior(self.target, columns)(carry.state.position)[0]
        last = self.stream.minibatch(
            fixed, inputs.minibatches, step + self.iteration.lead
        )
        return self.target.log_post(carry.state.position, last)
