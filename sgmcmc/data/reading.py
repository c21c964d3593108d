"""Reading of the user's dataset, checked and converted once."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.data.dataset import ArrayColumn, Column, Data, MappedColumn
from sgmcmc.data.derived_columns import coded_by, in_halves, recoded
from sgmcmc.data.entries import (
    as_numbers,
    by_label,
    check_values,
    need_first_axis,
    need_numbers,
    need_one_order,
    refuse_nan,
)
from sgmcmc.data.levels import Coder, Levels
from sgmcmc.data.named import open_named, shown, unpacked_by_name
from sgmcmc.data.sparse import SparseColumn, is_sparse, read_sparse
from sgmcmc.data.stored import SLAB_BYTES, Spool, read_stored
from sgmcmc.data.tables import (
    Table,
    as_entry,
    as_table,
    checked_codes,
    is_plain_frame,
    is_stream,
    is_table,
    table_of,
    unpacked_before,
    unpacked_once,
)
from sgmcmc.libraries import library_of


class Read(NamedTuple):
    """A column that was read.

    Attributes:
        name: Name.
        column: Column.
        rows: Its length.
        levels: Levels that its numbers stand for; ``None`` if it holds no categories.
    """

    name: str
    column: Column
    rows: int
    levels: Levels | None = None


def read_dataset(
    dataset: Any,
    dtype: tf.DType,
    integers: Collection[str] = (),
    storage: str | None = None,
    levels: Mapping[str, Levels] | None = None,
) -> Data:
    """Return the dataset in the form that the chain reads.

    Args:
        dataset: User's dataset, or one that was read.
        dtype: Dtype of the chain, to which numbers are converted.
        integers: Names of columns that stay integers, int32.
        storage: Format in 16 bits for arrays in memory; ``None`` for the dtype of the chain.
        levels: Levels of a model, by column, for rows that are new to it; ``None`` if these rows
            are its own, and their categories have the numbers that their container gives them.
    """
    if isinstance(dataset, Data):
        return dataset
    if storage is not None:
        data = read_dataset(dataset, dtype, integers, None, levels)
        columns = {
            name: in_halves(name, column, dtype, storage)
            for name, column in data.columns.items()
        }
        return Data(columns, data.size, data.read_from, data.levels)
    if levels is None:
        return _read_once(dataset, dtype, integers, ())
    own_codes = _read_once(dataset, dtype, integers, levels)
    data = coded_by(own_codes, levels, dtype, integers)
    if data.read_from is not None:
        data.read_from = (*data.read_from[:-1], levels)
    return data


def _read_once(
    dataset: Any, dtype: tf.DType, integers: Collection[str], coded: Collection[str]
) -> Data:
    """Return the dataset as it is read, or as it was unpacked before.

    Args:
        dataset, dtype, integers: As in :func:`read_dataset`.
        coded: Names of columns that are read as categories, whatever they hold.
    """
    uncoded_key = dtype, tuple(sorted(integers)), ()
    key = dtype, tuple(sorted(integers)), tuple(sorted(coded))

    def read() -> Data:
        return _read(dataset, dtype, integers, coded)

    if isinstance(dataset, str | os.PathLike):
        return unpacked_by_name(dataset, key, read)
    if is_stream(dataset) or hasattr(dataset, "read_next_batch"):
        before = unpacked_before(dataset, uncoded_key)  # it may be used up
        if before is not None:
            needed = set(coded) & before.columns.keys()
            if before.levels.keys() >= needed:
                return before
        return unpacked_once(dataset, key, read)
    return read()


def _read(
    dataset: Any, dtype: tf.DType, integers: Collection[str], coded: Collection[str]
) -> Data:
    columns: dict[str, Column] = {}
    lengths: dict[str, int] = {}
    levels: dict[str, Levels] = {}

    def dtype_of(name: str) -> tf.DType:
        return tf.int32 if name in integers else dtype

    for name, column, length, column_levels in _columns(dataset, dtype_of, coded):
        columns[name], lengths[name] = column, length
        if column_levels is not None:
            levels[name] = column_levels
        if length == 0:
            raise ValueError(f"`dataset[{name!r}]` is empty: it has no observations.")
    if not columns:
        raise ValueError("`dataset` is empty: it must name at least one array.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise ValueError(
            f"`dataset`: the first axis of every array counts the observations, so all must have "
            f"the same length; they have {listed}."
        )
    arguments = dataset, dtype, integers, None
    return Data(columns, next(iter(lengths.values())), arguments, levels)


def _columns(
    dataset: Any, dtype_of: Callable[[str], tf.DType], coded: Collection[str]
) -> Iterator[Read]:
    """Yield everything in a dict of arrays, or in a table."""
    # A DatasetDict holds several datasets, not columns of one.
    if not isinstance(dataset, Mapping) or library_of(dataset) == "datasets":
        if isinstance(dataset, str | os.PathLike):
            dataset = open_named("dataset", dataset)
        if isinstance(dataset, Mapping) and library_of(dataset) != "datasets":
            # The arrays of a group of Zarr's.
            yield from _columns(dataset, dtype_of, coded)
            return
        if is_stream(dataset) and not is_table(dataset):
            table: Table | None = table_of(dataset, coded)
        else:
            table = as_table("dataset", dataset, coded)
        if table is not None:
            _need_strings(table.names)
            table_columns = {name: (name,) for name in table.names}
            # A column of a dataset is a vector.
            table = dataclasses.replace(table, one_is_vector=True)
            yield from _read_table("dataset", table, dtype_of, table_columns)
            return
        if not hasattr(dataset, "to_dask_array") or not hasattr(dataset, "columns"):
            raise TypeError(
                "`dataset` must be a dict of arrays, or a table with a name for each column; it is "
                f"{describe(dataset)}."
            )
        dataset = {name: dataset[name] for name in dataset.columns}
    _need_strings(dataset)
    need_one_order(by_label("dataset", dataset))
    for name, values in dataset.items():
        label, is_coded = f"dataset[{name!r}]", name in coded
        column, length, column_levels = _read_column(
            label, values, dtype_of(name), is_coded
        )
        yield Read(name, column, length, column_levels)


def _need_strings(names: Iterable[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`dataset`: its keys must be strings; {name!r} is not.")


ColumnRead = tuple[Column, int, Levels | None]
"""A column, its length, and the levels that its numbers stand for, if it holds categories."""


def _read_column(
    label: str, values: Any, dtype: tf.DType, coded: bool = False
) -> ColumnRead:
    """Return an entry of the dataset.

    Args:
        label: Its name, for messages.
        values: User's values.
        dtype: Dtype that its numbers get.
        coded: Whether it is read as categories, whatever it holds.
    """
    if isinstance(values, str | os.PathLike):
        key = "entry", dtype, coded
        data = unpacked_by_name(
            values, key, lambda: _read_named(label, values, dtype, coded)
        )
        return data.columns["entry"], data.size, data.levels.get("entry")
    if is_stream(values) and not is_table(values):
        raise as_entry(label, values)
    if coded:
        return _read_coded(label, values)
    keeps = isinstance(values, tf.Tensor | tf.Variable)
    if keeps and not (dtype.is_integer and values.dtype.is_floating):
        need_numbers(label, values.dtype)
        array = values.numpy()
        need_first_axis(label, array.shape)
        refuse_nan(label, array)
        return ArrayColumn(array), len(array), None
    if is_sparse(values):
        matrix = read_sparse(label, values)
        need_numbers(label, matrix.dtype)
        check_values(label, matrix.data, dtype, indices_of=partial(_indices_of, matrix))
        column = SparseColumn(matrix, np.dtype(dtype.as_numpy_dtype))
        return column, int(matrix.shape[0]), None
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    if _is_stored(values) and not is_table(values):
        return _read_stored(label, values, dtype)
    is_array = isinstance(values, np.ndarray) or is_plain_frame(values)
    table = None if is_array else as_table(label, values)
    if table is not None:
        read = next(_read_table(label, table, lambda _: dtype, {"": table.names}))
        return read.column, read.rows, read.levels
    array = as_numbers(label, values)
    need_first_axis(label, array.shape)
    check_values(label, array, dtype)
    return ArrayColumn(array.astype(dtype.as_numpy_dtype, copy=False)), len(array), None


def _read_coded(label: str, values: Any) -> ColumnRead:
    """Return an entry of the dataset as categories, whatever it holds."""
    if is_sparse(values):
        raise TypeError(f"`{label}` is sparse; it must have one level for each row.")
    table = as_table(label, values)
    table = None if table is None else as_table(label, values, table.names)
    if table is not None and len(table.names) == 1:
        table_columns = {"": table.names}
        read = next(_read_table(label, table, lambda _: tf.int32, table_columns))
        return read.column, read.rows, read.levels
    if hasattr(values, "to_dask_array"):
        values = values.compute()
    if isinstance(values, tf.Tensor | tf.Variable):
        values = values.numpy()
    coder = Coder(label)
    writer = Spool(np.dtype(np.int32))
    chunk_rows = SLAB_BYTES if _is_stored(values) else 0
    for start in range(0, len(values), chunk_rows or max(1, len(values))):
        chunk = np.asarray(values[start : start + chunk_rows]) if chunk_rows else values
        writer.add(checked_codes(label, coder.add(chunk)))
    array = writer.array()
    return MappedColumn(array, array.dtype), writer.rows, coder.levels


def _read_named(
    label: str, where: str | os.PathLike[str], dtype: tf.DType, coded: bool
) -> Data:
    """Return an array or table at a path or URL as one column."""
    values = open_named(label, where)
    if isinstance(values, Mapping):
        raise TypeError(
            f"`{label}`: {shown(where)!r} is a group of arrays, "
            f"{', '.join(sorted(values))}. Name one of them by its own path, or "
            "pass the group as the whole `dataset`."
        )
    column, length, column_levels = _read_column(label, values, dtype, coded)
    levels = None if column_levels is None else {"entry": column_levels}
    return Data({"entry": column}, length, None, levels)


def _indices_of(matrix: scipy.sparse.csr_array, entry: int) -> tuple[int, int]:
    """Return row and column of an entry of a sparse matrix."""
    row = int(np.searchsorted(matrix.indptr, entry, "right")) - 1
    return row, int(matrix.indices[entry])


def _is_stored(values: Any) -> bool:
    """Return whether an array is on disk: a memmap, or anything whose rows must be asked for."""
    if isinstance(values, np.ndarray):
        return isinstance(values, np.memmap)
    # pandas, polars and xarray are in memory, whatever else they have; ragged tensors are not ours.
    in_tables = library_of(values) in ("pyarrow", "datasets")
    if hasattr(values, "to_numpy") or tf.is_tensor(values) or in_tables:
        return False
    in_chunks = hasattr(values, "chunks") or not hasattr(values, "__array__")
    return hasattr(values, "shape") and in_chunks and hasattr(values, "__getitem__")


def _read_stored(label: str, values: Any, dtype: tf.DType) -> ColumnRead:
    """Return a column that is on disk, passed over a piece at a time."""
    shape = tuple(values.shape)
    need_first_axis(label, shape)
    if any(length != length for length in shape):
        raise ValueError(
            f"`{label}` has an unknown length. Call its compute_chunk_sizes() first."
        )
    if hasattr(values, "dtype"):
        need_numbers(label, values.dtype)

    def check(chunk: np.ndarray, start: int, rows: int) -> None:
        if chunk.shape != (rows, *shape[1:]):
            raise TypeError(
                f"`{label}` is a {type(values).__name__}, whose rows cannot be read as NumPy "
                "arrays. Turn it into an array first."
            )
        need_numbers(label, chunk.dtype)
        check_values(label, chunk, dtype, start)

    column = read_stored(values, np.dtype(dtype.as_numpy_dtype), check)
    return column, int(shape[0]), None


def _read_table(
    label: str,
    table: Table,
    dtype_of: Callable[[str], tf.DType],
    requested: Mapping[str, tuple[str, ...]],
) -> Iterator[Read]:
    """Yield the requested columns of a table, which is read once.

    ``requested`` has the columns of the table that each column of the dataset is made of,
    ``dtype_of`` what its numbers become.
    """
    writers = {}
    for name, names in requested.items():
        coded = table.categories.keys() & set(names)
        if coded and len(table.names) > 1 and len(requested) == 1:
            raise TypeError(
                f"`{label}`: its column {min(coded)!r} holds categories, whose numbers are not "
                "measurements. Pass it by itself, as an entry of `dataset` with a name of its "
                "own: it stays integers, for tf.gather or tf.one_hot."
            )
        storage_dtype = np.dtype(np.int32 if coded else dtype_of(name).as_numpy_dtype)
        writers[name] = Spool(storage_dtype, in_memory=table.in_memory)
    for batch in table.batches():
        for name, names in requested.items():
            dtype, arrays = dtype_of(name), []
            for source_name in names:
                of_several = len(table.names) > 1 or len(requested) > 1
                column_label = f"{label}[{source_name!r}]" if of_several else label
                array = batch[source_name]
                if source_name not in table.categories:
                    need_numbers(column_label, array.dtype)
                    check_values(column_label, array, dtype, writers[name].rows)
                arrays.append(array)
            if len(arrays) == 1 and (table.one_is_vector or len(requested) > 1):
                writers[name].add(arrays[0])
                continue
            matrices = [
                array.astype(dtype.as_numpy_dtype).reshape(len(array), -1)
                for array in arrays
            ]
            writers[name].add(np.concatenate(matrices, axis=1))
    for name, writer in writers.items():
        array = writer.array()
        coder = table.categories.get(requested[name][0])
        column: Column = MappedColumn(array, array.dtype)
        if table.in_memory:
            column = ArrayColumn(array)
        levels = None
        if coder is not None:
            levels = coder.in_order
            positions = np.argsort(coder.order).astype(np.int32)
            column = recoded(column, positions, writer.rows)
        yield Read(name, column, writer.rows, levels)
