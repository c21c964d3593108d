"""Stochastic gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics


class SGHMCState(NamedTuple):
    """The state of SGHMC.

    Attributes:
        position: θ, flat and unconstrained.
        momentum: ν, flat, on the scale of one step.
    """

    position: tf.Tensor
    momentum: tf.Tensor


@dataclass(frozen=True)
class SGHMC(Dynamics):
    """An iteration draws ν ~ N(0, ε), then takes L steps of a symmetric splitting:

    ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ with c = e^(−α); θ += ν/2; ν += (ε/2) ĝ(θ).

    With ``euler`` it takes the published update instead, which has no half kicks:
    ν ← (1 − α) ν + ε ĝ(θ) + √(2αε) ζ; θ ← θ + ν.

    Args:
        alpha: α, the friction: one number, or one for each coordinate.
        steps: L, the number of steps in an iteration.
        euler: take the published update.

    Source:
        Chen, Fox & Guestrin, ICML 2014, eq. 15, in the tuning constants of thesis 4.3.3; the
        splitting is that of Leimkuhler & Matthews (2013) for underdamped Langevin dynamics.
    """

    alpha: float | np.ndarray
    steps: int = 5
    euler: bool = False
    refresh_normals: int = 1

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGHMCState:
        """Return the state at the start of a chain; its momentum is drawn by ``refresh``."""
        return SGHMCState(position, tf.zeros_like(position))

    def refresh(self, state: SGHMCState, stepsize: tf.Tensor, normals: tf.Tensor) -> SGHMCState:
        """Return the state with ν ~ N(0, ε) drawn afresh."""
        return SGHMCState(state.position, tf.sqrt(stepsize) * normals[0])

    def move(
        self, state: SGHMCState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGHMCState:
        """Return the state at the next position; ``normals`` is ζ, of shape (1, d)."""
        alpha = tf.constant(self.alpha, gradient.dtype)
        position, momentum = state
        if self.euler:
            noise = tf.sqrt(2.0 * alpha * stepsize) * normals[0]
            momentum = (1.0 - alpha) * momentum + stepsize * gradient + noise
            return SGHMCState(position + momentum, momentum)
        decay = tf.exp(-alpha)
        # −expm1 keeps 1 − c² exact for the small α that people use.
        spread = tf.sqrt(-stepsize * tf.math.expm1(-2.0 * alpha))
        momentum += 0.5 * stepsize * gradient
        position += 0.5 * momentum
        momentum = decay * momentum + spread * normals[0]
        position += 0.5 * momentum
        return SGHMCState(position, momentum)

    def close(self, state: SGHMCState, gradient: tf.Tensor, stepsize: tf.Tensor) -> SGHMCState:
        """Return the state after the closing half kick, which the published update lacks."""
        if self.euler:
            return state
        return SGHMCState(state.position, state.momentum + 0.5 * stepsize * gradient)
