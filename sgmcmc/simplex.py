"""Points of the simplex among the parameters, and the coordinates in which they move.

A point ω of the simplex is carried as u = log θ, where θ > 0 is unnormalised and ω = θ / Σθ. A
component that no floating point number could hold is an ordinary number then: u = -20 000 is as
good as u = 2, nothing becomes NaN and nothing sticks at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from sgmcmc.layout import Layout

WHAT_LOG_LIK_MUST_BE = (
    "For points of the simplex `log_lik` must be a sum of logs of polynomials in ω with "
    "coefficients that are not negative, as the likelihood of counts or of a mixture is."
)


class Simplex:
    """Which parameters are points of the simplex along their last axis, with their priors.

    The prior of each is the Dirichlet distribution with concentrations alpha; in other words that
    of θ is Gamma(alpha, 1), each component by itself.

    Args:
        layout: the places of all parameters in the flat position.
        alpha: the concentrations of each such parameter, of its shape.

    Attributes:
        part: the layout of these parameters alone.
        alpha: their concentrations, flat.
        alone: whether there are no other parameters.
        empty: whether there are none of these.
    """

    def __init__(self, layout: Layout, alpha: Mapping[str, np.ndarray]) -> None:
        self._layout = layout
        self.part = layout.subset(alpha)
        self._rest = layout.subset(name for name in layout.names if name not in alpha)
        self.alpha = np.concatenate([np.zeros(0), *(alpha[n].ravel() for n in self.part.names)])
        self.alone = self._rest.size == 0
        self.empty = self.part.size == 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that are points of the simplex."""
        return self.part.names

    def __contains__(self, name: str) -> bool:
        return name in self.part.shapes

    def divide(self, vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the coordinates on simplices and the others; a scalar serves both."""
        if vector.shape.rank == 0 or self.alone:
            return vector, vector
        places = self._layout.slices
        on, others = (
            tf.concat([vector[..., places[name]] for name in part.names], -1)
            for part in (self.part, self._rest)
        )
        return on, others

    def unite(self, on: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
        """Return the vector that ``divide`` would divide so."""
        if self.alone:
            return on
        mine, theirs = self.part.slices, self._rest.slices
        pieces = [
            on[mine[name]] if name in self else others[theirs[name]] for name in self._layout.names
        ]
        return tf.concat(pieces, 0)

    def totals(self, on: tf.Tensor) -> tf.Tensor:
        """Return the vector in which each coordinate is the sum over its simplex."""
        return self._of_each(
            lambda points: tf.broadcast_to(tf.reduce_sum(points, -1, keepdims=True), points.shape),
            on,
        )

    def log_points(self, u: tf.Tensor) -> tf.Tensor:
        """Return log ω, flat, of flat u."""
        return self._of_each(tf.nn.log_softmax, u)

    def _of_each(self, function: Callable[[tf.Tensor], tf.Tensor], on: tf.Tensor) -> tf.Tensor:
        """Apply a function to the array of each parameter, and return all flat again."""
        arrays = self.part.split(on).values()
        return tf.concat([tf.reshape(function(array), [-1]) for array in arrays], 0)

    def log_prior(self, position: tf.Tensor) -> tf.Tensor:
        """Return the log prior density in the coordinates u, up to a constant: Σ alpha log ω."""
        u, _ = self.divide(position)
        return tf.reduce_sum(tf.constant(self.alpha, u.dtype) * self.log_points(u))

    def log_prior_of(self, params: Mapping[str, tf.Tensor]) -> tf.Tensor | float:
        """Return the same of the user's parameters."""
        alpha = self.part.split(self.alpha)
        terms = [
            tf.reduce_sum(tf.constant(alpha[name], params[name].dtype) * tf.math.log(params[name]))
            for name in self.names
        ]
        return tf.add_n(terms) if terms else 0.0

    def score(self, position: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """Return the gradient of the log posterior with respect to the position.

        For u = log θ that is â − ωΣâ. It does not depend on Σθ, whose law differs from sampler to
        sampler and is of no account for ω.

        Args:
            position: flat.
            gradient: flat, with the expected counts ĉ in the coordinates on simplices.
        """
        (u, _), (counts, others) = self.divide(position), self.divide(gradient)
        expected = tf.constant(self.alpha, u.dtype) + counts
        points = tf.exp(self.log_points(u))
        return self.unite(expected - points * self.totals(expected), others)

    def at_start(
        self, position: tf.Tensor, gradient: tf.Tensor, scaled: tuple[str, ...]
    ) -> tf.Tensor:
        """Return the position with θ = ω Σâ, where ``position`` told ω alone.

        Args:
            position: flat.
            gradient: flat, with the expected counts ĉ in the coordinates on simplices.
            scaled: names of the parameters whose θ the position told already.
        """
        (u, others), (counts, _) = self.divide(position), self.divide(gradient)
        shift = tf.math.log(self.totals(tf.constant(self.alpha, u.dtype) + counts))
        shift -= tf.math.log(self.totals(tf.exp(u)))
        told = self.part.join(
            {name: np.full(shape, name in scaled) for name, shape in self.part.shapes.items()},
            np.dtype(bool),
        )
        return self.unite(tf.where(told, u, u + shift), others)


def normalise(u: tf.Tensor, least: float) -> tf.Tensor:
    """Return ω = e^u / Σe^u along the last axis, no component below ``least``.

    With ``least`` above zero, 0·log ω is zero and not NaN.
    """
    return tf.maximum(tf.nn.softmax(u), tf.constant(least, u.dtype))


def smallest(dtype: tf.DType) -> float:
    """Return the smallest component of ω that is shown: the smallest normal number."""
    return float(np.finfo(dtype.as_numpy_dtype).tiny)


def smallest_with_gradient(dtype: tf.DType) -> float:
    """Return the smallest ω that the derivative c/ω of c log ω is taken at.

    That leaves room for counts c up to 10^8 before it overflows.
    """
    return smallest(dtype) * 2.0**26


def usable_counts(counts: tf.Tensor) -> tf.Tensor:
    """Return the counts without what rounding put below zero; NaN where more than rounding did."""
    size = tf.reduce_max(tf.abs(counts))
    rounding = float(np.sqrt(np.finfo(counts.dtype.as_numpy_dtype).eps))
    bad = counts < -rounding * size
    return tf.where(bad, tf.constant(np.nan, counts.dtype), tf.maximum(counts, 0.0))
