"""Isokinetic dynamics: a momentum of constant length, which gradients and noise only turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, flag, is_number, positive_number
from sgmcmc.dynamics.base import Dynamics, Elsewhere
from sgmcmc.dynamics.learning import (
    BURN_IN,
    RunningMean,
    covariance_of_sum,
    frozen_after,
    read_until,
)
from sgmcmc.model.geometry import Space


@dataclass(frozen=True)
class _TunerSettings:
    first_errors: float = 10.0  # energy errors before which the tuner changes nothing


_SETTINGS = _TunerSettings()


class EnergyState(NamedTuple):
    """State of the estimate of the energy errors.

    Attributes:
        start: θ before the step, (d,).
        gradient: ĝ(θ) there, (d,).
        change: Energy that the step has added so far.
        log_factor: Logarithm of the stepsize over that which was given.
        mean, variance: Moments of the absolute energy errors, the last with the largest weight.
        count: Number of errors so far; constant once the tuning has ended.
        refused: Number of steps that were undone.
        undone: 1 if the last step was, 0 otherwise.
    """

    start: tf.Tensor
    gradient: tf.Tensor
    change: tf.Tensor
    log_factor: tf.Tensor
    mean: tf.Tensor
    variance: tf.Tensor
    count: tf.Tensor
    refused: tf.Tensor
    undone: tf.Tensor


class IsokineticState(NamedTuple):
    """The state of isokinetic dynamics.

    Attributes:
        position: θ, flat and unconstrained.
        direction: u, of length 1, (d,); zero after a step that was undone.
        noise: V, a :class:`RunningMean` of (d,); an empty tuple without preconditioning.
        energy: Estimates of the energy errors, an :class:`EnergyState`; an empty tuple without a
            tuner.
    """

    position: tf.Tensor
    direction: tf.Tensor
    noise: Any = ()
    energy: Any = ()


@dataclass(frozen=True)
class EnergyTuner:
    """A stepsize that follows the distribution of the energy errors of :class:`SMILE`.

    The energy error of a step from θ to θ' is ΔE = K₁ + K₂ − [log p(θ'|x) − log p(θ|x)], with both
    log posteriors from the minibatch of the gradient at θ', and K = (d − 1) log(cosh δ + (e·u) sinh
    δ) of each half turn, δ = |Sĝ|/(2(d − 1)), e = ĝ/|ĝ|. |ΔE| has a gamma distribution with the
    moments of the errors so far, in which each weighs β more than the one before; of its quantiles
    q: if |ΔE| > q(1 − 2a/3), ε ← (1 − κ)ε; if |ΔE| < q(a/3), ε ← (1 + κ)ε. If |ΔE| > q(reset) the
    step is undone, and the next begins in the direction of the gradient.

    The rule has no target for the size of the errors: it tests whether their distribution has
    the tails of a gamma distribution. Stepsizes that are far too large fall and others change
    slowly, from a given value that still matters.

    Args:
        adaptation: a, between 0 and 1; 0 leaves the stepsize as it is.
        strength: κ, between 0 and 1.
        smoothing: β, between 0 and 1.
        reset: Probability of the quantile beyond which steps are undone, from 0 to 1; at 1 none is
            but those whose error is not finite.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SMILE(tuner=sgmcmc.dynamics.EnergyTuner(strength=0.05)).tuner.strength
        0.05

    Source:
        The rule and its constants are those of the authors' program for *Can Microcanonical
        Langevin Dynamics Leverage Mini-Batch Gradient Noise?*, ICML 2026 (arXiv 2602.06500). There
        log p(θ|x) is from the minibatch before, so that the difference of the minibatches, which
        does not depend on ε, is most of ΔE.
    """

    adaptation: float = 0.05
    strength: float = 0.02
    smoothing: float = 0.01
    reset: float = 0.99

    def check(self) -> None:
        """Raise an error if a constant is not a proportion."""
        for name in ("adaptation", "strength", "smoothing", "reset"):
            value = getattr(self, name)
            if not is_number(value):
                raise TypeError(f"`{name}` must be a number; it is {describe(value)}.")
            includes_zero, includes_one = name == "adaptation", name == "reset"
            above = value > 0 or (value == 0 and includes_zero)
            below = value < 1 or (value == 1 and includes_one)
            if not (above and below):
                first = "[" if includes_zero else "("
                last = "]" if includes_one else ")"
                raise ValueError(
                    f"`{name}` must be in {first}0, 1{last}; it is {value!r}."
                )

    def quantile(self, energy: EnergyState, probability: float) -> tf.Tensor:
        """Return a quantile of the gamma distribution, by Wilson and Hilferty's approximation."""
        z = NormalDist().inv_cdf(probability)
        square = energy.mean * energy.mean
        tiny = np.finfo(np.float32).tiny
        ratio = energy.variance / tf.maximum(square, tiny)  # 1/shape
        root = 1.0 - ratio / 9.0 + z / 3.0 * tf.sqrt(ratio)
        return energy.mean * tf.maximum(root, 0.0) ** 3

    def judged(self, energy: EnergyState, error: tf.Tensor) -> EnergyState:
        """Return the estimates after another |ΔE|, the stepsize, and whether to undo the step."""
        one = tf.ones_like(error)
        finite = tf.math.is_finite(error)
        has_estimates = energy.count >= _SETTINGS.first_errors
        limit = self.quantile(energy, self.reset) if self.reset < 1 else one * np.inf
        undone = ~finite | (has_estimates & (error > limit))
        log_factor = energy.log_factor
        if self.adaptation:
            large = error > self.quantile(energy, 1.0 - 2.0 * self.adaptation / 3.0)
            small = error < self.quantile(energy, self.adaptation / 3.0)
            down, up = np.log1p(-self.strength), np.log1p(self.strength)
            change = tf.where(small, up * one, 0.0 * one)
            change = tf.where(large | ~finite, down * one, change)
            log_factor += tf.where(has_estimates | ~finite, change, 0.0 * one)
        weight = tf.maximum(self.smoothing * one, 1.0 / (energy.count + 1.0))
        off = tf.where(finite, error - energy.mean, 0.0 * one)
        return energy._replace(
            log_factor=log_factor,
            mean=energy.mean + weight * off,
            variance=(1.0 - weight) * (energy.variance + weight * off * off),
            count=energy.count + 1.0,
            refused=energy.refused + tf.cast(undone, error.dtype),
            undone=tf.cast(undone, error.dtype),
        )


@dataclass(frozen=True)
class SMILE(Dynamics):
    """Microcanonical Langevin dynamics with stochastic gradients: B, A, O, A, B.

    B: u turns toward ĝ(θ), as in half a step of du/dt = P(u) S ĝ/(d − 1), in closed form; A: θ +=
    S u/2; O: u ← (u + ηz)/|u + ηz| with z standard normal and η² = (e^(2 friction) − 1)/d. u has
    length 1, P(u) projects on what is orthogonal to it, and S = √(dε): a step moves each coordinate
    by √ε on average, as one of underdamped dynamics does.

    In continuous time the posterior is the stationary distribution. Noise of ĝ that is alike in all
    coordinates turns u at random, as O does, and changes nothing; noise that is not biases the
    chain, however small ε is against it. ``preconditioned=True`` scales coordinates by S_i =
    √(dε) s_i, with s_i in proportion to 1/√V_i and a geometric mean of 1, V_i the variance of ĝ_i,
    learned in the burn-in and then frozen: in the scaled coordinates the noise has the same
    variance in each. (Noise with correlations needs its inverse covariance as ``preconditioner``.)
    A step is never longer than S, so that large gradients do not make the chain diverge.

    Args:
        friction: Rate, per step, at which u is refreshed, positive.
        preconditioned: Whether coordinates are scaled by their noise (pSMILE); it needs minibatches
            whose rows show it.
        until: End of the learning of V and of the tuning: ``"burn_in"``, or the number of
            iterations, burn-in included; ``None`` never freezes V, and there is no tuner then.
        tuner: :class:`EnergyTuner` of the stepsize, which needs a ``log_lik`` with terms; ``None``
            leaves ε as it is given.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SMILE(friction=0.2)
        SMILE(friction=0.2, preconditioned=False, until='burn_in', tuner=None)

    Source:
        Robnik & Seljak, *Microcanonical Langevin Monte Carlo*, 2023, for exact gradients; *Can
        Microcanonical Langevin Dynamics Leverage Mini-Batch Gradient Noise?*, arXiv 2602.06500,
        2026, for stochastic ones and the scaling by noise. The scaling is derived here from the
        condition that the noise be alike in all coordinates.
    """

    friction: float = 0.1
    preconditioned: bool = False
    until: int | str | None = BURN_IN
    tuner: EnergyTuner | None = None

    name = "smile"
    start_normals = 1
    separable = False

    @property
    def learns_noise(self) -> bool:  # type: ignore[override]
        """Whether V is estimated."""
        return self.preconditioned

    @property
    def visits(self) -> bool:  # type: ignore[override]
        """Whether energy errors are computed."""
        return self.tuner is not None

    def after_burn_in(self, burn_in: int) -> SMILE:
        """Return these dynamics, with the iteration at which V and the stepsize are frozen."""
        if not self.preconditioned and self.tuner is None:
            return self
        what = "its scales" if self.preconditioned else "its stepsize"
        resets = self.tuner is not None and self.tuner.reset < 1
        if resets and isinstance(self.until, int) and self.until > burn_in:
            raise ValueError(
                f"`until`: SMILE's tuner undoes steps, so that it must end with the burn-in, which "
                f"has {burn_in} iterations; it is {self.until}."
            )
        return replace(self, until=frozen_after(self.until, burn_in, self, what))

    def bind(self, space: Space) -> SMILE:
        """Return these dynamics with their constants checked."""
        if space.layout.size < 2:
            raise ValueError(
                "`dynamics`: SMILE turns a direction, and with a single coordinate there is none. "
                "Use 'underdamped'."
            )
        flag("preconditioned", self.preconditioned)
        friction = positive_number("friction", self.friction)
        until = read_until(self.until)
        if self.tuner is not None:
            if not isinstance(self.tuner, EnergyTuner):
                raise TypeError(
                    "`tuner` must be sgmcmc.dynamics.EnergyTuner(...) or None; it is "
                    f"{describe(self.tuner)}."
                )
            self.tuner.check()
            if until is None:
                raise ValueError(
                    "`until`: a stepsize that is tuned for ever has no stationary distribution. "
                    "Use 'burn_in', or a number of iterations."
                )
        return replace(self, friction=friction, until=until)

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> IsokineticState:
        """Return the state at the start of a chain, with a uniform direction."""
        state = IsokineticState(position, tf.math.l2_normalize(normals[0]))
        shape, dtype = position.shape, position.dtype
        if self.preconditioned:
            state = state._replace(noise=RunningMean.empty(shape, dtype))
        if self.tuner is not None:
            zero, zeros = tf.zeros([], dtype), tf.zeros_like(position)
            state = state._replace(energy=EnergyState(position, zeros, *[zero] * 7))
        return state

    def step(
        self,
        state: IsokineticState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> IsokineticState:
        """Return the state at the next position; ``normals`` is z, of shape (1, d)."""
        if self.tuner is None:
            return self._baoa(state, gradient, stepsize, normals[0])[0]
        energy = state.energy
        # An undone step has left the gradient of its end.
        gradient = tf.where(energy.undone > 0.0, energy.gradient, gradient)
        opened, kinetic = self._baoa(state, gradient, stepsize, normals[0])
        energy = energy._replace(
            start=state.position, gradient=gradient, change=kinetic
        )
        return opened._replace(energy=energy)

    def _baoa(
        self,
        state: IsokineticState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> tuple[IsokineticState, tf.Tensor]:
        """Return the state after B, A, O, A, and the energy that B adds."""
        lengths = self._lengths(state, stepsize)
        size = gradient.shape[0]
        direction, kinetic = _rotated(state.direction, lengths * gradient)
        position = state.position + 0.5 * lengths * direction
        eta = float(np.sqrt(np.expm1(2.0 * self.friction) / size))
        direction = tf.math.l2_normalize(direction + eta * normals)
        position += 0.5 * lengths * direction
        return state._replace(position=position, direction=direction), kinetic

    def finish_step(
        self, state: IsokineticState, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> IsokineticState:
        """Return the state after the closing half turn, or before the step if it is undone."""
        slope = self._lengths(state, stepsize) * gradient
        direction, kinetic = _rotated(state.direction, slope)
        if self.tuner is None:
            return state._replace(direction=direction)
        energy = state.energy
        judged = self.tuner.judged(energy, tf.abs(energy.change + kinetic))
        learns = self._tunes(energy)
        energy = tf.nest.map_structure(
            lambda new, old: tf.where(learns, new, old),
            judged,
            energy._replace(undone=tf.zeros_like(energy.undone)),
        )
        undone = energy.undone > 0.0
        return state._replace(
            position=tf.where(undone, energy.start, state.position),
            direction=tf.where(undone, tf.zeros_like(direction), direction),
            energy=energy,
        )

    def learn(self, state: IsokineticState, parts: tf.Tensor) -> IsokineticState:
        """Return the state with V moved toward the estimate from another minibatch."""
        estimate = covariance_of_sum(parts, diagonal=True)
        return state._replace(noise=state.noise.updated(estimate, self.until))

    def visit(self, state: IsokineticState, elsewhere: Elsewhere) -> IsokineticState:
        """Return the state with the change of the log posterior, while the stepsize is tuned."""
        energy, start, end = state.energy, state.energy.start, state.position

        def gained() -> tf.Tensor:
            before, prior_before = elsewhere.log_post(start)
            after, prior_after = elsewhere.log_post(end)
            gain = tf.reduce_sum(after - before) + (prior_after - prior_before)
            return tf.cast(gain, energy.change.dtype)

        zero = tf.zeros_like(energy.change)
        gain = tf.cond(self._tunes(energy), gained, lambda: zero)
        return state._replace(energy=energy._replace(change=energy.change - gain))

    def facts(self, state: IsokineticState) -> dict[str, float]:
        """Return the tuner's stepsize and number of undone steps."""
        if self.tuner is None:
            return {}
        energy = state.energy
        return {
            "stepsize, tuned, over that given": float(tf.exp(energy.log_factor)),
            "steps undone in the tuning": float(energy.refused),
        }

    def _tunes(self, energy: EnergyState) -> tf.Tensor:
        """Return whether the stepsize still changes at an iteration."""
        if not isinstance(self.until, int):
            return tf.constant(True)
        return energy.count < float(self.until)

    def _lengths(self, state: IsokineticState, stepsize: tf.Tensor) -> tf.Tensor:
        """Return S, (d,)."""
        position = state.position
        if self.tuner is not None:
            stepsize = stepsize * tf.exp(state.energy.log_factor)
        lengths = tf.sqrt(float(position.shape[0]) * stepsize) * tf.ones_like(position)
        if not self.preconditioned:
            return lengths
        variance = state.noise.mean
        positive = tf.where(variance > 0.0, variance, tf.ones_like(position))
        log = 0.5 * tf.math.log(positive)
        return lengths * tf.exp(tf.reduce_mean(log) - log)


def _rotated(direction: tf.Tensor, slope: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return u after half a step of du/dt = P(u) slope/(d − 1), and the energy that it adds.

    With δ = |slope|/(2(d − 1)) and e = slope/|slope|, u ← [u + e (sinh δ + (e·u)(cosh δ − 1))] /
    [cosh δ + (e·u) sinh δ]; both are multiplied by 2e^(−δ), and the length is set to 1 against
    rounding. The energy is (d − 1) times the logarithm of the denominator.
    """
    size = tf.norm(slope)
    scale = float(slope.shape[0] - 1)
    along = tf.math.divide_no_nan(slope, size)
    delta = 0.5 * size / scale
    decay = tf.exp(-delta)
    toward = tf.reduce_sum(along * direction)
    pull = (1.0 - decay) * (1.0 + decay + toward * (1.0 - decay))
    rotated = tf.math.l2_normalize(2.0 * decay * direction + pull * along)
    square = decay * decay
    mean = 0.5 * ((1.0 + square) + toward * (1.0 - square))
    return rotated, scale * (delta + tf.math.log(mean))
