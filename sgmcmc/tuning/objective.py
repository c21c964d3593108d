"""The log posterior over the whole dataset, as optimisers want it: in float64, with a Hessian."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.passes import Function, Pass, added
from sgmcmc.data.sparse import has_sparse, over
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import pass_on
from sgmcmc.target.target import Target

_PIECE_NUMBERS, _FEW = 2**23, 32
"""How many numbers a Hessian's intermediate results may hold, which are n × d in each piece; and
numbers of a row in place of d, in a product with it."""

Strata = Sequence[tuple[np.ndarray, float]]
"""Row numbers, and the number of rows that each of them represents."""


class Objective:
    """The log posterior and its derivatives at a flat position, added up over the dataset.

    If the user's functions allow it everything is computed in float64; if they hold float32
    constants, in the dtype of the chain, and added up in float64. Graphs of a large dataset are
    traced once for any number of rows, unless the user's functions ask how many there are.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        rows: Row numbers of the part of it that represents all; ``None`` for the whole.
        double: Whether to try float64.

    Attributes:
        evaluations: Number of passes over the data so far, Hessians counted like gradients.
    """

    def __init__(
        self, target: Target, data: Data, rows: np.ndarray | None = None, double: bool = True
    ) -> None:
        self._strata: Strata | None = None if rows is None else [(rows, data.size / len(rows))]
        self._taken: list[Tensors] = []
        self.evaluations = 0
        self.target = _in_double(target, data) if double else target
        self.size = target.size
        functions = {**of_likelihood(self.target), **of_prior(self.target)}
        self._pass = Pass(data, functions, any_length=True, row_terms=target.row_terms)

    def over(self, strata: Strata | None) -> Objective:
        """Return the same over rows that represent all, or over all, with the same graphs."""
        found = copy.copy(self)
        found._strata, found._taken, found.evaluations = strata, [], 0
        return found

    @property
    def weight(self) -> float:
        """Average number of rows that one of those used represents."""
        if self._strata is None:
            return 1.0
        return self._pass.data.size / sum(len(rows) for rows, _ in self._strata)

    def _sum(self, name: str, u: np.ndarray) -> list[np.ndarray]:
        """Return the sums over the data of what a function of position and columns returns."""
        self.evaluations += 1
        point = u.astype(self.target.dtype.as_numpy_dtype)
        if self._strata is None:
            # Only a Hessian takes n × d numbers.
            most = _PIECE_NUMBERS // (_FEW if name == "product" else 1 + self.size)
            return self._pass.sums(name, point, most=most)
        if not self._taken:
            self._taken = [self._pass.data.rows(rows) for rows, _ in self._strata]
        return added(
            [weight * _double(part) for part in self._pass.run(name, point, columns)]
            for columns, (_, weight) in zip(self._taken, self._strata, strict=True)
        )

    def _prior(self, name: str, points: np.ndarray) -> list[np.ndarray]:
        """Return what a function of the position alone returns."""
        point = points.astype(self.target.dtype.as_numpy_dtype)
        return [_double(part) for part in self._pass.run(name, point)]

    def value_and_gradient(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log posterior and its gradient."""
        value, gradient = self._sum("gradient", u)
        prior, slope = self._prior("prior", u)
        return float(value) + float(prior), gradient + slope

    def likelihood_gradient(self, u: np.ndarray) -> np.ndarray:
        """Return the gradient of the log-likelihood, (d,)."""
        return self._sum("gradient", u)[1]

    def prior_gradient(self, u: np.ndarray) -> np.ndarray:
        """Return the gradient of log-prior and log-Jacobian, (d,)."""
        return self._prior("prior", u)[1]

    def times_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of the log posterior times a vector, (d,)."""
        (likelihood,) = self._sum("product", np.stack([u, vector]))
        return self.times_prior_hessian(u, vector) - likelihood

    def times_prior_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of log-prior and log-Jacobian times a vector, (d,)."""
        return -self._prior("prior product", np.stack([u, vector]))[0]

    def likelihood_hessian(self, u: np.ndarray) -> np.ndarray:
        """Return the Hessian of the log-likelihood, (d, d)."""
        (hessian,) = self._sum("hessian", u)
        return (hessian + hessian.T) / 2

    def prior_hessian(self, u: np.ndarray) -> np.ndarray:
        """Return the Hessian of log-prior and log-Jacobian, (d, d), as derivatives tell it."""
        (found,) = self._prior("prior hessian", u)
        return (found + found.T) / 2

    def prior_gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradient of log-prior and log-Jacobian at several positions, (k, d)."""
        return self._prior("prior gradients", points)[0]

    def prior_values(self, points: np.ndarray) -> np.ndarray:
        """Return log-prior and log-Jacobian at several positions, (k,)."""
        return self._prior("prior values", points)[0]


def _in_double(target: Target, data: Data) -> Target:
    """Return the target in float64, or as it is if the user's functions do not go with that."""
    double = Target(target.log_lik, target.log_prior, target.space, tf.float64)

    def value(u: tf.Tensor, row: Tensors) -> tf.Tensor:
        return double.log_post(u, Minibatch(_cast(row, tf.float64)))

    try:
        trace(value, tf.zeros([target.size], tf.float64), data.rows(np.arange(1)))
    except Exception as error:
        pass_on(error)
        return target
    return double


def _double(part: tf.Tensor) -> np.ndarray:
    return part.numpy().astype(np.float64)


def of_likelihood(target: Target) -> dict[str, Function]:
    """Return functions of a flat position and of columns, by name.

    - ``gradient``: log-likelihood and its gradient, (d,).
    - ``product``: Hessian at the first of two rows times the second, (d,).
    - ``hessian``: Hessian, (d, d).
    - ``bends``: mean curvature of each term along several directions, (n,), in float64. The
      positions are the place, then points on one side of it, then those on the other.
    """
    return {
        name: partial(function, target)
        for name, function in (
            ("gradient", _gradient),
            ("product", _product),
            ("hessian", _hessian),
            ("bends", _bends),
        )
    }


def of_prior(target: Target) -> dict[str, Function]:
    """Return functions of flat positions, by name: log-prior and log-Jacobian alone.

    - ``prior``: value and gradient.
    - ``prior product``, ``prior hessian``: as those of the log-likelihood.
    - ``prior values``, ``prior gradients``: at several positions, (k,) and (k, d).
    """

    def value(u: tf.Tensor) -> tf.Tensor:
        return target.prior_value(target.space.constrain(u), target.space.coordinates(u))

    gradients = target.concatenated().prior_gradient
    return {
        "prior": lambda u: [value(u), target.prior_gradient(u)],
        "prior product": lambda both: [_along(target.prior_gradient, both)],
        "prior hessian": lambda u: [_jacobian(target.prior_gradient, u)],
        "prior values": lambda points: [tf.vectorized_map(value, points)],
        "prior gradients": lambda points: [tf.vectorized_map(gradients, points)],
    }


def _slope(target: Target, columns: Tensors) -> Callable[[tf.Tensor], tf.Tensor]:
    return partial(
        target.gradient, minibatch=Minibatch(_cast(columns, target.dtype)), with_prior=False
    )


def _gradient(target: Target, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    columns = _cast(columns, target.dtype)
    value = tf.reduce_sum(target.log_lik(dict(target.space.constrain(u)), dict(columns)))
    return [value, target.gradient(u, Minibatch(columns), with_prior=False)]


def _product(target: Target, both: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    return [_along(_slope(target, columns), both)]


def _hessian(target: Target, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    return [_jacobian(_slope(target, columns), u, vectorized=not has_sparse(columns))]


def _bends(target: Target, points: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    def of_point(u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        return target.terms(target.space.constrain(u), columns)

    values = tf.cast(over(of_point, points, columns), tf.float64)
    there, back = tf.split(values[1:], 2)
    return [tf.reduce_mean(2 * values[0] - there - back, 0)]


def _along(gradient: Callable[[tf.Tensor], tf.Tensor], both: tf.Tensor) -> tf.Tensor:
    """Return the derivative of a gradient at the first row along the second."""
    u, vector = both[0], both[1]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(u)
        slope = tf.reduce_sum(gradient(u) * vector)
    return tape.gradient(slope, u, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def _jacobian(
    function: Callable[[tf.Tensor], tf.Tensor], u: tf.Tensor, vectorized: bool = True
) -> tf.Tensor:
    """Return the derivative of a function of a flat position, by reverse differentiation."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(u)
        value = function(u)
    return tape.jacobian(
        value,
        u,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
        experimental_use_pfor=vectorized,
    )


def _cast(columns: Tensors, dtype: tf.DType) -> Tensors:
    """Return the columns in a floating point type; integers stay as they are."""
    return {
        name: tf.cast(value, dtype) if value.dtype.is_floating else value
        for name, value in columns.items()
    }
