"""A network as an ensemble uses it, and the memory that an ensemble needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

Array = np.ndarray
Weights = dict[str, Any]
"""Weights of several members by name; the first axis of each array counts the members."""

TOGETHER = 5
"""Largest number of members in one kernel: with more, an iteration of a member costs the same."""

# Smallest number of weights of a member for which a kernel has one member: its matrices fill a
# core
_WIDE = 20_000

_COPIES = (
    10  # arrays of the size of all weights that training and sampling hold at a time
)
_PART = 0.8  # largest part of the machine's memory that an ensemble may need


@dataclass(frozen=True)
class Network:
    """A network with a prior and a likelihood.

    Attributes:
        forward: Function of the weights of K members and features (n, ...) that returns outputs,
            (K, n, ...).
        log_density: Function of targets (n, ...) and outputs that returns log densities, (K, n).
        prior_sds: Prior SD of each weight by name, a number or an array; the mean is zero.
        emphasis: Function of outputs that returns the weight of each row in the loss of training,
            in units of its mean, (K, n); ``None`` for equal weights.
        one_by_one: Whether each member has its own kernel.
        jit_compile: Whether XLA compiles the graphs; ``None`` tries.
    """

    forward: Callable[[Weights, Any], tf.Tensor]
    log_density: Callable[[Any, tf.Tensor], tf.Tensor]
    prior_sds: Mapping[str, Any]
    emphasis: Callable[[tf.Tensor], tf.Tensor] | None = None
    one_by_one: bool = False
    jit_compile: bool | None = None

    def log_prior(self, weights: Weights) -> tf.Tensor:
        """Return the sum of the log priors of all members, without its constant."""
        return -0.5 * tf.add_n(
            [
                tf.reduce_sum(
                    tf.square(weights[name] / tf.cast(sd, weights[name].dtype))
                )
                for name, sd in self.prior_sds.items()
            ]
        )

    def log_lik(self, weights: Weights, rows: Mapping[str, Any]) -> tf.Tensor:
        """Return the sum over members of the log-likelihood of each row, (n,)."""
        return self._of_rows(rows, self.forward(weights, rows["X"]))

    def loss(self, weights: Weights, rows: Mapping[str, Any]) -> tf.Tensor:
        """Return the loss of training, a sum over members of means over rows, without the prior."""
        outputs, factors = self.forward(weights, rows["X"]), None
        if self.emphasis is not None:
            factors = tf.stop_gradient(self.emphasis(outputs))
            factors /= tf.reduce_mean(factors, -1, keepdims=True)
        return -tf.reduce_mean(self._of_rows(rows, outputs, factors))

    def _of_rows(
        self, rows: Mapping[str, Any], outputs: tf.Tensor, factors: Any = None
    ) -> tf.Tensor:
        """Return the sum over members of the log densities, times factors (K, n) if given."""
        terms = tf.cast(self.log_density(rows["y"], outputs), tf.float32)
        return rows["weight"] * tf.reduce_sum(
            terms if factors is None else factors * terms, 0
        )

    def densities(self, y: Any, outputs: Any) -> Array:
        """Return the log density of each target for outputs (draws, n, ...), float64."""
        log_density = self.log_density(tf.constant(y), tf.constant(outputs, tf.float32))
        return np.asarray(log_density, np.float64)

    def together(self, members: int, weights: int) -> int:
        """Return the number of members of a kernel, given the number of their weights.

        It is a divisor of the number of members, and there are two kernels or more, one for each
        core of a small machine; it does not depend on the machine.
        """
        if self.one_by_one or weights >= _WIDE:
            return 1
        largest = min(TOGETHER, max(1, members // 2))
        return max(k for k in range(1, largest + 1) if members % k == 0)


def count_of(weights: Weights) -> int:
    """Return the number of weights of one member."""
    return sum(int(np.prod(array.shape[1:])) for array in weights.values())


def check_memory(members: int, weights: int, draws: int) -> None:
    """Raise an error if training and draws of the members need more memory than there is.

    Args:
        members: Number of members.
        weights: Number of weights of each.
        draws: Number of stored draws of each.
    """
    needed = 4.0 * members * weights * (_COPIES + 2 * draws)
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if needed > _PART * memory:
        largest = int(_PART * memory / (4.0 * weights * (_COPIES + 2 * draws)))
        raise ValueError(
            f"`members`: {members} networks of {weights} weights with {draws} stored draws need "
            f"{needed / 2**30:.1f} GiB of memory; the machine has {memory / 2**30:.1f}. Use at "
            f"most {largest} members, fewer `draws`, or store predictions in place of weights."
        )


def chunked(rows: int, numbers: int, size: int) -> list[slice]:
    """Return slices of rows, each with at most this many numbers in all, ``size`` in a row."""
    step = max(1, numbers // max(1, size))
    return [slice(begin, begin + step) for begin in range(0, rows, step)]
