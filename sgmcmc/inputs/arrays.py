"""The dataset and the starting values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data import PIECE_BYTES, ArrayColumn, Column, Data, LazyColumn
from sgmcmc.inputs.numbers import describe


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
        array = values.numpy()
        _need_first_axis(label, array.shape)
        _refuse_nan(label, array)
        return ArrayColumn(array), len(array)
    if _stays_where_it_is(values):
        _need_first_axis(label, values.shape)
        _need_numbers(label, values.dtype)
        column = LazyColumn(values, np.dtype(dtype.as_numpy_dtype))
        rows = max(1, PIECE_BYTES // max(1, values.dtype.itemsize * _row_size(values.shape)))
        for start in range(0, values.shape[0], rows):
            _check_values(label, np.asarray(values[start : start + rows]), dtype)
        return column, int(values.shape[0])
    array = as_numbers(label, values)
    _need_first_axis(label, array.shape)
    _check_values(label, array, dtype)
    return ArrayColumn(array.astype(dtype.as_numpy_dtype, copy=False)), len(array)


def _stays_where_it_is(values: Any) -> bool:
    """Tell whether an array is on disk: a memmap, or one stored in chunks (HDF5, Zarr)."""
    if isinstance(values, np.ndarray):
        return isinstance(values, np.memmap)
    has_shape = hasattr(values, "shape") and hasattr(values, "dtype")
    in_chunks = hasattr(values, "chunks") or not hasattr(values, "__array__")
    return has_shape and in_chunks and hasattr(values, "__getitem__")


def as_numbers(label: str, values: Any) -> np.ndarray:
    """Return an in-memory array of real numbers."""
    if isinstance(values, tf.Tensor | tf.Variable):
        values = values.numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"`{label}` is not a regular array of numbers: {error}") from error
    _need_numbers(label, array.dtype)
    return array


def _need_numbers(label: str, dtype: np.dtype) -> None:
    if np.dtype(dtype).kind not in "fiub":
        raise TypeError(
            f"`{label}` must hold real numbers; its dtype is {dtype}. Code categories as numbers."
        )


def _need_first_axis(label: str, shape: tuple[int, ...]) -> None:
    if len(shape) == 0:
        raise ValueError(
            f"`{label}` is a single number; its first axis must count the observations."
        )


def _row_size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[1:]))


def _check_values(label: str, array: np.ndarray, dtype: tf.DType) -> None:
    """Refuse NaN, and integers that the dtype of the chain cannot hold exactly."""
    if array.size == 0:
        return
    if array.dtype.kind == "f":
        _refuse_nan(label, array)
        return
    exact = 2 ** (np.finfo(dtype.as_numpy_dtype).nmant + 1)
    if np.iinfo(array.dtype).max > exact if array.dtype.kind in "iu" else False:
        largest = max(abs(int(array.min())), abs(int(array.max())))
        if largest > exact:
            raise ValueError(
                f"`{label}` holds the integer {largest}, which {dtype.name} cannot hold exactly "
                f"(its limit is {exact}). Pass it as a tf.Tensor, which keeps its own dtype, use "
                "dtype=tf.float64, or turn it into floats yourself if rounding does no harm."
            )


def _refuse_nan(label: str, array: np.ndarray) -> None:
    # The minimum of an array that holds NaN is NaN, and needs no second array to find.
    if array.dtype.kind == "f" and array.size and np.isnan(array.min()):
        first = tuple(int(k) for k in np.argwhere(np.isnan(array))[0])
        raise ValueError(
            f"`{label}` holds NaN, first at index {first}. Drop or impute missing values before."
        )


def read_params(params: Any, n_chains: int | None, dtype: tf.DType) -> list[dict[str, np.ndarray]]:
    """Return the starting values, a dict for each start."""
    if isinstance(params, Mapping):
        return [_read_start("params", params, dtype)]
    if not isinstance(params, list | tuple):
        raise TypeError(
            f"`params` must be a dict of starting values, or a list of such dicts, one for each "
            f"chain; it is {describe(params)}."
        )
    if n_chains is None or len(params) != n_chains:
        raise ValueError(
            f"`params` is a list of {len(params)} starts, so `n_chains` must be {len(params)}; "
            f"it is {n_chains}."
        )
    for number, start in enumerate(params):
        if not isinstance(start, Mapping):
            raise TypeError(f"`params[{number}]` must be a dict; it is {describe(start)}.")
    starts = [_read_start(f"params[{i}]", start, dtype) for i, start in enumerate(params)]
    shapes = [{name: value.shape for name, value in start.items()} for start in starts]
    for number, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(
                f"`params`: every start must have the same names and shapes; params[0] has "
                f"{shapes[0]}, params[{number}] has {shape}."
            )
    return [{name: start[name] for name in starts[0]} for start in starts]


def _read_start(label: str, params: Mapping[Any, Any], dtype: tf.DType) -> dict[str, np.ndarray]:
    if not params:
        raise ValueError(f"`{label}` is empty: it must name at least one parameter.")
    start = {}
    for name, value in params.items():
        if not isinstance(name, str):
            raise TypeError(f"`{label}`: its keys must be strings; {name!r} is not.")
        array = as_numbers(f"{label}[{name!r}]", value)
        if array.size == 0:
            raise ValueError(f"`{label}[{name!r}]` has shape {array.shape}: nothing to sample.")
        # A copy, so that nothing of the user's can change under the chain, or by it.
        start[name] = np.array(array, dtype=dtype.as_numpy_dtype, order="C")
        if not np.isfinite(start[name]).all():
            raise ValueError(
                f"`{label}[{name!r}]`: starting values must be finite; {value!r} is not."
            )
    return start
