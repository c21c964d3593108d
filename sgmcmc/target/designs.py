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


class Paired(NamedTuple):
    """Weights W of rows and of pairs of rows in packs of equally many.

    Attributes:
        alone: Weights of the rows, (n,).
        pairs: Weights of the pairs, (packs, width, width), with n = packs · width.
    """

    alone: tf.Tensor
    pairs: tf.Tensor

    def times(self, rows: tf.Tensor) -> tf.Tensor:
        """Return W R for numbers of the rows, (n, k)."""
        return self.alone[:, tf.newaxis] * rows + self._others(rows)

    def between(self, left: Columns, right: Columns) -> tf.Tensor:
        """Return Xᵀ W Y."""
        found = between(left, self.alone, right)
        if isinstance(right, Numbers):
            return found + left.onto(self._others(right.rows))
        if isinstance(left, Numbers):
            turned = Paired(self.alone, tf.linalg.matrix_transpose(self.pairs))
            return found + tf.transpose(right.onto(turned._others(left.rows)))
        width = self.pairs.shape[1]
        first, second = (tf.reshape(side.places, [-1, width]) for side in (left, right))
        both = _numbers(first[:, :, tf.newaxis], right.size, second[:, tf.newaxis, :])
        flat = tf.reshape(self.pairs, [-1]), tf.reshape(both, [-1])
        more = tf.math.unsorted_segment_sum(*flat, left.size * right.size)
        return found + tf.reshape(more, [left.size, right.size])

    def _others(self, rows: tf.Tensor) -> tf.Tensor:
        packed = tf.reshape(rows, [-1, self.pairs.shape[1], rows.shape[1]])
        return tf.reshape(tf.matmul(self.pairs, packed), tf.shape(rows))


def weighted(weights: tf.Tensor | Paired, rows: tf.Tensor) -> tf.Tensor:
    """Return W R for numbers of the rows, (n, k)."""
    return weights.times(rows) if isinstance(weights, Paired) else weights[:, tf.newaxis] * rows


def between(left: Columns, weights: tf.Tensor | Paired, right: Columns) -> tf.Tensor:
    """Return Xᵀ W Y for weights of the rows, (n,), and perhaps of their pairs."""
    if isinstance(weights, Paired):
        return weights.between(left, right)
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
    return _numbers(left.places, right.size, right.places)


def _numbers(first: tf.Tensor, size: int, second: tf.Tensor) -> tf.Tensor:
    return tf.cast(first, tf.int64) * size + tf.cast(second, tf.int64)
