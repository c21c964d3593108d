"""The distribution of SGLD on a Gaussian posterior where parameters move one after the other.

A pass is an affine map. With H the information, n the noise of the gradient estimate, which all
that move in a pass share, and P_j the projection on the coordinates of parameter j, its moves are

    θ ← θ + P_j [(E/2)(n − Hθ) + √E η],   E = diag(ε),   j = 1, 2, …

so that θ' = Aθ + B n + R η, and the stationary covariance solves Σ = AΣAᵀ + BVBᵀ + RRᵀ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

_ROUNDING = 1e-9


class LawInTurn:
    """The distribution of SGLD with parameters in turn.

    Args:
        information: H, in the chain's coordinates, (d, d).
        stepsizes: ε of each coordinate, (d,).
        slices: Places of the parameters, in the order in which they move.
    """

    def __init__(
        self, information: np.ndarray, stepsizes: np.ndarray, slices: Sequence[slice]
    ) -> None:
        d = len(information)
        self._A, self._B, self._R = np.eye(d), np.zeros((d, d)), np.zeros((d, d))
        half, root = 0.5 * stepsizes[:, np.newaxis], np.diag(np.sqrt(stepsizes))
        for place in slices:
            drift = half[place] * information[place]
            for matrix in (self._A, self._B, self._R):
                matrix[place] -= drift @ matrix
            self._B[place, place] += np.diag(half[place, 0])
            self._R[place] += root[place]

    @property
    def stable(self) -> bool:
        """Whether the chain has a stationary distribution."""
        return bool(np.abs(np.linalg.eigvals(self._A)).max() < 1 - _ROUNDING)

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
