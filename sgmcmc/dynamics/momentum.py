"""Dynamics with a momentum: underdamped Langevin dynamics, SGHMC and the thermostats."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import choice, whole_number
from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.learning import (
    DIAGONAL,
    FISHER,
    RunningMean,
    covariance_of_sum,
    read_variance,
)
from sgmcmc.model.geometry import Space
from sgmcmc.model.layout import Layout, positive_constant


class MomentumState(NamedTuple):
    """The state of dynamics with a momentum.

    Attributes:
        position: θ, flat and unconstrained, or on all manifolds.
        momentum: ν, flat, on the scale of one step; tangent at θ on manifolds.
    """

    position: tf.Tensor
    momentum: tf.Tensor


class ThermostatState(NamedTuple):
    """The state of dynamics with a momentum and thermostats.

    Attributes:
        position: θ, flat and unconstrained, or on all manifolds.
        momentum: ν, flat, on the scale of one step; tangent at θ on manifolds.
        thermostat: ξ, one for each named parameter.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    thermostat: tf.Tensor


@dataclass(frozen=True)
class Underdamped(Dynamics):
    """ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ; θ += ν/2; ν += (ε/2) ĝ(θ).

    c = e^(−friction). The momentum is drawn once, at the start, as ν ~ N(0, ε), and never again:
    only the friction decorrelates it. Without minibatch noise the stationary variance of a
    Gaussian's positions is exact, whatever the stepsize.

    Args:
        friction: Friction, positive, in units of one step: a number, or a dict with one for each
            parameter.

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
        return replace(
            self, friction=positive_constant("friction", self.friction, space.layout)
        )

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> MomentumState:
        """Return the state at the start of a chain."""
        return MomentumState(position, tf.sqrt(stepsize) * normals[0])

    def step(
        self,
        state: MomentumState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> MomentumState:
        """Return the state at the next position; ``normals`` is ζ, of shape (1, d)."""
        friction = tf.constant(self.friction, gradient.dtype)
        # −expm1 keeps 1 − c² exact for the small friction that people use.
        zeta = tf.sqrt(-stepsize * tf.math.expm1(-2.0 * friction)) * normals[0]
        return baoa(state, gradient, stepsize, tf.exp(-friction), zeta)

    def finish_step(
        self, state: MomentumState, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> MomentumState:
        """Return the state after the closing half kick."""
        return MomentumState(state.position, state.momentum + 0.5 * stepsize * gradient)


class LearningState(NamedTuple):
    """The state of SGHMC that estimates the noise of its gradients.

    Attributes:
        position: θ, flat and unconstrained.
        momentum: ν, flat, on the scale of one step.
        variance: V, (d, d) or (d,).
        share: Largest part so far of the noise that the friction takes up that V makes.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    variance: RunningMean
    share: tf.Tensor


@dataclass(frozen=True)
class SGHMC(Dynamics):
    """An iteration draws ν ~ N(0, ε), then takes L steps of a symmetric splitting.

    ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + ζ; θ += ν/2; ν += (ε/2) ĝ(θ), with c = e^(−α) and
    ζ ~ N(0, ε(1 − c²)).

    ``integrator="euler"`` is the published update instead, which has no half kicks:
    ν ← (1 − α) ν + ε ĝ(θ) + ζ; θ ← θ + ν, with ζ ~ N(0, 2αε). Its stationary variance is wrong by a
    factor of about L/(L + 1) however small ε is.

    The noise of ĝ, of variance V, warms ν, unless ζ is reduced: by ``noise_variance`` its variance
    is 2(α − β̂)ε in the published update, with β̂ = εV/2, and ε(1 − c²) − ((1 + c)/2)² ε²V in the
    splitting. There a kick by the noise moves θ, in the long run, as far as a ζ that is (1 + c)/2
    times as large. The friction must be larger than β̂: in the splitting εV/2 may be up to
    2 tanh(α/2), which is α if that is small.

    Args:
        alpha: α > 0, the friction: a number, or a dict with one for each parameter.
        L: Number of steps in an iteration, each with a new gradient.
        integrator: Integrator, ``"symmetric"`` or ``"euler"``.
        noise_variance: V, the variance of the gradient estimate in each coordinate, not negative: a
            number, or a dict with one for each parameter; ``"fisher"``, the mean over the steps so
            far of the covariance of the rows' gradients in a minibatch, times N²/n (1 − n/N), a
            matrix: the empirical Fisher information, in units of N/n; or ``"diagonal"``, its
            diagonal. Zero reduces nothing.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGHMC(alpha=0.1).steps
        5

    Source:
        Chen, Fox & Guestrin, ICML 2014, eq. 15, in the tuning constants of Baker, *Large-Scale
        Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.2; the
        splitting is that of Leimkuhler & Matthews (2013) for underdamped Langevin dynamics.
    """

    alpha: Any = 0.01
    L: int = 5
    integrator: str = "symmetric"
    noise_variance: Any = field(default=0.0, kw_only=True)

    name = "sghmc"
    refresh_normals = 1

    @property
    def steps(self) -> int:  # type: ignore[override]
        """L."""
        return self.L

    @property
    def learns_noise(self) -> bool:  # type: ignore[override]
        """Whether V is estimated."""
        return isinstance(self.noise_variance, str)

    def bind(self, space: Space) -> SGHMC:
        """Return this dynamics with its constants checked."""
        integrator = choice("integrator", self.integrator, ["symmetric", "euler"])
        # Above 1 the factor 1 − α of Euler's step would turn the momentum round.
        upper_bound = 1.0 if integrator == "euler" else math.inf
        return replace(
            self,
            L=whole_number("L", self.L, 1),
            integrator=integrator,
            alpha=positive_constant("alpha", self.alpha, space.layout, upper_bound),
            noise_variance=read_variance(
                self.noise_variance, space.layout, (FISHER, DIAGONAL)
            ),
        )

    def check_stepsize(self, stepsize: np.ndarray) -> None:
        """Raise an error if β̂ = εV/2 exceeds the friction."""
        if self.learns_noise or not np.any(self.noise_variance):
            return
        beta = 0.5 * stepsize * self.noise_variance
        alpha = np.asarray(self.alpha, float)
        capacity = alpha if self.integrator == "euler" else 2 * np.tanh(alpha / 2)
        over = np.ravel(beta - capacity)
        if (over > 0).any():
            worst = int(np.argmax(over))
            beta, capacity = (
                np.broadcast_to(np.ravel(values), over.shape)[worst]
                for values in (beta, capacity)
            )
            raise ValueError(
                f"`noise_variance`: β̂ = εV/2 is {beta:.3g}, more than the friction takes up, "
                f"{capacity:.3g}. Use a larger `alpha`, a smaller stepsize, or larger minibatches."
            )

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> MomentumState | LearningState:
        """Return the state at the start of a chain; its momentum is drawn by ``refresh``."""
        momentum = tf.zeros_like(position)
        if not self.learns_noise:
            return MomentumState(position, momentum)
        size, dtype = position.shape[0], position.dtype
        shape = [size, size] if self.noise_variance == FISHER else [size]
        variance = RunningMean.empty(shape, dtype)
        return LearningState(position, momentum, variance, tf.zeros([], dtype))

    def refresh(self, state: Any, stepsize: tf.Tensor, normals: tf.Tensor) -> Any:
        """Return the state with a new ν ~ N(0, ε)."""
        return state._replace(momentum=tf.sqrt(stepsize) * normals[0])

    def step(
        self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> Any:
        """Return the state at the next position; ``normals`` are those of ζ, of shape (1, d)."""
        alpha = tf.constant(self.alpha, gradient.dtype)
        if self.integrator == "symmetric":
            c = tf.exp(-alpha)
            dissipated = -stepsize * tf.math.expm1(-2.0 * alpha)
            kick = 0.5 * stepsize * (1.0 + c)
            zeta, state = self._injected(state, dissipated, kick, normals[0])
            return baoa(state, gradient, stepsize, c, zeta)
        dissipated, kick = 2.0 * alpha * stepsize, stepsize
        zeta, state = self._injected(state, dissipated, kick, normals[0])
        momentum = (1.0 - alpha) * state.momentum + stepsize * gradient + zeta
        return state._replace(position=state.position + momentum, momentum=momentum)

    def finish_step(self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor) -> Any:
        """Return the state after the closing half kick, which the published update lacks."""
        if self.integrator == "euler":
            return state
        return state._replace(momentum=state.momentum + 0.5 * stepsize * gradient)

    def learn(self, state: LearningState, parts: tf.Tensor) -> LearningState:
        """Return the state with V moved toward the estimate from another minibatch."""
        covariance = covariance_of_sum(parts, self.noise_variance == DIAGONAL)
        return state._replace(variance=state.variance.updated(covariance))

    def advice(self, state: Any) -> str | None:
        """Return advice for a chain whose estimated β̂ has exceeded the friction."""
        if not self.learns_noise or not state.share > 1.0:
            return None
        return (
            f"`noise_variance`: β̂ = εV/2, estimated, is {float(state.share):.3g} times what the "
            "friction takes up. Use a larger `alpha`, a smaller stepsize, or larger minibatches."
        )

    def _injected(
        self, state: Any, dissipated: tf.Tensor, kick: tf.Tensor, normals: tf.Tensor
    ) -> tuple[tf.Tensor, Any]:
        """Return ζ, and the state with the part of its variance that V replaces.

        Args:
            state: State.
            dissipated: Variance that the friction takes, a scalar or (d,).
            kick: Size of the noise of ĝ in units of ζ, a scalar or (d,).
            normals: Standard normals, (d,).
        """
        if self.learns_noise and self.noise_variance == FISHER:
            scale = kick * tf.math.rsqrt(dissipated) * tf.ones_like(normals)
            replaced = scale[:, tf.newaxis] * state.variance.mean * scale
            # Of what is no number there are no eigenvalues; the position is none then either.
            replaced = tf.where(
                tf.math.is_finite(replaced), replaced, tf.zeros_like(replaced)
            )
            shares, vectors = tf.linalg.eigh(replaced)
            along = tf.linalg.matvec(vectors, normals, transpose_a=True)
            left = tf.linalg.matvec(vectors, _root_of_rest(shares) * along)
        elif self.learns_noise:
            shares = kick * kick / dissipated * state.variance.mean
            shares = tf.where(tf.math.is_finite(shares), shares, tf.zeros_like(shares))
            left = _root_of_rest(shares) * normals
        if self.learns_noise:
            share = tf.maximum(state.share, tf.reduce_max(shares))
            return tf.sqrt(dissipated) * left, state._replace(share=share)
        if np.any(self.noise_variance):
            dissipated -= kick * kick * tf.constant(self.noise_variance, normals.dtype)
            dissipated = tf.maximum(dissipated, tf.zeros_like(dissipated))
        return tf.sqrt(dissipated) * normals, state


def _root_of_rest(shares: tf.Tensor) -> tf.Tensor:
    """Return √(1 − share); not a number for shares above one, which ends the chain."""
    return tf.sqrt(1.0 - shares)


@dataclass(frozen=True)
class Thermostatted(Dynamics):
    """Dynamics whose friction ξ, one for each named parameter, adapts to the noise.

    At the start ν ~ N(0, ε) and ξ = a.

    Args:
        a: Diffusion, positive: a number, or a dict with one for each parameter.
        layout: Places of the named parameters in the flat position; set by ``bind``.
    """

    a: Any = 0.01
    layout: Layout | None = field(
        default=None, repr=False, metadata={"constant": False}
    )

    start_normals = 1

    def bind(self, space: Space) -> Thermostatted:
        """Return this dynamics with its constant checked, knowing which coordinates share a ξ."""
        a = positive_constant("a", self.a, space.layout)
        return replace(self, a=a, layout=space.layout)

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ThermostatState:
        """Return the state at the start of a chain."""
        assert self.layout is not None, "not bound"
        thermostat = first_thermostats(self.a, self.layout, position.dtype)
        return ThermostatState(position, tf.sqrt(stepsize) * normals[0], thermostat)


@dataclass(frozen=True)
class SGNHT(Thermostatted):
    """ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε.

    There is one thermostat ξ for each named parameter, and p is that parameter's size. At the
    start ν ~ N(0, ε) and ξ = a. The thermostat absorbs the noise of the gradient, whose size need
    not be known.

    Args:
        a: Diffusion, positive: a number, or a dict with one for each parameter.
        layout: Places of the named parameters in the flat position; set by ``bind``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGNHT(a=0.05)
        SGNHT(a=0.05)

    Source:
        Ding et al., NeurIPS 2014, algorithm 2; Baker, *Large-Scale Bayesian Computation Using
        Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.3.
    """

    name = "sgnht"

    def step(
        self,
        state: ThermostatState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ThermostatState:
        """Return the state one step on; ``normals`` is ζ, of shape (1, d)."""
        assert self.layout is not None, "not bound"
        a = tf.constant(self.a, gradient.dtype)
        friction = self.layout.per_coordinate(state.thermostat)
        momentum = (1.0 - friction) * state.momentum + stepsize * gradient
        momentum += tf.sqrt(2.0 * a * stepsize) * normals[0]
        excess = self.layout.means(momentum * momentum - stepsize)
        return ThermostatState(
            state.position + momentum, momentum, state.thermostat + excess
        )


@dataclass(frozen=True)
class BADODAB(Thermostatted):
    """A symmetric splitting of the thermostat, with one new gradient a step.

    B: ν += (ε/2) ĝ(θ); A: θ += ν/2; D: ξ += (ν·ν/p − ε)/2;
    O: ν ← e^(−ξ) ν + √(aε (1 − e^(−2ξ))/ξ) ζ; then D, A, B.

    There is one thermostat ξ for each named parameter, and p is that parameter's size. O is the
    exact solution of dν = −ξν dt + √(2aε) dW, whatever the sign of ξ. At the start ν ~ N(0, ε) and
    ξ = a. The thermostat absorbs the noise of the gradient, whose size need not be known. In the
    time of the paper, which is √ε a step, the error of averages is of second order. With few
    coordinates to a thermostat ξ fluctuates, by √(ε/p) and with it the friction.

    On manifolds :class:`GSGNHT` is the same splitting, along geodesics.

    Args:
        a: Diffusion, positive: a number, or a dict with one for each parameter.
        layout: Places of the named parameters in the flat position; set by ``bind``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.BADODAB(a=0.05)
        BADODAB(a=0.05)

    Source:
        Leimkuhler & Shang, SIAM Journal on Scientific Computing 38, 2016, section 3.
    """

    name = "badodab"

    def step(
        self,
        state: ThermostatState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ThermostatState:
        """Return the state at the next position; ``normals`` is ζ, of shape (1, d)."""
        assert self.layout is not None, "not bound"
        momentum = state.momentum + 0.5 * stepsize * gradient
        position = state.position + 0.5 * momentum
        excess = self.layout.means(momentum * momentum - stepsize)
        thermostat = state.thermostat + 0.5 * excess
        friction = self.layout.per_coordinate(thermostat)
        twice = 2.0 * tf.constant(self.a, gradient.dtype)
        noise = tf.sqrt(twice * stepsize * mean_decay(2.0 * friction)) * normals[0]
        momentum = tf.exp(-friction) * momentum + noise
        thermostat += 0.5 * self.layout.means(momentum * momentum - stepsize)
        return ThermostatState(position + 0.5 * momentum, momentum, thermostat)

    def finish_step(
        self, state: ThermostatState, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> ThermostatState:
        """Return the state after the closing half kick."""
        return state._replace(momentum=state.momentum + 0.5 * stepsize * gradient)


def first_thermostats(a: Any, layout: Layout, dtype: tf.DType) -> tf.Tensor:
    """Return ξ = a, one for each named parameter."""
    constants = np.broadcast_to(a, layout.size)
    return tf.constant(
        [constants[coordinates.start] for coordinates in layout.slices.values()], dtype
    )


def baoa(
    state: Any,
    gradient: tf.Tensor,
    stepsize: tf.Tensor,
    decay: tf.Tensor,
    noise: tf.Tensor,
) -> Any:
    """Return the state after the first four stages of BAOAB; it lacks only a closing half kick.

    ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + ζ; θ += ν/2.
    """
    momentum = state.momentum + 0.5 * stepsize * gradient
    position = state.position + 0.5 * momentum
    momentum = decay * momentum + noise
    return state._replace(position=position + 0.5 * momentum, momentum=momentum)


def mean_decay(rate: tf.Tensor) -> tf.Tensor:
    """Return (1 − e^(−x))/x, the mean of e^(−xt) over 0 < t < 1, which is 1 at x = 0."""
    small = tf.abs(rate) < 1e-8  # there the series is exact to rounding
    safe = tf.where(small, tf.ones_like(rate), rate)
    return tf.where(small, 1.0 - 0.5 * rate, -tf.math.expm1(-safe) / safe)
