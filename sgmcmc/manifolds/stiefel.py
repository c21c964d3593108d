"""Unit vectors, points of the simplex as their squares, and orthonormal frames."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.manifolds.base import Manifold

_ROUNDING = 1e-4
"""Largest distance of the sum of a point of the simplex from one."""

_AT_REST = 1e-30
_HALVINGS = 4
"""Halvings of an exponent before the series is used."""

_TERMS = {tf.float32: 7, tf.float64: 12}
"""Terms of the series: up to a norm of 4, more than half a turn, the rest is below rounding."""


class UnitVectors(Manifold):
    """Base class of manifolds of unit vectors along the last axis, with great circles."""

    what = "unit vectors"
    """Object whose components are along the last axis."""

    def check_shape(self, label: str, shape: tuple[int, ...]) -> None:
        """Raise an error unless there are two or more components."""
        if not shape or shape[-1] < 2:
            raise ValueError(
                f"`{label}` must have a last axis of two or more components, of {self.what}; it "
                f"has the shape {shape}."
            )

    def dimension(self, shape: tuple[int, ...]) -> int:
        """Return d − 1 for each unit vector."""
        return math.prod(shape[:-1]) * (shape[-1] - 1)

    def tangent(self, u: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
        """Return w − u (u·w)."""
        return vector - u * tf.reduce_sum(u * vector, -1, keepdims=True)

    def flow(
        self, u: tf.Tensor, velocity: tf.Tensor, time: float
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return place and velocity after some time on a great circle."""
        # A vector at rest has no direction; what is added is far below any speed.
        speed = tf.sqrt(
            tf.reduce_sum(velocity * velocity, -1, keepdims=True) + _AT_REST
        )
        cosine, sine = tf.cos(time * speed), tf.sin(time * speed)
        return u * cosine + velocity * (sine / speed), velocity * cosine - u * (
            speed * sine
        )

    def retracted(self, u: tf.Tensor) -> tf.Tensor:
        """Return u / ‖u‖."""
        return u / tf.sqrt(tf.reduce_sum(u * u, -1, keepdims=True))


@dataclass(frozen=True)
class Sphere(UnitVectors):
    """The unit vectors along the last axis, S^(d−1); leading axes are a product of spheres.

    Geodesics are great circles: with α = ‖ν‖, u(t) = u cos αt + (ν/α) sin αt and
    ν(t) = ν cos αt − αu sin αt. The tangent space at u has the projection Λ(u) = I − uuᵀ.
    Densities are with respect to the Hausdorff measure, the area of the sphere, so that no prior
    means a uniform one.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> rng = np.random.default_rng(1)
        >>> x = rng.normal(size=(500, 3)) + [0.0, 0.0, 2.0]
        >>> def log_lik(params, dataset):  # N(v, I), with ‖v‖ = 1
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["v"]) ** 2, -1)
        >>> chain = sgmcmc.sggmc(
        ...     log_lik, {"x": x}, {"v": [1.0, 0.0, 0.0]}, 1e-4,
        ...     manifolds={"v": sgmcmc.manifolds.Sphere()}, minibatch_size=100, alpha=0.2,
        ...     n_iters=2000, burn_in=200, verbose=False, seed=1)
        >>> bool(np.abs(np.linalg.norm(chain["v"], axis=1) - 1).max() < 1e-6)
        True

    Source:
        Liu, Zhu & Song, NeurIPS 2016, eq. 7; Byrne & Girolami, Scandinavian Journal of Statistics
        40, 2013, section 4.1.
    """

    remedy = "Divide it by its length along the last axis."


@dataclass(frozen=True)
class Simplex(UnitVectors):
    """Points ω of the simplex along the last axis, as ω = v² with v on the sphere.

    The chain moves v along great circles. Densities are with respect to Lebesgue's measure on the
    simplex, as Dirichlet densities are, so that no prior is Dirichlet(1, ..., 1); the area of the
    sphere is Dirichlet(1/2, ..., 1/2) on the simplex, so that Σ log |v_i| is added. The
    integrator has trouble near a component that is zero, unless its density behaves there as
    1/√ω: stepsizes must be small; or use :func:`sgmcmc.scir`, which has no discretization error.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> z = np.repeat(np.eye(3), [70, 20, 10], axis=0)
        >>> def log_lik(params, dataset):
        ...     return tf.linalg.matvec(dataset["z"], tf.math.log(params["omega"]))
        >>> chain = sgmcmc.sggmc(
        ...     log_lik, {"z": z}, {"omega": np.ones(3) / 3}, 1e-3, minibatch_size=100,
        ...     manifolds={"omega": sgmcmc.manifolds.Simplex()}, n_iters=5000,
        ...     verbose=False, seed=1)
        >>> np.round(chain["omega"].mean(0, dtype=float), 1).tolist()
        [0.7, 0.2, 0.1]

    Source:
        Byrne & Girolami, Scandinavian Journal of Statistics 40, 2013, section 4.2; Lan, Zhou &
        Shahbaba, ICML 2014.
    """

    what = "points of the simplex"
    in_place = False
    coordinates = "square roots of points of the simplex"

    def check(self, label: str, start: np.ndarray, dtype: tf.DType) -> None:
        """Raise an error if a starting value is not inside the simplex."""
        self.check_shape(label, start.shape)
        gap = float(np.abs(start.sum(-1, dtype=np.float64) - 1.0).max())
        if not (start > 0).all() or not gap < _ROUNDING:
            raise ValueError(
                f"`{label}` must start inside the simplex, along its last axis: positive "
                f"components with sum 1; the smallest is {float(start.min()):g}, and the sum is "
                f"off by up to {gap:.2g}."
            )

    def held(self, u: tf.Tensor, slope: tf.Tensor, stepsize: tf.Tensor) -> tf.Tensor:
        """Return g / √(1 + (εg/v)⁴), g the slope.

        With counts c in a component, g is (2c + 1)/v, and near the edge a kick εg is larger than
        v itself. It would throw v anywhere. Elsewhere the change is of order ε⁴.
        """
        return slope / tf.sqrt(1.0 + tf.math.divide_no_nan(stepsize * slope, u) ** 4)

    def start(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return v = √ω."""
        return self._nearest(np.sqrt(np.asarray(value, np.float64)))

    def constrain(self, u: tf.Tensor) -> tf.Tensor:
        """Return ω = v²."""
        return tf.maximum(u * u, _least(u.dtype))

    def of_point(self, point: tf.Tensor) -> tf.Tensor:
        """Return ω; gradients are computed with respect to v."""
        return self.constrain(point)

    def log_jacobian(self, u: tf.Tensor) -> tf.Tensor:
        """Return Σ log |v_i|, up to a constant."""
        return 0.5 * tf.reduce_sum(tf.math.log(self.constrain(u)))


def _least(dtype: tf.DType) -> tf.Tensor:
    """Return the smallest ω that is shown; its root and its logarithm are representable too."""
    return tf.constant(np.finfo(dtype.as_numpy_dtype).tiny * 2.0**26, dtype)


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

    def flow(
        self, u: tf.Tensor, velocity: tf.Tensor, time: float
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return place and velocity after some time on a geodesic."""
        # In units in which the speed is near one, small velocities keep their digits.
        squared = tf.reduce_mean(
            tf.reduce_sum(velocity * velocity, -2, keepdims=True), -1
        )
        speed = tf.sqrt(squared + _AT_REST)[..., tf.newaxis]
        heading, time = velocity / speed, time * speed
        A = tf.matmul(u, heading, transpose_a=True)
        A = 0.5 * (A - tf.linalg.matrix_transpose(A))
        S = tf.matmul(heading, heading, transpose_a=True)
        eye = tf.eye(u.shape[-1], batch_shape=u.shape[:-2], dtype=u.dtype)
        rows = tf.concat([A, -S], -1), tf.concat([eye, A], -1)
        moved = tf.matmul(
            tf.concat([u, heading], -1), exponential(time * tf.concat(rows, -2))
        )
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
