"""Statistics that dynamics learn from the gradients of the chain, and when they stop.

They learn the noise of their gradients, their information, or the scales of coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.checks import describe, or_list, whole_number
from sgmcmc.dynamics.base import Dynamics
from sgmcmc.model.layout import Layout, constant_not_negative

BURN_IN = "burn_in"
"""Value of ``until`` for what is learned in the burn-in."""

FISHER = "fisher"
"""Value of a variance that should be estimated as a matrix."""

DIAGONAL = "diagonal"
"""Value of a variance whose diagonal should be estimated."""


@dataclass(frozen=True)
class _NoiseSettings:
    # Coordinates, at most, of a covariance of gradients, one for each chain
    matrix: int = 256


_SETTINGS = _NoiseSettings()


class RunningMean(NamedTuple):
    """The mean of the estimates so far.

    Attributes:
        mean: Mean.
        count: Number of estimates in it, a scalar, or one for each entry of the mean; constant
            once learning has ended.
    """

    mean: tf.Tensor
    count: tf.Tensor

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: tf.DType) -> RunningMean:
        """Return the mean of no estimates."""
        return cls(tf.zeros(shape, dtype), tf.zeros([], dtype))

    def updated(
        self, estimate: tf.Tensor, until: int | str | None = None
    ) -> RunningMean:
        """Return the mean with another estimate; unchanged if it has as many as ``until``."""
        count = self.count + 1.0
        mean = self.mean + (estimate - self.mean) / count
        if not isinstance(until, int):
            return RunningMean(mean, count)
        learns = self.count < float(until)
        return RunningMean(
            tf.where(learns, mean, self.mean), tf.where(learns, count, self.count)
        )


def read_until(until: Any) -> int | str | None:
    """Return the end of learning, an integer, ``"burn_in"`` or ``None``, checked."""
    if isinstance(until, str):
        if until != BURN_IN:
            raise ValueError(
                f"`until` must be an integer, 'burn_in' or None; it is {describe(until)}."
            )
        return until
    return None if until is None else whole_number("until", until, 1)


def frozen_after(until: Any, burn_in: int, dynamics: Dynamics, learned: str) -> Any:
    """Return the iteration at which dynamics stop learning, known once the burn-in is."""
    if until != BURN_IN:
        return until
    if burn_in == 0:
        name = type(dynamics).__name__
        raise ValueError(
            f"`until`: {name} learns {learned} in the burn-in, and there is none. Give a "
            f"`burn_in`, or write sgmcmc.dynamics.{name}(until=...) with a number of iterations."
        )
    return burn_in


def read_variance(
    value: Any,
    layout: Layout,
    words: tuple[str, ...],
    also: str = "",
    matrix: bool = True,
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
    if matrix and value == FISHER and layout.size > _SETTINGS.matrix:
        alternative = (
            f" Use {DIAGONAL!r}, or give a number."
            if DIAGONAL in words
            else " Give a number."
        )
        raise ValueError(
            f"`noise_variance`: {FISHER!r} keeps a matrix, and there are {layout.size} "
            f"coordinates, more than {_SETTINGS.matrix}.{alternative}"
        )
    return value


def covariance_of_sum(row_gradients: tf.Tensor, diagonal: bool) -> tf.Tensor:
    """Return the estimated covariance of the sum of rows that are drawn independently.

    Args:
        row_gradients: Rows, (n, d).
        diagonal: Whether to return its diagonal alone, (d,).
    """
    n = row_gradients.shape[0]
    centered = row_gradients - tf.reduce_mean(row_gradients, 0)
    if diagonal:
        return n / (n - 1) * tf.reduce_sum(centered * centered, 0)
    return n / (n - 1) * tf.matmul(centered, centered, transpose_a=True)
