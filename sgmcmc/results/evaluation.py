"""Functions of parameters and data evaluated at all draws: predictions, and terms of log_lik.

They run in blocks of rows and draws, so that memory is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.atomic_files import KEPT, explained, replacement
from sgmcmc.checks import describe, is_number
from sgmcmc.data.dataset import PIECE_BYTES, Data, Tensors
from sgmcmc.data.levels import read_categories
from sgmcmc.data.passes import Pass, map_over
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.sparse import over
from sgmcmc.data.tables import by_column
from sgmcmc.data.transfer import read_machines
from sgmcmc.graphs.user_functions import as_tensor, call, first_lines, need_sum
from sgmcmc.model.target import LogLik, terms, untempered
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.diagnostics import weighted_quantiles
from sgmcmc.results.draws import Draws, column_levels

# A function of parameters and columns that returns an entry for each row.
OfRows = Callable[[Tensors, Tensors], tf.Tensor]


@dataclass(frozen=True)
class _EvaluationSettings:
    numbers: int = 2**24  # largest number of intermediate values of one block
    draws: int = 128  # of a block, if rows and memory allow
    first_rows: int = 11  # that a function is tried on


_SETTINGS = _EvaluationSettings()


def arrays_of(draws: Draws) -> dict[str, np.ndarray]:
    """Return the draws, (chains, draws, *shape), of which there are some."""
    if not len(draws):
        raise ValueError("`samples` holds no draws of parameters.")
    arrays = by_chain(draws.settings, draws)
    if not next(iter(arrays.values())).shape[1]:
        raise ValueError("`samples` holds no draws.")
    return arrays if draws.origin is None else draws.origin.with_effects(arrays)


def dtype_of(draws: Draws) -> tf.DType:
    """Return the dtype of the chain."""
    if "dtype" in draws.settings:
        return tf.as_dtype(draws.settings["dtype"])
    dtype = np.result_type(*draws.values()) if len(draws) else np.dtype(np.float32)
    return tf.as_dtype(dtype if dtype == np.float32 else np.float64)


def data_of(draws: Draws, dataset: Mapping[str, Any] | None) -> Data:
    """Return a dataset, read as that of the model; ``None`` is the chain's own."""
    if dataset is not None:
        columns = by_column(dataset) or {}
        integers = list(draws.settings.get("integers", ()))
        for name in draws.settings.get("indices", ()):
            # Categories, where the model has integers.
            if name in columns and read_categories(columns[name]) is not None:
                integers.append(name)
        levels = column_levels(draws.settings)
        return read_dataset(dataset, dtype_of(draws), integers, levels=levels)
    if draws.origin is None:
        raise ValueError(
            "`dataset` must be given: these draws are not in the process of the chain that "
            "made them, and do not hold its data."
        )
    return draws.origin.data


@dataclass(frozen=True)
class Statistic:
    """A statistic of the values at all draws: means, quantiles, or the values themselves.

    Attributes:
        name: ``"mean"``, ``"quantiles"``, or ``None`` for all values.
        probabilities: Probabilities of the quantiles.
        path: Path of the npy file for all values; ``None`` stays in memory.
    """

    name: str | None
    probabilities: Sequence[float]
    path: Path | None

    @classmethod
    def read(cls, reduce: Any, quantiles: Sequence[float], store: Any) -> Statistic:
        """Return the checked values of the user's arguments of these names."""
        if reduce not in ("mean", "quantiles", None):
            raise ValueError(
                f"`reduce` must be 'mean', 'quantiles' or None; it is {reduce!r}."
            )
        path = read_path(store)
        if reduce is not None and path is not None:
            raise ValueError(
                "`store`: reduced values stay in memory. Write reduce=None with it."
            )
        if reduce == "quantiles":
            check_probabilities(quantiles)
        return cls(reduce, quantiles, path)


def check_probabilities(quantiles: Sequence[float]) -> None:
    """Raise an error unless all are between 0 and 1."""
    for q in quantiles:
        if not (is_number(q) and 0 <= q <= 1):
            raise ValueError(f"`quantiles` must be between 0 and 1; there is {q!r}.")


def predict(
    draws: Draws,
    f: OfRows,
    dataset: Mapping[str, Any] | None,
    statistic: Statistic,
    executor: Any,
) -> np.ndarray:
    """Return a function of parameters and data over all draws; see ``Samples.predict``."""
    arrays = arrays_of(draws)
    if draws.origin is not None:
        f, arrays, dataset = draws.origin.rows(f, arrays, dataset)
    with read_machines(executor) as machines:
        data = data_of(draws, dataset).on(machines)
        evaluation = Evaluation("f", f, arrays, data, dtype_of(draws))
        if statistic.name is None:
            return all_values(evaluation, statistic.path)
        evaluation.weights = draws.weights
        if statistic.name == "mean":
            return reduced(evaluation)
        return reduced(evaluation, list(statistic.probabilities))


class Terms:
    """The terms of a log-likelihood: of rows, or of groups whose effects are integrated out.

    Args:
        draws: Draws at which they are evaluated.
        dataset: Dataset; ``None`` uses the chain's own.
        log_lik: Log-likelihood; ``None`` uses the chain's own.
        by: Factor whose groups have the terms; ``None`` for rows.

    Attributes:
        units: Places of the terms of rows or groups among those of packs; ``None`` if rows of the
            data have a term each.
    """

    def __init__(
        self,
        draws: Draws,
        dataset: Mapping[str, Any] | None = None,
        log_lik: LogLik | None = None,
        by: str | None = None,
    ) -> None:
        self.draws, self._dataset, self._given_log_lik = draws, dataset, log_lik
        self.units: Any = None
        if draws.origin is not None and dataset is None and log_lik is None:
            self.units = draws.origin.units(by)
        elif by is not None:
            raise ValueError(
                "`by`: groups are left out of the chain's own data, in the process of the chain "
                "that made the draws."
            )

    @cached_property
    def data(self) -> Data:
        """The dataset, read."""
        return data_of(self.draws, self._dataset)

    @cached_property
    def _log_lik(self) -> LogLik:
        """The user's log-likelihood, or the chain's own."""
        draws, log_lik = self.draws, self._given_log_lik
        if log_lik is not None:
            checks.function("log_lik", log_lik, "of `params` and `dataset`")
            return log_lik
        if draws.origin is None:
            raise ValueError(
                "`log_lik` must be given: these draws are not in the process of the chain that "
                "made them, and files do not hold functions."
            )
        if draws.settings.get("gibbs"):
            raise ValueError(
                "`log_lik` must be given: that of the chain is one of data which `gibbs` has "
                "completed. Write one of `params` and `dataset` alone."
            )
        target = draws.origin.target
        for name in target.space.layout.names:
            if name not in draws:
                raise ValueError(
                    f"`samples` lacks the draws of {name!r}, which `log_lik` may need. Run the "
                    "sampler with `store_params=True`."
                )
        return untempered(target.log_lik)

    @property
    def size(self) -> int:
        """Number of terms at one draw."""
        return self.data.size if self.units is None else len(self.units.pack)

    @cached_property
    def of_rows(self) -> OfRows:
        """Function of parameters and rows of the data that returns a term, or terms, of each."""
        if self.units is not None:
            return self.units.function
        log_lik = self._log_lik

        def of_rows(params: Tensors, columns: Tensors) -> tf.Tensor:
            values = terms(log_lik, params, columns)
            if values.shape.rank != 1:
                raise ValueError(
                    f"it must return one number for each row, not {values.shape}"
                )
            return values

        return of_rows

    def of_units(self, values: np.ndarray) -> np.ndarray:
        """Return the terms among the values at all rows of the data, its last axes."""
        if self.units is None:
            return values
        return values[..., self.units.pack, self.units.place]

    def need_sum(self, evaluation: Evaluation) -> None:
        """Raise an error if the log-likelihood is not the sum of its values at single rows."""
        if self.units is not None:
            return
        rows = Span(0, min(evaluation.rows, _SETTINGS.first_rows), 0)
        columns = evaluation.columns(rows)
        params = {
            name: tf.constant(np.asarray(array[0, 0]))
            for name, array in evaluation.arrays.items()
        }
        together = self._log_lik(params, dict(columns))
        alone = evaluation.block(0, Span(0, 1, 0), columns)[0].astype(np.float64)
        need_sum(float(np.sum(together, dtype=np.float64)), alone)


def log_lik_terms(terms: Terms, path: Path | None, executor: Any) -> np.ndarray:
    """Return the terms at all draws; see ``Samples.log_lik``."""
    if terms.units is not None and path is not None:
        raise ValueError(
            "`store`: terms of a model with `groups`, or of identical rows that are one with a "
            "weight (`reduce=False` keeps them), stay in memory. Thin the draws first."
        )
    of_rows, data, draws = terms.of_rows, terms.data, terms.draws
    with read_machines(executor) as machines:
        arrays, dtype = arrays_of(draws), dtype_of(draws)
        evaluation = Evaluation("log_lik", of_rows, arrays, data.on(machines), dtype)
        terms.need_sum(evaluation)
        return terms.of_units(all_values(evaluation, path))


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
        arrays: Draws, by parameter.
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
        self.arrays = draws
        self._data = data
        self._chain_dtype = dtype
        self._pass = Pass(data, {"values": partial(over, self._of_one)})
        self._last: tuple[Span | None, Tensors] = None, {}
        self.chains, self.draws = next(iter(draws.values())).shape[:2]
        self.weights: np.ndarray | None = None
        self.rows = data.size
        tried = self.block(
            0,
            Span(0, 1, 0),
            self.columns(Span(0, min(_SETTINGS.first_rows, data.size), 0)),
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
        entries = max(1, _SETTINGS.numbers // max(1, numbers_of_row))
        bytes_of_draw = sum(
            array.itemsize * int(np.prod(array.shape[2:]))
            for array in self.arrays.values()
        )
        draws_in_memory = max(1, PIECE_BYTES // max(1, bytes_of_draw))
        draws = min(self.draws, draws_in_memory)
        rows = min(
            self.rows, largest_rows or self.rows, entries // min(draws, _SETTINGS.draws)
        )
        rows = max(1, rows)
        return rows, max(1, min(draws, entries // rows))

    def columns(self, rows: Span) -> Tensors:
        """Return these rows of the dataset."""
        return self._data.slice(rows.start, rows.stop)

    def block(self, chain: int, draws: Span, columns: Tensors) -> np.ndarray:
        """Return the values at these draws, (draws, rows, *shape)."""
        params = {
            name: np.ascontiguousarray(array[chain, draws.start : draws.stop])
            for name, array in self.arrays.items()
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
        length = max(1, min(self.draws, _SETTINGS.numbers // max(1, size)))
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
