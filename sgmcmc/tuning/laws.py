"""How wrong a chain's sds are, from the closed law of its linear recursion.

In whitened coordinates the posterior is near N(0, I), and the gradient estimate is −ζ with noise of
variance σ² on top. What a dynamics makes of that in one coordinate is a linear recursion, of which
the stationary variance and the autocorrelation follow exactly. The recursion is read off the
dynamics' own code, by feeding it unit vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from scipy import linalg

from sgmcmc.dynamics import Dynamics


class LinearLaw:
    """The law of a dynamics in one whitened coordinate.

    Args:
        dynamics: one whose state moves linearly, such as SGLD, SGHMC or underdamped Langevin.
        stepsize: ε, in whitened coordinates.

    Raises:
        ValueError: the dynamics is not linear in its state.
    """

    def __init__(self, dynamics: Dynamics, stepsize: float) -> None:
        self._dynamics = dynamics
        self._stepsize = tf.constant(stepsize, tf.float64)
        try:
            self._A, kicks, exact = self._read_off()
        except tf.errors.InvalidArgumentError:
            exact = False
        if not exact:
            raise ValueError(
                f"{type(dynamics).__name__} does not move linearly, by the same law in every "
                "direction."
            )
        injected, estimated = np.split(kicks, [dynamics.normals], 1)
        self._injected, self._estimated = injected @ injected.T, estimated @ estimated.T

    def _read_off(self) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return A and B of x ← Ax + B(normals, noises), and whether the recursion is that.

        Each coordinate of one long vector is an experiment: a unit vector, zero, or a check.
        """
        zero = tf.zeros([1], tf.float64)
        normals = tf.zeros([self._dynamics.start_normals, 1], tf.float64)
        state = self._dynamics.init(zero, zero, self._stepsize, normals)
        size = len(tf.nest.flatten(state)) + 1
        inputs = size + self._dynamics.normals + self._dynamics.steps
        check = np.random.default_rng(1).normal(size=(inputs, 1))
        tried = np.hstack([np.eye(inputs), np.zeros((inputs, 1)), check])
        found = self._iterate(state, tried[:size], tried[size:])
        matrix = found[:, :inputs]
        exact = np.abs(found[:, inputs]).max() < 1e-9 and np.allclose(
            found[:, -1:], matrix @ check, atol=1e-9
        )
        return matrix[:, :size], matrix[:, size:], exact

    def _iterate(self, like: Any, packed: np.ndarray, noises: np.ndarray) -> np.ndarray:
        """Return the state and the gradient after an iteration; the gradient is −ζ + noise."""
        dynamics, epsilon = self._dynamics, self._stepsize
        *leaves, gradient = tf.unstack(tf.constant(packed))
        state = tf.nest.pack_sequence_as(like, leaves)
        normals = tf.constant(noises[: dynamics.normals])
        refresh, each = dynamics.refresh_normals, dynamics.step_normals
        state = dynamics.refresh(state, epsilon, normals[:refresh])
        for step in range(dynamics.steps):
            first = refresh + step * each
            state = dynamics.step(state, gradient, epsilon, normals[first : first + each])
            gradient = -state.position + noises[dynamics.normals + step]
            state = dynamics.finish_step(state, gradient, epsilon)
        return np.stack([part.numpy() for part in [*tf.nest.flatten(state), gradient]])

    @property
    def stable(self) -> bool:
        """Whether the chain has a stationary law."""
        return bool(np.abs(np.linalg.eigvals(self._A)).max() < 1 - 1e-9)

    def variance(self, noise: float) -> float:
        """Return the stationary variance of ζ, with gradient noise of this variance; 1 is right."""
        return float(self._stationary(noise)[0, 0])

    def _stationary(self, noise: float) -> np.ndarray:
        return linalg.solve_discrete_lyapunov(self._A, self._injected + noise * self._estimated)

    def autocorrelation_time(self, noise: float) -> float:
        """Return the iterations that one independent draw of ζ takes."""
        covariance = self._stationary(noise)
        sums = np.linalg.solve(np.eye(len(self._A)) - self._A, covariance)
        return max(1.0, float(2 * sums[0, 0] / covariance[0, 0] - 1))


def largest_stepsize(dynamics: Dynamics, noise: float, tolerance: float) -> float:
    """Return the largest ε, up to 1, at which the sd is off by at most ``tolerance``.

    Args:
        dynamics: the dynamics, with their constants.
        noise: variance of the gradient noise in the worst whitened direction.
        tolerance: relative error of the sd.
    """

    def good(stepsize: float) -> bool:
        law = LinearLaw(dynamics, stepsize)
        return law.stable and abs(np.sqrt(law.variance(noise)) - 1) <= tolerance

    low, high = 1e-6, 1.0
    if good(high):
        return high
    for _ in range(30):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if good(middle) else (low, middle)
    return low
