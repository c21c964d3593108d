"""Constrained parameters that a bijector maps to the whole of ℝᵈ."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.target.geometry.base import Geometry


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

    # A bijector caches its last inputs and outputs; `identity` keeps what it caches of one
    # graph from being handed out in another.

    def constrain(self, u: tf.Tensor) -> tf.Tensor:
        """Return f(u)."""
        return self.bijector.forward(tf.identity(u))

    def of_point(self, point: tf.Tensor) -> tf.Tensor:
        """Return f(u); gradients are computed with respect to u."""
        return self.constrain(point)

    def log_jacobian(self, u: tf.Tensor) -> tf.Tensor:
        """Return log |det f'(u)|."""
        log_det = self.bijector.forward_log_det_jacobian(tf.identity(u), event_ndims=self._rank)
        return tf.reduce_sum(log_det)
