"""The preconditioner: an affine change of all coordinates together."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def root_of(covariance: np.ndarray) -> np.ndarray:
    """Return a lower triangular C with CCᵀ the covariance, in float64, whatever the units are."""
    scale = np.sqrt(np.diag(covariance))
    return scale[:, np.newaxis] * np.linalg.cholesky(covariance / np.outer(scale, scale))


class Preconditioner:
    """u = û + Cζ with CCᵀ = M: the chain moves in ζ.

    The posterior covariance of ζ is near the identity where M is near the covariance of u.

    The dynamics' own equations hold for ζ. With a stepsize of its own each coordinate gets one
    scale; a matrix M also undoes correlations.

    Args:
        root: C, a vector (M diagonal) or a lower triangular matrix, in float64.
        origin: û, where ζ = 0.
    """

    def __init__(self, root: np.ndarray, origin: np.ndarray) -> None:
        self.root = np.asarray(root, np.float64)
        self.origin = np.asarray(origin, np.float64)
        self.dense = self.root.ndim == 2
        self._inverse = np.linalg.inv(self.root) if self.dense else 1.0 / self.root

    def into(self, u: np.ndarray) -> np.ndarray:
        """Return ζ of u, (..., d), as NumPy."""
        gap = np.asarray(u, np.float64) - self.origin
        return (self._inverse @ gap.T).T if self.dense else self._inverse * gap

    def out_of(self, zeta: tf.Tensor) -> tf.Tensor:
        """Return u of ζ."""
        return tf.constant(self.origin, zeta.dtype) + self._times(self.root, zeta)

    def slope(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to ζ, Cᵀ times that with respect to u."""
        return self._times(self.root.T, slope)

    def score(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to u of that with respect to ζ."""
        return self._times(self._inverse.T, slope)

    def _times(self, matrix: np.ndarray, vector: tf.Tensor) -> tf.Tensor:
        factor = tf.constant(matrix, vector.dtype)
        return tf.linalg.matvec(factor, vector) if self.dense else factor * vector
