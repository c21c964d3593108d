"""The interface of geometries: by default the whole of ℝᵈ, or what a bijector maps to it."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.data.minibatch import Tensors


class Geometry:
    """The space of one parameter, with u its coordinates in the chain, θ the user's.

    This class is the whole of ℝᵈ, where u = θ. A subclass overrides what differs.

    Attributes:
        in_place: Whether u is θ itself, so that nothing needs converting.
        prior_included: Whether the geometry includes a prior of the parameter, which the user's
            log-prior must omit, or may add to.
        takes_limit: Whether its slope needs the gradient at a second point, ``limit``, too.
        keeps_scale: Whether a draw has a scale besides θ that may be stored (``unnormalized``).
        coordinates: Description of u.
        advice: Advice for a chain that became NaN in this parameter, if a smaller stepsize is not
            the first thing to try.
        curved: Whether it is a manifold in the space of u, on which u has to stay. Dynamics with
            ``on_manifolds`` move by ``flow`` and ``tangent``.
        affine: Whether u may be scaled and mixed with other coordinates by a preconditioner.
    """

    curved: bool = False
    affine: bool = True
    in_place: bool = True
    prior_included: bool = False
    takes_limit: bool = False
    keeps_scale: bool = False
    coordinates: str = "unconstrained coordinates"
    advice: str | None = None

    def check(self, label: str, start: np.ndarray, dtype: tf.DType) -> None:
        """Raise an error if a starting value, called ``label``, is not of this space."""

    def coordinate_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of u for a parameter of this shape."""
        return shape

    def start(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return the coordinates that a chain starts at."""
        return value

    def found_at(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return the coordinates of any value, be it the start or not."""
        return self.start(value, dtype)

    def dimension(self, shape: tuple[int, ...]) -> int:
        """Return the number of directions in which a parameter of this shape can move."""
        return math.prod(self.coordinate_shape(shape))

    def tangent(self, u: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
        """Return the part of a vector along which u can move."""
        return vector

    def held(self, u: tf.Tensor, slope: tf.Tensor, stepsize: tf.Tensor) -> tf.Tensor:
        """Return a slope without the part that is too large for the stepsize, if it is unbounded.

        The stepsize is ε of dynamics with a velocity, whose kick of a step is ε times the slope.
        """
        return slope

    def flow(
        self, u: tf.Tensor, velocity: tf.Tensor, time: float
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return position and velocity after some time of free motion, along a geodesic."""
        return u + time * velocity, velocity

    def retracted(self, u: tf.Tensor) -> tf.Tensor:
        """Return a point of the space near u, which is one but for rounding or a small step."""
        return u

    def constrain(self, u: tf.Tensor) -> tf.Tensor:
        """Return θ."""
        return u

    def differentiated(self, u: tf.Tensor) -> tf.Tensor:
        """Return the point that gradients are computed with respect to; ``of_point`` leads to θ."""
        return u

    def of_point(self, point: tf.Tensor) -> tf.Tensor:
        """Return θ from the result of ``differentiated``."""
        return point

    def slope(self, point: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """Return the slope for the dynamics, given the gradient with respect to the point.

        For most geometries that is the gradient with respect to u. If the dynamics need
        more than this gradient, it is what they need, and ``score`` makes the gradient of it.
        """
        return gradient

    def limit(self, point: tf.Tensor) -> tf.Tensor:
        """Return the second point at which a geometry with ``takes_limit`` needs the gradient."""
        return point

    def slope_with_limit(
        self,
        point: tf.Tensor,
        gradient: tf.Tensor,
        limit: tf.Tensor,
        gradient_at_limit: tf.Tensor,
    ) -> tf.Tensor:
        """Return the slope for the dynamics, given the gradients at both points."""
        return self.slope(point, gradient)

    def nearer(self) -> Geometry:
        """Return the same geometry with ``limit`` nearer to its end, for comparison."""
        return self

    def score(self, u: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient of the log posterior with respect to u, of the slope."""
        return slope

    def score_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of that gradient for a parameter of this shape."""
        return self.coordinate_shape(shape)

    def log_jacobian(self, u: tf.Tensor) -> tf.Tensor | None:
        """Return log |det dθ/du|, which the target is raised by; ``None`` if that is zero."""
        return None

    def log_prior(self, u: tf.Tensor) -> tf.Tensor | None:
        """Return the log density of the prior that the geometry brings along, of u."""
        return None

    def log_prior_of(self, theta: tf.Tensor) -> tf.Tensor | None:
        """Return the same of θ."""
        return None

    def unnormalized(self, u: tf.Tensor) -> tf.Tensor:
        """Return θ with its scale, for geometries that keep one."""
        return u

    def check_prior(
        self, name: str, params: Tensors, log_prior: Callable[[Tensors], tf.Tensor]
    ) -> None:
        """Raise an error if the user's log-prior depends on this parameter and must not."""

    def check_slope(self, name: str, slope: np.ndarray) -> None:
        """Raise an error if a slope at the start shows that the likelihood does not suit."""

    def check_limit(self, name: str, slope: np.ndarray, nearer: np.ndarray) -> None:
        """Raise an error if slopes with one limit and with a nearer one disagree."""


_LONGEST_CONSTANT = 128  # most numbers of an array that TensorFlow makes a constant of


def root_of(covariance: np.ndarray) -> np.ndarray:
    """Return a lower triangular C with CCᵀ the covariance, in float64, whatever the units are."""
    scale = np.sqrt(np.diag(covariance))
    return scale[:, np.newaxis] * np.linalg.cholesky(
        covariance / np.outer(scale, scale)
    )


class Preconditioner:
    """u = û + Cζ with CCᵀ = M: the chain moves in ζ.

    The posterior covariance of ζ is near the identity if M is near the covariance of u.

    The dynamics' own equations hold for ζ. With its own stepsize each coordinate gets one
    scale; a matrix M also undoes correlations. With ``axes`` V and ``lengths`` s,
    C = diag(root) (I + V diag(s − 1) Vᵀ): diagonal plus low rank, at a cost of O(dk).

    Args:
        root: C, a vector (M diagonal) or a lower triangular matrix, in float64.
        origin: û, the origin, at which ζ = 0.
        axes: V, orthonormal directions of the scaled coordinates, (d, k); ``None`` for none.
        lengths: s, factors of the scale along each, (k,).
    """

    def __init__(
        self,
        root: np.ndarray,
        origin: np.ndarray,
        axes: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
    ) -> None:
        self.root = np.asarray(root, np.float64)
        self.origin = np.asarray(origin, np.float64)
        self.dense = self.root.ndim == 2
        self.axes, self.lengths = axes, lengths
        self._tensors: dict[tuple[str, tf.DType], tf.Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tensors stay in their process; a copy has its own.
        return {**self.__dict__, "_tensors": {}}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all that makes it, by name."""
        return {"root": self.root, "origin": self.origin} | self._arrays_of_axes()

    def _arrays_of_axes(self) -> dict[str, np.ndarray]:
        if self.axes is None or self.lengths is None:
            return {}
        return {"axes": self.axes, "lengths": self.lengths}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Preconditioner:
        """Return the object from the result of ``arrays``."""
        return cls(
            arrays["root"], arrays["origin"], arrays.get("axes"), arrays.get("lengths")
        )

    @property
    def kind(self) -> str:
        """Description of it, in words."""
        if self.lengths is not None:
            return f"diagonal, and {len(self.lengths)} directions"
        return "dense" if self.dense else "diagonal"

    @functools.cached_property
    def _inverse(self) -> np.ndarray:
        if not self.dense:
            return 1.0 / self.root
        return scipy.linalg.lapack.dtrtri(self.root, lower=1)[0]

    def into(self, u: np.ndarray) -> np.ndarray:
        """Return ζ of u, (..., d), as NumPy."""
        difference = np.asarray(u, np.float64) - self.origin
        if self.dense:
            return scipy.linalg.solve_triangular(self.root, difference.T, lower=True).T
        return self._times_inverse_axes(self._inverse * difference)

    def transposed_times(self, vectors: np.ndarray) -> np.ndarray:
        """Return Cᵀ times each of some vectors, (..., d), as NumPy."""
        if self.dense:
            return vectors @ self.root
        return self._times_axes(self.root * vectors)

    def times(self, vectors: np.ndarray) -> np.ndarray:
        """Return C times each of some vectors, (..., d), as NumPy."""
        if self.dense:
            return vectors @ self.root.T
        return self.root * self._times_axes(vectors)

    def _times_axes(self, vectors: np.ndarray) -> np.ndarray:
        """Return (I + V diag(s − 1) Vᵀ) times each of some vectors."""
        if self.axes is None or self.lengths is None:
            return vectors
        return vectors + ((vectors @ self.axes) * (self.lengths - 1.0)) @ self.axes.T

    def _times_inverse_axes(self, vectors: np.ndarray) -> np.ndarray:
        """Return the inverse of that matrix times each of some vectors."""
        if self.axes is None or self.lengths is None:
            return vectors
        return (
            vectors + ((vectors @ self.axes) * (1.0 / self.lengths - 1.0)) @ self.axes.T
        )

    def scaled(self, factors: np.ndarray) -> Preconditioner:
        """Return C diag(factors), of a diagonal C."""
        return Preconditioner(self.root * factors, self.origin)

    def centered_at(self, origin: np.ndarray) -> Preconditioner:
        """Return the same with another origin."""
        copied = copy.copy(self)
        copied.origin = np.asarray(origin, np.float64)
        return copied

    def out_of(self, zeta: tf.Tensor) -> tf.Tensor:
        """Return u of ζ."""
        if self.lengths is not None:
            zeta = self._along(zeta, self.lengths)
        return self._tensor("origin", self.origin, zeta.dtype) + self._times(
            "root", self.root, zeta
        )

    def slope(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to ζ, Cᵀ times that with respect to u."""
        slope = self._times("transposed", self.root.T, slope)
        return slope if self.lengths is None else self._along(slope, self.lengths)

    def score(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to u of that with respect to ζ."""
        if self.lengths is not None:
            slope = self._along(slope, 1.0 / self.lengths)
        return self._times("inverse", self._inverse.T, slope)

    def _times(self, name: str, matrix: np.ndarray, vector: tf.Tensor) -> tf.Tensor:
        factor = self._tensor(name, matrix, vector.dtype)
        return tf.linalg.matvec(factor, vector) if self.dense else factor * vector

    def _tensor(self, name: str, array: np.ndarray, dtype: tf.DType) -> tf.Tensor:
        """Return an array that graphs get as an input: with other numbers they are the same.

        TensorFlow writes short arrays into graphs as constants, so that these are lengthened.
        """
        key = name, dtype
        if key not in self._tensors:
            flat = np.zeros(max(array.size, _LONGEST_CONSTANT + 1))
            flat[: array.size] = array.reshape(-1)
            with tf.init_scope():
                self._tensors[key] = tf.constant(flat, dtype)
        return tf.reshape(self._tensors[key][: array.size], array.shape)

    def _along(self, vector: tf.Tensor, lengths: np.ndarray) -> tf.Tensor:
        """Return (I + V diag(lengths − 1) Vᵀ) times a vector."""
        axes = tf.constant(self.axes, vector.dtype)
        components = tf.linalg.matvec(axes, vector, transpose_a=True)
        return vector + tf.linalg.matvec(
            axes, tf.constant(lengths - 1.0, vector.dtype) * components
        )


_CACHE_LOCK = threading.RLock()  # while bijectors cache in a storage of their own


@contextmanager
def _own_cache(bijector: Any) -> Iterator[None]:
    """Have a bijector forget at the end what it caches.

    TFP keeps the last inputs, outputs and Jacobians of all bijectors in one place, where those of
    one graph would be handed out in another, and keep it in memory as long as the process lives.
    """
    cache = inspect.getattr_static(type(bijector), "_cache", None)
    storage = getattr(cache, "storage", None)
    if cache is None or storage is None:
        yield
        return
    with _CACHE_LOCK:
        cache.storage = type(storage)()
        try:
            yield
        finally:
            cache.storage = storage


class Bijected(Geometry):
    """θ = f(u), with log |det f'(u)| added to the log posterior.

    Args:
        bijector: f, a TFP bijector.
        shape: Shape of θ.
    """

    in_place = False

    def __init__(self, bijector: Any, shape: tuple[int, ...]) -> None:
        self.bijector = bijector
        self._rank = len(self.coordinate_shape(shape))

    def coordinate_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of u for a parameter of this shape."""
        return tuple(self.bijector.inverse_event_shape(tf.TensorShape(shape)).as_list())

    def start(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return f⁻¹(θ)."""
        return self.bijector.inverse(tf.constant(value, dtype)).numpy()

    def constrain(self, u: tf.Tensor) -> tf.Tensor:
        """Return f(u)."""
        with _own_cache(self.bijector):
            return self.bijector.forward(u)

    def of_point(self, point: tf.Tensor) -> tf.Tensor:
        """Return f(u); gradients are computed with respect to u."""
        return self.constrain(point)

    def log_jacobian(self, u: tf.Tensor) -> tf.Tensor:
        """Return log |det f'(u)|."""
        with _own_cache(self.bijector):
            log_det = self.bijector.forward_log_det_jacobian(u, event_ndims=self._rank)
        return tf.reduce_sum(log_det)
