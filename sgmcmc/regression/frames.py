"""The user's data as a frame of pandas, in memory or in mapped files, and its columns."""

from __future__ import annotations

import contextlib
import importlib
import math
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgmcmc.checks import describe, did_you_mean
from sgmcmc.data.entries import by_label, need_one_order
from sgmcmc.data.levels import (
    Categories,
    Coder,
    Levels,
    as_categorical,
    factorized,
    read_categories,
)
from sgmcmc.data.named import arrow_batches, open_named
from sgmcmc.data.stored import Spool
from sgmcmc.data.tables import has_arrow_stream
from sgmcmc.regression.formula import columns_of

if TYPE_CHECKING:
    import pandas as pd


# Returns the columns that are wanted, given a frame that has them but no rows.
Columns = Callable[["pd.DataFrame"], list[Any]]


@dataclass(frozen=True)
class _Settings:
    # Numbers in the columns of a file from which they are mapped, and not held in memory.
    mapped: int = 2**25
    numbers_at_once: int = 2**22  # of a model matrix
    min_rows: int = 1024  # that are made at a time


_SETTINGS = _Settings()

# Entry of `frame.attrs` with the names of categories that were text, whose order is not the user's.
TEXT = "text"


def as_frame(data: Any, columns: Columns | None = None) -> pd.DataFrame:
    """Return data as a frame of pandas; see :func:`read_rows`."""
    return read_rows(data, columns)[0]


def read_rows(
    data: Any, columns: Columns | None = None, drop: bool = False
) -> tuple[pd.DataFrame, np.ndarray | None]:
    """Return data as a frame of pandas, and which rows of the data it has.

    Columns of large files are copied to files in the temporary folder, which are mapped into
    memory; text becomes categories, named in ``frame.attrs``.

    Args:
        data: Frame of pandas or polars, Arrow table, dataset or stream, path or URL of a Parquet
            file or folder, or dict of columns.
        columns: Function that returns the columns that are used; ``None`` for all.
        drop: Whether rows with missing values in these columns are dropped.

    Returns:
        Frame, and whether each row of the data was kept; ``None`` if all were.

    Raises:
        TypeError: It is no table.
        ValueError: It is a path that leads to none.
    """
    import pandas as pd

    if isinstance(data, str | os.PathLike):
        if os.fspath(data).lower().endswith((".csv", ".csv.gz", ".tsv", ".txt")):
            raise TypeError(
                f"`data` is {os.fspath(data)!r}. Only Parquet files are read by name; read others "
                "with pandas first: data=pd.read_csv(path)."
            )
        data = open_named("data", data)
    if has_arrow_stream(data) and not hasattr(data, "to_pandas"):  # of DuckDB, Ibis
        arrow = importlib.import_module("pyarrow")
        data = arrow.RecordBatchReader.from_stream(data).read_all()
    if hasattr(data, "to_batches") and hasattr(data, "schema"):
        head = data.schema.empty_table().to_pandas()
        names = list(head.columns) if columns is None else columns(head)
        is_file = not hasattr(data, "select")
        if is_file and data.count_rows() * len(names) > _SETTINGS.mapped:
            return _mapped(data, names, drop)
        frame = _in_memory(data, names, head)
    elif isinstance(data, pd.DataFrame):
        columns_of_codes = {
            name: as_categorical(read_categories(data[name], f"data[{name!r}]"))
            for name, kind in data.dtypes.items()
            if str(kind).startswith("dictionary<")
        }
        frame = data.assign(**columns_of_codes) if columns_of_codes else data
    elif hasattr(data, "to_pandas"):
        frame = data.to_pandas()
    elif isinstance(data, Mapping):
        frame = pd.DataFrame(_columns_of_dict(data))
    else:
        raise TypeError(
            "`data` must be a frame of pandas or polars, an Arrow table, the path of a Parquet "
            f"file or folder, or a dict of columns; it is {describe(data)}."
        )
    swapped = {
        name: dtype.newbyteorder("=")
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, np.dtype) and not dtype.isnative
    }
    if (
        swapped and frame.columns.is_unique
    ):  # big-endian, which pandas cannot select from
        frame = frame.astype(swapped)
    mask = None
    used = list(frame.columns) if columns is None else columns(frame)
    if drop:
        mask = frame[used].notna().all(axis=1).to_numpy()
        mask = None if mask.all() else mask
    if mask is not None:
        frame = frame[mask]
    if not (isinstance(frame.index, pd.RangeIndex) and frame.index.start == 0):
        frame = frame.reset_index(drop=True)
    return plain_columns(frame, used, columns is not None), mask


def held(frame: pd.DataFrame, names: Sequence[Any]) -> pd.DataFrame:
    """Return a frame whose columns of these names the user's own changes do not reach."""
    import pandas as pd

    own = frame.copy(deep=False)
    if (
        int(pd.__version__.split(".")[0]) < 3
    ):  # from 3 on a change copies what it changes
        for name in names:
            own[name] = frame[name].copy()
    own.attrs = frame.attrs
    return own


def _in_memory(stored: Any, names: list[Any], head: pd.DataFrame) -> pd.DataFrame:
    batches = list(arrow_batches(stored, names))
    if not batches:
        return head[names]
    table = importlib.import_module("pyarrow").Table.from_batches(batches)
    categorical = {}
    for field in table.schema:
        if hasattr(field.type, "index_type"):
            coded = read_categories(table[field.name], f"data[{field.name!r}]")
            categorical[field.name] = as_categorical(coded)
    others = [name for name in names if name not in categorical]
    frame = table.select(others).to_pandas()
    return frame.assign(**categorical)[names] if categorical else frame


def _columns_of_dict(data: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return columns of a dict for a frame.

    Raises:
        ValueError: They are no vectors, not of one length, or not in one order.
    """
    import pandas as pd

    columns: dict[Any, Any] = {}
    for name, values in data.items():
        if isinstance(values, np.ma.MaskedArray | list | tuple):
            # What is masked, or NaN among text, is missing.
            values = pd.Series(values)
        coded = read_categories(values, f"data[{name!r}]")
        columns[name] = np.asarray(values) if coded is None else as_categorical(coded)
    sizes: dict[Any, int] = {}
    for name, values in columns.items():
        if np.ndim(values) > 1:
            raise ValueError(
                f"`data[{name!r}]` has the shape {np.shape(values)}. A column is a vector: give "
                "each column of a matrix a name of its own."
            )
        if np.ndim(values):
            sizes[name] = len(values)
    if not sizes:  # one row
        return {name: np.reshape(values, 1) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        first_sizes = list(sizes.items())[:6]
        lengths = ", ".join(f"{name!r} {size}" for name, size in first_sizes)
        raise ValueError(
            f"The columns of `data` must have one length; they have {lengths}."
        )
    need_one_order(by_label("data", data))
    return columns


def _mapped(
    stored: Any, names: Sequence[str], drop: bool
) -> tuple[pd.DataFrame, np.ndarray | None]:
    """Return columns of files as a frame whose numbers lie in mapped files, and the rows kept."""
    import pandas as pd

    array = importlib.import_module("pyarrow").array
    readers = {name: _Reader(name, stored.schema.field(name).type) for name in names}
    masks = []
    for batch in arrow_batches(stored, list(names)):
        if drop:
            mask = np.ones(batch.num_rows, bool)
            for column in batch.columns:
                if hasattr(column.type, "index_type"):
                    column = column.dictionary_decode()  # a level may be missing, too
                missing = column.is_null(nan_is_null=True)
                mask &= ~missing.to_numpy(zero_copy_only=False)
            masks.append(mask)
            batch = batch if mask.all() else batch.filter(array(mask))
        for name, reader in readers.items():
            reader.add(batch.column(name))
    columns = {name: reader.series() for name, reader in readers.items()}
    frame = pd.DataFrame(columns, copy=False)
    frame.attrs = {TEXT: [name for name, reader in readers.items() if reader.text]}
    mask = np.concatenate(masks) if masks else np.ones(0, bool)
    return frame, None if mask.all() else mask


class _Reader:
    """Spools the batches of a column: numbers as they are, text and dictionaries as codes."""

    def __init__(self, name: str, kind: Any) -> None:
        arrow = importlib.import_module("pyarrow")
        types = arrow.types
        self._name = name
        self.text = types.is_string(kind) or types.is_large_string(kind)
        self._coded = self.text or types.is_dictionary(kind)
        self._zone = kind.tz if types.is_timestamp(kind) else None
        self._cast: Any = None  # type that it is read as, if not its own
        if types.is_decimal(kind):
            self._cast = arrow.float64()
        elif types.is_float16(kind):
            self._cast = arrow.float32()
        elif types.is_date(kind):
            self._cast = arrow.timestamp("ms")
        elif self._zone is not None:
            self._cast = arrow.timestamp(kind.unit)  # of coordinated universal time
        self._dtype = np.dtype(np.int32 if self._coded else object)
        if not self._coded:
            with contextlib.suppress(NotImplementedError):  # times of a day
                self._dtype = np.dtype((self._cast or kind).to_pandas_dtype())
        self._writer = Spool(self._dtype)
        self._coder = Coder(f"data[{name!r}]")

    def add(self, column: Any) -> None:
        """Add the next rows."""
        column = column if self._cast is None else column.cast(self._cast)
        if self._coded:
            values = self._coder.of_arrow(column)
        else:
            values = column.to_pandas().to_numpy()
        if values.dtype.kind == "O" or self._dtype.kind == "O":
            raise TypeError(
                f"`data[{self._name!r}]` holds {column.type}, which regressions do not read from "
                "large files, or missing values. Choose other columns, or pass missing='drop'."
            )
        if values.dtype != self._dtype:  # integers with missing values became floats
            raise ValueError(
                f"`data[{self._name!r}]` has missing values. Drop these rows, or pass "
                "missing='drop'."
            )
        self._writer.add(values)

    def series(self) -> pd.Series:
        """Return the column, on mapped memory."""
        import pandas as pd

        values = np.asarray(self._writer.array())
        if self._zone is not None:
            in_utc = pd.Series(values, copy=False).dt.tz_localize("UTC")
            return in_utc.dt.tz_convert(self._zone)
        if not self._coded:
            return pd.Series(values, copy=False)
        if not self.text:
            return pd.Series(as_categorical(self._coder.finished(values)))
        levels = list(self._coder.levels.values)
        order = np.argsort(np.asarray(levels, object), kind="stable")
        rank = np.append(np.argsort(order), -1).astype(np.int32)
        sorted_levels = [levels[number] for number in order]
        return pd.Series(pd.Categorical.from_codes(rank[values], sorted_levels))


def chunks(
    frame: pd.DataFrame, columns: int, rows: np.ndarray | None = None
) -> Iterator[pd.DataFrame]:
    """Yield a frame in chunks, small enough for a matrix with a number of columns.

    Args:
        frame: Rows.
        columns: Number of columns.
        rows: Indices of the rows to yield; ``None`` for all, in order.
    """
    affordable = _SETTINGS.numbers_at_once // max(1, columns)
    length = max(_SETTINGS.min_rows, affordable)
    for start in range(0, len(frame), length):
        chunk = slice(start, start + length)
        yield frame.iloc[chunk if rows is None else rows[chunk]].reset_index(drop=True)


def column(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column.

    Raises:
        ValueError: There is none of that name, or it has missing values.
    """
    need_column(frame, name)
    return frame[name].to_numpy()


def need_column(frame: pd.DataFrame, name: str) -> None:
    """Refuse a column that is not there, or has missing values."""
    if name not in frame.columns:
        present = next((key for key in frame.columns if str(key) == name), None)
        if present is not None:
            kind = type(present).__name__
            raise ValueError(
                f"`formula` names {name!r}, which `data` has as {kind} {present!r}. "
                "Names must be text: data.columns = data.columns.map(str)."
            )
        raise ValueError(
            f"`formula` names {name!r}, but `data` has no such column."
            + did_you_mean(name, list(map(str, frame.columns)))
        )
    if frame[name].ndim > 1:
        raise ValueError(
            f"`data` has {frame[name].shape[1]} columns {name!r}. Rename all but one."
        )
    if frame[name].isna().any():
        count = int(frame[name].isna().sum())
        raise ValueError(
            f"`data[{name!r}]` has {count} missing values. Drop these rows, or pass missing='drop'."
        )


def labels(frame: pd.DataFrame, by: str) -> Categories:
    """Return the group of each row, of a factor or of several together."""
    names = columns_of(by)
    for name in names:
        need_column(frame, name)
    factors = [factorized(frame[name], f"data[{name!r}]") for name in names]
    if len(factors) == 1:
        return factors[0]
    sizes = [len(factor.levels) for factor in factors]
    together = np.ravel_multi_index([factor.codes for factor in factors], sizes)
    combinations, codes = np.unique(together, return_inverse=True)
    values_of_factors = []
    indices = np.unravel_index(combinations, sizes)
    for factor, level_of in zip(factors, indices, strict=True):
        # An integer is one, whatever its column holds.
        values = [
            int(value) if isinstance(value, float) and value.is_integer() else value
            for value in factor.levels.values
        ]
        values_of_factors.append([values[index] for index in level_of])
    combined = tuple(zip(*values_of_factors, strict=True))
    return Categories(codes.reshape(-1).astype(np.int32), Levels(combined))


class Factor(NamedTuple):
    """A column of the data that is a factor.

    Attributes:
        levels: Its levels in the regression, the reference first.
        kind: Its kind there: "number", "text" or "category".
        dtype: Storage of numbers there.
    """

    levels: Levels
    kind: str
    dtype: Any = None


def factor_of(values: pd.Series, levels: Any) -> Factor:
    """Return a column as a factor with some levels."""
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype) or values.dtype.kind in "mM":
        return Factor(Levels.of(levels), "category")
    if values.dtype.kind not in "biuf":
        return Factor(Levels.of(levels), "text")
    numbers = np.array(list(levels), values.dtype)
    return Factor(Levels.of(numbers), "number", values.dtype)


def with_levels_of(frame: pd.DataFrame, factors: Mapping[str, Factor]) -> pd.DataFrame:
    """Return rows whose factors have the levels of a regression, in its types.

    Args:
        frame: Rows.
        factors: Columns of the regression that are factors.

    Raises:
        ValueError: A level is new, or missing; the message names it.
    """
    columns: dict[str, Any] = {}
    for name, (levels, kind, dtype) in factors.items():
        need_column(frame, name)
        label = f"data[{name!r}]"
        observed = factorized(frame[name], label)
        codes = observed.coded_by(levels, label, "regression")
        are_same = set(observed.levels.values) <= set(levels.values)
        if kind == "number":
            columns[name] = np.array(levels.values, dtype)[codes]
        elif kind == "category" or not are_same:
            columns[name] = as_categorical(Categories(codes, levels))
    return frame.assign(**columns) if columns else frame


# Kinds of objects, by the names that pandas gives them.
_TEXT = {"string", "empty"}
_NUMBERS = {"floating", "integer", "mixed-integer-float", "decimal"}
_DATES = {"date", "datetime", "datetime64"}


def plain_columns(
    frame: pd.DataFrame, names: Sequence[Any], used: bool
) -> pd.DataFrame:
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
        column = _plain_column(values)
        objects = isinstance(column.dtype, np.dtype) and column.dtype.kind == "O"
        if used and objects and not _is_text(column):
            kinds = list(dict.fromkeys(type(v).__name__ for v in column.dropna()))
            if set(kinds) <= {"int", "Decimal"}:
                raise TypeError(
                    f"`data[{name!r}]` holds integers that are one number in floating point. If "
                    "these are ids, make them text, .astype(str)."
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
    kind = pd.api.types.infer_dtype(values, skipna=True)
    return kind in _TEXT or kind in ("boolean", "interval")


def _plain_column(values: pd.Series) -> pd.Series:
    """Return a column in a plain storage; the same object if it is in one."""
    import pandas as pd

    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        levels = values.cat.categories
        as_they_are = pd.IntervalDtype | pd.DatetimeTZDtype | pd.PeriodDtype
        if isinstance(levels.dtype, np.dtype) and levels.dtype.itemsize > 2:
            return values
        if str(levels.dtype) == "str" or isinstance(levels.dtype, as_they_are):
            return values
        plain = _plain_column(levels.to_series())
        plain_levels = pd.Index(plain.to_numpy(), dtype=plain.dtype)
        return values.cat.rename_categories(plain_levels)
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return _of_objects(values)
    if str(dtype) == "str":  # text of pandas 3
        return values
    if isinstance(dtype, pd.SparseDtype):
        return _plain_column(pd.Series(np.asarray(values), values.index))
    kind = getattr(dtype, "kind", "O")
    if kind == "c":
        raise TypeError(
            f"`data[{values.name!r}]` holds complex numbers. Make columns of its parts, .real and "
            ".imag."
        )
    if isinstance(dtype, np.dtype):
        if kind == "f" and dtype.itemsize not in (4, 8):
            return values.astype(np.float32 if dtype.itemsize == 2 else np.float64)
        return values
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
    is_numeric = kind in _NUMBERS or all(
        isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool)
        for value in present
    )
    if not is_numeric or not len(present):
        return values
    is_exact = kind == "integer" or (
        kind == "decimal"
        and present.map(math.isfinite).all()
        and present.abs().max() > 2**53
        and (present % 1 == 0).all()
    )
    if is_exact and not missing.any():
        for dtype in (np.int64, np.uint64):  # hashes are integers up to 2⁶⁴
            limits = np.iinfo(dtype)
            if limits.min <= present.min() and present.max() <= limits.max:
                return values.map(int).astype(dtype)
        if present.map(float).nunique() < present.nunique():
            return values  # ids, some of which are one number in floating point
    array = np.full(len(values), np.nan)
    array[~missing] = [float(value) for value in present]
    return pd.Series(array, values.index)
