"""The interface of manifolds."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import tensorflow as tf

from sgmcmc.model.geometry import Geometry

_ROUNDING = 1e-3
"""Tolerated distance of a starting value from a manifold, relative to its entries."""


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
        """Return place and velocity after some time on the geodesic with this velocity at u."""

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
            gap = float(np.abs(self._nearest(start) - start).max())
        except tf.errors.InvalidArgumentError:  # it has no full rank
            gap = np.inf
        if not gap < _ROUNDING:
            raise ValueError(
                f"`{label}` must start on its manifold, {self!r}; a point near it there differs "
                f"by {gap:.2g} in one of its entries. {self.remedy}"
            )

    remedy: str = ""
    """Advice for a starting value that is off the manifold."""

    def start(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return the starting point of a chain on the manifold, exact to rounding."""
        return self._nearest(value)

    def _nearest(self, value: np.ndarray) -> np.ndarray:
        return self.retracted(tf.constant(np.asarray(value, np.float64))).numpy()
