"""The stationary distribution of a chain on a Gaussian posterior, from its linear recursion.

In the direction of an eigenvector of the information, with curvature λ, the gradient estimate is
−λθ with noise on top. Under the dynamics this becomes a linear recursion, of which the stationary
variance and the autocorrelation follow exactly. The recursion is read off the dynamics' own code,
by feeding it unit vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.dynamics import SGNHT, Dynamics
from sgmcmc.dynamics.momentum import ThermostatState
from sgmcmc.target.layout import Layout

_PAIRS_UP_TO = 256
"""Largest number of directions for which their covariances are computed too; beyond, variances
alone."""

_ROUNDING = 1e-9

_CHECKS = 8
"""Number of random directions in which a step must be linear."""


class LinearRecursion:
    """The stationary distribution of a dynamics in directions of given curvature.

    Args:
        dynamics: Dynamics whose state moves linearly, such as SGLD, SGHMC or underdamped Langevin.
        stepsize: ε.
        curvatures: λ of each direction, (m,); whitened ones have 1.

    Raises:
        ValueError: The dynamics is not linear in its state.
    """

    def __init__(
        self, dynamics: Dynamics, stepsize: float, curvatures: np.ndarray | None = None
    ) -> None:
        self._dynamics = dynamics
        self._stepsize = tf.constant(stepsize, tf.float64)
        self._curvatures = np.ones(1) if curvatures is None else np.asarray(curvatures, float)
        try:
            if dynamics.learns_noise or dynamics.visits:
                raise ValueError(f"{type(dynamics).__name__} has no closed form here.")
            self._A, kicks, exact = self._read_off()
        except tf.errors.InvalidArgumentError:
            exact = False
        if not exact:
            raise ValueError(
                f"{type(dynamics).__name__} does not move linearly, in the same way in every "
                "direction."
            )
        # Noise comes with a gradient in the curvature's own units, (m, size, ...).
        self._injected, self._estimated = np.split(kicks, [dynamics.normals], 2)

    def _read_off(self) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return A and B of x ← Ax + B(normals, noises), (m, …), and whether the step is linear.

        Each coordinate of one long vector is an experiment in one direction: a unit vector, zero,
        or a check.
        """
        zero = tf.zeros([1], tf.float64)
        normals = tf.zeros([self._dynamics.start_normals, 1], tf.float64)
        state = self._dynamics.init(zero, zero, self._stepsize, normals)
        size = len(tf.nest.flatten(state)) + 1
        numbered = [tf.constant([float(leaf)]) for leaf in range(size - 1)]
        self._place = int(tf.nest.pack_sequence_as(state, numbered).position[0])
        inputs = size + self._dynamics.normals + self._dynamics.steps
        # Dynamics that choose between two moves are linear in some directions and not in others.
        check = np.random.default_rng(1).normal(size=(inputs, _CHECKS))
        tried = np.hstack([np.eye(inputs), np.zeros((inputs, 1)), check])
        found = self._iterate(state, tried, size)
        matrix = found[:, :, :inputs]
        size_of = np.abs(matrix).max((1, 2), keepdims=True)
        off = np.abs(found[:, :, inputs:] - matrix @ tried[:, inputs:]) / np.maximum(1.0, size_of)
        return matrix[:, :, :size], matrix[:, :, size:], bool(off.max() < _ROUNDING)

    def _iterate(self, like: Any, tried: np.ndarray, size: int) -> np.ndarray:
        """Return state and gradient, (m, size, experiments), one iteration on."""
        dynamics, epsilon = self._dynamics, self._stepsize
        m, experiments = len(self._curvatures), tried.shape[1]
        packed, noises = np.split(np.tile(tried, (1, m)), [size])
        curvature = np.repeat(self._curvatures, experiments)
        *leaves, gradient = tf.unstack(tf.constant(packed))
        state = tf.nest.pack_sequence_as(like, leaves)
        normals = tf.constant(noises[: dynamics.normals])
        refresh, each = dynamics.refresh_normals, dynamics.step_normals
        state = dynamics.refresh(state, epsilon, normals[:refresh])
        for step in range(dynamics.steps):
            first = refresh + step * each
            state = dynamics.step(state, gradient, epsilon, normals[first : first + each])
            gradient = -curvature * state.position + noises[dynamics.normals + step]
            state = dynamics.finish_step(state, gradient, epsilon)
        ends = np.stack([part.numpy() for part in [*tf.nest.flatten(state), gradient]])
        return ends.reshape(size, m, experiments).transpose(1, 0, 2)

    @property
    def stable(self) -> bool:
        """Whether the chain has a stationary distribution."""
        return bool(np.abs(np.linalg.eigvals(self._A)).max() < 1 - _ROUNDING)

    def variance(self, noise: float) -> float:
        """Return the stationary variance in the first direction, with noise of this variance."""
        return float(self.covariance(np.full((1, 1), noise))[0][0, 0])

    def autocorrelation_time(self, noise: float) -> float:
        """Return the autocorrelation time in the first direction."""
        variance, sums = self.covariance(np.full((1, 1), noise))
        return max(1.0, float(2 * sums[0, 0] / variance[0, 0] - 1))

    def covariance(
        self, noise: np.ndarray, epoch: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the stationary covariance of positions, and the sum of its autocovariances.

        Args:
            noise: Covariance of the gradient noise between the directions, (m, m).
            epoch: R = N/n, if minibatches come in order: two of one epoch then have covariance
                −V/(R − 1), and the result is the mean over the places in an epoch. ``None`` if they
                are independent.

        Returns:
            Two arrays of shape (m, m); the second is Σ Cov(θ₀, θ_k) over k ≥ 0. Of very many
            directions only the diagonals are computed.
        """
        m = len(noise)
        first, second = np.triu_indices(m) if m <= _PAIRS_UP_TO else (np.arange(m), np.arange(m))
        pairs = noise[first, second], first, second
        if epoch is not None and epoch > 1:
            blocks = self._over_an_epoch(*pairs, epoch)
        else:
            blocks = self._stationary(*pairs)
        size = self._A.shape[1]
        summed = np.linalg.solve(np.eye(size) - self._A[first], blocks)
        back = np.linalg.solve(np.eye(size) - self._A[second], blocks.transpose(0, 2, 1))
        covariance, sums = np.zeros((m, m)), np.zeros((m, m))
        covariance[second, first] = covariance[first, second] = blocks[:, self._place, self._place]
        sums[first, second] = summed[:, self._place, self._place]
        sums[second, first] = back[:, self._place, self._place]
        return covariance, sums

    def mean_square(self, leaf: int, noise: np.ndarray) -> float:
        """Return the stationary variance of a leaf of the state, averaged over the directions.

        Args:
            leaf: Number of the leaf.
            noise: Variance of the gradient noise in each direction, (m,).
        """
        every = np.arange(len(noise))
        return float(self._stationary(noise, every, every)[:, leaf, leaf].mean())

    def _over_an_epoch(
        self, noise: np.ndarray, first: np.ndarray, second: np.ndarray, epoch: float
    ) -> np.ndarray:
        """Return Σ of each pair of directions, averaged over the places in an epoch.

        With K the kick of an iteration's minibatches and S_k = Σ_{j<k} A^j K, the noise of the
        first k iterations of an epoch has the covariance of independent kicks times R/(R − 1), less
        V S_k S_kᵀ/(R − 1). Each sum of powers solves a linear equation, X − A₁XA₂ᵀ = C − end.
        """
        A1, A2 = self._A[first], self._A[second]
        A2t, eye = A2.transpose(0, 2, 1), np.eye(self._A.shape[1])
        R, V = float(epoch), noise[:, np.newaxis, np.newaxis]
        T = max(1, round(R / self._dynamics.steps))
        end1, end2t = (np.linalg.matrix_power(A, T) for A in (A1, A2t))
        own = (first == second)[:, np.newaxis, np.newaxis]
        injected = own * self._injected[first] @ self._injected[second].transpose(0, 2, 1)
        kick1, kick2 = self._kicks_of_epoch(first), self._kicks_of_epoch(second)
        each = kick1 @ kick2.transpose(0, 2, 1)
        sum1, sum2 = kick1.sum(2), kick2.sum(2)
        joint = sum1[:, :, np.newaxis] * sum2[:, np.newaxis, :]
        kicks = injected + R / (R - 1) * V * each

        def series(start: np.ndarray) -> np.ndarray:
            """Return Σ_{k<T} A₁^k C A₂^kᵀ."""
            return self._solved(first, second, start - end1 @ start @ end2t)

        left, right = np.linalg.inv(eye - A1), np.linalg.inv(eye - A2t)
        # Over a whole epoch: what the kicks leave, and what their sum takes back.
        whole1, whole2 = (eye - end1) @ sum1[..., np.newaxis], sum2[:, np.newaxis] @ (eye - end2t)
        taken = V / (R - 1) * (left @ whole1) @ (whole2 @ right)
        start = self._solved(first, second, series(kicks) - taken, T)
        # The mean over k = 1 to T of A₁^k Σ₀ A₂^kᵀ + Σ_{j<k} A₁^j Q A₂^jᵀ − V S_k S_kᵀ/(R − 1).
        grown = self._solved(first, second, T * kicks - A1 @ series(kicks) @ A2t)
        carried = A1 @ series(start) @ A2t
        gone1 = A1 @ left @ (eye - end1) @ joint
        gone2 = joint @ (eye - end2t) @ right @ A2t
        both = T * joint - gone1 - gone2 + A1 @ series(joint) @ A2t
        return (carried + grown - V / (R - 1) * left @ both @ right) / T

    def _kicks_of_epoch(self, directions: np.ndarray) -> np.ndarray:
        """Return the effects of the minibatches of an iteration, all from one epoch.

        With several steps, an epoch begins with the gradient that an iteration starts with, which
        the iteration before has estimated last: that kick is counted one iteration later, by A
        times what it was. It does not move the position before.
        """
        kicks = self._estimated[directions]
        if self._dynamics.steps == 1:
            return kicks
        return np.concatenate([self._A[directions] @ kicks[:, :, -1:], kicks[:, :, :-1]], 2)

    def _solved(
        self, first: np.ndarray, second: np.ndarray, added: np.ndarray, power: int = 1
    ) -> np.ndarray:
        """Return X of each pair of directions, from X = A₁^p X A₂^pᵀ + C."""
        size = self._A.shape[1]
        A1, A2 = (np.linalg.matrix_power(self._A[d], power) for d in (first, second))
        products = np.einsum("pij,pkl->pikjl", A1, A2).reshape(len(first), size**2, size**2)
        flat = np.linalg.solve(np.eye(size**2) - products, added.reshape(len(first), -1, 1))
        return flat.reshape(-1, size, size)

    def _stationary(self, noise: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return Σ of each pair of directions, from Σ = A₁ Σ A₂ᵀ + Q."""
        own = (first == second)[:, np.newaxis, np.newaxis]
        added = own * self._injected[first] @ self._injected[second].transpose(0, 2, 1)
        kicks = self._estimated[first] @ self._estimated[second].transpose(0, 2, 1)
        added = added + noise[:, np.newaxis, np.newaxis] * kicks
        return self._solved(first, second, added)


_LEAST = 1e-8
"""Smallest friction of the search."""

_MOST = 1.0
"""Largest friction of the search, at which a momentum decorrelates in a step."""


class RestingState(NamedTuple):
    """The state of SGNHT without its thermostats.

    Attributes:
        momentum: ν.
        position: θ.
    """

    momentum: tf.Tensor
    position: tf.Tensor


@dataclass(frozen=True)
class Resting(Dynamics):
    """SGNHT with all thermostats held at ξ.

    Args:
        dynamics: Dynamics of the thermostat.
        friction: ξ.
    """

    dynamics: SGNHT
    friction: float

    start_normals = 1

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> RestingState:
        """Return the state at the start of a chain."""
        return RestingState(tf.sqrt(stepsize) * normals[0], position)

    def step(
        self, state: RestingState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> RestingState:
        """Return the state one step on, of which the thermostat's move is dropped."""
        shape = tuple(state.position.shape)
        inner = replace(self.dynamics, layout=Layout({"all": shape}))
        friction = tf.constant([self.friction], tf.float64)
        at = ThermostatState(state.position, state.momentum, friction)
        moved = inner.step(at, gradient, stepsize, normals)
        return RestingState(moved.momentum, moved.position)


def has_thermostat(dynamics: Dynamics) -> bool:
    """Return whether a dynamics moves linearly once its thermostats are held."""
    return isinstance(dynamics, SGNHT)


def at_rest(dynamics: SGNHT, stepsize: float, curvatures: np.ndarray, noise: np.ndarray) -> Resting:
    """Return the dynamics with the friction at which the mean kinetic energy is right.

    A thermostat settles where ν·ν is pε on average. It is held there for all coordinates alike,
    which is exact in the limit of many of them.

    Args:
        dynamics: Dynamics of the thermostat, bound.
        stepsize: ε.
        curvatures: Curvature of each direction, (m,).
        noise: Variance of the gradient noise in each, (m,).
    """

    def excess(friction: float) -> float:
        law = LinearRecursion(Resting(dynamics, friction), stepsize, curvatures)
        return law.mean_square(0, noise) / stepsize - 1.0 if law.stable else np.inf

    if excess(_MOST) > 0:
        return Resting(dynamics, _MOST)  # no friction is enough
    if excess(_LEAST) < 0:
        return Resting(dynamics, _LEAST)
    ends = np.log(_LEAST), np.log(_MOST)
    found = scipy.optimize.brentq(lambda log: min(excess(np.exp(log)), 1e12), *ends, xtol=1e-6)
    return Resting(dynamics, float(np.exp(found)))
