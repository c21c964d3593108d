"""Underdamped Langevin dynamics, by the BAOAB splitting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.langevin import baoa
from sgmcmc.target.constants import positive_constant
from sgmcmc.target.geometry import Space


class UnderdampedState(NamedTuple):
    """The state of underdamped Langevin dynamics.

    Attributes:
        position: θ, flat and unconstrained.
        momentum: ν, flat, on the scale of one step.
    """

    position: tf.Tensor
    momentum: tf.Tensor


@dataclass(frozen=True)
class Underdamped(Dynamics):
    """ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ; θ += ν/2; ν += (ε/2) ĝ(θ).

    c = e^(−friction). The momentum is drawn once, at the start, as ν ~ N(0, ε), and never afresh:
    only the friction makes it forget. Without minibatch noise the stationary variance of a
    Gaussian's positions is exact, whatever the stepsize.

    Args:
        friction: positive, in units of one step: a number, or a dict with one for each parameter.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.Underdamped(friction=1.0)
        Underdamped(friction=1.0)

    Source:
        Leimkuhler & Matthews, Applied Mathematics Research eXpress 2013, eq. 6.
    """

    friction: Any = 0.5

    name = "underdamped"
    start_normals = 1

    def bind(self, space: Space) -> Underdamped:
        """Return this dynamics with its constant checked."""
        return replace(self, friction=positive_constant("friction", self.friction, space.layout))

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> UnderdampedState:
        """Return the state at the start of a chain."""
        return UnderdampedState(position, tf.sqrt(stepsize) * normals[0])

    def step(
        self, state: UnderdampedState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> UnderdampedState:
        """Return the state at the next position; ``normals`` is ζ, of shape (1, d)."""
        friction = tf.constant(self.friction, gradient.dtype)
        return UnderdampedState(*baoa(*state, gradient, stepsize, friction, normals[0]))

    def finish_step(
        self, state: UnderdampedState, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> UnderdampedState:
        """Return the state after the closing half kick."""
        return UnderdampedState(state.position, state.momentum + 0.5 * stepsize * gradient)
