"""Reading of the user's dataset, checked and converted once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.data.dataset import ArrayColumn, Column, Data, MappedColumn
from sgmcmc.data.entries import (
    as_numbers,
    check_values,
    is_stream,
    need_first_axis,
    need_numbers,
    refuse_nan,
)
from sgmcmc.data.named import open_named, shown, unpacked_by_name
from sgmcmc.data.sparse import SparseColumn, is_sparse, read_sparse
from sgmcmc.data.stored import Spool, read_stored
from sgmcmc.data.streams import as_entry, table_of, unpacked_once
from sgmcmc.data.tables import Table, as_table, is_plain_frame, is_table
from sgmcmc.libraries import library_of


def read_dataset(
    dataset: Any, dtype: tf.DType, integers: Collection[str] = (), storage: str | None = None
) -> Data:
    """Return the dataset in the form that the chain reads.

    Args:
        dataset: User's dataset, or one that was read.
        dtype: Dtype of the chain, to which numbers are converted.
        integers: Names of columns that stay integers, int32.
        storage: Format in 16 bits for arrays in memory; ``None`` for the dtype of the chain.
    """
    if isinstance(dataset, Data):
        return dataset
    if storage is not None:
        return _stored_in(storage, read_dataset(dataset, dtype, integers), dtype)
    key = dtype, tuple(sorted(integers))
    if isinstance(dataset, str | os.PathLike):
        return unpacked_by_name(dataset, key, lambda: _read(dataset, dtype, integers))
    if is_stream(dataset) or hasattr(dataset, "read_next_batch"):
        return unpacked_once(dataset, key, lambda: _read(dataset, dtype, integers))
    return _read(dataset, dtype, integers)


def _stored_in(storage: str, data: Data, dtype: tf.DType) -> Data:
    """Return a dataset that was read, with arrays in memory in 16 bits."""
    from sgmcmc.data.halves import in_halves  # most datasets are read without it

    found = {name: in_halves(name, c, dtype, storage) for name, c in data.columns.items()}
    return Data(found, data.size, data.given)


def _read(dataset: Any, dtype: tf.DType, integers: Collection[str]) -> Data:
    columns: dict[str, Column] = {}
    lengths: dict[str, int] = {}
    for name, column, length in _columns(dataset, lambda n: tf.int32 if n in integers else dtype):
        columns[name], lengths[name] = column, length
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
    return Data(columns, next(iter(lengths.values())), (dataset, dtype, integers))


def _columns(
    dataset: Any, dtype_of: Callable[[str], tf.DType]
) -> Iterator[tuple[str, Column, int]]:
    """Yield name, column and length of everything in a dict of arrays, or in a table."""
    # A DatasetDict holds several datasets, not columns of one.
    if not isinstance(dataset, Mapping) or library_of(dataset) == "datasets":
        if isinstance(dataset, str | os.PathLike):
            dataset = open_named("dataset", dataset)
        if isinstance(dataset, Mapping) and library_of(dataset) != "datasets":
            yield from _columns(dataset, dtype_of)  # the arrays of a group of Zarr's
            return
        as_rows = is_stream(dataset) and not is_table(dataset)
        table = table_of(dataset) if as_rows else as_table("dataset", dataset)
        if table is not None:
            _need_strings(table.names)
            parts = {name: (name,) for name in table.names}
            yield from _read_table("dataset", table, dtype_of, parts)
            return
        if not hasattr(dataset, "to_dask_array") or not hasattr(dataset, "columns"):
            raise TypeError(
                "`dataset` must be a dict of arrays, or a table with a name for each column; it is "
                f"{describe(dataset)}."
            )
        dataset = {name: dataset[name] for name in dataset.columns}
    _need_strings(dataset)
    for name, values in dataset.items():
        yield name, *_read_column(f"dataset[{name!r}]", values, dtype_of(name))


def _need_strings(names: Iterable[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`dataset`: its keys must be strings; {name!r} is not.")


def _read_column(label: str, values: Any, dtype: tf.DType) -> tuple[Column, int]:
    keeps = isinstance(values, tf.Tensor | tf.Variable)
    if keeps and not (dtype.is_integer and values.dtype.is_floating):
        need_numbers(label, values.dtype)
        array = values.numpy()
        need_first_axis(label, array.shape)
        refuse_nan(label, array)
        return ArrayColumn(array), len(array)
    if is_stream(values) and not is_table(values):
        raise as_entry(label, values)
    if isinstance(values, str | os.PathLike):
        data = unpacked_by_name(values, ("entry", dtype), lambda: _read_named(label, values, dtype))
        return data.columns["entry"], data.size
    if is_sparse(values):
        matrix = read_sparse(label, values)
        need_numbers(label, matrix.dtype)
        check_values(label, matrix.data, dtype, place=lambda k: _place(matrix, k))
        return SparseColumn(matrix, np.dtype(dtype.as_numpy_dtype)), int(matrix.shape[0])
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    if _is_stored(values) and not is_table(values):
        return _read_stored(label, values, dtype)
    is_array = isinstance(values, np.ndarray) or is_plain_frame(values)
    table = None if is_array else as_table(label, values)
    if table is not None:
        _, column, length = next(_read_table(label, table, lambda _: dtype, {"": table.names}))
        return column, length
    array = as_numbers(label, values)
    need_first_axis(label, array.shape)
    check_values(label, array, dtype)
    return ArrayColumn(array.astype(dtype.as_numpy_dtype, copy=False)), len(array)


def _read_named(label: str, where: str | os.PathLike[str], dtype: tf.DType) -> Data:
    """Return an array or table at a path or URL as one column."""
    values = open_named(label, where)
    if isinstance(values, Mapping):
        raise TypeError(
            f"`{label}`: {shown(where)!r} is a group of arrays, "
            f"{', '.join(sorted(values))}. Name one of them by its own path, or "
            "pass the group as the whole `dataset`."
        )
    column, length = _read_column(label, values, dtype)
    return Data({"entry": column}, length)


def _place(matrix: scipy.sparse.csr_array, entry: int) -> tuple[int, int]:
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


def _read_stored(label: str, values: Any, dtype: tf.DType) -> tuple[Column, int]:
    """Return a column that is on disk, passed over a piece at a time."""
    shape = tuple(values.shape)
    need_first_axis(label, shape)
    if any(length != length for length in shape):
        raise ValueError(f"`{label}` has an unknown length. Call its compute_chunk_sizes() first.")
    if hasattr(values, "dtype"):
        need_numbers(label, values.dtype)

    def check(piece: np.ndarray, start: int, rows: int) -> None:
        if piece.shape != (rows, *shape[1:]):
            raise TypeError(
                f"`{label}` is a {type(values).__name__}, whose rows cannot be read as NumPy "
                "arrays. Turn it into an array first."
            )
        need_numbers(label, piece.dtype)
        check_values(label, piece, dtype, start)

    return read_stored(values, np.dtype(dtype.as_numpy_dtype), check), int(shape[0])


def _read_table(
    label: str,
    table: Table,
    dtype_of: Callable[[str], tf.DType],
    wanted: Mapping[str, tuple[str, ...]],
) -> Iterator[tuple[str, Column, int]]:
    """Yield name, column and length of the requested columns of a table, which is read once.

    ``wanted`` has the columns of the table that each column of the dataset is made of, ``dtype_of``
    what its numbers become.
    """
    spools = {}
    for name, parts in wanted.items():
        coded = table.categories.intersection(parts)
        if coded and len(table.names) > 1 and len(wanted) == 1:
            raise TypeError(
                f"`{label}`: its column {min(coded)!r} holds categories, whose numbers are not "
                "measurements. Pass it by itself, as an entry of `dataset` with a name of its "
                "own: it stays integers, for tf.gather or tf.one_hot."
            )
        kept = np.dtype(np.int32 if coded else dtype_of(name).as_numpy_dtype)
        spools[name] = Spool(kept, in_memory=table.in_memory)
    for batch in table.batches():
        for name, parts in wanted.items():
            dtype, pieces = dtype_of(name), []
            for part in parts:
                of_several = len(table.names) > 1 or len(wanted) > 1
                own = f"{label}[{part!r}]" if of_several else label
                need_numbers(own, batch[part].dtype)
                check_values(own, batch[part], dtype, spools[name].rows)
                pieces.append(batch[part])
            vector = len(pieces) == 1 and (table.one_is_vector or len(wanted) > 1)
            spools[name].add(pieces[0] if vector else _beside_each_other(pieces, dtype))
    for name, spool in spools.items():
        array = spool.array()
        kind = ArrayColumn(array) if table.in_memory else MappedColumn(array, array.dtype)
        yield name, kind, spool.rows


def _beside_each_other(pieces: list[np.ndarray], dtype: tf.DType) -> np.ndarray:
    """Return columns as a matrix."""
    own = dtype.as_numpy_dtype
    return np.concatenate([piece.astype(own).reshape(len(piece), -1) for piece in pieces], axis=1)
