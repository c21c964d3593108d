"""The chain: one compiled block of iterations.

Each iteration refreshes the state, then takes the dynamics' steps; each step moves with the
gradient estimate of the present position and then estimates the gradient at the new one. So the
chain always carries the estimate that belongs to its position, and no gradient is taken twice.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from sgmcmc.block import BlockInputs, BlockResult, Carry
from sgmcmc.compiler import Compiler
from sgmcmc.dynamics import Dynamics
from sgmcmc.latents import Latents, LatentState
from sgmcmc.layout import Layout
from sgmcmc.minibatches import Minibatches, Tensors
from sgmcmc.recorder import Recorder
from sgmcmc.tracing import trace


class Chain:
    """The compiled functions that run a dynamics with an estimator over a data stream.

    Args:
        dynamics: how the state moves.
        estimator: how the gradient is estimated.
        minibatches: which data a step sees.
        recorder: what is written down.
        layout: the places of the parameters in the flat position.
        block_length: iterations in a block.
        compiler: compiles the functions.
        latents: draws latent variables before each gradient; ``None`` if there are none.

    Attributes:
        prepared: the form of the data stream that blocks are prepared in.
        latent_seeds: seeds that a step takes for latent variables.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        estimator: Any,
        minibatches: Minibatches,
        recorder: Recorder,
        layout: Layout,
        block_length: int,
        compiler: Compiler,
        latents: Latents | None = None,
    ) -> None:
        self.dynamics = dynamics
        self.estimator = estimator
        self.minibatches = minibatches
        self.prepared = minibatches.plain if compiler.plain else minibatches
        self.recorder = recorder
        self.layout = layout
        self.block_length = block_length
        self.latents = latents
        self.latent_seeds = 0 if latents is None else 1 + estimator.centred
        self._run = compiler.lazily(self._block)
        self._compiled_start: Any = None
        self._first_start = threading.Lock()

    def compile(self, carry: Carry, inputs: BlockInputs) -> None:
        """Compile what ``run`` runs, in this thread: here the user's functions are called.

        Args:
            carry: an example of one.
            inputs: an example of them.
        """
        self._run.compile(carry, self.minibatches.fixed, inputs, tf.constant([0, 1, 1]))

    def run(self, carry: Carry, inputs: BlockInputs, span: tf.Tensor) -> BlockResult:
        """Run some iterations of a block.

        Args:
            carry: what the iteration before left.
            inputs: what the whole block consumes.
            span: three integers: the first iteration within the block, from 0; one past the last;
                and the number, from 1, that the first has in the chain.
        """
        return self._run(carry, self.minibatches.fixed, inputs, span)

    def start(self, position: tf.Tensor, estimator: Any, inputs: BlockInputs) -> Carry:
        """Return the carry at the start of a chain.

        Args:
            position: starting position, flat and unconstrained.
            estimator: the state of the gradient estimator.
            inputs: a block of a single step, whose noise is what the dynamics starts with.
        """
        arguments = (position, estimator, self.minibatches.fixed, inputs)
        with self._first_start:
            if self._compiled_start is None:
                self._compiled_start = trace(self._start, *arguments)
        return self._compiled_start(*arguments)

    def _start(
        self, position: tf.Tensor, estimator: Any, fixed: Tensors, inputs: BlockInputs
    ) -> Carry:
        latents: LatentState | tuple[()] = ()
        if self.latents is not None:
            latents = self.latents.state(self.estimator.centred, position.dtype)
        # The state is made of the position as soon as the gradient there is known.
        carry = Carry(None, position, estimator, self.recorder.start(position), latents)
        first = tf.constant(0)
        carry = self._estimate(carry, position, fixed, inputs, first, last=first)
        stepsize = self.layout.spread(inputs.stepsizes[0])
        state = self.dynamics.init(position, carry.gradient, stepsize, inputs.noise[0])
        return carry._replace(state=state)

    def _block(
        self,
        carry: Carry,
        fixed: Tensors,
        inputs: BlockInputs,
        span: tf.Tensor,
    ) -> BlockResult:
        start, stop, iteration = tf.unstack(span)
        last = stop * self.dynamics.steps - 1
        recorder = self.recorder
        slots = recorder.slots(self.block_length)
        arrays = {
            name: tf.TensorArray(dtype, slots, element_shape=shape, clear_after_read=False)
            for name, (shape, dtype) in recorder.specs().items()
        }

        # XLA compiles anew for every value of an argument that the index of a slice can be traced
        # back to; the index of a gather may be anything.
        def one_iteration(
            i: tf.Tensor, now: tf.Tensor, slot: tf.Tensor, carry: Carry, arrays: Mapping[str, Any]
        ) -> tuple:
            carry = self._iterate(carry, fixed, inputs, i, last)
            position = carry.state.position
            carry = carry._replace(reductions=recorder.fold(carry.reductions, position, now))
            # The slot of a draw still in the making is written again until it is complete.
            values = recorder.values(position, carry.gradient, now)
            arrays = {name: array.write(slot, values[name]) for name, array in arrays.items()}
            slot += recorder.completed(now) - recorder.completed(now - 1)
            return i + 1, now + 1, slot, carry, arrays

        *_, carry, arrays = tf.while_loop(
            lambda i, *_: i < stop,
            one_iteration,
            (start, iteration, tf.constant(0), carry, arrays),
            parallel_iterations=1,
        )
        return BlockResult(
            carry,
            {name: array.stack() for name, array in arrays.items()},
            self._log_post(carry, fixed, inputs, last),
            tf.reduce_all(tf.math.is_finite(carry.state.position)),
            self.estimator.model.constrain(carry.state.position) if recorder.stepwise else {},
        )

    def _log_post(
        self, carry: Carry, fixed: Tensors, inputs: BlockInputs, step: tf.Tensor
    ) -> tf.Tensor:
        """Return the log posterior estimate from the minibatch of a step that was just taken.

        Step by step nobody sees it, and it is not a number.
        """
        if self.recorder.stepwise:
            return tf.constant(float("nan"), self.estimator.model.dtype)
        if isinstance(carry.latents, LatentState):
            return carry.latents.log_post
        last = self.minibatches.minibatch(fixed, inputs.minibatches, step)
        return self.estimator.model.log_post(carry.state.position, last, self.estimator.scale)

    def _estimate(
        self,
        carry: Carry,
        position: tf.Tensor,
        fixed: Tensors,
        inputs: BlockInputs,
        step: tf.Tensor,
        last: tf.Tensor,
    ) -> Carry:
        """Return the carry with the gradient estimated at a position, latent variables drawn.

        The log posterior is wanted after the ``last`` step alone, and estimated there: with
        latent variables it takes about as long as its gradient.
        """
        minibatch = self.minibatches.minibatch(fixed, inputs.minibatches, step)
        latents, at_centre = carry.latents, None
        if self.latents is not None and isinstance(latents, LatentState):
            rows = self.minibatches.rows(inputs.minibatches, step) if latents.here else None
            centre = carry.estimator.centre if self.estimator.centred else None
            seeds = tf.gather(inputs.seeds, step)
            model, scale = self.estimator.model, self.estimator.scale
            minibatch, at_centre, latents = self.latents.complete(
                model, latents, position, centre, minibatch, rows, seeds
            )
            if not self.recorder.stepwise:
                log_post = tf.cond(
                    tf.equal(step, last),
                    lambda: model.log_post(position, minibatch, scale),
                    lambda: latents.log_post,
                )
                latents = latents._replace(log_post=log_post)
        gradient, estimator = self.estimator.estimate(
            carry.estimator, position, minibatch, at_centre
        )
        return carry._replace(gradient=gradient, estimator=estimator, latents=latents)

    def _iterate(
        self, carry: Carry, fixed: Tensors, inputs: BlockInputs, i: tf.Tensor, last: tf.Tensor
    ) -> Carry:
        dynamics = self.dynamics
        row = 0 if inputs.stepsizes.shape[0] == 1 else i
        stepsize = self.layout.spread(tf.gather(inputs.stepsizes, row))
        normals = tf.gather(inputs.noise, i)
        refresh = dynamics.refresh_normals

        def noise(step: int | tf.Tensor) -> tf.Tensor:
            if dynamics.seeds:
                seeds = tf.gather(inputs.seeds, i * dynamics.steps + step)
                return seeds[self.latent_seeds :]
            first = refresh + step * dynamics.step_normals
            return tf.slice(normals, [first, 0], [dynamics.step_normals, self.layout.size])

        def one_step(step: int | tf.Tensor, carry: Carry) -> tuple[Any, Carry]:
            state = dynamics.move(carry.state, carry.gradient, stepsize, noise(step))
            now = i * dynamics.steps + step
            carry = self._estimate(carry, state.position, fixed, inputs, now, last)
            state = dynamics.close(state, carry.gradient, stepsize)
            return step + 1, carry._replace(state=state)

        carry = carry._replace(state=dynamics.refresh(carry.state, stepsize, normals[:refresh]))
        if dynamics.steps == 1:
            return one_step(0, carry)[1]
        return tf.while_loop(
            lambda step, _: step < dynamics.steps,
            one_step,
            (tf.constant(0), carry),
            parallel_iterations=1,
        )[1]
