"""Columns of mostly zeros: a SciPy matrix, whose rows `log_lik` gets as a `tf.SparseTensor`.

A minibatch has exactly the entries of its rows, in row-major order, as many as there are. Padding
to a fixed number would serve XLA alone, which compiles none of TensorFlow's products and sums of
sparse tensors (and gathering and adding up, which it does compile, takes as long as these do
without it); it would cost as much as the longest rows are longer than the others, and put several
entries in one place. So a chain with such a column runs as a plain graph, in which the number of
entries may change from step to step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.data.dataset import Column, Tensors, digest
from sgmcmc.graphs.tracing import vectorized_map, with_known_shapes


class Stored(NamedTuple):
    """The rows of a sparse matrix, one after another.

    Attributes:
        values: Values of the entries.
        columns: Columns of the entries.
        splits: Start of each row among the entries, and the end of the last.
    """

    values: tf.Tensor
    columns: tf.Tensor
    splits: tf.Tensor


class SparseColumn(Column):
    """A sparse matrix with an observation in each row, kept in TensorFlow's memory.

    The ``matrix`` is in CSR, each entry once, rows in order.
    """

    sparse = True

    def __init__(self, matrix: scipy.sparse.csr_array, dtype: np.dtype) -> None:
        self.dtype = np.dtype(dtype)
        self.row_shape = (int(matrix.shape[1]),)
        few = matrix.shape[1] < 2**31
        with tf.device("CPU:0"):
            self.stored = Stored(
                tf.constant(matrix.data.astype(dtype, copy=False)),
                tf.constant(
                    matrix.indices.astype(np.int32 if few else np.int64, copy=False)
                ),
                tf.constant(matrix.indptr.astype(np.int64, copy=False)),
            )

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as a `tf.SparseTensor`, on average."""
        entries = len(self.stored.values) / max(1, len(self.stored.splits) - 1)
        return int(np.ceil(entries * (self.dtype.itemsize + 16)))

    def tensor(self, start: int, stop: int) -> tf.SparseTensor:
        """Return the rows from ``start`` to ``stop``."""
        splits = self.stored.splits[start : stop + 1]
        within = slice(int(splits[0]), int(splits[-1]))
        rows = Stored(
            self.stored.values[within], self.stored.columns[within], splits - splits[0]
        )
        return as_sparse_tensor(rows, stop - start, self.row_shape[0])

    def tensor_at(self, rows: np.ndarray) -> tf.SparseTensor:
        """Return these rows, in their order."""
        return gather_sparse(self.stored, tf.constant(rows), self.row_shape[0])

    def followed_by(self, following: SparseColumn) -> SparseColumn:
        """Return the rows of this matrix, then those of another."""
        matrices = [
            scipy.sparse.csr_array(
                tuple(np.asarray(array) for array in column.stored),
                shape=(len(column.stored.splits) - 1, *column.row_shape),
            )
            for column in (self, following)
        ]
        return SparseColumn(
            scipy.sparse.csr_array(scipy.sparse.vstack(matrices)), self.dtype
        )

    def digest(self) -> str:
        """Return the digest of all entries."""
        digests = (digest(np.asarray(memoryview(array))) for array in self.stored)
        return f"{self.row_shape[0]} columns, " + ", ".join(digests)


def gather_sparse(stored: Stored, rows: tf.Tensor, width: int) -> tf.SparseTensor:
    """Return some rows of a sparse matrix, in the order that they are asked for."""
    values, columns = (
        tf.gather(
            tf.RaggedTensor.from_row_splits(entries, stored.splits, validate=False),
            rows,
        )
        for entries in (stored.values, stored.columns)
    )
    gathered = Stored(values.values, columns.values, values.row_splits)
    return as_sparse_tensor(gathered, rows.shape[0], width)


def as_sparse_tensor(stored: Stored, rows: int, width: int) -> tf.SparseTensor:
    """Return a matrix as a `tf.SparseTensor`."""
    lengths = stored.splits[1:] - stored.splits[:-1]
    numbers = tf.repeat(tf.range(rows, dtype=tf.int64), lengths)
    indices = tf.stack([numbers, tf.cast(stored.columns, tf.int64)], 1)
    return tf.SparseTensor(indices, stored.values, [rows, width])


def is_sparse(values: Any) -> bool:
    """Return whether values are a sparse matrix, of SciPy's or TensorFlow's."""
    if isinstance(values, tf.SparseTensor):
        return True
    # Wherever there is such a matrix, this module is loaded; importing it here takes a while.
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and loaded.issparse(values)


def read_sparse(label: str, values: Any) -> scipy.sparse.csr_array:
    """Return SciPy's matrix or array, or a `tf.SparseTensor`, in CSR, each entry once.

    The user's is left untouched.
    """
    if len(values.shape) != 2:
        raise ValueError(
            f"`{label}` is a sparse array of shape {tuple(values.shape)}. Only sparse matrices "
            "are supported, with an observation in each row; pass a dense array."
        )
    if isinstance(values, tf.SparseTensor):
        indices = np.asarray(values.indices)
        values = scipy.sparse.coo_array(
            (np.asarray(values.values), (indices[:, 0], indices[:, 1])),
            tuple(values.shape),
        )
    matrix = scipy.sparse.csr_array(values)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def has_sparse(columns: Tensors) -> bool:
    """Return whether there is a sparse tensor among some columns."""
    return any(isinstance(column, tf.SparseTensor) for column in columns.values())


class RowSlices:
    """Columns, dense or sparse, from which ranges of rows are selected."""

    def __init__(self, columns: Tensors) -> None:
        self._columns = columns
        self._splits = {
            name: _splits(column)
            for name, column in columns.items()
            if isinstance(column, tf.SparseTensor)
        }

    def rows(self, start: int | tf.Tensor, length: int) -> Tensors:
        """Return consecutive rows of each column; their start may be a tensor of a graph."""
        return {
            name: self._sparse(name, start, length)
            if name in self._splits
            # With -1 for "all the rest" XLA copies the column into a larger array first.
            else tf.slice(
                column,
                [start, *[0] * (len(column.shape) - 1)],
                [length, *column.shape[1:]],
            )
            for name, column in self._columns.items()
        }

    def _sparse(
        self, name: str, start: int | tf.Tensor, length: int
    ) -> tf.SparseTensor:
        column = self._columns[name]
        first, last = self._splits[name][start], self._splits[name][start + length]
        before = tf.stack([tf.cast(start, tf.int64), tf.constant(0, tf.int64)])
        return tf.SparseTensor(
            column.indices[first:last] - before,
            column.values[first:last],
            [length, column.shape[1]],
        )


def _splits(column: tf.SparseTensor) -> tf.Tensor:
    """Return the first entry of each row, and the end of the last row."""
    numbers = tf.range(column.shape[0] + 1, dtype=tf.int64)
    return tf.searchsorted(column.indices[:, 0], numbers)


def over_rows(function: Callable[[Tensors], Any], columns: Tensors, dtype: Any) -> Any:
    """Return a function's value for each row, passed to it as a minibatch of one.

    Vectorized, unless there is a sparse column: TensorFlow vectorizes none of the operations on it.
    ``dtype`` is that of what the function returns, or a dict of them if it returns a dict.
    """
    if has_sparse(columns):
        row_slices = RowSlices(columns)
        rows = next(iter(columns.values())).shape[0]
        return tf.map_fn(
            lambda row: function(row_slices.rows(row, 1)),
            tf.range(rows),
            fn_output_signature=dtype,
        )
    return vectorized_map(
        lambda row: function(
            {name: tf.expand_dims(value, 0) for name, value in row.items()}
        ),
        columns,
    )


def over(
    function: Callable[[Any, Tensors], tf.Tensor], points: Any, columns: Tensors
) -> tf.Tensor:
    """Return the value of a function of a point and of columns at each of several points."""
    if not has_sparse(columns):
        return vectorized_map(lambda point: function(point, columns), points)
    one = tf.nest.map_structure(lambda values: values[0], points)
    return tf.map_fn(
        lambda point: function(point, with_known_shapes(columns)),
        points,
        fn_output_signature=function(one, columns).dtype,
    )
