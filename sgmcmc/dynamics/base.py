"""What every dynamics has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import tensorflow as tf


class Dynamics(ABC):
    """The interface of a dynamics; its state is a ``NamedTuple`` that has a ``position``.

    Attributes:
        steps: gradients, each from a minibatch of its own, that one iteration takes.
        start_normals: vectors of standard normals that ``init`` takes.
        refresh_normals: vectors of standard normals that ``refresh`` takes, once an iteration.
        step_normals: vectors of standard normals that ``move`` takes, once a step.
        seeds: seeds that ``move`` takes in place of normals, where it draws from other laws
            itself; each is a pair of int32 that is used nowhere else.
        compilable: whether XLA can compile what it does.
    """

    steps: int = 1
    start_normals: int = 0
    refresh_normals: int = 0
    step_normals: int = 1
    seeds: int = 0
    compilable: bool = True

    @property
    def normals(self) -> int:
        """Vectors of standard normals that one iteration takes."""
        return self.refresh_normals + self.steps * self.step_normals

    @abstractmethod
    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> Any:
        """Return the state at the start of a chain; ``gradient`` is ĝ there."""

    def refresh(self, state: Any, stepsize: tf.Tensor, normals: tf.Tensor) -> Any:
        """Return the state at the start of an iteration; by default nothing is drawn afresh."""
        return state

    @abstractmethod
    def move(self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor) -> Any:
        """Return the state at the next position; ``gradient`` is ĝ at the present one.

        In place of ``normals`` comes an array of seeds where ``seeds`` asks for them.
        """

    def close(self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor) -> Any:
        """Return the state at the end of a step; ``gradient`` is ĝ at its new position.

        By default the step ended with the move.
        """
        return state
