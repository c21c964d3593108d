"""Stochastic gradient Langevin dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.langevin import overdamped


class SGLDState(NamedTuple):
    """The state of SGLD.

    Attributes:
        position: θ, flat and unconstrained.
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
        Gradient MCMC*, Lancaster 2018, section 4.3.2.
    """

    name = "sgld"

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGLDState:
        """Return the state at the start of a chain."""
        return SGLDState(position)

    def step(
        self, state: SGLDState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGLDState:
        """Return the state one step on; ``normals`` is η, of shape (1, d)."""
        return SGLDState(overdamped(state.position, gradient, stepsize, normals[0]))
