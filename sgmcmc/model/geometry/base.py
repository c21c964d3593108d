"""The interface of geometries: by default the whole of ℝᵈ, or what a bijector maps to it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors


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
