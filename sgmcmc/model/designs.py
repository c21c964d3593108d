"""Columns of data that parameters are multiplied by: numbers, or indicators of levels.

Indicators of levels are stored as the number of each row's level: n numbers, of which a dense
matrix takes n × d.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class DenseColumns(NamedTuple):
    """A matrix X of rows of numbers, (n, d)."""

    rows: tf.Tensor
    size: int

    def times(self, matrix: tf.Tensor) -> tf.Tensor:
        """Return X A for a matrix A, (d, k)."""
        return tf.matmul(self.rows, matrix)

    def transposed_times(self, rows: tf.Tensor) -> tf.Tensor:
        """Return Xᵀ R for numbers of the rows, (n, k)."""
        return tf.matmul(self.rows, rows, transpose_a=True)


class IndicatorColumns(NamedTuple):
    """A matrix X of indicators, (n, d), by the position of the one in each row."""

    levels: tf.Tensor
    size: int

    def times(self, matrix: tf.Tensor) -> tf.Tensor:
        """Return X A for a matrix A, (d, k)."""
        return tf.gather(matrix, self.levels)

    def transposed_times(self, rows: tf.Tensor) -> tf.Tensor:
        """Return Xᵀ R for numbers of the rows, (n, k)."""
        return tf.math.unsorted_segment_sum(rows, self.levels, self.size)


Columns = DenseColumns | IndicatorColumns


class PairWeights(NamedTuple):
    """Weights W of rows and of pairs of rows in packs of equally many.

    Attributes:
        rows: Weights of the rows, (n,).
        pairs: Weights of the pairs, (packs, width, width), with n = packs · width.
    """

    rows: tf.Tensor
    pairs: tf.Tensor

    def times(self, rows: tf.Tensor) -> tf.Tensor:
        """Return W R for numbers of the rows, (n, k)."""
        return self.rows[:, tf.newaxis] * rows + self._times_pairs(rows)

    def cross_product(self, left: Columns, right: Columns) -> tf.Tensor:
        """Return Xᵀ W Y."""
        product = cross_product(left, self.rows, right)
        if isinstance(right, DenseColumns):
            return product + left.transposed_times(self._times_pairs(right.rows))
        if isinstance(left, DenseColumns):
            transposed = PairWeights(self.rows, tf.linalg.matrix_transpose(self.pairs))
            return product + tf.transpose(
                right.transposed_times(transposed._times_pairs(left.rows))
            )
        width = self.pairs.shape[1]
        first, second = (
            tf.reshape(columns.levels, [-1, width]) for columns in (left, right)
        )
        pair_index = _combined_index(
            first[:, :, tf.newaxis], right.size, second[:, tf.newaxis, :]
        )
        flat = tf.reshape(self.pairs, [-1]), tf.reshape(pair_index, [-1])
        product_of_pairs = tf.math.unsorted_segment_sum(*flat, left.size * right.size)
        return product + tf.reshape(product_of_pairs, [left.size, right.size])

    def _times_pairs(self, rows: tf.Tensor) -> tf.Tensor:
        packed = tf.reshape(rows, [-1, self.pairs.shape[1], rows.shape[1]])
        return tf.reshape(tf.matmul(self.pairs, packed), tf.shape(rows))


def times_weights(weights: tf.Tensor | PairWeights, rows: tf.Tensor) -> tf.Tensor:
    """Return W R for numbers of the rows, (n, k)."""
    return (
        weights.times(rows)
        if isinstance(weights, PairWeights)
        else weights[:, tf.newaxis] * rows
    )


def cross_product(
    left: Columns, weights: tf.Tensor | PairWeights, right: Columns
) -> tf.Tensor:
    """Return Xᵀ W Y for weights of the rows, (n,), and perhaps of their pairs."""
    if isinstance(weights, PairWeights):
        return weights.cross_product(left, right)
    if isinstance(left, DenseColumns):
        scaled = left.rows * weights[:, tf.newaxis]
        if isinstance(right, DenseColumns):
            return tf.matmul(scaled, right.rows, transpose_a=True)
        return tf.transpose(right.transposed_times(scaled))
    if isinstance(right, DenseColumns):
        return left.transposed_times(right.rows * weights[:, tf.newaxis])
    if left is right:
        return tf.linalg.diag(left.transposed_times(weights))
    product = tf.math.unsorted_segment_sum(
        weights, _pair_numbers(left, right), left.size * right.size
    )
    return tf.reshape(product, [left.size, right.size])


def bilinear_forms(left: Columns, matrix: tf.Tensor, right: Columns) -> tf.Tensor:
    """Return x_iᵀ M y_i of each row, (n,), for a matrix M, (d, d')."""
    if isinstance(left, IndicatorColumns) and isinstance(right, IndicatorColumns):
        return tf.gather(tf.reshape(matrix, [-1]), _pair_numbers(left, right))
    if isinstance(left, IndicatorColumns):
        left, matrix, right = right, tf.transpose(matrix), left
    assert isinstance(left, DenseColumns)
    return tf.reduce_sum(left.rows * right.times(tf.transpose(matrix)), 1)


def _pair_numbers(left: IndicatorColumns, right: IndicatorColumns) -> tf.Tensor:
    """Return the number of each row's pair of levels, (n,)."""
    return _combined_index(left.levels, right.size, right.levels)


def _combined_index(first: tf.Tensor, size: int, second: tf.Tensor) -> tf.Tensor:
    return tf.cast(first, tf.int64) * size + tf.cast(second, tf.int64)
