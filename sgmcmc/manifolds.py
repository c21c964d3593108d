"""Manifolds: spaces in ℝᵈ that a parameter has to stay on.

``manifolds={"v": sgmcmc.manifolds.Sphere()}`` says that the parameter ``v`` is made of unit
vectors. :func:`sgmcmc.sggmc` and :func:`sgmcmc.gsgnht` move such a parameter along geodesics.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.model.geometry import Geometry

__all__ = ["Manifold", "Simplex", "Sphere", "Stiefel"]


@dataclass(frozen=True)
class _ManifoldSettings:
    distance: float = 1e-3  # of a start from a manifold, relative to its entries
    sum: float = 1e-4  # of a start on the simplex, its distance from one
    square_at_rest: float = 1e-30  # added to a squared speed; far below any
    halvings: int = 4  # of an exponent before the series is used


_SETTINGS = _ManifoldSettings()

_TERMS = {tf.float32: 7, tf.float64: 12}
"""Terms of the series: up to a norm of 4, more than half a turn, the rest is below rounding."""


class Manifold(Geometry, ABC):
    """A manifold in ℝᵈ, with the metric and the Hausdorff measure that it has there.

    A parameter on it moves as a velocity, ν, in its tangent space takes it along a geodesic. What
    users write in ``log_lik`` and ``log_prior`` are densities with respect to the Hausdorff
    measure, the area of the manifold, of functions that may be written for all of ℝᵈ: of their
    gradients no more than the tangent part is used.

    A subclass is a frozen dataclass, by whose constants it is shown and recognized in a store. It
    has ``dimension``, ``tangent``, ``flow`` and ``retracted``, of tensors of the parameter's shape,
    and ``check_shape``.

    Example:
        >>> import sgmcmc, tensorflow as tf
        >>> sphere = sgmcmc.manifolds.Sphere()
        >>> sphere.dimension((5, 3))
        10
        >>> u, v = tf.constant([1.0, 0.0]), tf.constant([0.0, 1.5707964])
        >>> sphere.flow(u, v, 1.0)[0].numpy().round(5).tolist()
        [-0.0, 1.0]
    """

    curved = True
    affine = False
    coordinates = "the space around a manifold"

    @abstractmethod
    def check_shape(self, label: str, shape: tuple[int, ...]) -> None:
        """Raise an error if no parameter of this shape, called ``label``, is on the manifold."""

    @abstractmethod
    def dimension(self, shape: tuple[int, ...]) -> int:
        """Return the dimension of the manifold, over all leading axes."""

    @abstractmethod
    def tangent(self, u: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
        """Return Λ(u) w, the projection of a vector onto the tangent space at u."""

    @abstractmethod
    def flow(
        self, u: tf.Tensor, velocity: tf.Tensor, time: float
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return position and velocity after some time on the geodesic with this velocity at u."""

    @abstractmethod
    def retracted(self, u: tf.Tensor) -> tf.Tensor:
        """Return a point of the manifold near u, which is off it by rounding or a small step."""

    def score(self, u: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient on the manifold, the tangent part of that in ℝᵈ."""
        return self.tangent(u, slope)

    def check(self, label: str, start: np.ndarray, dtype: tf.DType) -> None:
        """Raise an error if a starting value is off the manifold."""
        self.check_shape(label, start.shape)
        try:
            distance = float(np.abs(self._nearest(start) - start).max())
        except tf.errors.InvalidArgumentError:  # it has no full rank
            distance = np.inf
        if not distance < _SETTINGS.distance:
            raise ValueError(
                f"`{label}` must start on its manifold, {self!r}; a point near it there differs "
                f"by {distance:.2g} in one of its entries. {self.remedy}"
            )

    remedy: str = ""
    """Advice for a starting value that is off the manifold."""

    def start(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return the starting point of a chain on the manifold, exact to rounding."""
        return self._nearest(value)

    def _nearest(self, value: np.ndarray) -> np.ndarray:
        return self.retracted(tf.constant(np.asarray(value, np.float64))).numpy()


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
        """Return position and velocity after some time on a great circle."""
        # A vector at rest has no direction; what is added is far below any speed.
        speed = tf.sqrt(
            tf.reduce_sum(velocity * velocity, -1, keepdims=True)
            + _SETTINGS.square_at_rest
        )
        cosine, sine = tf.cos(time * speed), tf.sin(time * speed)
        position = u * cosine + velocity * (sine / speed)
        return position, velocity * cosine - u * (speed * sine)

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
        distance = float(np.abs(start.sum(-1, dtype=np.float64) - 1.0).max())
        if not (start > 0).all() or not distance < _SETTINGS.sum:
            raise ValueError(
                f"`{label}` must start inside the simplex, along its last axis: positive "
                f"components with sum 1; the smallest is {float(start.min()):g}, and the sum is "
                f"off by up to {distance:.2g}."
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
        """Return ω = v², with a least value whose root and logarithm are representable too."""
        tiny = np.finfo(u.dtype.as_numpy_dtype).tiny
        return tf.maximum(u * u, tf.constant(tiny * 2.0**26, u.dtype))

    def of_point(self, point: tf.Tensor) -> tf.Tensor:
        """Return ω; gradients are computed with respect to v."""
        return self.constrain(point)

    def log_jacobian(self, u: tf.Tensor) -> tf.Tensor:
        """Return Σ log |v_i|, up to a constant."""
        return 0.5 * tf.reduce_sum(tf.math.log(self.constrain(u)))


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
        """Return position and velocity after some time on a geodesic."""
        # In units in which the speed is near one, small velocities keep their digits.
        squares = tf.reduce_sum(velocity * velocity, -2, keepdims=True)
        squared = tf.reduce_mean(squares, -1)
        speed = tf.sqrt(squared + _SETTINGS.square_at_rest)[..., tf.newaxis]
        heading, time = velocity / speed, time * speed
        A = tf.matmul(u, heading, transpose_a=True)
        A = 0.5 * (A - tf.linalg.matrix_transpose(A))
        S = tf.matmul(heading, heading, transpose_a=True)
        eye = tf.eye(u.shape[-1], batch_shape=u.shape[:-2], dtype=u.dtype)
        rows = tf.concat([A, -S], -1), tf.concat([eye, A], -1)
        turn = exponential(time * tf.concat(rows, -2))
        ends = tf.matmul(tf.concat([u, heading], -1), turn)
        position, heading = tf.split(ends, 2, -1)
        back = exponential(-time * A)
        return tf.matmul(position, back), speed * tf.matmul(heading, back)

    def retracted(self, u: tf.Tensor) -> tf.Tensor:
        """Return Q of X = QR, R upper triangular with a positive diagonal."""
        lower = tf.linalg.cholesky(tf.matmul(u, u, transpose_a=True))
        flipped = tf.linalg.triangular_solve(lower, tf.linalg.matrix_transpose(u))
        return tf.linalg.matrix_transpose(flipped)


def exponential(matrix: tf.Tensor) -> tf.Tensor:
    """Return the exponential of small matrices, by products alone, which run in any graph."""
    matrix = matrix * 0.5**_SETTINGS.halvings
    eye = tf.eye(matrix.shape[-1], batch_shape=matrix.shape[:-2], dtype=matrix.dtype)
    total = eye
    for k in range(_TERMS[matrix.dtype], 0, -1):
        total = eye + tf.matmul(matrix, total) / k
    for _ in range(_SETTINGS.halvings):
        total = tf.matmul(total, total)
    return total
