"""Dynamics on manifolds: geodesic Monte Carlo, and the geodesic thermostat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import known_keys
from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.learning import (
    FISHER,
    RunningMean,
    covariance_of_sum,
    read_variance,
)
from sgmcmc.dynamics.momentum import (
    MomentumState,
    ThermostatState,
    first_thermostats,
    mean_decay,
)
from sgmcmc.model.geometry import Space
from sgmcmc.model.layout import positive_constant


@dataclass(frozen=True)
class GeodesicDynamics(Dynamics):
    """Moves θ along geodesics, with a velocity ν in the tangent space, on the scale of one step.

    Parameters that are on no manifold move in ℝᵈ, where geodesics are straight.

    Args:
        space: Places of the parameters; set by ``bind``.
    """

    space: Space | None = field(
        default=None,
        repr=False,
        compare=False,
        kw_only=True,
        metadata={"constant": False},
    )

    start_normals = 1
    on_manifolds = True

    def settled(
        self, position: tf.Tensor, momentum: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return position and velocity with the rounding of a step undone."""
        space = self.known_space
        position = space.retracted(position)
        return position, space.tangent(position, momentum)

    def kicked(
        self,
        position: tf.Tensor,
        momentum: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
    ) -> tf.Tensor:
        """Return ν + (ε/2) Λ(θ) ĝ(θ)."""
        space = self.known_space
        slope = space.tangent(position, space.held(position, gradient, stepsize))
        return momentum + 0.5 * stepsize * slope

    def finish_step(self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor) -> Any:
        """Return the state after the closing half kick."""
        momentum = self.kicked(state.position, state.momentum, gradient, stepsize)
        return state._replace(momentum=momentum)

    @property
    def known_space(self) -> Space:
        """Space of the parameters."""
        assert self.space is not None, "not bound"
        return self.space


class GeodesicLearningState(NamedTuple):
    """The state of SGGMC that estimates the noise of its gradients.

    Attributes:
        position: θ, flat, on all manifolds.
        momentum: ν, flat, tangent at θ, on the scale of one step.
        variance: V, (d, d).
    """

    position: tf.Tensor
    momentum: tf.Tensor
    variance: RunningMean


@dataclass(frozen=True)
class SGGMC(GeodesicDynamics):
    """A symmetric splitting of geodesic Langevin dynamics, on manifolds and in ℝᵈ.

    B: ν += (ε/2) Λ(θ) ĝ(θ), ν ← rν; A: (θ, ν) half a step along the geodesic;
    O: ν ← cν + √(ε(1 − c²)) Λ(θ) ζ with c = e^(−α); A; B.

    Λ(θ) projects onto the tangent space. The gradient noise, of variance V, warms ν; r cools it:
    the friction of both factors r of a step is β̂ = arsinh(εV/2), under which the kicks leave N(0,
    ε) invariant. There is no upper bound on V, as there is if the noise of O is reduced instead.
    In ℝᵈ, and with V = 0, this is BAOAB.

    ``noise_variance="fisher"`` uses as V the mean, over the steps so far, of the covariance of
    the single rows' gradients in a minibatch, times N²/n (1 − n/N): the empirical Fisher
    information. It is a matrix, Λ V Λ in the tangent space, and r a function of it.

    Args:
        alpha: α > 0, the friction: a number, or a dict with one for each parameter.
        noise_variance: V, the variance of the gradient estimate in each coordinate, not negative: a
            number, or a dict with one for each parameter; a function of the dict of parameters that
            returns such, in tensors; or ``"fisher"``.

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
        alpha, variance = self.alpha, self.noise_variance
        alpha = positive_constant("alpha", alpha, space.layout)
        if not callable(variance):
            also = "a function of `params` that returns such, "
            variance = read_variance(variance, space.layout, (FISHER,), also)
        return replace(self, space=space, alpha=alpha, noise_variance=variance)

    @property
    def learns_noise(self) -> bool:  # type: ignore[override]
        """Whether V is estimated."""
        return isinstance(self.noise_variance, str)

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> MomentumState | GeodesicLearningState:
        """Return the state at the start of a chain, with ν ~ N(0, ε) in the tangent space."""
        momentum = tf.sqrt(stepsize) * self.known_space.tangent(position, normals[0])
        if not self.learns_noise:
            return MomentumState(position, momentum)
        size = position.shape[0]
        variance = RunningMean.empty([size, size], position.dtype)
        return GeodesicLearningState(position, momentum, variance)

    def step(
        self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> Any:
        """Return the state at the next position; ``normals`` is ζ, of shape (1, d)."""
        space, start = self.known_space, state.position
        alpha = tf.constant(self.alpha, gradient.dtype)
        momentum = self.kicked(start, state.momentum, gradient, stepsize)
        momentum = self._cooled(state, start, momentum, stepsize)
        position, momentum = space.flow(start, momentum, 0.5)
        spread = tf.sqrt(-stepsize * tf.math.expm1(-2.0 * alpha))
        noise = spread * space.tangent(position, normals[0])
        momentum = tf.exp(-alpha) * momentum + noise
        position, momentum = space.flow(position, momentum, 0.5)
        position, momentum = self.settled(position, momentum)
        momentum = self._cooled(state, position, momentum, stepsize)
        return state._replace(position=position, momentum=momentum)

    def learn(
        self, state: GeodesicLearningState, parts: tf.Tensor
    ) -> GeodesicLearningState:
        """Return the state with V moved toward the estimate from another minibatch."""
        estimate = covariance_of_sum(parts, diagonal=False)
        return state._replace(variance=state.variance.updated(estimate))

    def _cooled(
        self, state: Any, position: tf.Tensor, momentum: tf.Tensor, stepsize: tf.Tensor
    ) -> tf.Tensor:
        """Return rν, with r⁴ + εVr² = 1."""
        if callable(self.noise_variance):
            return momentum * _cooling(0.5 * stepsize * self.variance_at(position))
        if not self.learns_noise:
            if not np.any(self.noise_variance):
                return momentum
            variance = tf.constant(self.noise_variance, momentum.dtype)
            return momentum * _cooling(0.5 * stepsize * variance)
        tangents = self.known_space.tangents
        half_tangent = tangents(position, state.variance.mean)
        variance = tangents(position, tf.transpose(half_tangent))
        # The stepsize is the same along all of a manifold, so that it does not leave Λ.
        scale = tf.broadcast_to(tf.sqrt(stepsize), momentum.shape)
        scaled_variance = 0.5 * scale[:, tf.newaxis] * variance * scale
        symmetric = 0.5 * (scaled_variance + tf.transpose(scaled_variance))
        values, vectors = tf.linalg.eigh(symmetric)
        along = tf.linalg.matvec(vectors, momentum / scale, transpose_a=True)
        cooled = _cooling(tf.maximum(values, 0.0)) * along
        return scale * tf.linalg.matvec(vectors, cooled)

    def variance_at(self, position: tf.Tensor) -> tf.Tensor:
        """Return V(θ) by the user's function, one number for each coordinate."""
        layout = self.known_space.layout
        variance = self.noise_variance(self.known_space.constrain(position))
        if isinstance(variance, Mapping):
            known_keys("noise_variance", variance, layout.names, "the parameters are")
            variances = [variance.get(name, 0.0) for name in layout.names]
        else:
            variances = [variance] * len(layout.names)
        scalars = [
            tf.cast(tf.convert_to_tensor(scalar), position.dtype)
            for scalar in variances
        ]
        if any(scalar.shape.rank for scalar in scalars):
            raise ValueError(
                "`noise_variance` must return a scalar, or a dict with one for each parameter; it "
                f"returned the shapes {[tuple(scalar.shape) for scalar in scalars]}."
            )
        sizes = layout.sizes.values()
        return tf.concat(
            [tf.fill([k], scalar) for k, scalar in zip(sizes, scalars, strict=True)], 0
        )


def _cooling(scaled_variance: tf.Tensor) -> tf.Tensor:
    """Return r of εV/2."""
    return tf.exp(-0.5 * tf.asinh(scaled_variance))


@dataclass(frozen=True)
class GSGNHT(GeodesicDynamics):
    """A symmetric splitting of the thermostat on manifolds and in ℝᵈ.

    B: ν += (ε/2) Λ(θ) ĝ(θ); A: (θ, ν) half a step along the geodesic, ξ += (ν·ν/m − ε)/2;
    O: ν ← e^(−ξ) ν + √(aε (1 − e^(−2ξ))/ξ) Λ(θ) ζ; A; B.

    There is one thermostat ξ for each named parameter, and m is the dimension of its manifold; the
    speed ‖ν‖ does not change along a geodesic. O is the exact solution of dν = −ξν dt + √(2aε) dW,
    whatever the sign of ξ. At the start ν ~ N(0, ε) in the tangent space and ξ = a. The thermostat
    absorbs the noise of the gradient, whose size need not be known.

    Args:
        a: Diffusion, positive: a number, or a dict with one for each parameter.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.GSGNHT(a=0.05)
        GSGNHT(a=0.05)

    Source:
        Liu, Zhu & Song, NeurIPS 2016, eq. 6 and section 3.3.
    """

    a: Any = 0.01

    name = "gsgnht"

    def bind(self, space: Space) -> GSGNHT:
        """Return these dynamics with their constant checked."""
        return replace(
            self, space=space, a=positive_constant("a", self.a, space.layout)
        )

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ThermostatState:
        """Return the state at the start of a chain."""
        momentum = tf.sqrt(stepsize) * self.known_space.tangent(position, normals[0])
        thermostat = first_thermostats(self.a, self.known_space.layout, position.dtype)
        return ThermostatState(position, momentum, thermostat)

    def step(
        self,
        state: ThermostatState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ThermostatState:
        """Return the state at the next position; ``normals`` is ζ, of shape (1, d)."""
        space = self.known_space
        momentum = self.kicked(state.position, state.momentum, gradient, stepsize)
        position, momentum = space.flow(state.position, momentum, 0.5)
        thermostat = state.thermostat + 0.5 * self._excess(momentum, stepsize)
        friction = space.layout.per_coordinate(thermostat)
        twice = 2.0 * tf.constant(self.a, gradient.dtype)
        spread = tf.sqrt(twice * stepsize * mean_decay(2.0 * friction))
        noise = spread * space.tangent(position, normals[0])
        momentum = tf.exp(-friction) * momentum + noise
        position, momentum = space.flow(position, momentum, 0.5)
        thermostat += 0.5 * self._excess(momentum, stepsize)
        return ThermostatState(*self.settled(position, momentum), thermostat)

    def _excess(self, momentum: tf.Tensor, stepsize: tf.Tensor) -> tf.Tensor:
        """Return ν·ν/m − ε of each parameter."""
        space = self.known_space
        layout, dimensions = space.layout, space.dimensions()
        shares = [layout.sizes[name] / dimensions[name] for name in layout.names]
        expected = stepsize if stepsize.shape.rank == 0 else layout.means(stepsize)
        mean_squares = layout.means(momentum * momentum)
        return tf.constant(shares, momentum.dtype) * mean_squares - expected
