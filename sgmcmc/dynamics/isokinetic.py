"""Isokinetic dynamics: a momentum of constant length, which gradients and noise only turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import flag, positive_number
from sgmcmc.dynamics.adaptive import frozen_after
from sgmcmc.dynamics.base import Dynamics, averaged, covariance_of_sum
from sgmcmc.dynamics.scaled import BURN_IN, read_until
from sgmcmc.target.geometry import Space


class IsokineticState(NamedTuple):
    """The state of isokinetic dynamics.

    Attributes:
        position: θ, flat and unconstrained.
        direction: u, of length 1, (d,).
    """

    position: tf.Tensor
    direction: tf.Tensor


class LearningState(NamedTuple):
    """The state of isokinetic dynamics that scale coordinates by the noise of their gradients.

    Attributes:
        position: θ, flat and unconstrained.
        direction: u, of length 1, (d,).
        variance: V, the mean of the estimates from each minibatch so far, (d,).
        count: Number of estimates in the mean.
    """

    position: tf.Tensor
    direction: tf.Tensor
    variance: tf.Tensor
    count: tf.Tensor


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
        until: End of the learning of V: ``"burn_in"``, or the number of iterations, burn-in
            included; ``None`` never freezes it.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SMILE(friction=0.2)
        SMILE(friction=0.2, preconditioned=False, until='burn_in')

    Source:
        Robnik & Seljak, *Microcanonical Langevin Monte Carlo*, 2023, for exact gradients; *Can
        Microcanonical Langevin Dynamics Leverage Mini-Batch Gradient Noise?*, arXiv 2602.06500,
        2026, for stochastic ones and the scaling by noise. The scaling is derived here from the
        condition that the noise be alike in all coordinates; that paper's tuner of the stepsize is
        not here.
    """

    friction: float = 0.1
    preconditioned: bool = False
    until: int | str | None = BURN_IN

    name = "smile"
    start_normals = 1

    @property
    def learns_noise(self) -> bool:  # type: ignore[override]
        """Whether V is estimated."""
        return self.preconditioned

    def after_burn_in(self, burn_in: int) -> SMILE:
        """Return these dynamics, with the iteration at which V is frozen."""
        if not self.preconditioned:
            return self
        return replace(self, until=frozen_after(self.until, burn_in, self, "its scales"))

    def bind(self, space: Space) -> SMILE:
        """Return these dynamics with their constants checked."""
        if space.layout.size < 2:
            raise ValueError(
                "`dynamics`: SMILE turns a direction, and with a single coordinate there is none. "
                "Use 'underdamped'."
            )
        flag("preconditioned", self.preconditioned)
        friction = positive_number("friction", self.friction)
        return replace(self, friction=friction, until=read_until(self.until))

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> IsokineticState | LearningState:
        """Return the state at the start of a chain, with a uniform direction."""
        direction = tf.math.l2_normalize(normals[0])
        if not self.preconditioned:
            return IsokineticState(position, direction)
        zeros = tf.zeros_like(position)
        return LearningState(position, direction, zeros, tf.zeros([], position.dtype))

    def step(self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor) -> Any:
        """Return the state at the next position; ``normals`` is z, of shape (1, d)."""
        lengths, size = self._lengths(state, stepsize), gradient.shape[0]
        direction = _turned(state.direction, lengths * gradient)
        position = state.position + 0.5 * lengths * direction
        eta = float(np.sqrt(np.expm1(2.0 * self.friction) / size))
        direction = tf.math.l2_normalize(direction + eta * normals[0])
        position += 0.5 * lengths * direction
        return state._replace(position=position, direction=direction)

    def finish_step(self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor) -> Any:
        """Return the state after the closing half turn."""
        direction = _turned(state.direction, self._lengths(state, stepsize) * gradient)
        return state._replace(direction=direction)

    def learn(self, state: LearningState, parts: tf.Tensor) -> LearningState:
        """Return the state with V moved toward the estimate from another minibatch."""
        count = state.count + 1.0
        learned = averaged(state.variance, count, covariance_of_sum(parts, diagonal=True))
        if isinstance(self.until, int):
            learns = state.count < float(self.until)
            learned = tf.where(learns, learned, state.variance)
            count = tf.where(learns, count, state.count)
        return state._replace(variance=learned, count=count)

    def _lengths(self, state: Any, stepsize: tf.Tensor) -> tf.Tensor:
        """Return S, (d,)."""
        position = state.position
        lengths = tf.sqrt(float(position.shape[0]) * stepsize) * tf.ones_like(position)
        if not self.preconditioned:
            return lengths
        known = state.variance > 0.0
        log = 0.5 * tf.math.log(tf.where(known, state.variance, tf.ones_like(position)))
        return lengths * tf.exp(tf.reduce_mean(log) - log)


def _turned(direction: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
    """Return u after half a step of du/dt = P(u) slope/(d − 1).

    With δ = |slope|/(2(d − 1)) and e = slope/|slope|, u ← [u + e (sinh δ + (e·u)(cosh δ − 1))] /
    [cosh δ + (e·u) sinh δ]; both are multiplied by 2e^(−δ), and the length is set to 1 against
    rounding.
    """
    size = tf.norm(slope)
    along = tf.math.divide_no_nan(slope, size)
    decay = tf.exp(-0.5 * size / (slope.shape[0] - 1))
    toward = tf.reduce_sum(along * direction)
    pull = (1.0 - decay) * (1.0 + decay + toward * (1.0 - decay))
    return tf.math.l2_normalize(2.0 * decay * direction + pull * along)
