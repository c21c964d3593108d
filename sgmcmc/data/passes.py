"""Passes over the whole dataset: one cache of graphs, one loop over chunks, one way to executors.

A piece is what fits in memory with what is computed of it; a shard is a run of chunks, which one
process passes over. They depend on nothing but the data: sums are added in the order of the chunks
within a shard, and of the shards, wherever they were computed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import PIECE_BYTES, Data, Tensors
from sgmcmc.data.sparse import has_sparse
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import need_time, pass_on
from sgmcmc.libraries import need_no_fork
from sgmcmc.machines import HERE


@dataclass(frozen=True)
class _Settings:
    max_shards: int = 4096  # so that their results stay small
    max_terms: int = 2**19  # of the log-likelihood in a piece, if a row has several


_SETTINGS = _Settings()

LARGE = 10_000
"""Smallest dataset for which a graph may serve any number of rows: it has parts of several
sizes."""


class Shard(NamedTuple):
    """The rows from ``start`` to ``stop``, in chunks of ``chunk`` rows."""

    start: int
    stop: int
    chunk: int

    @property
    def starts(self) -> range:
        """First row of each piece."""
        return range(self.start, self.stop, self.chunk)


def shards(data: Data, max_terms: int | None = None, row_terms: int = 1) -> list[Shard]:
    """Return the shards of a dataset, in order.

    Args:
        data: Dataset.
        max_terms: Most terms of the log-likelihood in a piece.
        row_terms: Number of terms of the user's log-likelihood in that of a row.
    """
    chunk = max(1, PIECE_BYTES // max(1, data.row_bytes))
    if row_terms > 1:
        most = _SETTINGS.max_terms
        max_terms = most if max_terms is None else min(most, max_terms)
    if max_terms is not None:
        chunk = max(1, min(chunk, max_terms // row_terms))
    chunks = data.size / chunk
    shard_rows = chunk * max(1, math.ceil(chunks / _SETTINGS.max_shards))
    return [
        Shard(k, min(k + shard_rows, data.size), chunk)
        for k in range(0, data.size, shard_rows)
    ]


def map_over(
    data: Data, obj: Any, method: str, calls: Sequence[tuple[Any, ...]]
) -> Iterator[Any]:
    """Yield a method's result for each part of the data, in the order of the calls.

    The machines of the dataset call it; a single call is made here.
    """
    machines = data.machines if len(calls) > 1 else HERE
    return machines.map(obj, method, calls)


class _Task(NamedTuple):
    """A function of a :class:`Pass`, for the chunks of the data.

    Attributes:
        name: Name of the function.
        values: Values that it is handed before the columns.
        first: Name of the function for the first piece; ``None`` for the same.
        summed: Whether results are added up; else they are joined.
    """

    name: str
    values: tuple[Any, ...]
    first: str | None = None
    summed: bool = False


Function = Callable[..., Any]
"""A function of tensors, the last of which may be the columns of some rows."""


class Pass:
    """Functions of some values and of columns, traced once, for rows or for the whole dataset.

    Args:
        data: Dataset.
        functions: Functions by name. One that is summed or joined returns a list of tensors.
        any_length: Whether to try one graph for chunks of any length, if the dataset is large.
        row_terms: Number of terms of the user's log-likelihood in that of a row.
        graphs: Graphs that exist, of functions of these names; it is added to.
        jit_compile: Whether XLA compiles the graphs.
    """

    def __init__(
        self,
        data: Data,
        functions: Mapping[str, Function],
        any_length: bool = False,
        row_terms: int = 1,
        graphs: dict[Any, Any] | None = None,
        jit_compile: bool = False,
    ) -> None:
        self.data = data
        self._functions = functions
        self._any_length = any_length
        self._row_terms = row_terms
        self.graphs = {} if graphs is None else graphs
        self._jit_compile = jit_compile

    def __getstate__(self) -> dict[str, Any]:
        # A worker traces its own graphs.
        return {**self.__dict__, "graphs": {}}

    def on(self, data: Data) -> Pass:
        """Return the same over another dataset of such columns, with the same graphs."""
        copied = copy.copy(self)
        copied.data, copied.graphs = data, self.graphs
        return copied

    def run(self, name: str, *arguments: Any) -> Any:
        """Return the result of a function of these tensors or arrays."""
        need_no_fork()
        need_time()
        tensors = tf.nest.map_structure(_as_tensor, arguments)
        return self._graph(name, tensors)(*tensors)

    def _graph(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Return the graph of a function: one for any number of rows, if that can be had."""
        columns = arguments[-1]
        large = self._any_length and self.data.size >= LARGE
        if large and isinstance(columns, dict) and not has_sparse(columns):
            key = (name, "any", *_shapes(arguments[:-1]))
            if key not in self.graphs:
                self.graphs[key] = None
                try:
                    any_length = (*arguments[:-1], of_any_length(columns))
                    self.graphs[key] = self._trace(name, any_length)
                except Exception as error:  # functions ask for the number of rows
                    pass_on(error)
            if self.graphs[key] is not None:
                return self.graphs[key]
        key = (name, *_shapes(arguments))
        if key not in self.graphs:
            self.graphs[key] = self._trace(name, arguments)
        return self.graphs[key]

    def _trace(self, name: str, arguments: tuple[Any, ...]) -> Any:
        return trace(self._functions[name], *arguments, jit_compile=self._jit_compile)

    def sums(
        self,
        name: str,
        *values: Any,
        max_terms: int | None = None,
        first: str | None = None,
        per_chunk: Sequence[np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """Return the sums of a function's results over the dataset, in float64.

        Args:
            name: Name of the function.
            values: Values that it is handed before the columns.
            max_terms: Most terms of the log-likelihood in a piece.
            first: Name of the function for the first piece; ``None`` for the same.
            per_chunk: Further values, one for each piece of each shard; ``None`` for none.
        """
        all_shards = shards(self.data, max_terms, self._row_terms)
        task = _Task(name, values, first, summed=True)
        return added(self._shard_results(task, all_shards, per_chunk))

    def joined(
        self,
        name: str,
        *values: Any,
        max_terms: int | None = None,
        per_chunk: Sequence[np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """Return a function's results for each row of the dataset, in order.

        Args:
            name: Name of the function.
            values: Values that it is handed before the columns.
            max_terms: Most terms of the log-likelihood in a piece.
            per_chunk: Further values, one for each piece of each shard; ``None`` for none.
        """
        all_shards = shards(self.data, max_terms, self._row_terms)
        by_shard = self._shard_results(_Task(name, values), all_shards, per_chunk)
        joined_rows: list[np.ndarray] = []
        for shard, results in zip(all_shards, by_shard, strict=True):
            if not joined_rows:
                joined_rows = [
                    np.empty((self.data.size, *a.shape[1:]), a.dtype) for a in results
                ]
            for array, rows in zip(joined_rows, results, strict=True):
                array[shard.start : shard.stop] = rows
        return joined_rows

    def _shard_results(
        self,
        task: _Task,
        all_shards: Sequence[Shard],
        per_chunk: Sequence[np.ndarray] | None,
    ) -> Iterator[list[np.ndarray]]:
        calls = [
            (task, shard, None if per_chunk is None else per_chunk[k])
            for k, shard in enumerate(all_shards)
        ]
        return map_over(self.data, self, "of_shard", calls)

    def of_shard(
        self, task: _Task, shard: Shard, per_chunk: np.ndarray | None
    ) -> list[np.ndarray]:
        """Return the sums over a part of the data, or its rows."""
        results = self._chunk_results(task, shard, per_chunk)
        if task.summed:
            return added([a.astype(np.float64) for a in result] for result in results)
        return [np.concatenate(arrays) for arrays in zip(*results, strict=True)]

    def _chunk_results(
        self, task: _Task, shard: Shard, per_chunk: np.ndarray | None
    ) -> Iterator[list[np.ndarray]]:
        for k, (start, columns) in enumerate(chunks(self.data, shard)):
            name = task.name if task.first is None or start else task.first
            extra = () if per_chunk is None else (per_chunk[k],)
            results = self.run(name, *task.values, *extra, columns)
            yield [tensor.numpy() for tensor in results]


def chunks(data: Data, shard: Shard) -> Iterator[tuple[int, Tensors]]:
    """Yield the chunks of a shard: first row, and columns."""
    for start in shard.starts:
        yield start, data.slice(start, min(start + shard.chunk, shard.stop))


def added(results: Iterable[list[np.ndarray]]) -> list[np.ndarray]:
    """Return sums, added up in order."""
    totals: list[np.ndarray] = []
    for result in results:
        totals = (
            [a + b for a, b in zip(totals, result, strict=True)] if totals else result
        )
    return totals


def _as_tensor(leaf: Any) -> Any:
    return leaf if isinstance(leaf, tf.SparseTensor) else tf.convert_to_tensor(leaf)


def _shapes(arguments: Any) -> tuple[Any, ...]:
    return tuple(
        (
            type(leaf).__name__ if isinstance(leaf, tf.SparseTensor) else "",
            *leaf.shape,
            leaf.dtype,
        )
        for leaf in tf.nest.flatten(arguments)
    )


def cast(columns: Tensors, dtype: tf.DType) -> Tensors:
    """Return the columns in a floating point type; integers stay as they are."""
    return {
        name: tf.cast(value, dtype) if value.dtype.is_floating else value
        for name, value in columns.items()
    }


def of_any_length(columns: Tensors) -> dict[str, tf.TensorSpec]:
    """Return specifications of the columns for any number of rows."""
    return {
        name: tf.TensorSpec([None, *column.shape[1:]], column.dtype)
        for name, column in columns.items()
    }
