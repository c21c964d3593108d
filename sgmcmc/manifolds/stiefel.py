"""Orthonormal frames."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tensorflow as tf

from sgmcmc.manifolds.base import Manifold

_AT_REST = 1e-30
_HALVINGS = 4
"""Halvings of an exponent before the series is used."""

_TERMS = {tf.float32: 7, tf.float64: 12}
"""Terms of the series: up to a norm of 4, more than half a turn, the rest is below rounding."""


@dataclass(frozen=True)
class Stiefel(Manifold):
    """The n × p matrices X with XᵀX = I on the last two axes; leading axes are a product of these.

    With A = XᵀV, S = VᵀV, the geodesic from X with velocity V is
    [X(t) V(t)] = [X V] exp(t [[A, −S], [I, A]]) diag(e^(−At), e^(−At)).
    The tangent space at X has the projection W − X (XᵀW + WᵀX)/2. Densities are with respect to the
    Hausdorff measure, so that no prior means a uniform one. For p = n a chain keeps the sign of
    det X with which it starts.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> rng = np.random.default_rng(1)
        >>> planes = rng.normal(size=(300, 2)) @ np.eye(2, 4) + 0.1 * rng.normal(size=(300, 4))
        >>> def log_lik(params, dataset):  # what is left outside the plane that X spans
        ...     inside = tf.matmul(dataset["y"], params["X"])
        ...     rest = tf.reduce_sum(dataset["y"] ** 2, -1) - tf.reduce_sum(inside**2, -1)
        ...     return -0.5 * rest / 0.1**2
        >>> chain = sgmcmc.sggmc(
        ...     log_lik, {"y": planes}, {"X": np.eye(4, 2)}, 1e-6, minibatch_size=100, alpha=0.3,
        ...     manifolds={"X": sgmcmc.manifolds.Stiefel()}, n_iters=500, verbose=False, seed=1)
        >>> X = chain["X"].astype(float)
        >>> bool(np.abs(np.swapaxes(X, 1, 2) @ X - np.eye(2)).max() < 1e-6)
        True

    Source:
        Edelman, Arias & Smith, SIAM Journal on Matrix Analysis and Applications 20, 1998, section
        2.2.2; Byrne & Girolami, Scandinavian Journal of Statistics 40, 2013, section 4.3.
    """

    remedy = "Use numpy.linalg.qr of it."

    def check_shape(self, label: str, shape: tuple[int, ...]) -> None:
        """Raise an error unless there are no more columns than rows."""
        if len(shape) < 2 or not 1 <= shape[-1] <= shape[-2] or shape[-2] < 2:
            raise ValueError(
                f"`{label}` must have two last axes, of matrices with two or more rows and no more "
                f"columns than rows; it has the shape {shape}."
            )

    def dimension(self, shape: tuple[int, ...]) -> int:
        """Return np − p(p + 1)/2 for each matrix."""
        n, p = shape[-2:]
        return math.prod(shape[:-2]) * (n * p - p * (p + 1) // 2)

    def tangent(self, u: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
        """Return W − X (XᵀW + WᵀX)/2."""
        inner = tf.matmul(u, vector, transpose_a=True)
        return vector - tf.matmul(u, 0.5 * (inner + tf.linalg.matrix_transpose(inner)))

    def flow(self, u: tf.Tensor, velocity: tf.Tensor, time: float) -> tuple[tf.Tensor, tf.Tensor]:
        """Return place and velocity after some time on a geodesic."""
        # In units in which the speed is near one, small velocities keep their digits.
        squared = tf.reduce_mean(tf.reduce_sum(velocity * velocity, -2, keepdims=True), -1)
        speed = tf.sqrt(squared + _AT_REST)[..., tf.newaxis]
        heading, time = velocity / speed, time * speed
        A = tf.matmul(u, heading, transpose_a=True)
        A = 0.5 * (A - tf.linalg.matrix_transpose(A))
        S = tf.matmul(heading, heading, transpose_a=True)
        eye = tf.eye(u.shape[-1], batch_shape=u.shape[:-2], dtype=u.dtype)
        rows = tf.concat([A, -S], -1), tf.concat([eye, A], -1)
        moved = tf.matmul(tf.concat([u, heading], -1), exponential(time * tf.concat(rows, -2)))
        place, heading = tf.split(moved, 2, -1)
        turned = exponential(-time * A)
        return tf.matmul(place, turned), speed * tf.matmul(heading, turned)

    def retracted(self, u: tf.Tensor) -> tf.Tensor:
        """Return Q of X = QR, R upper triangular with a positive diagonal."""
        lower = tf.linalg.cholesky(tf.matmul(u, u, transpose_a=True))
        flipped = tf.linalg.triangular_solve(lower, tf.linalg.matrix_transpose(u))
        return tf.linalg.matrix_transpose(flipped)


def exponential(matrix: tf.Tensor) -> tf.Tensor:
    """Return the exponential of small matrices, by products alone, which run in any graph."""
    matrix = matrix * 0.5**_HALVINGS
    eye = tf.eye(matrix.shape[-1], batch_shape=matrix.shape[:-2], dtype=matrix.dtype)
    total = eye
    for k in range(_TERMS[matrix.dtype], 0, -1):
        total = eye + tf.matmul(matrix, total) / k
    for _ in range(_HALVINGS):
        total = tf.matmul(total, total)
    return total
