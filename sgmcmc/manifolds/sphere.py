"""Unit vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tensorflow as tf

from sgmcmc.manifolds.base import Manifold

_AT_REST = 1e-30
"""Added to the square of a speed, which a velocity of zero has to be divided by."""


class UnitVectors(Manifold):
    """What moves along great circles, as a unit vector along the last axis does."""

    what = "unit vectors"
    """What the last axis has the components of."""

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

    def flow(self, u: tf.Tensor, velocity: tf.Tensor, time: float) -> tuple[tf.Tensor, tf.Tensor]:
        """Return place and velocity after some time on a great circle."""
        # A vector at rest has no direction; what is added is far below any speed.
        speed = tf.sqrt(tf.reduce_sum(velocity * velocity, -1, keepdims=True) + _AT_REST)
        cosine, sine = tf.cos(time * speed), tf.sin(time * speed)
        return u * cosine + velocity * (sine / speed), velocity * cosine - u * (speed * sine)

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
