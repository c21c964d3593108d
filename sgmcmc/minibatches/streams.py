"""Streams of minibatches: how the rows that were drawn get to the chain.

A stream prepares a block's worth of minibatches outside the compiled chain, and picks the
minibatch of one step out of that block inside it. Which kind serves is chosen once, when the
compiled chain is built.

On a CPU the blocks of a single chain are gathered on another thread, if there is a core for that;
several chains gather each minibatch themselves when its step comes, so that its rows never leave
the cache of one core. On a GPU the data lie on the device and only the row numbers travel.

Chains that share a kernel have one stream, whose blocks hold the row numbers of all of them.
Those of an iteration are gathered together: in place, or from one tensor that holds the data.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import tensorflow as tf

from sgmcmc.checks import from_outside
from sgmcmc.data import native
from sgmcmc.data.dataset import ArrayColumn, Data, DenseColumn, Minibatch, Tensors
from sgmcmc.data.sparse import SparseColumn, Stored, as_sparse_tensor, gather_sparse
from sgmcmc.minibatches.base import RowDraws, drawn
from sgmcmc.minibatches.reshuffled import OrderedDraws, SequenceStart
from sgmcmc.minibatches.uniform import row_dtype

Arrays = dict[str, np.ndarray]
Edges = tuple[np.random.Generator, np.random.Generator]
"""Generators of the first and the last minibatch of a block, if the blocks before and after have
these minibatches too."""

COLUMN, WEIGHTS, ROWS = "column/", "weights", "rows"
"""Names of a block's arrays."""


@dataclass(frozen=True)
class _Settings:
    # Bytes of the smallest minibatch for which native copying pays: XLA fuses smaller ones with
    # their use.
    worth_a_call: int = 16 * 2**10
    # Bytes of the largest minibatch that it pays to gather on another core: the arithmetic of
    # heavier ones would wait for memory twice.
    worth_ahead: int = 2**20
    worth_sharing: int = 2**19  # bytes of a minibatch's column that two cores gather
    long_row: int = 512  # bytes that two cores fetch sooner: one asks ahead for fewer
    short_row: int = 64  # bytes for which XLA's gather is faster: fused with the use
    tensor_bytes: int = 2**26  # data of which there may be a tensor besides the array


_SETTINGS = _Settings()


@dataclass(frozen=True)
class MinibatchSource:
    """Rows and weights that minibatches are made of.

    Attributes:
        data: Dataset.
        draws: Way of drawing rows.
        dtype: Dtype of the weights.
        with_rows: Whether to return the row numbers too.
    """

    data: Data
    draws: RowDraws
    dtype: tf.DType
    with_rows: bool = False


class Stream(ABC):
    """A stream of minibatches.

    Args:
        source: Dataset, and the way of drawing rows.

    Attributes:
        size: Minibatch size n.
        path: Description of the stream in the settings.
    """

    path: str

    def __init__(self, source: MinibatchSource) -> None:
        data, draws = source.data, source.draws
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
            weights = draws.weights.astype(source.dtype.as_numpy_dtype)
            self.columns[WEIGHTS] = ArrayColumn(weights)
        self._is_user_defined = from_outside(draws)
        self.with_rows = source.with_rows
        self.rows_wanted = source.with_rows or bool(self._sparse)

    @functools.cached_property
    def fixed(self) -> Tensors:
        """Tensors that every block needs."""
        sparse = {
            f"{name}/{field}": tensor
            for name, column in self._sparse.items()
            for field, tensor in column.stored._asdict().items()
        }
        return {**self._fixed_columns(), **sparse}

    def _fixed_columns(self) -> Tensors:
        """Return the dense columns that every block needs."""
        return {}

    @property
    def bytes_per_step(self) -> int:
        """Bytes of a step's minibatch, which bound a block: as if it were gathered."""
        return self.size * self.data.row_bytes

    @abstractmethod
    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the arrays of a block, given its number of steps."""

    def prepare(
        self,
        rng: np.random.Generator,
        out: Arrays,
        steps: int,
        edges: Edges | None = None,
        block_start: SequenceStart | None = None,
    ) -> None:
        """Fill a block's arrays: here with the rows of each step.

        Args:
            rng: Generator that draws the rows.
            out: Arrays.
            steps: Number of steps that will be run; the arrays may hold anything for others. Rows
                are drawn for all, since they depend on how many there are.
            edges: Sources of the first and the last minibatch, if not ``rng``.
            block_start: Start of the block in the sequence, for minibatches in order.
        """
        out[ROWS][...] = self.drawn(rng, out[ROWS].shape[0], edges, block_start)

    def drawn(
        self,
        rng: np.random.Generator,
        count: int,
        edges: Edges | None = None,
        block_start: SequenceStart | None = None,
    ) -> np.ndarray:
        """Return the rows of a block's minibatches, (count, n)."""
        if block_start is not None and isinstance(self.draws, OrderedDraws):
            return self.draws.in_order(block_start, count)
        draw = self.draws.draw
        if self._is_user_defined:
            draw = partial(drawn, self.draws, self.data.size)
        if edges is None:
            return draw(rng, count)
        before, after = (draw(edge, 1) for edge in edges)
        between = [draw(rng, count - 2)] if count > 2 else []
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
    def dense(
        self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor
    ) -> Tensors:
        """Return the step's rows of dense columns, inside the compiled chain."""

    def first(
        self, rng: np.random.Generator, block_start: SequenceStart | None = None
    ) -> Minibatch:
        """Return the minibatch that a chain starts with, outside the compiled chain."""
        rows = self.drawn(rng, 1, None, block_start)[0]
        columns = {**self.columns, **self._sparse}
        arrays = {name: column.tensor_at(rows) for name, column in columns.items()}
        return self._assembled(arrays, tf.constant(rows))

    def _assembled(self, arrays: Tensors, rows: tf.Tensor | tuple[()]) -> Minibatch:
        columns = {name: arrays[COLUMN + name] for name in self.data.columns}
        weights = arrays.get(WEIGHTS, self.data.size / self.size)
        return Minibatch(columns, weights, rows if self.with_rows else ())


def stored(fixed: Tensors, name: str) -> Stored:
    """Return a sparse column among the tensors that every block needs."""
    return Stored(*(fixed[f"{name}/{field}"] for field in Stored._fields))


class RowNumbers(Stream):
    """A stream whose blocks hold row numbers alone."""

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the row numbers of a block."""
        return {ROWS: ((steps, self.size), row_dtype(self.data.size))}


class GatheredAhead(Stream):
    """Minibatches whose rows are gathered on the host, block by block."""

    path = "gathered ahead"

    def __init__(self, source: MinibatchSource, xla: bool) -> None:
        super().__init__(source)
        self._xla = xla

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the arrays of a block."""
        shapes = {
            name: ((steps, self.size, *column.row_shape), column.stored_dtype)
            for name, column in self.columns.items()
        }
        if self.rows_wanted:
            shapes[ROWS] = (steps, self.size), row_dtype(self.data.size)
        return shapes

    def prepare(
        self,
        rng: np.random.Generator,
        out: Arrays,
        steps: int,
        edges: Edges | None = None,
        block_start: SequenceStart | None = None,
    ) -> None:
        """Draw the rows of each step and copy those of the steps that will be run."""
        rows = self.drawn(rng, next(iter(out.values())).shape[0], edges, block_start)
        for name, column in self.columns.items():
            column.take(rows[:steps], out[name][:steps])
        if self.rows_wanted:
            out[ROWS][...] = rows

    def dense(
        self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor
    ) -> Tensors:
        """Return the step's part of the block."""
        tensors = {}
        for name, column in self.columns.items():
            of_block = block[name]
            size = of_block.dtype.size * of_block.shape[1:].num_elements()
            is_worth_a_call = size >= _SETTINGS.worth_a_call and self._xla
            if is_worth_a_call and native.callable_by_xla():
                rows = native.copy_minibatch(of_block, step)
            else:
                rows = tf.gather(of_block, step)
            tensors[name] = column.seen(rows)
        return tensors


class OnDevice(RowNumbers):
    """Minibatches whose rows are gathered on the device that holds the data."""

    path = "on the device"

    def _fixed_columns(self) -> Tensors:
        """Return the data."""
        size = self.data.size
        return {
            name: column.stored_tensor(0, size) for name, column in self.columns.items()
        }

    @property
    def bytes_per_step(self) -> int:
        """Bytes of a step's row numbers."""
        return 4 * self.size

    def dense(
        self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor
    ) -> Tensors:
        """Return the step's rows of the data on the device."""
        rows = tf.gather(block[ROWS], step)
        return {
            name: column.seen(tf.gather(fixed[name], rows))
            for name, column in self.columns.items()
        }


class InPlace(RowNumbers):
    """Minibatches that the compiled chain gathers itself, from the data's memory.

    A minibatch is gathered and used by one core, whose cache it never leaves. Only XLA can call
    what gathers it. Each column must have an address. ``threads``, 1 or 2, copy the rows of a
    column if these weigh much.
    """

    path = "in place"

    def __init__(self, source: MinibatchSource, threads: int = 1) -> None:
        super().__init__(source)
        self._threads = threads

    def _fixed_columns(self) -> Tensors:
        """Return the addresses of the columns."""
        return {
            name: tf.constant(column.address, tf.int64)
            for name, column in self.columns.items()
        }

    def dense(
        self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor
    ) -> Tensors:
        """Return the step's rows, gathered from the data's memory."""
        tensors = {}
        for name, column in self.columns.items():
            array = native.ArrayRows(fixed[name], column.row_shape, column.stored_dtype)
            threads = self.copying(column)
            rows = native.gather_rows(array, block[ROWS], step, threads)
            tensors[name] = column.seen(rows)
        return tensors

    def copying(self, column: DenseColumn) -> int:
        """Return the number of threads that copy the rows of a column."""
        row = column.stored_dtype.itemsize * int(np.prod(column.row_shape))
        is_long = row >= _SETTINGS.long_row
        is_shared = is_long and self.size * row >= _SETTINGS.worth_sharing
        return self._threads if is_shared else 1


class Whole(Stream):
    """The whole dataset at every step, in its own order: n = N, with no sampling noise."""

    path = "whole dataset"

    def _fixed_columns(self) -> Tensors:
        """Return the data."""
        return {
            name: column.tensor(0, self.data.size)
            for name, column in self.columns.items()
        }

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return no arrays: a block needs none."""
        return {}

    def prepare(
        self,
        rng: np.random.Generator,
        out: Arrays,
        steps: int,
        edges: Edges | None = None,
        block_start: SequenceStart | None = None,
    ) -> None:
        """Do nothing: there is nothing to draw."""

    def minibatch(
        self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor
    ) -> Minibatch:
        """Return the dataset."""
        arrays = dict(fixed)
        for name, column in self._sparse.items():
            arrays[name] = as_sparse_tensor(
                stored(fixed, name), self.size, column.row_shape[0]
            )
        return self._assembled(arrays, tf.range(self.size))

    def dense(
        self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor
    ) -> Tensors:
        """Return the data."""
        return fixed

    def first(
        self, rng: np.random.Generator, block_start: SequenceStart | None = None
    ) -> Minibatch:
        """Return the dataset."""
        return self.minibatch(self.fixed, {}, tf.constant(0))


def make_stream(source: MinibatchSource, *, ahead: bool, xla: bool) -> Stream:
    """Return the stream that suits the data, the device and the compiler.

    ``ahead`` has whole blocks gathered while a chain runs on another core.
    """
    data = source.data
    if source.draws.every_row:
        return Whole(source)
    if tf.config.list_logical_devices("GPU"):
        return OnDevice(source)
    size = source.draws.size * data.row_bytes
    threads = 2 if ahead else 1  # the core that is to spare can copy rows too
    if xla and not (ahead and size <= _SETTINGS.worth_ahead):
        is_large = size >= _SETTINGS.worth_a_call
        if is_large and has_addresses(data) and native.callable_by_xla():
            return InPlace(source, threads)
    return GatheredAhead(source, xla)


def has_addresses(data: Data) -> bool:
    """Return whether every column is in memory or mapped."""
    addresses = [getattr(column, "address", None) for column in data.columns.values()]
    return None not in addresses


class SharedStream:
    """A stream of minibatches for several chains at a time.

    ``gathered`` brings the rows of all chains, and ``single_chain`` picks the minibatch of one
    chain's step out of those of its iteration, which takes ``steps``.
    """

    def __init__(
        self, gathered: Stream, single_chain: Stream, chains: int, steps: int
    ) -> None:
        self._gathered, self.single_chain = gathered, single_chain
        self.chains, self._steps = chains, steps

    @property
    def fixed(self) -> Tensors:
        """Tensors that every block needs."""
        return self._gathered.fixed

    @property
    def draws_rows(self) -> bool:
        """Whether minibatches are drawn; else each is the whole dataset."""
        return not isinstance(self._gathered, Whole)

    def rows(self, length: int) -> tuple[tuple[int, ...], np.dtype]:
        """Return shape and dtype of the row numbers of a block, given its iterations."""
        of_chain = self._steps * self.single_chain.size if self.draws_rows else 0
        return (length, self.chains * of_chain), row_dtype(self.single_chain.data.size)

    def rows_by_chain(self, rows: np.ndarray) -> np.ndarray:
        """Return the same row numbers, (iterations, chains, steps, n)."""
        steps = self._steps if self.draws_rows else 0
        return rows.reshape(len(rows), self.chains, steps, self.single_chain.size)

    def of_iteration(self, fixed: Tensors, rows: tf.Tensor, i: tf.Tensor) -> Tensors:
        """Return a block of one iteration for each chain: arrays of (chains, steps, n, ...)."""
        if not self.draws_rows:
            return {}
        block: Mapping[str, tf.Tensor] = {ROWS: rows}
        arrays = dict(self._gathered.dense(fixed, block, i))
        if self.single_chain.with_rows:
            arrays[ROWS] = tf.gather(rows, i)
        head = (self.chains, self._steps, self.single_chain.size)
        return {
            name: tf.reshape(a, head + tuple(a.shape[1:])) for name, a in arrays.items()
        }


def make_shared_stream(
    source: MinibatchSource, *, chains: int, steps: int
) -> SharedStream | None:
    """Return the stream of several chains that share a kernel, or ``None`` if there is none."""
    data = source.data
    if data.sparse or tf.config.list_logical_devices("GPU"):
        return None
    if source.draws.every_row:
        whole = Whole(source)
        return SharedStream(whole, whole, chains, steps)
    in_place = has_addresses(data) and native.callable_by_xla()
    fits_in_tensor = data.size * data.row_bytes <= _SETTINGS.tensor_bytes
    if not (in_place or fits_in_tensor):
        return None
    is_long = data.row_bytes > _SETTINGS.short_row
    in_place = in_place and (is_long or not fits_in_tensor)
    gathered = InPlace(source) if in_place else OnDevice(source)
    return SharedStream(gathered, GatheredAhead(source, xla=False), chains, steps)
