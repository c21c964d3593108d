"""Dynamics of the position alone: Langevin, steps whose sign the gradient draws, and ascent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import choice
from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.learning import (
    FISHER,
    RunningMean,
    covariance_of_sum,
    read_variance,
)
from sgmcmc.model.geometry import Space

EXTREME = "extreme"
"""The user's value for noise of unknown size."""


@dataclass(frozen=True)
class _BarkerSettings:
    probit: float = 1.702  # 1/(1 + e^(−x)) is Φ(x/1.702) within 0.0095
    # SD of the size of bimodal increments over its root mean square
    narrow: float = 0.1


_SETTINGS = _BarkerSettings()


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
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> PositionState:
        """Return the state at the start of a chain."""
        return PositionState(position)

    def step(
        self,
        state: PositionState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
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
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> PositionState:
        """Return the state at the start."""
        return PositionState(position)

    def step(
        self,
        state: PositionState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
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


class BarkerState(NamedTuple):
    """The state of Barker dynamics that estimate the noise of their gradients.

    Attributes:
        position: θ, flat and unconstrained.
        variance: V, (d,).
    """

    position: tf.Tensor
    variance: RunningMean


@dataclass(frozen=True)
class Barker(Dynamics):
    """θ' = θ + bz, with z ~ N(0, ε) and b = 1 with probability 1/(1 + e^(−z ĝ(θ))), otherwise −1.

    Each coordinate has its own z and b. To first order in ε the moments of a step are those of
    SGLD: mean (ε/2) ĝ and variance ε. But no step is longer than z, so that large gradients, and
    stepsizes too large for the steepest direction, do not make the chain diverge.

    The noise of ĝ moves probabilities toward 1/2. For a normal noise of variance V the correction
    multiplies z ĝ by k/√(k² − Vz²), k = 1.702, if Vz² < k²; else the sign of z ĝ is used,
    which still moves too little. ``noise_variance="extreme"`` uses that everywhere.

    Args:
        noise_variance: V, the variance of the gradient estimate in each coordinate, not negative:
            a number, or a dict with one for each parameter; ``"fisher"``, the mean over the steps
            so far of the variance of the single rows' gradients in a minibatch, times N²/n
            (1 − n/N); or ``"extreme"``. Zero corrects nothing.
        increments: Distribution of z, ``"normal"``, or ``"bimodal"``: |z| near √ε.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.Barker(noise_variance="fisher")
        Barker(noise_variance='fisher', increments='normal')

    Source:
        Mauri & Zanella, AISTATS 2024, sections 2 and 3; Livingstone & Zanella, Journal of the Royal
        Statistical Society B 84, 2022, for the increments.
    """

    noise_variance: Any = 0.0
    increments: str = "normal"

    name = "barker"
    step_normals = 2

    @property
    def learns_noise(self) -> bool:  # type: ignore[override]
        """Whether V is estimated."""
        return isinstance(self.noise_variance, str) and self.noise_variance == FISHER

    def bind(self, space: Space) -> Barker:
        """Return these dynamics with their constants checked."""
        increments = choice("increments", self.increments, ["normal", "bimodal"])
        words = (FISHER, EXTREME)
        variance = read_variance(self.noise_variance, space.layout, words, matrix=False)
        return replace(self, noise_variance=variance, increments=increments)

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> PositionState | BarkerState:
        """Return the state at the start of a chain."""
        if not self.learns_noise:
            return PositionState(position)
        variance = RunningMean.empty(position.shape, position.dtype)
        return BarkerState(position, variance)

    def step(
        self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> Any:
        """Return the state one step on; ``normals`` are those of z and of b, of shape (2, d)."""
        size = normals[0]
        if self.increments == "bimodal":
            # The sign of z makes no difference to bz.
            size = math.sqrt(1.0 - _SETTINGS.narrow**2) + _SETTINGS.narrow * size
        z = tf.sqrt(stepsize) * size
        # Φ of a standard normal is uniform.
        uniform = 0.5 * tf.math.erfc(-normals[1] / math.sqrt(2.0))
        increment = tf.where(uniform <= self._probability(state, z, gradient), z, -z)
        return state._replace(position=state.position + increment)

    def learn(self, state: BarkerState, parts: tf.Tensor) -> BarkerState:
        """Return the state with V moved toward the estimate from another minibatch."""
        estimate = covariance_of_sum(parts, diagonal=True)
        return state._replace(variance=state.variance.updated(estimate))

    def _probability(self, state: Any, z: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """Return the probability of b = 1."""
        sign = 0.5 * (1.0 + tf.sign(z * gradient))
        if isinstance(self.noise_variance, str) and not self.learns_noise:
            return sign
        if not self.learns_noise and not np.any(self.noise_variance):
            return tf.sigmoid(z * gradient)
        if self.learns_noise:
            variance = state.variance.mean
        else:
            variance = tf.constant(self.noise_variance, z.dtype)
        left = 1.0 - variance * z * z / _SETTINGS.probit**2
        safe = tf.where(left > 0.0, left, tf.ones_like(left))
        corrected = tf.sigmoid(z * gradient * tf.math.rsqrt(safe))
        return tf.where(left > 0.0, corrected, sign)


@dataclass(frozen=True)
class SGLRW(Dynamics):
    """θ' = θ + √ε b, with b = 1 with probability (1 + √ε ĝ(θ)/2)/2, otherwise −1, by coordinate.

    The probability is cut off at 0 and 1. A step has the mean (ε/2) ĝ and the second moment ε, as
    one of SGLD has to first order in ε, but it is never longer than √ε in any coordinate, and its
    second moment is ε whatever the noise of ĝ is.

    On a normal posterior, if probabilities are not cut off, the covariance Σ solves
    ε(HΣ + ΣH)/2 = εI + (ε²/4) offdiag(HΣH + V), with H the precision and V the covariance of ĝ:
    the noise of gradients, and the discretization, come in only through what coordinates share. In
    coordinates that are independent of each other, noise included, variances are exact at any ε.
    Beyond |ĝ| = 2/√ε the probability is cut off, and the drift is too small there.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGLRW()
        SGLRW()

    Source:
        Mensch, Holdijk, Duffield, Aifer, Coles, Welling & Cheng, arXiv 2602.15925, 2026. The
        equation is written here in the constants of SGLD.
    """

    name = "sglrw"

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> PositionState:
        """Return the state at the start of a chain."""
        return PositionState(position)

    def step(
        self,
        state: PositionState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> PositionState:
        """Return the state one step on; ``normals`` are those that draw b, of shape (1, d)."""
        size = tf.sqrt(stepsize) * tf.ones_like(gradient)
        # 2Φ(z) − 1 of a standard normal z is uniform on (−1, 1).
        uniform = tf.math.erf(normals[0] / math.sqrt(2.0))
        tilt = 0.5 * size * gradient
        increment = tf.where(uniform <= tilt, size, -size)
        # A tilt that is not a number must not go unseen.
        return PositionState(
            state.position + tf.where(tf.math.is_nan(tilt), tilt, increment)
        )
