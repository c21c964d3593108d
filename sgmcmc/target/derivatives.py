"""Derivatives of the log-likelihood of some rows, as functions for a pass over the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.passes import Function
from sgmcmc.data.sparse import has_sparse, over
from sgmcmc.target.target import Target


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
        "prior product": lambda both: [along(target.prior_gradient, both)],
        "prior hessian": lambda u: [jacobian(target.prior_gradient, u)],
        "prior values": lambda points: [tf.vectorized_map(value, points)],
        "prior gradients": lambda points: [tf.vectorized_map(gradients, points)],
    }


def _slope(target: Target, columns: Tensors) -> Callable[[tf.Tensor], tf.Tensor]:
    return partial(
        target.gradient, minibatch=Minibatch(cast(columns, target.dtype)), with_prior=False
    )


def _gradient(target: Target, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    columns = cast(columns, target.dtype)
    value = tf.reduce_sum(target.log_lik(dict(target.space.constrain(u)), dict(columns)))
    return [value, target.gradient(u, Minibatch(columns), with_prior=False)]


def _product(target: Target, both: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    return [along(_slope(target, columns), both)]


def _hessian(target: Target, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    return [jacobian(_slope(target, columns), u, vectorized=not has_sparse(columns))]


def _bends(target: Target, points: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    def of_point(u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        return target.terms(target.space.constrain(u), columns)

    values = tf.cast(over(of_point, points, columns), tf.float64)
    there, back = tf.split(values[1:], 2)
    return [tf.reduce_mean(2 * values[0] - there - back, 0)]


def along(gradient: Callable[[tf.Tensor], tf.Tensor], both: tf.Tensor) -> tf.Tensor:
    """Return the derivative of a gradient at the first row along the second."""
    u, vector = both[0], both[1]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(u)
        slope = tf.reduce_sum(gradient(u) * vector)
    return tape.gradient(slope, u, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def jacobian(
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


def cast(columns: Tensors, dtype: tf.DType) -> Tensors:
    """Return the columns in a floating point type; integers stay as they are."""
    return {
        name: tf.cast(value, dtype) if value.dtype.is_floating else value
        for name, value in columns.items()
    }
