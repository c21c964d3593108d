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
        ahead_steps: how many of a block's steps have what the estimator can know before the
            position is known taken ahead, on the thread that prepares blocks.
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
        ahead_steps: int,
    ) -> None:
        self.dynamics = dynamics
        self.estimator = estimator
        self.minibatches = minibatches
        self.recorder = recorder
        self.layout = layout
        self.block_length = block_length
        self.ahead_steps = ahead_steps
        self._run = compiler.lazily(self._block)
        self._look_ahead = compiler.lazily(self._ahead)
        self._nothing_ahead = tf.zeros([0, layout.size], estimator.model.dtype)
        self._compiled_start: Any = None
        self._first_start = threading.Lock()

    def compile(self, carry: Carry, inputs: BlockInputs) -> None:
        """Compile what ``run`` runs, in this thread: here the user's functions are called.

        Args:
            carry: an example of one.
            inputs: an example of them.
        """
        self._run.compile(carry, self.minibatches.fixed, inputs, tf.constant([0, 1, 1]))

    def run(
        self, carry: Carry, inputs: BlockInputs, start: int, stop: int, iteration: int
    ) -> BlockResult:
        """Run iterations ``start`` to ``stop - 1`` of a block.

        Args:
            carry: what the iteration before left.
            inputs: what the whole block consumes.
            start: first iteration within the block, from 0.
            stop: one past the last iteration within the block.
            iteration: number, from 1, of the iteration at ``start``.
        """
        span = tf.constant([start, stop, iteration])
        return self._run(carry, self.minibatches.fixed, inputs, span)

    def look_ahead(self, estimator: Any, minibatches: Tensors) -> tf.Tensor:
        """Return what the estimator can know of a block's first steps before they are run.

        Args:
            estimator: the state of the gradient estimator.
            minibatches: the block's arrays of the data stream.

        Returns:
            A row for each of the first ``ahead_steps`` steps.
        """
        if self.ahead_steps == 0:
            return self._nothing_ahead
        return self._look_ahead(estimator, self.minibatches.fixed, minibatches)

    def start(
        self,
        position: tf.Tensor,
        estimator: Any,
        minibatches: Tensors,
        stepsizes: tf.Tensor,
        normals: tf.Tensor,
    ) -> Carry:
        """Return the carry at the start of a chain.

        Args:
            position: starting position, flat and unconstrained.
            estimator: the state of the gradient estimator.
            minibatches: arrays of the data stream that hold a single minibatch.
            stepsizes: the stepsizes of the first iteration.
            normals: standard normals, (vectors, d).
        """
        arguments = (position, estimator, self.minibatches.fixed, minibatches, stepsizes, normals)
        with self._first_start:
            if self._compiled_start is None:
                self._compiled_start = trace(self._start, *arguments)
        return self._compiled_start(*arguments)

    def _start(
        self,
        position: tf.Tensor,
        estimator: Any,
        fixed: Tensors,
        minibatches: Tensors,
        stepsizes: tf.Tensor,
        normals: tf.Tensor,
    ) -> Carry:
        minibatch = self.minibatches.minibatch(fixed, minibatches, tf.constant(0))
        known = self.estimator.look_ahead(estimator, minibatch)
        gradient, estimator = self.estimator.estimate(estimator, position, minibatch, known)
        state = self.dynamics.init(position, self.layout.spread(stepsizes), normals)
        return Carry(state, gradient, estimator, self.recorder.start(position))

    def _block(
        self,
        carry: Carry,
        fixed: Tensors,
        inputs: BlockInputs,
        span: tf.Tensor,
    ) -> BlockResult:
        start, stop, iteration = tf.unstack(span)
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
            carry = self._iterate(carry, fixed, inputs, i)
            position = carry.state.position
            carry = carry._replace(reductions=recorder.fold(carry.reductions, position, now))
            # The slot of a draw still in the making is written again until it is complete.
            values = recorder.values(position, carry.gradient, now)
            arrays = {name: array.write(slot, values[name]) for name, array in arrays.items()}
            slot += recorder.completed(now) - recorder.completed(now - 1)
            return i + 1, now + 1, slot, carry, arrays

        end, _, _, carry, arrays = tf.while_loop(
            lambda i, *_: i < stop,
            one_iteration,
            (start, iteration, tf.constant(0), carry, arrays),
            parallel_iterations=1,
        )
        position = carry.state.position
        last = self._minibatch(fixed, inputs, end - 1, self.dynamics.steps - 1)
        return BlockResult(
            carry,
            {name: array.stack() for name, array in arrays.items()},
            self.estimator.model.log_post(position, last, self.estimator.scale),
            tf.reduce_all(tf.math.is_finite(position)),
        )

    def _ahead(self, estimator: Any, fixed: Tensors, minibatches: Tensors) -> tf.Tensor:
        model = self.estimator.model
        rows = tf.TensorArray(model.dtype, self.ahead_steps, element_shape=[self.layout.size])

        def one_step(step: tf.Tensor, rows: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            minibatch = self.minibatches.minibatch(fixed, minibatches, step)
            return step + 1, rows.write(step, self.estimator.look_ahead(estimator, minibatch))

        return tf.while_loop(
            lambda step, _: step < self.ahead_steps,
            one_step,
            (tf.constant(0), rows),
            parallel_iterations=1,
        )[1].stack()

    def _known(
        self, estimator: Any, inputs: BlockInputs, minibatch: Tensors, step: tf.Tensor
    ) -> tf.Tensor | None:
        """Return what the estimator knows of a step without the position."""
        if self.ahead_steps == 0:
            return self.estimator.look_ahead(estimator, minibatch)
        return tf.cond(
            step < self.ahead_steps,
            lambda: tf.gather(inputs.ahead, tf.minimum(step, self.ahead_steps - 1)),
            lambda: self.estimator.look_ahead(estimator, minibatch),
        )

    def _minibatch(
        self, fixed: Tensors, inputs: BlockInputs, i: tf.Tensor, step: int | tf.Tensor
    ) -> Tensors:
        return self.minibatches.minibatch(fixed, inputs.minibatches, i * self.dynamics.steps + step)

    def _iterate(self, carry: Carry, fixed: Tensors, inputs: BlockInputs, i: tf.Tensor) -> Carry:
        dynamics = self.dynamics
        row = 0 if inputs.stepsizes.shape[0] == 1 else i
        stepsize = self.layout.spread(tf.gather(inputs.stepsizes, row))
        noise = tf.gather(inputs.noise, i)
        refresh = dynamics.refresh_normals

        def one_step(step: int | tf.Tensor, carry: Carry) -> tuple[Any, Carry]:
            first = refresh + step * dynamics.step_normals
            normals = tf.slice(noise, [first, 0], [dynamics.step_normals, self.layout.size])
            state = dynamics.move(carry.state, carry.gradient, stepsize, normals)
            minibatch = self._minibatch(fixed, inputs, i, step)
            gradient, estimator = self.estimator.estimate(
                carry.estimator,
                state.position,
                minibatch,
                self._known(carry.estimator, inputs, minibatch, i * dynamics.steps + step),
            )
            state = dynamics.close(state, gradient, stepsize)
            return step + 1, carry._replace(state=state, gradient=gradient, estimator=estimator)

        carry = carry._replace(state=dynamics.refresh(carry.state, stepsize, noise[:refresh]))
        if dynamics.steps == 1:
            return one_step(0, carry)[1]
        return tf.while_loop(
            lambda step, _: step < dynamics.steps,
            one_step,
            (tf.constant(0), carry),
            parallel_iterations=1,
        )[1]
