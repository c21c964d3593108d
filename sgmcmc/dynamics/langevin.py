"""Langevin dynamics without a momentum, and without noise: stochastic gradient ascent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.target.geometry import Space


class PositionState(NamedTuple):
    """The state of dynamics that move only the position.

    Attributes:
        position: θ, flat and unconstrained, or on all manifolds.
    """

    position: tf.Tensor


@dataclass(frozen=True)
class SGLD(Dynamics):
    """θ' = θ + (ε/2) ĝ(θ) + √ε η.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGLD()
        SGLD()

    Source:
        Welling & Teh, ICML 2011, eq. 4; Baker, *Large-Scale Bayesian Computation Using Stochastic
        Gradient MCMC*, Lancaster 2018, eq. 4.3.2.
    """

    name = "sgld"

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> PositionState:
        """Return the state at the start of a chain."""
        return PositionState(position)

    def step(
        self, state: PositionState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> PositionState:
        """Return the state one step on; ``normals`` is η, of shape (1, d)."""
        return PositionState(overdamped(state.position, gradient, stepsize, normals[0]))


@dataclass(frozen=True)
class SGD(Dynamics):
    """θ' = θ + ε ĝ(θ).

    It draws no noise and samples nothing. On manifolds it uses the tangent part of ĝ, and retracts
    the result to a nearby point of the manifold.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGD().normals
        0

    Source:
        Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018,
        sections 3.3.1 and 4.3.4.
    """

    space: Space | None = field(default=None, repr=False, metadata={"constant": False})

    step_normals = 0
    on_manifolds = True

    def bind(self, space: Space) -> SGD:
        """Return these dynamics, knowing which parameters are on manifolds."""
        return replace(self, space=space)

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> PositionState:
        """Return the state at the start."""
        return PositionState(position)

    def step(
        self, state: PositionState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> PositionState:
        """Return the state one step up the gradient."""
        if self.space is None:
            return PositionState(state.position + stepsize * gradient)
        along = self.space.tangent(state.position, gradient)
        return PositionState(self.space.retracted(state.position + stepsize * along))


def overdamped(
    position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
) -> tf.Tensor:
    """Return θ + (ε/2) ĝ(θ) + √ε η."""
    return position + 0.5 * stepsize * gradient + tf.sqrt(stepsize) * normals
