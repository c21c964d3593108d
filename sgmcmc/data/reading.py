"""The dataset as a user hands it over, checked and converted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import ArrayColumn, Column, Data, MappedColumn
from sgmcmc.data.stored import Spool, read_stored
from sgmcmc.data.tables import Table, as_table, is_plain_frame, library, missing, refusal
from sgmcmc.words import describe


def read_dataset(dataset: Any, dtype: tf.DType) -> Data:
    """Return the dataset in the form that the chain reads."""
    columns: dict[str, Column] = {}
    lengths: dict[str, int] = {}
    for name, column, length in _columns(dataset, dtype):
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
    return Data(columns, next(iter(lengths.values())))


def _columns(dataset: Any, dtype: tf.DType) -> Iterator[tuple[str, Column, int]]:
    """Yield name, column and length of everything in a dict of arrays, or in a table."""
    if not isinstance(dataset, Mapping):
        _refuse_streams("dataset", dataset)
        table = as_table("dataset", dataset)
        if table is not None:
            _need_strings(table.names)
            yield from _read_table("dataset", table, dtype, {n: (n,) for n in table.names})
            return
        if not hasattr(dataset, "to_dask_array") or not hasattr(dataset, "columns"):
            raise TypeError(
                "`dataset` must be a dict of arrays, or a table with a name for each column; it is "
                f"{describe(dataset)}."
            )
        dataset = {name: dataset[name] for name in dataset.columns}
    _need_strings(dataset)
    for name, values in dataset.items():
        yield name, *_read_column(f"dataset[{name!r}]", values, dtype)


def _need_strings(names: Iterable[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`dataset`: its keys must be strings; {name!r} is not.")


def _read_column(label: str, values: Any, dtype: tf.DType) -> tuple[Column, int]:
    if isinstance(values, tf.Tensor | tf.Variable):
        _need_numbers(label, values.dtype)
        array = values.numpy()
        _need_first_axis(label, array.shape)
        _refuse_nan(label, array)
        return ArrayColumn(array), len(array)
    _refuse_streams(label, values)
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array(lengths=True)
    if _is_stored(values):
        return _read_stored(label, values, dtype)
    table = None if is_plain_frame(values) else as_table(label, values)
    if table is not None:
        _, column, length = next(_read_table(label, table, dtype, {"": table.names}))
        return column, length
    array = as_numbers(label, values)
    _need_first_axis(label, array.shape)
    _check_values(label, array, dtype)
    return ArrayColumn(array.astype(dtype.as_numpy_dtype, copy=False)), len(array)


def _is_stored(values: Any) -> bool:
    """Tell whether an array is on disk: a memmap, or anything whose rows have to be asked for."""
    if isinstance(values, np.ndarray):
        return isinstance(values, np.memmap)
    # pandas, polars and xarray are in memory, whatever else they have; ragged tensors are not ours.
    in_tables = library(values) in ("pyarrow", "datasets")
    if hasattr(values, "to_numpy") or tf.is_tensor(values) or in_tables:
        return False
    in_chunks = hasattr(values, "chunks") or not hasattr(values, "__array__")
    return hasattr(values, "shape") and in_chunks and hasattr(values, "__getitem__")


def _read_stored(label: str, values: Any, dtype: tf.DType) -> tuple[Column, int]:
    """Return a column that is on disk, passed over a piece at a time."""
    shape = tuple(values.shape)
    _need_first_axis(label, shape)
    if library(values) == "scipy":
        raise TypeError(
            f"`{label}` is a {type(values).__name__}; hand in its dense rows, `.toarray()`, or the "
            "numbers and columns of its entries as arrays."
        )
    if any(length != length for length in shape):
        raise ValueError(
            f"`{label}` does not know its own length. Call its compute_chunk_sizes() before."
        )
    if hasattr(values, "dtype"):
        _need_numbers(label, values.dtype)

    def check(piece: np.ndarray, start: int, rows: int) -> None:
        if piece.shape != (rows, *shape[1:]):
            raise TypeError(
                f"`{label}` is a {type(values).__name__}, whose rows cannot be read as NumPy "
                "arrays. Turn it into an array first."
            )
        _need_numbers(label, piece.dtype)
        _check_values(label, piece, dtype, start)

    return read_stored(values, np.dtype(dtype.as_numpy_dtype), check), int(shape[0])


def _read_table(
    label: str, table: Table, dtype: tf.DType, wanted: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, Column, int]]:
    """Yield name, column and length of what is wanted of a table, which is read once.

    Args:
        label: what the table is, for messages.
        table: the table.
        dtype: of the chain.
        wanted: the columns of the table that each column of the dataset is made of.
    """
    spools = {}
    for name, parts in wanted.items():
        coded = table.categories.intersection(parts)
        if coded and len(table.names) > 1 and len(wanted) == 1:
            raise TypeError(
                f"`{label}`: its column {min(coded)!r} holds categories, whose numbers are no "
                "measurements. Hand it in by itself, as an entry of `dataset` with a name of its "
                "own: it stays whole numbers, for tf.gather or tf.one_hot."
            )
        kept = np.dtype(np.int32 if coded else dtype.as_numpy_dtype)
        spools[name] = Spool(kept, in_memory=table.in_memory)
    for batch in table.batches():
        for name, parts in wanted.items():
            pieces = []
            for part in parts:
                of_several = len(table.names) > 1 or len(wanted) > 1
                own = f"{label}[{part!r}]" if of_several else label
                _need_numbers(own, batch[part].dtype)
                _check_values(own, batch[part], dtype, spools[name].rows)
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


def _refuse_streams(label: str, values: Any) -> None:
    """Refuse what gives its rows only in an order of its own."""
    if isinstance(values, tf.data.Dataset) or (
        hasattr(values, "__iter__")
        and not any(hasattr(values, name) for name in ("__getitem__", "__array__", "shape"))
        and not isinstance(values, set | frozenset)
    ):
        raise TypeError(refusal(label, values))


def as_numbers(label: str, values: Any) -> np.ndarray:
    """Return an in-memory array of real numbers."""
    if isinstance(values, tf.Tensor | tf.Variable):
        values = values.numpy()
    if tf.is_tensor(values):
        raise TypeError(
            f"`{label}` must be a dense array of numbers; it is a {type(values).__name__}."
        )
    if np.ma.is_masked(values):
        raise ValueError(
            f"`{label}` is a masked array with {np.ma.count_masked(values)} values masked out. "
            "Drop or impute missing values before."
        )
    if values is None:
        raise TypeError(f"`{label}` must hold real numbers; it is None.")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"`{label}` is not a regular array of numbers: {error}") from error
    if array.dtype.kind == "O" and library(values) == "pandas" and values.isna().any():
        raise ValueError(missing(label))
    _need_numbers(label, array.dtype)
    return array


def _need_numbers(label: str, dtype: Any) -> None:
    if isinstance(dtype, tf.DType):
        good = dtype.is_floating or dtype.is_integer or dtype.is_bool
    else:
        good = np.dtype(dtype).kind in "fiub"
    if not good:
        name = dtype.name if isinstance(dtype, tf.DType) else np.dtype(dtype).name
        raise TypeError(
            f"`{label}` must hold real numbers; its dtype is {name}. Code categories as numbers."
        )


def _need_first_axis(label: str, shape: tuple[int, ...]) -> None:
    if len(shape) == 0:
        raise ValueError(
            f"`{label}` is a single number; its first axis must count the observations."
        )


def _check_values(label: str, array: np.ndarray, dtype: tf.DType, start: int = 0) -> None:
    """Refuse NaN, and numbers that the dtype of the chain cannot hold.

    Args:
        label: what the array is, for messages.
        array: the values, or a piece of them.
        dtype: the dtype of the chain.
        start: index of the piece's first row.
    """
    if array.size == 0:
        return
    limits = np.finfo(dtype.as_numpy_dtype)
    if array.dtype.kind == "f":
        _refuse_nan(label, array, start)
        if array.dtype.itemsize > limits.dtype.itemsize:
            refuse_overflow(label, array, dtype)
    elif array.dtype.kind in "iu":
        exact = 2 ** (limits.nmant + 1)
        largest = max(int(array.min()), int(array.max()), key=abs)
        if abs(largest) > exact:
            raise ValueError(
                f"`{label}` holds the integer {largest}, which {dtype.name} cannot hold exactly "
                f"(its limit is {exact}). Pass it as a tf.Tensor, which keeps its own dtype, use "
                "dtype=tf.float64, or turn it into floats yourself if rounding does no harm."
            )


def refuse_overflow(label: str, array: np.ndarray, dtype: tf.DType) -> None:
    """Refuse finite numbers that would become infinite in the dtype of the chain."""
    most = float(np.finfo(dtype.as_numpy_dtype).max)
    lowest, highest = array.min(), array.max()
    if -most <= lowest and highest <= most:
        return
    beyond = array[(np.abs(array) > most) & np.isfinite(array)]
    if beyond.size:
        raise ValueError(
            f"`{label}` holds {float(beyond[0]):g}, which is beyond the range of {dtype.name}. "
            "Rescale it, or use dtype=tf.float64."
        )


def _refuse_nan(label: str, array: np.ndarray, start: int = 0) -> None:
    # The minimum of an array that holds NaN is NaN, and needs no second array to find.
    if array.dtype.kind == "f" and array.size and np.isnan(array.min()):
        row, *rest = (int(k) for k in np.argwhere(np.isnan(array))[0])
        raise ValueError(
            f"`{label}` holds NaN, first at index {(start + row, *rest)}. Drop or impute missing "
            "values before."
        )
