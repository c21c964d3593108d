"""Moments of linear chains: stationary covariance and autocorrelation of a dynamics.

In the direction of an eigenvector of the information, with curvature λ, the gradient estimate is
−λθ with noise on top. Under the dynamics this becomes a linear recursion, of which the stationary
variance and the autocorrelation follow exactly. The recursion is read off the dynamics' own code,
by feeding it unit vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.dynamics import SGNHT, Dynamics
from sgmcmc.dynamics.momentum import ThermostatState
from sgmcmc.model.layout import Layout


@dataclass(frozen=True)
class _Settings:
    # Largest number of directions for which covariances are computed; beyond, variances alone.
    pairs_up_to: int = 256
    linear_rounding: float = 1e-9  # of a linear step, and of a recursion that is stable
    checks: int = 8  # number of random directions in which a step must be linear
    min_friction: float = 1e-8  # smallest friction of the search
    # Largest friction of the search, at which a momentum decorrelates in a step.
    max_friction: float = 1.0


_SETTINGS = _Settings()


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
        self._curvatures = (
            np.ones(1) if curvatures is None else np.asarray(curvatures, float)
        )
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
        self._position_leaf = int(tf.nest.pack_sequence_as(state, numbered).position[0])
        inputs = size + self._dynamics.normals + self._dynamics.steps
        # Dynamics that choose between two moves are linear in some directions and not in others.
        check = np.random.default_rng(1).normal(size=(inputs, _SETTINGS.checks))
        experiments = np.hstack([np.eye(inputs), np.zeros((inputs, 1)), check])
        outputs = self._iterate(state, experiments, size)
        matrix = outputs[:, :, :inputs]
        scale = np.abs(matrix).max((1, 2), keepdims=True)
        difference = np.abs(outputs[:, :, inputs:] - matrix @ experiments[:, inputs:])
        error = difference / np.maximum(1.0, scale)
        return (
            matrix[:, :, :size],
            matrix[:, :, size:],
            bool(error.max() < _SETTINGS.linear_rounding),
        )

    def _iterate(self, like: Any, inputs: np.ndarray, size: int) -> np.ndarray:
        """Return state and gradient, (m, size, experiments), one iteration on."""
        dynamics, epsilon = self._dynamics, self._stepsize
        m = len(self._curvatures)
        experiments = inputs.shape[1]
        packed, noises = np.split(np.tile(inputs, (1, m)), [size])
        curvature = np.repeat(self._curvatures, experiments)
        *leaves, gradient = tf.unstack(tf.constant(packed))
        state = tf.nest.pack_sequence_as(like, leaves)
        normals = tf.constant(noises[: dynamics.normals])
        refresh, step_normals = dynamics.refresh_normals, dynamics.step_normals
        state = dynamics.refresh(state, epsilon, normals[:refresh])
        for step in range(dynamics.steps):
            first = refresh + step * step_normals
            state = dynamics.step(
                state, gradient, epsilon, normals[first : first + step_normals]
            )
            gradient = -curvature * state.position + noises[dynamics.normals + step]
            state = dynamics.finish_step(state, gradient, epsilon)
        next_state = np.stack(
            [leaf.numpy() for leaf in [*tf.nest.flatten(state), gradient]]
        )
        return next_state.reshape(size, m, experiments).transpose(1, 0, 2)

    @property
    def stable(self) -> bool:
        """Whether the chain has a stationary distribution."""
        return bool(
            np.abs(np.linalg.eigvals(self._A)).max() < 1 - _SETTINGS.linear_rounding
        )

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
                −V/(R − 1), and the result is the mean over the positions in an epoch. ``None`` if
                they are independent.

        Returns:
            Two arrays of shape (m, m); the second is Σ Cov(θ₀, θ_k) over k ≥ 0. Of very many
            directions only the diagonals are computed.
        """
        m = len(noise)
        first, second = (
            np.triu_indices(m)
            if m <= _SETTINGS.pairs_up_to
            else (np.arange(m), np.arange(m))
        )
        pairs = noise[first, second], first, second
        if epoch is not None and epoch > 1:
            blocks = self._over_an_epoch(*pairs, epoch)
        else:
            blocks = self._stationary(*pairs)
        size = self._A.shape[1]
        summed = np.linalg.solve(np.eye(size) - self._A[first], blocks)
        summed_back = np.linalg.solve(
            np.eye(size) - self._A[second], blocks.transpose(0, 2, 1)
        )
        covariance = np.zeros((m, m))
        sums = np.zeros((m, m))
        leaf = self._position_leaf
        covariance[second, first] = covariance[first, second] = blocks[:, leaf, leaf]
        sums[first, second] = summed[:, leaf, leaf]
        sums[second, first] = summed_back[:, leaf, leaf]
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
        """Return Σ of each pair of directions, averaged over the positions in an epoch.

        With K the kick of an iteration's minibatches and S_k = Σ_{j<k} A^j K, the noise of the
        first k iterations of an epoch has the covariance of independent kicks times R/(R − 1), less
        V S_k S_kᵀ/(R − 1). Each sum of powers solves a linear equation, X − A₁XA₂ᵀ = C − end.
        """
        A1 = self._A[first]
        A2 = self._A[second]
        A2t = A2.transpose(0, 2, 1)
        eye = np.eye(self._A.shape[1])
        R = float(epoch)
        V = noise[:, np.newaxis, np.newaxis]
        T = max(1, round(R / self._dynamics.steps))
        end1, end2t = (np.linalg.matrix_power(A, T) for A in (A1, A2t))
        same_direction = (first == second)[:, np.newaxis, np.newaxis]
        injected = (
            same_direction
            * self._injected[first]
            @ self._injected[second].transpose(0, 2, 1)
        )
        kick1 = self._kicks_of_epoch(first)
        kick2 = self._kicks_of_epoch(second)
        kick_products = kick1 @ kick2.transpose(0, 2, 1)
        sum1 = kick1.sum(2)
        sum2 = kick2.sum(2)
        joint = sum1[:, :, np.newaxis] * sum2[:, np.newaxis, :]
        kicks = injected + R / (R - 1) * V * kick_products

        def series(start: np.ndarray) -> np.ndarray:
            """Return Σ_{k<T} A₁^k C A₂^kᵀ."""
            return self._solve(first, second, start - end1 @ start @ end2t)

        left = np.linalg.inv(eye - A1)
        right = np.linalg.inv(eye - A2t)
        # Over a whole epoch: what the kicks leave, and what their sum takes back.
        whole1 = (eye - end1) @ sum1[..., np.newaxis]
        whole2 = sum2[:, np.newaxis] @ (eye - end2t)
        removed = V / (R - 1) * (left @ whole1) @ (whole2 @ right)
        start = self._solve(first, second, series(kicks) - removed, T)
        # The mean over k = 1 to T of A₁^k Σ₀ A₂^kᵀ + Σ_{j<k} A₁^j Q A₂^jᵀ − V S_k S_kᵀ/(R − 1).
        grown = self._solve(first, second, T * kicks - A1 @ series(kicks) @ A2t)
        carried = A1 @ series(start) @ A2t
        decay1 = A1 @ left @ (eye - end1) @ joint
        decay2 = joint @ (eye - end2t) @ right @ A2t
        sums_of_kicks = T * joint - decay1 - decay2 + A1 @ series(joint) @ A2t
        return (carried + grown - V / (R - 1) * left @ sums_of_kicks @ right) / T

    def _kicks_of_epoch(self, directions: np.ndarray) -> np.ndarray:
        """Return the effects of the minibatches of an iteration, all from one epoch.

        With several steps, an epoch begins with the gradient that an iteration starts with, which
        the iteration before has estimated last: that kick is counted one iteration later, by A
        times what it was. It does not move the position before.
        """
        kicks = self._estimated[directions]
        if self._dynamics.steps == 1:
            return kicks
        last_as_first = self._A[directions] @ kicks[:, :, -1:]
        return np.concatenate([last_as_first, kicks[:, :, :-1]], 2)

    def _solve(
        self, first: np.ndarray, second: np.ndarray, added: np.ndarray, power: int = 1
    ) -> np.ndarray:
        """Return X of each pair of directions, from X = A₁^p X A₂^pᵀ + C."""
        size = self._A.shape[1]
        A1, A2 = (np.linalg.matrix_power(self._A[d], power) for d in (first, second))
        products = np.einsum("pij,pkl->pikjl", A1, A2).reshape(
            len(first), size**2, size**2
        )
        flat = np.linalg.solve(
            np.eye(size**2) - products, added.reshape(len(first), -1, 1)
        )
        return flat.reshape(-1, size, size)

    def _stationary(
        self, noise: np.ndarray, first: np.ndarray, second: np.ndarray
    ) -> np.ndarray:
        """Return Σ of each pair of directions, from Σ = A₁ Σ A₂ᵀ + Q."""
        same_direction = (first == second)[:, np.newaxis, np.newaxis]
        added = (
            same_direction
            * self._injected[first]
            @ self._injected[second].transpose(0, 2, 1)
        )
        kicks = self._estimated[first] @ self._estimated[second].transpose(0, 2, 1)
        added = added + noise[:, np.newaxis, np.newaxis] * kicks
        return self._solve(first, second, added)


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
    """SGNHT with all thermostats fixed at ξ.

    Args:
        dynamics: Dynamics of the thermostat.
        friction: ξ.
    """

    dynamics: SGNHT
    friction: float

    start_normals = 1

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> RestingState:
        """Return the state at the start of a chain."""
        return RestingState(tf.sqrt(stepsize) * normals[0], position)

    def step(
        self,
        state: RestingState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> RestingState:
        """Return the state one step on, of which the thermostat's move is dropped."""
        shape = tuple(state.position.shape)
        inner = replace(self.dynamics, layout=Layout({"all": shape}))
        friction = tf.constant([self.friction], tf.float64)
        state_at_friction = ThermostatState(state.position, state.momentum, friction)
        next_state = inner.step(state_at_friction, gradient, stepsize, normals)
        return RestingState(next_state.momentum, next_state.position)


def has_thermostat(dynamics: Dynamics) -> bool:
    """Return whether a dynamics moves linearly once its thermostats are fixed."""
    return isinstance(dynamics, SGNHT)


def at_rest(
    dynamics: SGNHT, stepsize: float, curvatures: np.ndarray, noise: np.ndarray
) -> Resting:
    """Return the dynamics with the friction at which the mean kinetic energy is right.

    A thermostat settles where ν·ν is pε on average. It is fixed there for all coordinates,
    which is exact in the limit of many of them.

    Args:
        dynamics: Dynamics of the thermostat, bound.
        stepsize: ε.
        curvatures: Curvature of each direction, (m,).
        noise: Variance of the gradient noise in each, (m,).
    """

    def excess(friction: float) -> float:
        recursion = LinearRecursion(Resting(dynamics, friction), stepsize, curvatures)
        return (
            recursion.mean_square(0, noise) / stepsize - 1.0
            if recursion.stable
            else np.inf
        )

    if excess(_SETTINGS.max_friction) > 0:
        return Resting(dynamics, _SETTINGS.max_friction)  # no friction is enough
    if excess(_SETTINGS.min_friction) < 0:
        return Resting(dynamics, _SETTINGS.min_friction)
    limits = np.log(_SETTINGS.min_friction), np.log(_SETTINGS.max_friction)
    log_friction = scipy.optimize.brentq(
        lambda log: min(excess(np.exp(log)), 1e12), *limits, xtol=1e-6
    )
    return Resting(dynamics, float(np.exp(log_friction)))


class RecursionInTurn:
    """The distribution of SGLD on a Gaussian posterior if parameters move one after the other.

    A pass is an affine map. With H the information, n the noise of the gradient estimate, which
    all that move in a pass share, and P_j the projection on the coordinates of parameter j, its
    moves are

        θ ← θ + P_j [(E/2)(n − Hθ) + √E η],   E = diag(ε),   j = 1, 2, …

    so that θ' = Aθ + B n + R η, and the stationary covariance solves Σ = AΣAᵀ + BVBᵀ + RRᵀ.

    Args:
        information: H, in the chain's coordinates, (d, d).
        stepsizes: ε of each coordinate, (d,).
        slices: Slices of the parameters, in the order in which they move.
    """

    def __init__(
        self, information: np.ndarray, stepsizes: np.ndarray, slices: Sequence[slice]
    ) -> None:
        d = len(information)
        self._A = np.eye(d)
        self._B = np.zeros((d, d))
        self._R = np.zeros((d, d))
        half_steps = 0.5 * stepsizes[:, np.newaxis]
        root = np.diag(np.sqrt(stepsizes))
        for entries in slices:
            change = half_steps[entries] * information[entries]
            for matrix in (self._A, self._B, self._R):
                matrix[entries] -= change @ matrix
            self._B[entries, entries] += np.diag(half_steps[entries, 0])
            self._R[entries] += root[entries]

    @property
    def stable(self) -> bool:
        """Whether the chain has a stationary distribution."""
        return bool(
            np.abs(np.linalg.eigvals(self._A)).max() < 1 - _SETTINGS.linear_rounding
        )

    def covariance(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the stationary covariance, and the sum of the autocovariances.

        Args:
            noise: V, the covariance of the gradient noise, (d, d).

        Returns:
            Two arrays of shape (d, d); the second is Σ Cov(θ_k, θ₀) over k ≥ 0.
        """
        kicks = self._B @ noise @ self._B.T + self._R @ self._R.T
        covariance = scipy.linalg.solve_discrete_lyapunov(self._A, kicks)
        return covariance, np.linalg.solve(np.eye(len(kicks)) - self._A, covariance)
