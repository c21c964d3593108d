"""Checks of the numbers in the user's data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.tables import missing, of_objects
from sgmcmc.libraries import library_of


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
        raise ValueError(
            f"`{label}` is not a regular array of numbers: {error}"
        ) from error
    if (
        array.dtype.kind == "O"
        and library_of(values) == "pandas"
        and values.isna().any()
    ):
        raise ValueError(missing(label))
    array = of_objects(array)
    need_numbers(label, array.dtype)
    return array


def need_numbers(label: str, dtype: Any) -> None:
    """Refuse text, dates, complex numbers and objects."""
    if isinstance(dtype, tf.DType):
        good = dtype.is_floating or dtype.is_integer or dtype.is_bool
    else:
        good = np.dtype(dtype).kind in "fiub"
    if not good:
        name = dtype.name if isinstance(dtype, tf.DType) else np.dtype(dtype).name
        raise TypeError(
            f"`{label}` must hold real numbers; its dtype is {name}. Code categories as numbers."
        )


def need_one_order(columns: Mapping[str, Any]) -> None:
    """Refuse series whose indices have the labels of the first one in another order.

    Rows are matched by position: rows of one label would not meet.

    Args:
        columns: Columns of any kind, by their names in messages.
    """
    indices = {
        label: values.index
        for label, values in columns.items()
        if library_of(values) == "pandas" and hasattr(values, "index")
    }
    first = next(iter(indices), "")
    for label, index in indices.items():
        if len(index) != len(indices[first]) or index.equals(indices[first]):
            continue
        are_unique = index.is_unique and indices[first].is_unique
        if are_unique and index.isin(indices[first]).all():
            raise ValueError(
                f"The index of `{label}` has the labels of `{first}` in another order, and rows "
                "are read by their places. Put both in one order, with .reindex(...), or drop the "
                "index, with .reset_index(drop=True)."
            )


def by_label(label: str, columns: Mapping[Any, Any]) -> dict[str, Any]:
    """Return columns by their names in messages."""
    return {f"{label}[{name!r}]": values for name, values in columns.items()}


def need_first_axis(label: str, shape: tuple[int, ...]) -> None:
    """Refuse a value that is not an array."""
    if len(shape) == 0:
        raise ValueError(
            f"`{label}` is a single number; its first axis must count the observations."
        )


def check_values(
    label: str,
    array: np.ndarray,
    dtype: tf.DType,
    start: int = 0,
    indices_of: Callable[[int], tuple[int, ...]] | None = None,
) -> None:
    """Refuse NaN, and numbers that their dtype cannot hold.

    Args:
        label: Name of the array, for messages.
        array: Values, or a piece of them that begins with row ``start``.
        dtype: Target dtype.
        indices_of: Function that returns the indices of a value of a vector, for messages.
    """
    if array.size == 0:
        return
    if array.dtype.kind == "f":
        refuse_nan(label, array, start, indices_of)
    if dtype.is_integer:
        _need_whole(label, array, dtype)
        return
    limits = np.finfo(dtype.as_numpy_dtype)
    if array.dtype.kind == "f":
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


def _need_whole(label: str, array: np.ndarray, dtype: tf.DType) -> None:
    """Refuse fractions, and integers out of range."""
    if array.dtype.kind == "f":
        wrong = array[array != np.rint(array)]
        if wrong.size:
            raise ValueError(
                f"`{label}` is named in `integers`, and holds {float(wrong.flat[0]):g}, which is "
                "not an integer. Remove it from `integers`, and it becomes floats."
            )
    limits = np.iinfo(dtype.as_numpy_dtype)
    for extreme in (array.min(), array.max()):
        if not limits.min <= extreme <= limits.max:
            raise ValueError(
                f"`{label}` is named in `integers`, and holds {float(extreme):.12g}, which "
                f"{dtype.name} "
                "cannot hold. Hand it in as tf.constant(g, tf.int64)."
            )


def refuse_overflow(label: str, array: np.ndarray, dtype: tf.DType) -> None:
    """Refuse finite numbers that would become infinite in the dtype of the chain."""
    largest = float(np.finfo(dtype.as_numpy_dtype).max)
    lowest, highest = float(array.min()), float(array.max())
    if -largest <= lowest and highest <= largest:
        return
    beyond = array[(np.abs(array) > largest) & np.isfinite(array)]
    if beyond.size:
        raise ValueError(
            f"`{label}` holds {float(beyond[0]):g}, which is beyond the range of {dtype.name}. "
            "Rescale it, or use dtype=tf.float64."
        )


def refuse_nan(
    label: str,
    array: np.ndarray,
    start: int = 0,
    indices_of: Callable[[int], tuple[int, ...]] | None = None,
) -> None:
    """Refuse NaN, and name its place."""
    # The minimum of an array that holds NaN is NaN, and needs no second array to find.
    if array.dtype.kind == "f" and array.size and np.isnan(array.min()):
        row, *columns = (int(k) for k in np.argwhere(np.isnan(array))[0])
        where = (start + row, *columns) if indices_of is None else indices_of(row)
        raise ValueError(
            f"`{label}` holds NaN, first at index {where}. Drop or impute missing values before."
        )
