"""The minibatch: the observations of a gradient, and their weights."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

Tensors = dict[str, tf.Tensor]
"""Tensors by name."""


class Minibatch(NamedTuple):
    """Observations, and the weights of their terms in a sum over the whole dataset.

    Attributes:
        columns: Arrays of the dataset, n rows of each.
        weights: Weight of each term: one number for all (N/n), or a vector of n (1/(n pᵢ)).
        rows: Row numbers, (n,), if they were requested; else nothing. The places of a repeated row
            are neighbors.

    Example:
        >>> minibatch = Minibatch({"x": tf.constant([1.0, 2.0])}, weights=50.0)
        >>> float(minibatch.weights * tf.reduce_sum(minibatch.columns["x"]))
        150.0
    """

    columns: Tensors
    weights: float | tf.Tensor = 1.0
    rows: tf.Tensor | tuple[()] = ()
