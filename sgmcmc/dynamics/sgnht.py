"""The stochastic gradient Nosé–Hoover thermostat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.layout import Layout


class SGNHTState(NamedTuple):
    """The state of SGNHT.

    Attributes:
        position: θ, flat and unconstrained.
        momentum: ν, flat, on the scale of one step.
        thermostat: ξ, one for each named parameter.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    thermostat: tf.Tensor


@dataclass(frozen=True)
class SGNHT(Dynamics):
    """ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε.

    There is one thermostat ξ for each named parameter, and p is that parameter's size. At the
    start ν ~ N(0, ε) and ξ = a.

    Args:
        a: the diffusion: one number, or one for each coordinate, constant within a parameter.
        layout: the places of the named parameters in the flat position.

    Source:
        Ding et al., NeurIPS 2014, algorithm 2; thesis 4.3.3.
    """

    a: float | np.ndarray
    layout: Layout
    start_normals: int = 1

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGNHTState:
        """Return the state at the start of a chain."""
        a = np.broadcast_to(self.a, self.layout.size)
        starts = [a[part.start] for part in self.layout.slices.values()]
        thermostat = tf.constant(starts, position.dtype)
        return SGNHTState(position, tf.sqrt(stepsize) * normals[0], thermostat)

    def move(
        self, state: SGNHTState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGNHTState:
        """Return the state one step on; ``normals`` is ζ, of shape (1, d)."""
        a = tf.constant(self.a, gradient.dtype)
        friction = self.layout.spread(state.thermostat)
        momentum = (1.0 - friction) * state.momentum + stepsize * gradient
        momentum += tf.sqrt(2.0 * a * stepsize) * normals[0]
        excess = self.layout.means(momentum * momentum - stepsize)
        return SGNHTState(state.position + momentum, momentum, state.thermostat + excess)
