"""Parameters on (0, ∞) with gamma priors, and powers of such.

A parameter λ > 0 is carried as u = log λ. The chain has a second coordinate for each, the log of
the rate that its time is measured by, which the dynamics alone have a use for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from sgmcmc.model.geometry.base import Geometry
from sgmcmc.model.geometry.simplex import smallest, smallest_with_gradient
from sgmcmc.model.layout import Division, Layout

WHAT_LOG_LIK_MUST_BE = (
    "As a gamma parameter λ goes to zero, together with all other gamma parameters, `log_lik` must "
    "go as c log λ, with c a count."
)
_MAX_CHANGE = (
    1e-2  # tolerated difference of counts at two limits, relative to the largest
)


class OnHalfLine(Geometry):
    """θ = λ^power, λ > 0 with the prior Gamma(shape, rate) and u = log λ.

    Of a log-likelihood c log λ − eλ the slope has both numbers, the counts c and the exposure e:
    with ∂ the derivative with respect to λ, c is the limit of sλ ∂log_lik(sλ) as s → 0, where all
    gamma parameters shrink together, and e = c/λ − ∂log_lik(λ). So what depends on products of
    gamma parameters is divided rightly, and in a mixture c is the expected count. Whatever
    ``log_lik`` is, c − eλ is λ ∂log_lik(λ).

    Args:
        shape: Shape of the prior, of the parameter's shape.
        rate: Rate of the prior, of the parameter's shape; zeros for what ``log_prior`` completes.
        power: Power of λ; −1 for a variance.
        shrink: s used instead of zero, as a part of the rounding of ``dtype``.
    """

    in_place = False
    affine = False
    prior_included = True
    takes_limit = True
    coordinates = "the log of a gamma parameter"
    advice = (
        "Unless its stepsize is far too large, its expected counts or its exposure are not finite "
        f"there. {WHAT_LOG_LIK_MUST_BE}"
    )

    def __init__(
        self,
        shape: np.ndarray,
        rate: np.ndarray,
        power: float = 1.0,
        shrink: float = 2.0**-8,
    ) -> None:
        self.shape = shape
        self.rate = rate
        self.power = power
        self._shrink = shrink

    def at_temperature(self, temperature: float) -> OnHalfLine | None:
        """Return the same with the prior density of θ to the power 1/T; ``None`` if improper.

        With λ = θ^(1/power), dθ/dλ is in proportion to λ^(power − 1), so that λ has a gamma density
        again: its shape is (shape − 1)/T + 1 + (power − 1)(1 − 1/T), its rate rate/T.
        """
        inverse = 1.0 / temperature
        shape = (
            (self.shape - 1.0) * inverse + 1.0 + (self.power - 1.0) * (1.0 - inverse)
        )
        if not (shape > 0).all():
            return None
        return OnHalfLine(shape, self.rate * inverse, self.power, self._shrink)

    def check(self, label: str, start: np.ndarray, dtype: tf.DType) -> None:
        """Raise an error if a starting value is not positive."""
        if not (start > 0).all():
            raise ValueError(
                f"`{label}` must start above zero, for `gamma` says that it has a gamma prior; its "
                f"smallest component is {float(start.min()):g}."
            )

    def coordinate_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of u with the second coordinate."""
        return (2, *shape)

    def score_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of u alone."""
        return shape

    def start(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return log λ at the start, and zeros."""
        u = np.log(value) / self.power
        return np.stack([u, np.zeros_like(u)])

    def constrain(self, u: tf.Tensor) -> tf.Tensor:
        """Return θ, neither zero nor infinite."""
        largest = -np.log(smallest(u.dtype))
        return tf.exp(tf.clip_by_value(self.power * u[0], -largest, largest))

    def differentiated(self, u: tf.Tensor) -> tf.Tensor:
        """Return λ, which leaves room for the derivative c/(sλ)."""
        return tf.maximum(
            tf.exp(u[0]), smallest_with_gradient(u.dtype) / self._s(u.dtype)
        )

    def of_point(self, point: tf.Tensor) -> tf.Tensor:
        """Return θ."""
        return point if self.power == 1.0 else point**self.power

    def limit(self, point: tf.Tensor) -> tf.Tensor:
        """Return sλ."""
        return point * self._s(point.dtype)

    def nearer(self) -> OnHalfLine:
        """Return the same with another s."""
        return OnHalfLine(self.shape, self.rate, self.power, 0.25 * self._shrink)

    def _s(self, dtype: tf.DType) -> float:
        return float(np.finfo(dtype.as_numpy_dtype).eps) * self._shrink

    def slope_with_limit(
        self,
        point: tf.Tensor,
        gradient: tf.Tensor,
        limit: tf.Tensor,
        gradient_at_limit: tf.Tensor,
    ) -> tf.Tensor:
        """Return counts and exposures, along a new first axis."""
        counts = limit * gradient_at_limit
        return tf.stack([counts, counts / point - gradient])

    def score(self, u: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to u, shape + c − (rate + e) λ."""
        shape = tf.constant(self.shape, u.dtype)
        rate = tf.constant(self.rate, u.dtype)
        return shape + slope[0] - (rate + slope[1]) * tf.exp(u[0])

    def log_prior(self, u: tf.Tensor) -> tf.Tensor:
        """Return the log prior density of u, up to a constant: Σ shape log λ − rate λ."""
        return self._log_prior(u[0], tf.exp(u[0]))

    def log_prior_of(self, theta: tf.Tensor) -> tf.Tensor:
        """Return the same of θ."""
        u = tf.math.log(theta) / self.power
        return self._log_prior(u, tf.exp(u))

    def _log_prior(self, u: tf.Tensor, gamma: tf.Tensor) -> tf.Tensor:
        shape = tf.constant(self.shape, u.dtype)
        rate = tf.constant(self.rate, u.dtype)
        return tf.reduce_sum(shape * u - rate * gamma)

    def check_slope(self, name: str, slope: np.ndarray) -> None:
        """Raise an error if the posterior of a parameter without a prior rate has none either."""
        if not (self.rate + np.maximum(slope[1], 0.0) > 0).all():
            raise ValueError(
                f"`gamma[{name!r}]`: the rate of the prior is 0, and neither `log_lik` nor "
                "`log_prior` adds to it. Give a positive rate."
            )

    def check_limit(self, name: str, slope: np.ndarray, nearer: np.ndarray) -> None:
        """Raise an error if counts depend on how near to zero they are computed."""
        counts = slope[0].astype(float)
        nearer_counts = nearer[0].astype(float)
        if np.abs(counts - nearer_counts).max() > _MAX_CHANGE * max(
            1.0, np.abs(counts).max()
        ):
            raise ValueError(
                f"`log_lik` has no counts for {name!r}, which `gamma` names. "
                f"{WHAT_LOG_LIK_MUST_BE} If 1/{name} has a gamma distribution, as a variance "
                "with a normal likelihood has, give a third entry, the power that λ is raised "
                "to: gamma={{name!r}: (shape, rate, -1)}."
            )


class HalfLines(Division):
    """All gamma parameters, among some coordinates of a flat position.

    Args:
        layout: Layout of all parameters in the flat coordinates.
        geometries: Geometries of the gamma parameters.

    Attributes:
        shape, rate: Shapes and rates of their priors, flat.
    """

    def __init__(self, layout: Layout, geometries: Mapping[str, OnHalfLine]) -> None:
        super().__init__(layout, geometries)
        half_lines = [geometries[name] for name in self.selected.names]
        self.shape, self.rate = (
            np.concatenate([np.zeros(0), *(values.ravel() for values in arrays)])
            for arrays in ([g.shape for g in half_lines], [g.rate for g in half_lines])
        )

    def halves(self, vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the first and the second coordinates; a scalar serves both."""
        if vector.shape.rank == 0:
            return vector, vector
        pairs = [
            tf.reshape(pair, [2, -1]) for pair in self.selected.split(vector).values()
        ]
        both = tf.concat(pairs, 1)
        return both[0], both[1]

    def join(self, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Return the vector of these halves."""
        sizes = [size // 2 for size in self.selected.sizes.values()]
        halves = zip(tf.split(first, sizes), tf.split(second, sizes), strict=True)
        return tf.concat([vector for pair in halves for vector in pair], 0)
