"""Parameters with gamma priors, and points of the simplex, which are ratios of such.

A parameter λ > 0 is carried as u = log λ. The chain has a second coordinate for each, the log of
the rate that its time is measured by, which the dynamics alone have a use for.

A point ω of the simplex is carried as u = log θ, where θ > 0 is unnormalized and ω = θ / Σθ. A
component that no floating point number could hold is an ordinary number then: u = -20 000 is as
good as u = 2, nothing becomes NaN and nothing sticks at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.model.geometry.base import Geometry
from sgmcmc.model.layout import Division, Layout

_ON_THE_SIMPLEX = (
    "For points of the simplex `log_lik` must be a sum of logs of polynomials in ω with "
    "coefficients that are not negative, as the likelihood of counts or of a mixture is."
)


class OnSimplex(Geometry):
    """ω = θ / Σθ along the last axis, u = log θ, with a Dirichlet prior on ω.

    In other words the prior of θ is Gamma(alpha, 1), each component by itself. The slope that
    dynamics are handed is the expected counts ĉ = (N/n) ω ∂log_lik/∂ω, which hold more than the
    gradient with respect to u: the gradient, â − ωΣâ with â = alpha + ĉ, does not give their sum.

    Args:
        alpha: Concentrations, of the parameter's shape.
        theta0: Starting value of θ; without it θ starts at the ω that the user gives, for the
            dynamics to scale.
    """

    affine = False
    in_place = False
    prior_included = True
    keeps_scale = True
    coordinates = "the logs of points of the simplex"
    advice = (
        "Unless its stepsize is far too large, its expected counts ω ∂log_lik/∂ω came out "
        f"negative. {_ON_THE_SIMPLEX}"
    )

    def __init__(self, alpha: np.ndarray, theta0: np.ndarray | None = None) -> None:
        self.alpha = alpha
        self.theta0 = theta0

    def at_temperature(self, temperature: float) -> OnSimplex | None:
        """Return the same with the Dirichlet density of ω to the power 1/T; ``None`` if improper.

        Its concentrations are (alpha − 1)/T + 1.
        """
        alpha = (self.alpha - 1.0) / temperature + 1.0
        return OnSimplex(alpha, self.theta0) if (alpha > 0).all() else None

    def check(self, label: str, start: np.ndarray, dtype: tf.DType) -> None:
        """Raise an error if a starting value is off the simplex."""
        if start.ndim == 0:
            raise ValueError(
                f"`{label}` is a single number; a point of the simplex, which `alpha` says it is, "
                "has its components along the last axis."
            )
        sums = start.sum(-1, dtype=np.float64)
        rounding = 1e-4
        if (start < 0).any() or (np.abs(sums - 1.0) > rounding).any():
            worst = float(sums.flat[np.argmax(np.abs(sums - 1.0))])
            fault = f"its components sum to {worst:g}"
            if (start < 0).any():
                fault = f"its smallest component is {float(start.min()):g}"
            raise ValueError(
                f"`{label}` must start on the simplex, along its last axis: components not "
                f"negative, with sum 1; {fault}. A parameter that is no point of the simplex "
                "must not be named in `alpha`, which must then be a dict."
            )

    def start(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return log θ at the start."""
        return self.found_at(value if self.theta0 is None else self.theta0, dtype)

    def found_at(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return log ω."""
        return np.log(np.maximum(value, smallest(dtype)))

    def constrain(self, u: tf.Tensor) -> tf.Tensor:
        """Return ω."""
        return normalize(u, smallest(u.dtype))

    def differentiated(self, u: tf.Tensor) -> tf.Tensor:
        """Return ω, with components that leave room for the derivative c/ω of c log ω."""
        return normalize(u, smallest_with_gradient(u.dtype))

    def slope(self, point: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """Return the expected counts ĉ."""
        return point * gradient

    def score(self, u: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to u, â − ωΣâ.

        It does not depend on Σθ, whose distribution differs between samplers and does not affect ω.
        """
        expected = tf.constant(self.alpha, u.dtype) + slope
        points = tf.exp(tf.nn.log_softmax(u))
        return expected - points * tf.reduce_sum(expected, -1, keepdims=True)

    def log_prior(self, u: tf.Tensor) -> tf.Tensor:
        """Return the log prior density in the coordinates u, up to a constant: Σ alpha log ω."""
        return tf.reduce_sum(tf.constant(self.alpha, u.dtype) * tf.nn.log_softmax(u))

    def log_prior_of(self, theta: tf.Tensor) -> tf.Tensor:
        """Return the same of ω."""
        return tf.reduce_sum(tf.constant(self.alpha, theta.dtype) * tf.math.log(theta))

    def unnormalized(self, u: tf.Tensor) -> tf.Tensor:
        """Return θ."""
        return tf.exp(u)

    def check_prior(
        self, name: str, params: Tensors, log_prior: Callable[[Tensors], tf.Tensor]
    ) -> None:
        """Raise an error if the user's log-prior depends on ω."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(params[name])
            value = log_prior(dict(params))
        if tf.is_tensor(value) and tape.gradient(value, params[name]) is not None:
            raise ValueError(
                f"`log_prior` depends on {name!r}, whose prior is Dirichlet with concentration "
                "`alpha`. Leave it out of `log_prior`."
            )

    def check_slope(self, name: str, slope: np.ndarray) -> None:
        """Raise an error if expected counts are negative beyond rounding."""
        if np.isnan(usable_counts(tf.constant(slope))).any():
            raise ValueError(
                f"`log_lik`: the expected counts ω ∂log_lik/∂ω of {name!r} came out negative "
                f"({float(slope.min()):g}). {_ON_THE_SIMPLEX}"
            )


class Simplices(Division):
    """All parameters that are points of the simplex, among the coordinates of a flat position.

    Args:
        layout: Layout of all parameters in the flat position.
        alpha: Concentrations of each such parameter, of its shape.

    Attributes:
        alpha: Their concentrations, flat.
        last: Whether each coordinate is the last of a point, flat.
    """

    def __init__(self, layout: Layout, alpha: Mapping[str, np.ndarray]) -> None:
        super().__init__(layout, alpha)
        names = self.selected.names
        arrays = [alpha[name] for name in names]
        self.alpha = np.concatenate([np.zeros(0), *(a.ravel() for a in arrays)])
        sizes = [a.shape[-1] for a in arrays for _ in range(a[..., -1].size)]
        self.last = np.zeros(self.selected.size, bool)
        self.last[np.cumsum(sizes, dtype=int) - 1] = True

    def totals(self, on: tf.Tensor) -> tf.Tensor:
        """Return the vector in which each coordinate is the sum over its simplex."""

        def total(points: tf.Tensor) -> tf.Tensor:
            sums = tf.reduce_sum(points, -1, keepdims=True)
            return tf.broadcast_to(sums, points.shape)

        return self._by_parameter(total, on)

    def sums(self, on: tf.Tensor) -> tf.Tensor:
        """Return the sum over each simplex, one number for each of them."""
        return self._by_parameter(lambda points: tf.reduce_sum(points, -1), on)

    def per_coordinate(self, values: tf.Tensor) -> tf.Tensor:
        """Return the vector in which each coordinate is the number of its simplex."""
        shapes = self.selected.shapes.values()
        sizes = np.concatenate(
            [np.full(np.prod(s[:-1], dtype=int), s[-1]) for s in shapes]
        )
        return tf.gather(values, np.repeat(np.arange(len(sizes)), sizes))

    def lasts(self, on: tf.Tensor) -> tf.Tensor:
        """Return the vector in which each coordinate is the last of its point."""
        return self._by_parameter(
            lambda points: tf.broadcast_to(points[..., -1:], points.shape), on
        )

    def log_points(self, u: tf.Tensor) -> tf.Tensor:
        """Return log ω, flat, of flat u."""
        return self._by_parameter(tf.nn.log_softmax, u)

    def _by_parameter(
        self, function: Callable[[tf.Tensor], tf.Tensor], on: tf.Tensor
    ) -> tf.Tensor:
        """Apply a function to the array of each parameter, and return all flat again."""
        arrays = self.selected.split(on).values()
        return tf.concat([tf.reshape(function(array), [-1]) for array in arrays], 0)

    def scaled(
        self, position: tf.Tensor, counts: tf.Tensor, is_fixed: Mapping[str, bool]
    ) -> tf.Tensor:
        """Return the position with θ = ω Σâ, if ``position`` fixes only ω.

        Args:
            position: Flat position.
            counts: Flat vector with the expected counts ĉ in the coordinates on simplices.
            is_fixed: Whether the position of a parameter fixes its θ already.
        """
        if self.has_none:
            return position
        (u, remaining), (counts, _) = self.divide(position), self.divide(counts)
        shift = tf.math.log(self.totals(tf.constant(self.alpha, u.dtype) + counts))
        shift -= tf.math.log(self.totals(tf.exp(u)))
        fixed = self.selected.join(
            {
                name: np.full(shape, is_fixed[name])
                for name, shape in self.selected.shapes.items()
            },
            np.dtype(bool),
        )
        return self.unite(tf.where(fixed, u, u + shift), remaining)


def normalize(u: tf.Tensor, smallest_component: float) -> tf.Tensor:
    """Return ω = e^u / Σe^u along the last axis, no component below ``smallest_component``.

    With ``smallest_component`` above zero, 0·log ω is zero and not NaN.
    """
    return tf.maximum(tf.nn.softmax(u), tf.constant(smallest_component, u.dtype))


def smallest(dtype: tf.DType) -> float:
    """Return the smallest component of ω that is shown: the smallest normal number."""
    return float(np.finfo(dtype.as_numpy_dtype).tiny)


def smallest_with_gradient(dtype: tf.DType) -> float:
    """Return the smallest ω at which the derivative c/ω of c log ω is computed.

    That leaves room for counts c up to 10^8 before it overflows.
    """
    return smallest(dtype) * 2.0**26


def usable_counts(counts: tf.Tensor) -> tf.Tensor:
    """Clip rounding negatives to zero; larger negatives become NaN."""
    size = tf.reduce_max(tf.abs(counts))
    rounding = float(np.sqrt(np.finfo(counts.dtype.as_numpy_dtype).eps))
    bad = counts < -rounding * size
    return tf.where(bad, tf.constant(np.nan, counts.dtype), tf.maximum(counts, 0.0))


_WITH_GAMMA_PRIORS = (
    "As a gamma parameter λ goes to zero, together with all other gamma parameters, `log_lik` must "
    "go as c log λ, with c a count."
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
        f"there. {_WITH_GAMMA_PRIORS}"
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
        of_jacobian = (self.power - 1.0) * (1.0 - inverse)
        shape = (self.shape - 1.0) * inverse + 1.0 + of_jacobian
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
        least = smallest_with_gradient(u.dtype) / self._s(u.dtype)
        return tf.maximum(tf.exp(u[0]), least)

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
        tolerated = 1e-2 * max(1.0, np.abs(counts).max())
        if np.abs(counts - nearer_counts).max() > tolerated:
            raise ValueError(
                f"`log_lik` has no counts for {name!r}, which `gamma` names. "
                f"{_WITH_GAMMA_PRIORS} If 1/{name} has a gamma distribution, as a variance "
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
        empty = [np.zeros(0)]
        self.shape = np.concatenate(empty + [g.shape.ravel() for g in half_lines])
        self.rate = np.concatenate(empty + [g.rate.ravel() for g in half_lines])

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
