"""Stochastic gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.checks import choice, whole_number
from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.langevin import baoa
from sgmcmc.target.constants import positive_constant
from sgmcmc.target.geometry import Space


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
    """An iteration draws ν ~ N(0, ε), then takes L steps of a symmetric splitting.

    ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ with c = e^(−α); θ += ν/2; ν += (ε/2) ĝ(θ).

    ``integrator="euler"`` is the published update instead, which has no half kicks:
    ν ← (1 − α) ν + ε ĝ(θ) + √(2αε) ζ; θ ← θ + ν. Its stationary variance is wrong by a factor of
    about L/(L + 1) however small ε is.

    Args:
        alpha: α > 0, the friction: a number, or a dict with one for each parameter.
        L: the number of steps in an iteration, each with a gradient of its own.
        integrator: ``"symmetric"`` or ``"euler"``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGHMC(alpha=0.1).steps
        5

    Source:
        Chen, Fox & Guestrin, ICML 2014, eq. 15, in the tuning constants of Baker, *Large-Scale
        Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.3; the
        splitting is that of Leimkuhler & Matthews (2013) for underdamped Langevin dynamics.
    """

    alpha: Any = 0.01
    L: int = 5
    integrator: str = "symmetric"

    name = "sghmc"
    refresh_normals = 1

    @property
    def steps(self) -> int:  # type: ignore[override]
        """L."""
        return self.L

    def bind(self, space: Space) -> SGHMC:
        """Return this dynamics with its constants checked."""
        integrator = choice("integrator", self.integrator, ["symmetric", "euler"])
        # Above 1 the factor 1 − α of Euler's step would turn the momentum round.
        most = 1.0 if integrator == "euler" else math.inf
        return replace(
            self,
            L=whole_number("L", self.L, 1),
            integrator=integrator,
            alpha=positive_constant("alpha", self.alpha, space.layout, most),
        )

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGHMCState:
        """Return the state at the start of a chain; its momentum is drawn by ``refresh``."""
        return SGHMCState(position, tf.zeros_like(position))

    def refresh(self, state: SGHMCState, stepsize: tf.Tensor, normals: tf.Tensor) -> SGHMCState:
        """Return the state with ν ~ N(0, ε) drawn afresh."""
        return SGHMCState(state.position, tf.sqrt(stepsize) * normals[0])

    def step(
        self, state: SGHMCState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGHMCState:
        """Return the state at the next position; ``normals`` is ζ, of shape (1, d)."""
        alpha = tf.constant(self.alpha, gradient.dtype)
        if self.integrator == "symmetric":
            return SGHMCState(*baoa(*state, gradient, stepsize, alpha, normals[0]))
        noise = tf.sqrt(2.0 * alpha * stepsize) * normals[0]
        momentum = (1.0 - alpha) * state.momentum + stepsize * gradient + noise
        return SGHMCState(state.position + momentum, momentum)

    def finish_step(
        self, state: SGHMCState, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> SGHMCState:
        """Return the state after the closing half kick, which the published update lacks."""
        if self.integrator == "euler":
            return state
        return SGHMCState(state.position, state.momentum + 0.5 * stepsize * gradient)
