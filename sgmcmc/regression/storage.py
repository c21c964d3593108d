"""Columns of any storage as numbers, flags, text, dates or categories."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# Kinds of objects, by the names that pandas gives them.
_TEXT = {"string", "empty"}
_NUMBERS = {"floating", "integer", "mixed-integer-float", "decimal"}
_DATES = {"date", "datetime", "datetime64"}


def plain(frame: pd.DataFrame, names: Sequence[Any], used: bool) -> pd.DataFrame:
    """Return a frame whose columns are NumPy's numbers, flags and dates, text, or categories.

    Args:
        frame: Frame.
        names: Names of the columns that are changed.
        used: Whether the columns are used, so that those that are of no kind are refused.

    Raises:
        TypeError: A column holds values of several kinds, or of a kind that no term has.
    """
    changed = {}
    for name in names:
        values = frame[name]
        if values.ndim > 1:
            continue  # columns of one name, which are refused if they are used
        column = _plain(values)
        objects = isinstance(column.dtype, np.dtype) and column.dtype.kind == "O"
        if used and objects and not _is_text(column):
            kinds = list(
                dict.fromkeys(type(value).__name__ for value in column.dropna())
            )
            raise TypeError(
                f"`data[{name!r}]` holds Python objects, {', '.join(kinds[:4])}, which are neither "
                "all numbers nor all text. Make them one or the other, pd.to_numeric(...) or "
                ".astype(str)."
            )
        if column is not values:
            changed[name] = column
    if not changed:
        return frame
    copied = frame.copy(deep=False)
    for name, values in changed.items():
        copied[name] = values
    copied.attrs = frame.attrs
    return copied


def _is_text(values: pd.Series) -> bool:
    import pandas as pd

    # Flags with missing values stay objects, so that the missing ones are found.
    return pd.api.types.infer_dtype(values, skipna=True) in _TEXT | {
        "boolean",
        "interval",
    }


def _plain(values: pd.Series) -> pd.Series:
    """Return a column in a plain storage; the same object if it is in one."""
    import pandas as pd

    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        levels = _plain_levels(values.cat.categories)
        return (
            values
            if levels is values.cat.categories
            else values.cat.rename_categories(levels)
        )
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return _of_objects(values)
    if str(dtype) == "str":  # text of pandas 3
        return values
    if isinstance(dtype, pd.SparseDtype):
        return _plain(pd.Series(np.asarray(values), values.index))
    kind = getattr(dtype, "kind", "O")
    if kind == "c":
        raise TypeError(
            f"`data[{values.name!r}]` holds complex numbers. Make columns of its parts, .real and "
            ".imag."
        )
    if isinstance(dtype, np.dtype):
        wide = kind == "f" and dtype.itemsize not in (4, 8)
        return (
            values.astype(np.float32 if dtype.itemsize == 2 else np.float64)
            if wide
            else values
        )
    if isinstance(dtype, pd.DatetimeTZDtype | pd.PeriodDtype):
        return values
    if isinstance(dtype, pd.IntervalDtype):
        return pd.Series(pd.Categorical(values, ordered=True), values.index)
    missing = values.isna().to_numpy()
    if kind in "iuf":
        if missing.any() or kind == "f":
            array = values.to_numpy(np.float64, na_value=np.nan)
        else:
            array = values.to_numpy(np.dtype(str(getattr(dtype, "numpy_dtype", dtype))))
        return pd.Series(array, values.index)
    if kind == "b" and not missing.any():
        return pd.Series(values.to_numpy(bool), values.index)
    return _of_objects(values.astype(object).where(~missing, None))


def _plain_levels(levels: pd.Index) -> pd.Index:
    import pandas as pd

    if isinstance(levels.dtype, np.dtype) and levels.dtype.itemsize > 2:
        return levels
    if str(levels.dtype) == "str":
        return levels
    if isinstance(levels.dtype, pd.IntervalDtype | pd.DatetimeTZDtype | pd.PeriodDtype):
        return levels
    series = _plain(levels.to_series())
    return pd.Index(series.to_numpy(), dtype=series.dtype)


def _of_objects(values: pd.Series) -> pd.Series:
    """Return Python objects as numbers, flags or dates, if they are all of one kind."""
    import pandas as pd

    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind in _TEXT:
        return values
    missing = values.isna().to_numpy()
    if kind == "boolean":
        return values if missing.any() else values.astype(bool)
    if kind in _DATES:
        try:
            return pd.to_datetime(values)
        except (TypeError, ValueError):  # of several time zones, or too long ago
            return values
    if kind == "timedelta":
        return pd.to_timedelta(values)
    present = values[~missing]
    numeric = kind in _NUMBERS or all(
        isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool)
        for value in present
    )
    if not numeric or not len(present):
        return values
    if kind == "integer" and not missing.any():
        try:
            return values.astype(np.int64)
        except OverflowError:
            pass
    array = np.full(len(values), np.nan)
    array[~missing] = [float(value) for value in present]
    return pd.Series(array, values.index)
