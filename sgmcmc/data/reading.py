"""The dataset as a user hands it over, checked and converted once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import PIECE_BYTES, ArrayColumn, Column, Data, LazyColumn
from sgmcmc.words import describe


def read_dataset(dataset: Any, dtype: tf.DType) -> Data:
    """Return the dataset in the form that the chain reads."""
    if not isinstance(dataset, Mapping):
        raise TypeError(f"`dataset` must be a dict of arrays; it is {describe(dataset)}.")
    if not dataset:
        raise ValueError("`dataset` is empty: it must name at least one array.")
    columns: dict[str, Column] = {}
    lengths: dict[str, int] = {}
    for name, values in dataset.items():
        if not isinstance(name, str):
            raise TypeError(f"`dataset`: its keys must be strings; {name!r} is not.")
        label = f"dataset[{name!r}]"
        columns[name], lengths[name] = _read_column(label, values, dtype)
        if lengths[name] == 0:
            raise ValueError(f"`{label}` is empty: it has no observations.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise ValueError(
            f"`dataset`: the first axis of every array counts the observations, so all must have "
            f"the same length; they have {listed}."
        )
    return Data(columns, next(iter(lengths.values())))


def _read_column(label: str, values: Any, dtype: tf.DType) -> tuple[Column, int]:
    if isinstance(values, tf.Tensor | tf.Variable):
        _need_numbers(label, values.dtype)
        array = values.numpy()
        _need_first_axis(label, array.shape)
        _refuse_nan(label, array)
        return ArrayColumn(array), len(array)
    if _stays_where_it_is(values):
        _need_first_axis(label, values.shape)
        _need_numbers(label, values.dtype)
        _check_pieces(label, values, dtype)
        return LazyColumn(values, np.dtype(dtype.as_numpy_dtype)), int(values.shape[0])
    array = as_numbers(label, values)
    _need_first_axis(label, array.shape)
    _check_values(label, array, dtype)
    return ArrayColumn(array.astype(dtype.as_numpy_dtype, copy=False)), len(array)


def _stays_where_it_is(values: Any) -> bool:
    """Tell whether an array is on disk: a memmap, or one stored in chunks (HDF5, Zarr)."""
    if isinstance(values, np.ndarray):
        return isinstance(values, np.memmap)
    # pandas, polars and xarray are in memory, whatever else they have; ragged tensors are not ours.
    if hasattr(values, "to_numpy") or tf.is_tensor(values):
        return False
    has_shape = hasattr(values, "shape") and hasattr(values, "dtype")
    in_chunks = hasattr(values, "chunks") or not hasattr(values, "__array__")
    return has_shape and in_chunks and hasattr(values, "__getitem__")


def _check_pieces(label: str, values: Any, dtype: tf.DType) -> None:
    """Pass over a column that is on disk, a piece at a time."""
    length, row_shape = values.shape[0], tuple(values.shape[1:])
    rows = max(1, PIECE_BYTES // max(1, values.dtype.itemsize * int(np.prod(row_shape))))
    for start in range(0, length, rows):
        piece = np.asarray(values[start : start + rows])
        if piece.shape != (min(rows, length - start), *row_shape):
            raise TypeError(
                f"`{label}` is a {type(values).__name__}, whose rows cannot be read as NumPy "
                "arrays. Turn it into an array first."
            )
        _check_values(label, piece, dtype, start)


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
