"""One iteration of a chain, inside the compiled loop.

The chain always carries the gradient estimate that belongs to its position. With joint updates a
step moves every parameter with that estimate, and ends with a new one, from a fresh minibatch, at
the new position; no gradient is computed twice. In turn, a step is a pass over the parameters: each
moves in its turn, and after each the gradient is estimated again at the new position. The minibatch
is the same for all that move in a pass: that of the estimate with which the pass before ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.checks import from_outside
from sgmcmc.data.dataset import Minibatch, Tensors
from sgmcmc.dynamics import Dynamics, ExactDynamics
from sgmcmc.engine.recorder import Recorder
from sgmcmc.gradients import Gradient
from sgmcmc.gradients.latents import Latents, LatentState
from sgmcmc.minibatches.streams import Stream
from sgmcmc.model.layout import Layout
from sgmcmc.model.target import Target
from sgmcmc.model.whole_posterior import WholePosterior


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
        normals: Standard normals, (iterations, vectors, d).
        stepsizes: Stepsizes: one row for each iteration, or a single row if they never change; one
            column for each parameter, or for each coordinate, or a single column if all share a
            stepsize.
        seeds: Pairs of int32, (steps, seeds, 2): for latent variables, then for the dynamics.
    """

    minibatches: Tensors
    normals: tf.Tensor
    stepsizes: tf.Tensor
    seeds: tf.Tensor


class BlockTensors(NamedTuple):
    """A block of iterations, inside the compiled loop.

    Attributes:
        fixed: Tensors of the data stream that every block needs.
        inputs: Inputs of the block.
        last: Last step, of which the log posterior may be needed.
    """

    fixed: Tensors
    inputs: BlockInputs
    last: tf.Tensor


class UpdateOrder:
    """The order in which the named parameters move, and the parts of a state that belong to each.

    ``movers`` are the numbers of those that move; by default all do.

    A tensor of the state with an entry for each coordinate, such as a momentum, or for each
    parameter, such as a thermostat, can be divided between them; others cannot.

    Example:
        >>> order = UpdateOrder(Layout({"bias": (), "beta": (2,)}))
        >>> order.merged(1, tf.zeros(3), tf.ones(3)).numpy().tolist()
        [0.0, 1.0, 1.0]
    """

    def __init__(self, layout: Layout, movers: Sequence[int] | None = None) -> None:
        self.slices = tuple(layout.slices.values())
        self._size = layout.size
        self.movers = tuple(range(len(self.slices)) if movers is None else movers)

    def __len__(self) -> int:
        return len(self.slices)

    @property
    def complete(self) -> bool:
        """Whether all parameters move."""
        return len(self.movers) == len(self.slices)

    def divides(self, state: Any) -> bool:
        """Return whether every tensor of a state can be divided between the parameters."""
        sizes = (self._size, len(self))
        return all(
            leaf.shape.rank == 1 and leaf.shape[0] in sizes
            for leaf in tf.nest.flatten(state)
        )

    def merged(self, number: int, before: Any, after: Any) -> Any:
        """Return ``before`` with the parts of parameter ``number`` from ``after``."""

        def merge(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
            entries = self.slices[number]
            if old.shape[0] != self._size:
                entries = slice(number, number + 1)
            return tf.concat(
                [old[: entries.start], new[entries], old[entries.stop :]], 0
            )

        return tf.nest.map_structure(merge, before, after)

    def first_alone(self, gradient: tf.Tensor) -> tf.Tensor:
        """Return a gradient with zeros for all parameters but the first.

        The next pass uses no more of it, so that XLA need not compute the rest.
        """
        return self.merged(0, tf.zeros_like(gradient), gradient)


class MinibatchEstimates:
    """Estimates at any positions, from one minibatch.

    Args:
        target: Log posterior.
        gradient: Gradient estimator.
        memory: State of the estimator before it has seen the minibatch.
        minibatch: Minibatch of the step.
    """

    def __init__(
        self, target: Target, gradient: Gradient, memory: Any, minibatch: Minibatch
    ) -> None:
        self._target, self._estimator = target, gradient
        self._memory, self._minibatch = memory, minibatch

    def gradient(self, position: tf.Tensor) -> tf.Tensor:
        """Return the gradient estimate at a position, (d,)."""
        both = self._minibatch, self._minibatch
        return self._estimator.estimate(self._target, self._memory, position, *both)[0]

    def log_post(self, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the weighted terms of the rows at a position, (n,), and the log prior there."""
        target, space, minibatch = self._target, self._target.space, self._minibatch
        params = space.constrain(position)
        terms = target.terms(params, minibatch.columns)
        prior = target.prior_value(params, space.coordinates(position))
        return minibatch.weights * terms, tf.add_n([prior, *space.log_prior(position)])


@dataclass(eq=False)
class Iteration:
    """A dynamics with a gradient estimator over a data stream, one iteration at a time.

    Args:
        target: Log posterior.
        dynamics: Dynamics.
        gradient: Gradient estimator.
        stream: Data stream.
        recorder: Recorder of the draws.
        latents: Function that draws latent variables before each gradient; ``None`` if there are
            none.
        order: Order in which parameters move; ``None`` if they move together.
        unseen: Variance of the gradient's noise as a fraction of that of draws with replacement.
    """

    target: Target
    dynamics: Dynamics
    gradient: Gradient
    stream: Stream
    recorder: Recorder
    latents: Latents | None = None
    order: UpdateOrder | None = None
    unseen: float = 1.0

    def __post_init__(self) -> None:
        self._layout = self.target.space.layout
        if self.order is not None:
            self.target = self.target.concatenated()

    @property
    def lead(self) -> int:
        """Number of minibatches in a block before that of its first step.

        It is one if a pass begins with the minibatch that the pass before ended with.
        """
        return 0 if self.order is None else 1

    @property
    def latent_seeds(self) -> int:
        """Number of seeds for the latent variables of a gradient."""
        return 0 if self.latents is None else 1 + self.gradient.centered

    @property
    def latent_seeds_of_step(self) -> int:
        """Number of seeds for the latent variables of all gradients of a step."""
        return self._moves_per_step * self.latent_seeds

    @property
    def seeds_of_step(self) -> int:
        """Number of seeds that the dynamics use in a step."""
        return self._moves_per_step * self.dynamics.seeds

    @property
    def _moves_per_step(self) -> int:
        return 1 if self.order is None else len(self.order.movers)

    @property
    def own_parts(self) -> bool:
        """Whether a user wrote the dynamics or the gradient."""
        inner = getattr(self.dynamics, "inner", self.dynamics)
        return from_outside(inner) or from_outside(self.gradient)

    def begin(
        self, carry: Carry, position: tf.Tensor, minibatch: Minibatch, seeds: tf.Tensor
    ) -> Carry:
        """Return the carry with the gradient that a chain starts with."""
        started = self._estimate(carry, position, minibatch, seeds, tf.constant(True))
        return (
            started
            if self.order is None
            else started._replace(estimator=carry.estimator)
        )

    def run(
        self, carry: Carry, block: BlockTensors, i: tf.Tensor, number: tf.Tensor
    ) -> Carry:
        """Return the carry after iteration ``i`` of a block, ``number`` of the chain, from 1."""
        dynamics, inputs = self.dynamics, block.inputs
        row = 0 if inputs.stepsizes.shape[0] == 1 else i
        stepsize = self._layout.per_coordinate(tf.gather(inputs.stepsizes, row))
        if isinstance(dynamics, ExactDynamics):
            columns = self.stream.minibatch(block.fixed, inputs.minibatches, i).columns
            seed = dynamics.drawn(tf.gather(inputs.seeds, i)[0], self._layout.size)
            return self.move(carry, columns, stepsize, seed, number)
        normals = tf.gather(inputs.normals, i)
        refresh = dynamics.refresh_normals
        step_function = self._step if self.order is None else self._pass

        def one_step(step: int | tf.Tensor, carry: Carry) -> tuple[Any, Carry]:
            now = i * dynamics.steps + step
            first = refresh + step * dynamics.step_normals
            step_normals = tf.slice(
                normals, [first, 0], [dynamics.step_normals, self._layout.size]
            )
            return step + 1, step_function(carry, block, stepsize, step_normals, now)

        state = dynamics.refresh(carry.state, stepsize, normals[:refresh])
        if self.order is not None and not self.order.complete:
            state = self.order.merged(self.order.movers[0], carry.state, state)
        carry = carry._replace(state=state)
        if dynamics.steps == 1:
            return one_step(0, carry)[1]
        return tf.while_loop(
            lambda step, _: step < dynamics.steps,
            one_step,
            (tf.constant(0), carry),
            parallel_iterations=1,
        )[1]

    def move(
        self,
        carry: Carry,
        columns: Tensors,
        stepsize: tf.Tensor,
        seed: Any,
        number: tf.Tensor,
    ) -> Carry:
        """Return the carry after a transition of exact dynamics.

        Args:
            carry: State.
            columns: Whole dataset.
            stepsize: ε, a scalar or (d,).
            seed: What the dynamics have drawn for it.
            number: Number of the iteration in the chain, from 1.
        """
        assert isinstance(self.dynamics, ExactDynamics)
        dynamics = self.dynamics.of_iteration(number)
        whole = WholePosterior(self.target, columns)
        state = dynamics.transition(whole, carry.state, stepsize, seed)
        if not dynamics.tells_log_post:
            return carry._replace(state=state)
        return carry._replace(state=state, gradient=state.gradient)

    def _step(
        self,
        carry: Carry,
        block: BlockTensors,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
        now: tf.Tensor,
    ) -> Carry:
        """Return the carry after all parameters have moved together."""
        dynamics = self.dynamics
        is_last = tf.equal(now, block.last)
        numbers, seeds = self._random(block.inputs, normals, now, 0)
        state = dynamics.step(carry.state, carry.gradient, stepsize, numbers)
        minibatch = self.stream.minibatch(block.fixed, block.inputs.minibatches, now)
        memory = carry.estimator
        carry = self._estimate(carry, state.position, minibatch, seeds, is_last)
        if dynamics.learns_noise:
            state = dynamics.learn(state, self._noise(carry, state.position, minibatch))
        if dynamics.visits:
            state = dynamics.visit(
                state, MinibatchEstimates(self.target, self.gradient, memory, minibatch)
            )
        state = dynamics.finish_step(state, carry.gradient, stepsize)
        return carry._replace(state=state)

    def _noise(
        self, carry: Carry, position: tf.Tensor, minibatch: Minibatch
    ) -> tf.Tensor:
        terms = self.gradient.terms(self.target, carry.estimator, position, minibatch)
        weights = minibatch.weights
        if not isinstance(weights, float):
            weights = weights[:, tf.newaxis]
        unseen = 1.0 if self.dynamics.learns_information else self.unseen
        return unseen**0.5 * weights * terms

    def _pass(
        self,
        carry: Carry,
        block: BlockTensors,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
        now: tf.Tensor,
    ) -> Carry:
        """Return the carry after each parameter has moved in its turn.

        An estimator with a memory is updated once by each minibatch, when the pass is over: a
        minibatch that it had learned from already would no longer be a random one.
        """
        dynamics, order = self.dynamics, self.order
        assert order is not None
        is_last = tf.equal(now, block.last)
        before = carry.estimator
        for index, number in enumerate(order.movers):
            ends = index == len(order.movers) - 1
            numbers, seeds = self._random(block.inputs, normals, now, index)
            state = dynamics.step(carry.state, carry.gradient, stepsize, numbers)
            state = order.merged(number, carry.state, state)
            # The block's minibatches begin with the one that the block before ended with.
            minibatch = self.stream.minibatch(
                block.fixed, block.inputs.minibatches, now + int(ends)
            )
            learned = carry.estimator
            carry = self._estimate(
                carry._replace(estimator=learned if ends else before),
                state.position,
                minibatch,
                seeds,
                is_last if ends else tf.constant(False),
            )
            if ends:
                carry = carry._replace(estimator=learned)
            closed = dynamics.finish_step(state, carry.gradient, stepsize)
            carry = carry._replace(state=order.merged(number, state, closed))
        if self.recorder.with_gradients or not order.complete:
            return carry
        return carry._replace(gradient=order.first_alone(carry.gradient))

    def _random(
        self, inputs: BlockInputs, normals: tf.Tensor, now: tf.Tensor, index: int
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        dynamics, seeds = self.dynamics, None
        if dynamics.seeds:
            first = self.latent_seeds_of_step + index * dynamics.seeds
            normals = tf.gather(inputs.seeds, now)[first : first + dynamics.seeds]
        if self.latents is not None:
            first = index * self.latent_seeds
            seeds = tf.gather(inputs.seeds, now)[first : first + self.latent_seeds]
        return normals, seeds

    def _estimate(
        self,
        carry: Carry,
        position: tf.Tensor,
        minibatch: Minibatch,
        seeds: tf.Tensor | None,
        log_post_wanted: tf.Tensor,
    ) -> Carry:
        """Return the carry with the gradient estimated at a position, latent variables drawn.

        With latent variables the log posterior can be estimated here alone, and takes about as
        long as its gradient.
        """
        latents, at_center = carry.latents, minibatch
        if self.latents is not None and isinstance(latents, LatentState):
            center = (
                self.gradient.center(carry.estimator)
                if self.gradient.centered
                else None
            )
            minibatch, at_center, latents = self.latents.complete(
                self.target.space, latents, position, center, minibatch, seeds
            )
            if not self.recorder.stepwise:
                log_post = tf.cond(
                    log_post_wanted,
                    lambda: self.target.log_post(position, minibatch),
                    lambda: latents.log_post,
                )
                latents = latents._replace(log_post=log_post)
        gradient, estimator = self.gradient.estimate(
            self.target, carry.estimator, position, minibatch, at_center
        )
        return carry._replace(gradient=gradient, estimator=estimator, latents=latents)
