"""Stochastic gradient ascent, which finds the mode that control variates are centred at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.target.geometry import Space


class SGDState(NamedTuple):
    """The state of stochastic gradient ascent.

    Attributes:
        position: θ, flat and unconstrained.
    """

    position: tf.Tensor


@dataclass(frozen=True)
class SGD(Dynamics):
    """θ' = θ + ε ĝ(θ).

    It draws no noise and samples nothing. On manifolds it takes the tangent part of ĝ, and the
    nearest point, or one about as near, to where that leads.

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
    ) -> SGDState:
        """Return the state at the start."""
        return SGDState(position)

    def step(
        self, state: SGDState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGDState:
        """Return the state one step up the gradient."""
        if self.space is None:
            return SGDState(state.position + stepsize * gradient)
        along = self.space.tangent(state.position, gradient)
        return SGDState(self.space.retracted(state.position + stepsize * along))
