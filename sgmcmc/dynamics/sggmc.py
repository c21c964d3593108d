"""Stochastic gradient geodesic Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics.geodesic import GeodesicDynamics
from sgmcmc.target.constants import constant_not_negative, positive_constant
from sgmcmc.target.geometry import Space


class SGGMCState(NamedTuple):
    """The state of SGGMC.

    Attributes:
        position: θ, flat, on all manifolds.
        momentum: ν, flat, tangent at θ, on the scale of one step.
    """

    position: tf.Tensor
    momentum: tf.Tensor


@dataclass(frozen=True)
class SGGMC(GeodesicDynamics):
    """A symmetric splitting of geodesic Langevin dynamics, on manifolds and in ℝᵈ.

    B: ν += (ε/2) Λ(θ) ĝ(θ), ν ← rν; A: (θ, ν) half a step along the geodesic;
    O: ν ← cν + √(ε(1 − c²)) Λ(θ) ζ with c = e^(−α); A; B.

    Λ(θ) projects onto the tangent space. The gradient noise, of variance V, warms ν; r cools it:
    the friction of both factors r of a step is β̂ = arsinh(εV/2), with which N(0, ε) is what kicks
    leave as it is. There is no upper bound on V, as there is where the noise of O is lessened
    instead. In ℝᵈ, and with V = 0, this is BAOAB.

    Args:
        alpha: α > 0, the friction: a number, or a dict with one for each parameter.
        noise_variance: V, the variance of the gradient estimate in each coordinate, not negative: a
            number, or a dict with one for each parameter.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGGMC(alpha=0.2)
        SGGMC(alpha=0.2, noise_variance=0.0)

    Source:
        Liu, Zhu & Song, NeurIPS 2016, section 3.3 and eq. 8, in the order of Leimkuhler & Matthews,
        Proceedings of the Royal Society A 472, 2016, which has a gradient at the draws themselves.
    """

    alpha: Any = 0.1
    noise_variance: Any = 0.0

    name = "sggmc"

    def bind(self, space: Space) -> SGGMC:
        """Return these dynamics with their constants checked."""
        return replace(
            self,
            space=space,
            alpha=positive_constant("alpha", self.alpha, space.layout),
            noise_variance=constant_not_negative(
                "noise_variance", self.noise_variance, space.layout
            ),
        )

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGGMCState:
        """Return the state at the start of a chain, with ν ~ N(0, ε) in the tangent space."""
        momentum = tf.sqrt(stepsize) * self.known_space.tangent(position, normals[0])
        return SGGMCState(position, momentum)

    def step(
        self, state: SGGMCState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGGMCState:
        """Return the state at the next position; ``normals`` is ζ, of shape (1, d)."""
        space = self.known_space
        alpha = tf.constant(self.alpha, gradient.dtype)
        momentum = self.kicked(*state, gradient, stepsize)
        momentum = self._cooled(momentum, stepsize)
        position, momentum = space.flow(state.position, momentum, 0.5)
        spread = tf.sqrt(-stepsize * tf.math.expm1(-2.0 * alpha))
        noise = spread * space.tangent(position, normals[0])
        position, momentum = space.flow(position, tf.exp(-alpha) * momentum + noise, 0.5)
        position, momentum = self.settled(position, momentum)
        return SGGMCState(position, self._cooled(momentum, stepsize))

    def finish_step(
        self, state: SGGMCState, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> SGGMCState:
        """Return the state after the closing half kick."""
        return SGGMCState(state.position, self.kicked(*state, gradient, stepsize))

    def _cooled(self, momentum: tf.Tensor, stepsize: tf.Tensor) -> tf.Tensor:
        """Return rν, with r⁴ + εVr² = 1."""
        if not np.any(self.noise_variance):
            return momentum
        half = 0.5 * stepsize * tf.constant(self.noise_variance, momentum.dtype)
        return momentum * tf.exp(-0.5 * tf.asinh(half))
