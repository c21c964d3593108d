"""The noise of gradient estimates, as the rows of the minibatches show it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sgmcmc.checks import or_list
from sgmcmc.target.layout import Layout, constant_not_negative

FISHER = "fisher"
"""Value of a variance that should be estimated as a matrix."""

DIAGONAL = "diagonal"
"""Value of a variance whose diagonal should be estimated."""

LARGEST_MATRIX = 256
"""Largest number of coordinates whose gradients' covariance is estimated, a matrix per chain."""


def read_variance(
    value: Any, layout: Layout, words: tuple[str, ...], also: str = "", matrix: bool = True
) -> Any:
    """Return a user's variance of the gradient noise, checked.

    Args:
        value: Number, dict with one for each parameter, or one of the words.
        layout: Places of the parameters.
        words: Values for a variance that is not given.
        also: Description of what else it could have been.
        matrix: Whether ``"fisher"`` is a matrix, of which there are not too many coordinates.
    """
    if not isinstance(value, str):
        return constant_not_negative("noise_variance", value, layout)
    if value not in words:
        raise ValueError(
            f"`noise_variance` must be a number, a dict with one for each parameter, {also}"
            f"or {or_list(words)}; it is {value!r}."
        )
    if matrix and value == FISHER and layout.size > LARGEST_MATRIX:
        other = f" Use {DIAGONAL!r}, or give a number." if DIAGONAL in words else " Give a number."
        raise ValueError(
            f"`noise_variance`: {FISHER!r} keeps a matrix, and there are {layout.size} "
            f"coordinates, more than {LARGEST_MATRIX}.{other}"
        )
    return value


def covariance_of_sum(parts: tf.Tensor, diagonal: bool) -> tf.Tensor:
    """Return the estimated covariance of the sum of rows that are drawn independently.

    Args:
        parts: Rows, (n, d).
        diagonal: Whether to return its diagonal alone, (d,).
    """
    n = parts.shape[0]
    apart = parts - tf.reduce_mean(parts, 0)
    if diagonal:
        return n / (n - 1) * tf.reduce_sum(apart * apart, 0)
    return n / (n - 1) * tf.matmul(apart, apart, transpose_a=True)


def averaged(mean: tf.Tensor, count: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
    """Return the mean of ``count`` estimates, of which ``found`` is the last."""
    return mean + (found - mean) / count
