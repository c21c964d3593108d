"""Dynamics that leave the posterior exactly as it is, by accepting and rejecting."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics

LogPost = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Returns the log posterior over the whole dataset, a scalar, and its gradient, (d,), in float64,
at a flat position."""


class ExactDynamics(Dynamics):
    """How the state of a chain moves, given the log posterior over the whole dataset.

    In place of ``refresh``, ``step`` and ``finish_step`` an iteration is one ``transition``. The
    state is a ``NamedTuple`` of tensors that has a ``position``, the ``log_post`` there, in
    float64, and its ``gradient``, in the dtype of the position. They go with ``gradient="full"``
    alone.

    Attributes:
        acceptance: the acceptance rate that a stepsize is chosen for.

    Example:
        >>> import dataclasses, sgmcmc, tensorflow as tf
        >>> from typing import NamedTuple
        >>> class State(NamedTuple):
        ...     position: tf.Tensor
        ...     log_post: tf.Tensor
        ...     gradient: tf.Tensor
        >>> @dataclasses.dataclass(frozen=True)
        ... class RandomWalk(sgmcmc.dynamics.ExactDynamics):
        ...     def start(self, log_post, position):
        ...         value, gradient = log_post(position)
        ...         return State(position, value, tf.cast(gradient, position.dtype))
        ...     def transition(self, log_post, state, stepsize, seed):
        ...         now = state.position
        ...         move = tf.random.stateless_normal(now.shape, seed, dtype=now.dtype)
        ...         there = self.start(log_post, now + stepsize * move)
        ...         u = tf.random.stateless_uniform([], seed + 1, dtype=tf.float64)
        ...         accept = tf.math.log(u) < there.log_post - state.log_post
        ...         return tf.nest.map_structure(lambda a, b: tf.where(accept, a, b), there, state)
        >>> RandomWalk().seeds
        1
    """

    step_normals = 0
    seeds = 1
    acceptance: float = 0.8

    @abstractmethod
    def start(self, log_post: LogPost, position: tf.Tensor) -> Any:
        """Return the state at the start of a chain.

        Args:
            log_post: gives the log posterior and its gradient.
            position: θ, flat, (d,).
        """

    @abstractmethod
    def transition(
        self, log_post: LogPost, state: Any, stepsize: tf.Tensor, seed: tf.Tensor
    ) -> Any:
        """Return the state after a move that leaves the posterior as it is.

        Args:
            log_post: gives the log posterior and its gradient.
            state: the state.
            stepsize: ε, a scalar or (d,).
            seed: two int32, used nowhere else.
        """

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> Any:
        """Raise an error: ``start`` takes its place."""
        raise TypeError(f"{type(self).__name__} needs the log posterior, not only its gradient")

    def step(self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor) -> Any:
        """Raise an error: ``transition`` takes its place."""
        raise TypeError(f"{type(self).__name__} needs the log posterior, not only its gradient")
