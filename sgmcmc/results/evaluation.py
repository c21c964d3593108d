"""A function of parameters and data evaluated at all draws, in blocks of rows and draws."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.atomic_files import KEPT, explained, replacement
from sgmcmc.checks import describe
from sgmcmc.data.dataset import PIECE_BYTES, Data, Tensors
from sgmcmc.data.passes import Pass, map_over
from sgmcmc.data.sparse import over
from sgmcmc.graphs.user_functions import as_tensor, call, first_lines
from sgmcmc.results.diagnostics import weighted_quantiles


def read_path(store: Any) -> Path | None:
    """Return the file to which values are written, or ``None``."""
    if store is None:
        return None
    if not isinstance(store, str | os.PathLike) or not os.fspath(store):
        raise TypeError(
            f"`store` must be the path of a file, or None; it is {describe(store)}."
        )
    path = Path(store)
    if path.is_dir():
        raise ValueError(
            f"`store`: {str(path)!r} is a folder; these values go to one npy file."
        )
    return path


def all_values(evaluation: Evaluation, path: Path | None) -> np.ndarray:
    """Return the values at all draws, (chains, draws, rows, *shape); mapped, if to a file.

    Args:
        evaluation: Object that evaluates.
        path: Path of the npy file, which appears only once it is complete; ``None`` stays in
            memory.
    """
    shape = (evaluation.chains, evaluation.draws, evaluation.rows, *evaluation.shape)
    if path is None:
        array = np.empty(shape, evaluation.dtype)
        for rows, chain, draws, values in all_blocks(evaluation):
            array[chain, draws.new : draws.stop, rows.new : rows.stop] = values
        return array
    with (
        explained("store", path, KEPT),
        replacement(path) as temporary,
        _FileValues(temporary, shape, evaluation) as file,
    ):
        for rows, chain, draws, values in all_blocks(evaluation):
            file.write(chain, draws, rows, values)
    return np.load(path, mmap_mode="r", allow_pickle=False)


class _FileValues:
    """An npy file that blocks of an array are written into.

    Ordinary writes, not a mapping: a full disk is an error then, not the end of the process.
    """

    def __init__(
        self, path: Path, shape: tuple[int, ...], evaluation: Evaluation
    ) -> None:
        self._file = open(path, "xb", buffering=0)
        header = np.lib.format.header_data_from_array_1_0(np.empty(0, evaluation.dtype))
        np.lib.format.write_array_header_2_0(self._file, {**header, "shape": shape})
        self._start = self._file.tell()
        self._draws, self._rows = shape[1:3]
        self._bytes = evaluation.dtype.itemsize * int(np.prod(shape[3:]))

    def __enter__(self) -> _FileValues:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chain: int, draws: Span, rows: Span, values: np.ndarray) -> None:
        """Write the values of new draws and rows."""
        for draw, line in zip(range(draws.new, draws.stop), values, strict=True):
            index = (chain * self._draws + draw) * self._rows + rows.new
            self._file.seek(self._start + index * self._bytes)
            data = memoryview(np.ascontiguousarray(line).tobytes())
            while data:
                data = data[self._file.write(data) :]


# A function of parameters and columns that returns an entry for each row.
OfRows = Callable[[Tensors, Tensors], tf.Tensor]

_NUMBERS = 2**24  # largest number of intermediate values of one block
_DRAWS = 128  # number of draws in a block, if rows and memory allow
_TRIED = 11  # rows that a function is tried on first


class Span(NamedTuple):
    """One of several spans of equal length, of which the last may begin among those before.

    Attributes:
        start: First index.
        stop: Index after the last.
        new: First index that no earlier span has covered.
    """

    start: int
    stop: int
    new: int


def spans(total: int, length: int) -> Iterator[Span]:
    """Yield spans that cover ``total`` indices: of one length, so that one graph serves all."""
    for new in range(0, total, length):
        stop = min(new + length, total)
        yield Span(max(0, stop - length), stop, new)


class Evaluation:
    """A function of parameters and data, to be evaluated at all draws and rows.

    Args:
        label: Name of the function in messages.
        function: Function of one draw.
        draws: Draws, of shape (chains, draws, *shape), by parameter.
        data: Dataset.
        dtype: Dtype of the chain.

    Attributes:
        chains: Number of chains.
        draws: Number of draws of each chain.
        rows: Number of rows.
        shape: Shape of the entry of one row.
        dtype: Dtype of the entries.
        weights: Weights of the draws of each chain, with mean one, in sums and quantiles; ``None``
            if all are alike.

    Raises:
        TypeError, ValueError: The function does not return an entry for each row.
    """

    def __init__(
        self,
        label: str,
        function: OfRows,
        draws: Mapping[str, np.ndarray],
        data: Data,
        dtype: tf.DType,
    ) -> None:
        self._label = label
        self._function = function
        self._arrays = draws
        self._data = data
        self._chain_dtype = dtype
        self._pass = Pass(data, {"values": self._of_all})
        self._last: tuple[Span | None, Tensors] = None, {}
        self.chains, self.draws = next(iter(draws.values())).shape[:2]
        self.weights: np.ndarray | None = None
        self.rows = data.size
        tried = self.block(
            0, Span(0, 1, 0), self.columns(Span(0, min(_TRIED, data.size), 0))
        )
        self.shape, self.dtype = tried.shape[2:], tried.dtype

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": (None, {})}

    def over(
        self, method: str, calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[np.ndarray]:
        """Yield a method's result for each of these arguments."""
        return map_over(self._data, self, method, calls)

    def block_size(self, largest_rows: int | None = None) -> tuple[int, int]:
        """Return the numbers of rows and draws in a block.

        Args:
            largest_rows: Largest number of rows.
        """
        numbers_of_row = self._data.row_bytes // 4 + int(np.prod(self.shape))
        entries = max(1, _NUMBERS // max(1, numbers_of_row))
        bytes_of_draw = sum(
            array.itemsize * int(np.prod(array.shape[2:]))
            for array in self._arrays.values()
        )
        draws_in_memory = max(1, PIECE_BYTES // max(1, bytes_of_draw))
        draws = min(self.draws, draws_in_memory)
        rows = min(self.rows, largest_rows or self.rows, entries // min(draws, _DRAWS))
        rows = max(1, rows)
        return rows, max(1, min(draws, entries // rows))

    def columns(self, rows: Span) -> Tensors:
        """Return these rows of the dataset."""
        return self._data.slice(rows.start, rows.stop)

    def block(self, chain: int, draws: Span, columns: Tensors) -> np.ndarray:
        """Return the values at these draws, (draws, rows, *shape)."""
        params = {
            name: np.ascontiguousarray(array[chain, draws.start : draws.stop])
            for name, array in self._arrays.items()
        }
        try:
            return np.asarray(self._pass.run("values", params, columns))
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError(
                f"`{self._label}` needs too much memory. {error}"
            ) from error
        except tf.errors.OpError as error:
            raise ValueError(
                f"`{self._label}` failed when it was run. {first_lines(error)}"
            ) from error

    def values(self, rows: Span, chain: int, draws: Span) -> np.ndarray:
        """Return the values at the new draws and rows of both spans, (draws, rows, *shape)."""
        last, columns = self._last
        if last != rows:
            columns = self.columns(rows)
            self._last = rows, columns
        values = self.block(chain, draws, columns)
        return values[draws.new - draws.start :, rows.new - rows.start :]

    def at(self, columns: Tensors) -> np.ndarray:
        """Return the values on these rows at all draws of all chains, (draws, rows, *shape)."""
        size = int(next(iter(columns.values())).shape[0])
        length = max(1, min(self.draws, _NUMBERS // max(1, size)))
        return np.concatenate(
            [
                np.asarray(
                    self.block(chain, span, columns)[span.new - span.start :],
                    np.float64,
                )
                for chain, span in self.spans_by_chain(length)
            ]
        )

    def sums(self, rows: Span, length: int) -> np.ndarray:
        """Return sums over all draws, in blocks of this length, for the new rows of a span."""
        sums = np.zeros((rows.stop - rows.new, *self.shape))
        for chain, draws in self.spans_by_chain(length):
            values = self.values(rows, chain, draws)
            if self.weights is not None:
                values = np.tensordot(self.weights[draws.new : draws.stop], values, 1)[
                    np.newaxis
                ]
            sums += values.sum(axis=0, dtype=np.float64)
        return sums

    def quantiles(
        self, rows: Span, length: int, probabilities: list[float]
    ) -> np.ndarray:
        """Return quantiles over all draws for new rows of a span, (probabilities, rows, *shape)."""
        values = [
            np.asarray(self.values(rows, chain, draws), np.float64)
            for chain, draws in self.spans_by_chain(length)
        ]
        if self.weights is None:
            return np.quantile(np.concatenate(values), probabilities, axis=0)
        return weighted_quantiles(
            np.concatenate(values), probabilities, np.tile(self.weights, self.chains)
        )

    def spans_by_chain(self, length: int) -> Iterator[tuple[int, Span]]:
        """Yield all chains and spans of their draws, of this length."""
        for chain in range(self.chains):
            for draws in spans(self.draws, length):
                yield chain, draws

    def _of_all(self, params: Tensors, columns: Tensors) -> tf.Tensor:
        return over(self._of_one, params, columns)

    def _of_one(self, params: Tensors, columns: Tensors) -> tf.Tensor:
        size = next(iter(columns.values())).shape[0]
        rows = ", ".join(f"{name!r} {tuple(v.shape)}" for name, v in columns.items())
        shapes = ", ".join(f"{name!r} {tuple(v.shape)}" for name, v in params.items())
        received = f"params {shapes}; dataset {rows}"
        returned = call(
            self._label,
            self._chain_dtype,
            self._function,
            received,
            params=params,
            dataset=columns,
        )
        values = as_tensor(
            self._label, returned, "a tensor with an entry for each row of `dataset`"
        )
        if (
            values.shape.rank is None
            or values.shape.rank == 0
            or values.shape[0] != size
        ):
            raise ValueError(
                f"`{self._label}` must return an entry for each of the {size} rows that it "
                f"receives, a tensor of shape ({size},) or ({size}, ...); it returned one of "
                f"shape {values.shape}. It was called with {received}."
            )
        return values


def reduced(evaluation: Evaluation, quantiles: Any = None) -> np.ndarray:
    """Return means or quantiles over all draws of all chains, in float64.

    Args:
        evaluation: Object that evaluates.
        quantiles: Probabilities of the quantiles; ``None`` for means, of shape (rows, *shape).
    """
    count, shape = evaluation.chains * evaluation.draws, evaluation.shape
    if quantiles is None:
        method, largest_rows = "sums", None
        statistics = np.empty((evaluation.rows, *shape))
    else:
        method = "quantiles"
        largest_rows = max(
            1, 2 * PIECE_BYTES // (8 * count * max(1, int(np.prod(shape))))
        )
        statistics = np.empty((len(quantiles), evaluation.rows, *shape))
    length, draws = evaluation.block_size(largest_rows)
    row_spans = list(spans(evaluation.rows, length))
    calls: list[tuple[Any, ...]] = [(rows, draws) for rows in row_spans]
    if quantiles is not None:
        calls = [(*call, list(quantiles)) for call in calls]
    for rows, values in zip(row_spans, evaluation.over(method, calls), strict=True):
        if quantiles is None:
            statistics[rows.new : rows.stop] = values / count
        else:
            statistics[:, rows.new : rows.stop] = values
    return statistics


def all_blocks(evaluation: Evaluation) -> Iterator[tuple[Span, int, Span, np.ndarray]]:
    """Yield rows, chain, draws and values of every block, new rows and draws only."""
    length, draws = evaluation.block_size()
    calls = [
        (rows, chain, span)
        for rows in spans(evaluation.rows, length)
        for chain, span in evaluation.spans_by_chain(draws)
    ]
    blocks = evaluation.over("values", calls)
    for (rows, chain, span), values in zip(calls, blocks, strict=True):
        yield rows, chain, span, values
