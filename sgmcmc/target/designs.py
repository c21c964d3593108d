"""Columns of data that parameters are multiplied by: numbers, or indicators of levels.

Indicators of levels are held as the place of each row's level: what takes n × d numbers of a dense
matrix takes n of them.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class Numbers(NamedTuple):
    """A matrix X of rows of numbers, (n, d)."""

    rows: tf.Tensor
    size: int

    def times(self, matrix: tf.Tensor) -> tf.Tensor:
        """Return X A for a matrix A, (d, k)."""
        return tf.matmul(self.rows, matrix)

    def onto(self, rows: tf.Tensor) -> tf.Tensor:
        """Return Xᵀ R for numbers of the rows, (n, k)."""
        return tf.matmul(self.rows, rows, transpose_a=True)


class Levels(NamedTuple):
    """A matrix X of indicators, (n, d), by the place of the one in each row."""

    places: tf.Tensor
    size: int

    def times(self, matrix: tf.Tensor) -> tf.Tensor:
        """Return X A for a matrix A, (d, k)."""
        return tf.gather(matrix, self.places)

    def onto(self, rows: tf.Tensor) -> tf.Tensor:
        """Return Xᵀ R for numbers of the rows, (n, k)."""
        return tf.math.unsorted_segment_sum(rows, self.places, self.size)


Columns = Numbers | Levels


def between(left: Columns, weights: tf.Tensor, right: Columns) -> tf.Tensor:
    """Return Xᵀ W Y for weights of the rows, (n,)."""
    if isinstance(left, Numbers):
        scaled = left.rows * weights[:, tf.newaxis]
        if isinstance(right, Numbers):
            return tf.matmul(scaled, right.rows, transpose_a=True)
        return tf.transpose(right.onto(scaled))
    if isinstance(right, Numbers):
        return left.onto(right.rows * weights[:, tf.newaxis])
    if left is right:
        return tf.linalg.diag(left.onto(weights))
    found = tf.math.unsorted_segment_sum(weights, _pairs(left, right), left.size * right.size)
    return tf.reshape(found, [left.size, right.size])


def forms(left: Columns, matrix: tf.Tensor, right: Columns) -> tf.Tensor:
    """Return x_iᵀ M y_i of each row, (n,), for a matrix M, (d, d')."""
    if isinstance(left, Levels) and isinstance(right, Levels):
        return tf.gather(tf.reshape(matrix, [-1]), _pairs(left, right))
    if isinstance(left, Levels):
        left, matrix, right = right, tf.transpose(matrix), left
    assert isinstance(left, Numbers)
    return tf.reduce_sum(left.rows * right.times(tf.transpose(matrix)), 1)


def _pairs(left: Levels, right: Levels) -> tf.Tensor:
    """Return the number of each row's pair of levels, (n,)."""
    return tf.cast(left.places, tf.int64) * right.size + tf.cast(right.places, tf.int64)
