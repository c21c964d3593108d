"""A stream of minibatches: how the rows that were drawn get to the chain.

A stream prepares a block's worth of minibatches outside the compiled chain, and picks the
minibatch of one step out of that block inside it. :mod:`sgmcmc.minibatches.streams` has the kinds.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import ArrayColumn, Data, DenseColumn
from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.sparse import SparseColumn, Stored, gather_sparse
from sgmcmc.minibatches.base import RowDraws
from sgmcmc.minibatches.rows import row_dtype

Arrays = dict[str, np.ndarray]
Edges = tuple[np.random.Generator, np.random.Generator]
"""Where the first and the last minibatch of a block come from, where the blocks before and after
have them too."""

COLUMN, WEIGHTS, ROWS = "column/", "weights", "rows"
"""Names of a block's arrays."""


class Stream(ABC):
    """A stream of minibatches.

    Args:
        data: the dataset.
        draws: how rows are drawn.
        dtype: of the weights.
        with_rows: hand over the row numbers too.

    Attributes:
        size: n, the observations in a minibatch.
        path: what to tell of the stream in the settings.
    """

    path: str

    def __init__(self, data: Data, draws: RowDraws, dtype: tf.DType, with_rows: bool) -> None:
        self.data, self.draws, self.size = data, draws, draws.size
        self.columns = {
            COLUMN + name: column
            for name, column in data.columns.items()
            if isinstance(column, DenseColumn)
        }
        self._sparse = {
            COLUMN + name: column
            for name, column in data.columns.items()
            if isinstance(column, SparseColumn)
        }
        if draws.weights is not None:
            weights = draws.weights.astype(dtype.as_numpy_dtype)
            self.columns[WEIGHTS] = ArrayColumn(weights)
        self.with_rows = with_rows
        self.rows_wanted = with_rows or bool(self._sparse)

    @functools.cached_property
    def fixed(self) -> Tensors:
        """Tensors that every block needs."""
        sparse = {
            f"{name}/{part}": tensor
            for name, column in self._sparse.items()
            for part, tensor in column.stored._asdict().items()
        }
        return {**self._held(), **sparse}

    def _held(self) -> Tensors:
        """Return what every block needs of dense columns."""
        return {}

    @property
    def bytes_per_step(self) -> int:
        """What a step's minibatch weighs, to bound a block by: as if it were gathered."""
        return self.size * self.data.row_bytes

    @abstractmethod
    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the arrays of a block of so many steps."""

    def prepare(
        self, rng: np.random.Generator, out: Arrays, steps: int, edges: Edges | None = None
    ) -> None:
        """Fill a block's arrays: here with the rows of each step.

        Args:
            rng: draws the rows.
            out: the arrays.
            steps: how many will be run; what the arrays hold of others does not matter. Rows are
                drawn for all, since which they are depends on how many there are.
            edges: where the first and the last minibatch come from, if not from ``rng``.
        """
        out[ROWS][...] = self.drawn(rng, out[ROWS].shape[0], edges)

    def drawn(self, rng: np.random.Generator, count: int, edges: Edges | None) -> np.ndarray:
        """Return the rows of a block's minibatches, (count, n)."""
        if edges is None:
            return self.draws.draw(rng, count)
        before, after = (self.draws.draw(edge, 1) for edge in edges)
        between = [self.draws.draw(rng, count - 2)] if count > 2 else []
        return np.concatenate([before, *between, after])

    def minibatch(
        self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor
    ) -> Minibatch:
        """Return the minibatch of one step, inside the compiled chain."""
        arrays = self.dense(fixed, block, step)
        rows = tf.gather(block[ROWS], step) if self.rows_wanted else ()
        for name, column in self._sparse.items():
            arrays[name] = gather_sparse(stored(fixed, name), rows, column.row_shape[0])
        return self._assembled(arrays, rows)

    @abstractmethod
    def dense(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the step's rows of dense columns, inside the compiled chain."""

    def first(self, rng: np.random.Generator) -> Minibatch:
        """Return the minibatch that a chain starts with, outside the compiled chain."""
        rows = self.draws.draw(rng, 1)[0]
        columns = {**self.columns, **self._sparse}
        arrays = {name: column.tensor_at(rows) for name, column in columns.items()}
        return self._assembled(arrays, tf.constant(rows))

    def _assembled(self, arrays: Tensors, rows: tf.Tensor | tuple[()]) -> Minibatch:
        columns = {name: arrays[COLUMN + name] for name in self.data.columns}
        weights = arrays.get(WEIGHTS, self.data.size / self.size)
        return Minibatch(columns, weights, rows if self.with_rows else ())


def stored(fixed: Tensors, name: str) -> Stored:
    """Return a sparse column among the tensors that every block needs."""
    return Stored(*(fixed[f"{name}/{part}"] for part in Stored._fields))


class RowNumbers(Stream):
    """A stream whose blocks hold row numbers alone."""

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the row numbers of a block."""
        return {ROWS: ((steps, self.size), row_dtype(self.data.size))}
