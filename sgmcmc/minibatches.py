"""The data stream: which observations each gradient sees, and how they get to it.

A stream prepares a block's worth of minibatches outside the compiled chain, and picks the
minibatch of one step out of that block inside it. On a CPU the rows are gathered by NumPy, on
another thread, because XLA gathers slowly there; on a GPU the data lie on the device and only
the row numbers travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import tensorflow as tf

from sgmcmc.data import Data

Arrays = dict[str, np.ndarray]
Tensors = dict[str, tf.Tensor]

_COLUMN, _ROWS = "column/", "rows"
"""Names of a block's arrays."""


class Minibatches(Protocol):
    """A stream of minibatches."""

    fixed: Tensors
    """Tensors that every block needs."""

    size: int
    """n, the observations in a minibatch."""

    bytes_per_step: int
    """What a step's minibatch weighs, to bound a block by."""

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the arrays of a block of so many steps."""

    def prepare(self, rng: np.random.Generator, out: Arrays) -> None:
        """Fill a block's arrays."""

    def minibatch(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the minibatch of one step, inside the compiled chain."""

    def rows(self, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Return the row numbers of that minibatch."""


class GatheredMinibatches:
    """Minibatches whose rows are gathered on the host, block by block.

    Args:
        data: the dataset.
        size: n.
        replace: draw with replacement.
        with_rows: hand over the row numbers too.
    """

    def __init__(self, data: Data, size: int, replace: bool, with_rows: bool = False) -> None:
        self.data, self.size, self.replace = data, size, replace
        self.with_rows = with_rows
        self.fixed: Tensors = {}
        self.bytes_per_step = size * data.row_bytes

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the arrays of a block."""
        columns = {
            _COLUMN + name: ((steps, self.size, *column.row_shape), column.dtype)
            for name, column in self.data.columns.items()
        }
        numbers = {_ROWS: ((steps, self.size), row_dtype(self.data.size))}
        return columns | numbers if self.with_rows else columns

    def prepare(self, rng: np.random.Generator, out: Arrays) -> None:
        """Draw the rows of each step and copy them."""
        steps = next(iter(out.values())).shape[0]
        rows = draw_rows(rng, self.data.size, self.size, steps, self.replace)
        for name, column in self.data.columns.items():
            column.take(rows, out[_COLUMN + name])
        if self.with_rows:
            out[_ROWS][...] = rows

    def minibatch(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the minibatch of one step."""
        return {name: tf.gather(block[_COLUMN + name], step) for name in self.data.columns}

    def rows(self, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Return the row numbers of that minibatch."""
        return tf.gather(block[_ROWS], step)


class DeviceMinibatches:
    """Minibatches whose rows are gathered on the device that holds the data."""

    def __init__(self, data: Data, size: int, replace: bool) -> None:
        self.data, self.size, self.replace = data, size, replace
        self.fixed = data.whole()
        self.bytes_per_step = 4 * size

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the row numbers of a block."""
        return {_ROWS: ((steps, self.size), row_dtype(self.data.size))}

    def prepare(self, rng: np.random.Generator, out: Arrays) -> None:
        """Draw the rows of each step."""
        steps = out[_ROWS].shape[0]
        out[_ROWS][...] = draw_rows(rng, self.data.size, self.size, steps, self.replace)

    def minibatch(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the minibatch of one step."""
        rows = self.rows(block, step)
        return {name: tf.gather(fixed[name], rows) for name in self.data.columns}

    def rows(self, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Return the row numbers of that minibatch."""
        return tf.gather(block[_ROWS], step)


class WholeDataset:
    """The whole dataset at every step, in its own order: n = N, with no sampling noise."""

    def __init__(self, data: Data) -> None:
        self.size = data.size
        self.fixed = data.whole()
        self.bytes_per_step = data.size * data.row_bytes

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return no arrays: a block needs none."""
        return {}

    def prepare(self, rng: np.random.Generator, out: Arrays) -> None:
        """Do nothing: there is nothing to draw."""

    def minibatch(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the dataset."""
        return dict(fixed)

    def rows(self, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Return all row numbers."""
        return tf.range(self.size)


def make_minibatches(data: Data, size: int, replace: bool, with_rows: bool = False) -> Minibatches:
    """Return the stream that suits the data and the device."""
    if size == data.size and not replace:
        return WholeDataset(data)
    if tf.config.list_logical_devices("GPU"):
        return DeviceMinibatches(data, size, replace)
    return GatheredMinibatches(data, size, replace, with_rows)


def row_dtype(rows: int) -> np.dtype:
    """Return the smallest integer dtype that numbers so many rows."""
    return np.dtype(np.int32 if rows < 2**31 else np.int64)


def draw_rows(
    rng: np.random.Generator, rows: int, size: int, count: int, replace: bool
) -> np.ndarray:
    """Return ``count`` independent minibatches of row numbers.

    Without replacement every subset of ``size`` of the rows is equally likely. The order within
    a minibatch has no meaning: most are in rising order, in which they are gathered faster.

    Args:
        rng: where the randomness comes from.
        rows: N, the number of rows to draw from.
        size: n, the rows in a minibatch.
        count: the number of minibatches.
        replace: draw with replacement.

    Returns:
        Integers of shape ``(count, size)``.

    Example:
        >>> rows = draw_rows(np.random.default_rng(1), 5, 3, 2, replace=False)
        >>> rows.shape, [len(set(row)) for row in rows.tolist()]
        ((2, 3), [3, 3])
    """
    if replace or size == 1:
        drawn = rng.integers(0, rows, (count, size), dtype=row_dtype(rows))
        drawn.sort(axis=1)
        return drawn
    if 2 * size > rows:
        return _complement(rng, rows, size, count)
    if rows > 10_000 and 8 * size > rows:
        # So many repeats would need mending that a shuffle is cheaper.
        drawn = np.empty((count, size), row_dtype(rows))
        for row in drawn:
            row[:] = rng.choice(rows, size, replace=False, shuffle=False)
        drawn.sort(axis=1)
        return drawn
    return _mended(rng, rows, size, count)


def _mended(rng: np.random.Generator, rows: int, size: int, count: int) -> np.ndarray:
    """Draw with replacement, then draw each repeat again until its minibatch lacks it.

    What is drawn again depends only on which entries are equal, so renaming the rows renames
    the result: all subsets are equally likely.
    """
    drawn = rng.integers(0, rows, (count, size), dtype=row_dtype(rows))
    drawn.sort(axis=1)
    flat = drawn.reshape(-1)
    repeats = np.flatnonzero(flat[1:] == flat[:-1]) + 1
    repeats = repeats[repeats % size > 0]  # else the equal one ends the minibatch before
    while repeats.size:
        fresh = rng.integers(0, rows, repeats.size, dtype=drawn.dtype)
        minibatch = repeats // size
        known = (drawn[minibatch] == fresh[:, np.newaxis]).any(axis=1)
        known |= _seen_before(minibatch * rows + fresh)
        flat[repeats[~known]] = fresh[~known]
        repeats = repeats[known]
    return drawn


def _seen_before(values: np.ndarray) -> np.ndarray:
    """Tell of each value whether an earlier one is equal."""
    seen = np.ones(values.size, bool)
    seen[np.unique(values, return_index=True)[1]] = False
    return seen


def _complement(rng: np.random.Generator, rows: int, size: int, count: int) -> np.ndarray:
    """Draw the rows to leave out, where they are the fewer."""
    if size == rows:
        return np.broadcast_to(np.arange(rows, dtype=row_dtype(rows)), (count, rows))
    left_out = draw_rows(rng, rows, rows - size, count, replace=False)
    kept = np.ones((count, rows), bool)
    np.put_along_axis(kept, left_out.astype(np.intp), False, axis=1)
    return np.nonzero(kept)[1].reshape(count, size).astype(row_dtype(rows))
