"""Tables of other libraries, by their columns: pandas, polars, DuckDB, Arrow, Hugging Face.

None of these libraries is imported here unless one of its objects is passed.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc.data.levels import Categories, Coder, read_categories
from sgmcmc.data.named import RemoteTable, arrow_batches
from sgmcmc.libraries import library_of

Batch = dict[str, np.ndarray]
"""Some rows of each column of a table."""

_ROWS = 2**16  # rows that are read from a table at a time


@dataclass(frozen=True)
class Table:
    """Columns that are read from front to back.

    Attributes:
        names: Names of the columns.
        batches: Function that returns an iterator over all rows.
        categories: What numbers the levels of the columns whose values are categories, by name.
        one_is_vector: Whether a table of a single column is a vector; else it is a matrix.
        in_memory: Whether it is all in memory, and may stay there.
    """

    names: tuple[str, ...]
    batches: Callable[[], Iterator[Batch]]
    categories: Mapping[str, Coder]
    one_is_vector: bool = True
    in_memory: bool = False


def as_table(label: str, values: Any, coded: Collection[str] = ()) -> Table | None:
    """Return an object as a table, or ``None`` if it is none.

    Args:
        label: Name of the table, for messages.
        values: Data frame, Arrow table, array, scanner or dataset, Hugging Face dataset or column,
            or anything that gives its columns as a stream of Arrow's.
        coded: Names of columns that are read as categories, whatever they hold.
    """
    kind, home = type(values).__name__, library_of(values)
    if home == "pandas" and kind == "DataFrame":
        return _of_frame(label, values, coded)
    if home == "datasets":
        return _of_hugging_face(label, values, coded)
    if isinstance(values, Categories) or home == "pandas":
        categories = read_categories(values, label)
        return None if categories is None else of_categories(label, categories)
    if home == "pyarrow" or isinstance(values, RemoteTable):
        return _of_arrow(label, values, coded)
    if has_arrow_stream(values):
        return _of_arrow_stream(label, values, coded)
    return None


def of_categories(label: str, values: Categories) -> Table:
    """Return a column of categories in memory as a table."""
    coder = Coder(label)

    def batches() -> Iterator[Batch]:
        yield {"": checked_codes(label, coder.add(values))}

    return Table(("",), batches, {"": coder}, in_memory=True)


def by_column(values: Any) -> Mapping[str, Any] | None:
    """Return the columns of a dict or a table in memory by name; ``None`` if it is neither."""
    if isinstance(values, Mapping):
        return values
    names = getattr(values, "column_names", None)  # of Arrow's and Hugging Face's
    names = getattr(values, "columns", None) if names is None else names
    if names is None or not hasattr(values, "__getitem__"):
        return None
    return {name: values[name] for name in names}


def has_arrow_stream(values: Any) -> bool:
    """Return whether an object gives its columns as a stream of Arrow's: polars, DuckDB, Ibis."""
    # xarray's give one too, of all their values with a row for each; they are read as arrays.
    in_cells = type(values).__module__.partition(".")[0] == "xarray"
    streams = hasattr(type(values), "__arrow_c_stream__")
    return streams and not in_cells and library_of(values) == ""


def is_table(values: Any) -> bool:
    """Return whether an object is read by its columns, even if it looks like something else."""
    return hasattr(values, "read_next_batch") or has_arrow_stream(values)


def of_column(label: str, name: Any) -> str:
    """Return the label of a column in messages; without a name it is the only one."""
    return label if name == "" else f"{label}[{name!r}]"


def is_plain_frame(values: Any) -> bool:
    """Return whether an object is a data frame of nothing but numbers, a matrix to NumPy."""
    if type(values).__module__.partition(".")[0] == "polars":
        kinds = getattr(values, "dtypes", None) or [getattr(values, "dtype", None)]
        return all(hasattr(kind, "is_numeric") and kind.is_numeric() for kind in kinds)
    if type(values).__name__ != "DataFrame" or library_of(values) != "pandas":
        return False
    kinds = [kind.kind if isinstance(kind, np.dtype) else "O" for kind in values.dtypes]
    return all(kind in "fiu" for kind in kinds) or all(kind == "b" for kind in kinds)


def _of_frame(label: str, frame: Any, coded: Collection[str]) -> Table:
    names = tuple(_names(label, frame.columns))
    categories = {
        name: Coder(of_column(label, name))
        for name in names
        if name in coded or read_categories(frame[name]) is not None
    }

    def batches() -> Iterator[Batch]:
        batch: Batch = {}
        for name in names:
            column_label = of_column(label, name)
            coder = categories.get(name)
            batch[name] = (
                _of_series(column_label, frame[name])
                if coder is None
                else checked_codes(column_label, coder.add(frame[name]))
            )
        yield batch

    return Table(names, batches, categories, one_is_vector=False, in_memory=True)


def _of_series(label: str, series: Any) -> np.ndarray:
    if series.isna().any():
        raise ValueError(missing(label))
    # Before pandas 2.2 its own kinds of numbers, such as Float32, become objects by themselves.
    return series.to_numpy(dtype=getattr(series.dtype, "numpy_dtype", None))


def _of_hugging_face(label: str, values: Any, coded: Collection[str]) -> Table:
    name = getattr(values, "column_name", None)
    source = values if name is None else values.source
    if isinstance(source, Mapping):
        raise TypeError(
            f"`{label}` is a {type(source).__name__} of {', '.join(map(repr, source))}; choose one."
        )
    if not hasattr(source, "with_format") or not hasattr(source, "__len__"):
        raise TypeError(refusal(label, source))
    names = tuple(source.column_names) if name is None else (name,)
    features = source.features or {}
    named = {
        name: list(features[name].names)
        for name in names
        if type(features.get(name)).__name__ == "ClassLabel"
    }
    rows = source.select_columns(list(names)).with_format("arrow")

    def tables() -> Iterator[Any]:
        for start in range(0, len(rows), _ROWS):
            yield from rows[start : start + _ROWS].to_batches()

    return _of_batches(label, rows[:0].schema, tables, coded, named)


def _of_arrow(label: str, values: Any, coded: Collection[str]) -> Table:
    if hasattr(values, "dictionary_encode"):  # an array, whole or in chunks
        arrow = importlib.import_module("pyarrow")
        values = arrow.table({"": values})
    if hasattr(values, "iter_batches"):  # a Parquet file
        return _of_batches(label, values.schema_arrow, values.iter_batches, coded)
    if hasattr(values, "read_next_batch"):  # a reader, which reads once
        return _of_batches(label, values.schema, lambda: iter(values), coded)
    if not hasattr(values, "to_batches"):
        if hasattr(values, "to_table") or hasattr(values, "num_rows"):  # a single batch
            return _of_batches(label, values.schema, lambda: iter([values]), coded)
        raise TypeError(refusal(label, values))
    schema = getattr(values, "projected_schema", None) or values.schema
    return _of_batches(label, schema, lambda: iter(arrow_batches(values)), coded)


def _of_arrow_stream(label: str, values: Any, coded: Collection[str]) -> Table:
    """Return the columns of an object of another library that exports a stream of Arrow's."""
    try:
        arrow = importlib.import_module("pyarrow")
    except ImportError:
        raise ValueError(
            f"`{label}` is a {type(values).__name__}, which is read through pyarrow: pip install "
            "pyarrow."
        ) from None
    if hasattr(values, "to_frame") and type(values).__name__ == "Series":
        table = _of_arrow(label, arrow.chunked_array(values), coded)
    else:
        table = _of_arrow(label, arrow.RecordBatchReader.from_stream(values), coded)
    in_memory = type(values).__module__.partition(".")[0] == "polars"
    return replace(table, in_memory=in_memory)


def _of_batches(
    label: str,
    schema: Any,
    batches: Callable[[], Iterator[Any]],
    coded: Collection[str],
    named: Mapping[str, list[str]] | None = None,
) -> Table:
    """Return the columns of Arrow record batches.

    Args:
        label: Name of the table, for messages.
        schema: Arrow's schema of the batches.
        batches: Function that returns the batches.
        coded: Names of columns that are read as categories, whatever they hold.
        named: Names of the levels of columns that hold their numbers.
    """
    names = tuple(_names(label, schema.names))
    named = named or {}
    categories = {
        field.name: Coder(of_column(label, field.name))
        for field in schema
        if field.name in coded
        or field.name in named
        or hasattr(field.type, "index_type")
    }

    def read() -> Iterator[Batch]:
        for batch in batches():
            columns: Batch = {}
            for position, name in enumerate(names):
                column_label, array, coder = (
                    of_column(label, name),
                    batch.column(position),
                    categories.get(name),
                )
                if coder is None:
                    columns[name] = _numbers(column_label, array)
                elif name in named:
                    columns[name] = _labels(
                        column_label, _numbers(column_label, array), coder, named[name]
                    )
                else:
                    columns[name] = checked_codes(column_label, coder.of_arrow(array))
            yield columns

    return Table(names, read, categories)


def _labels(
    label: str, numbers: np.ndarray, coder: Coder, names: list[str]
) -> np.ndarray:
    """Return the numbers of named levels, all of which are there, as they are."""
    coder.numbered(names)
    if numbers.size and numbers.max() >= len(names):
        raise ValueError(
            f"`{label}` holds {numbers.max()}, and there are {len(names)} levels."
        )
    return checked_codes(label, numbers)


def _numbers(label: str, array: Any) -> np.ndarray:
    """Return an Arrow array as NumPy's; lists of one length become further axes."""
    array = getattr(array, "storage", array)  # of an extension type
    if array.null_count:
        raise ValueError(missing(label))
    if hasattr(array.type, "precision") and hasattr(array.type, "scale"):
        array = array.cast("float64")  # decimal numbers, such as 0.5 in SQL
    if not hasattr(array, "flatten") or not hasattr(array.type, "value_type"):
        return np.asarray(array)
    inner = _numbers(label, array.flatten())
    length = (
        len(inner) // len(array) if len(array) else getattr(array.type, "list_size", 0)
    )
    lengths = (
        np.asarray(array.value_lengths()) if hasattr(array, "value_lengths") else length
    )
    if np.any(lengths != length):
        raise ValueError(
            f"`{label}` is not a regular array of numbers: its lists have different lengths."
        )
    return inner.reshape(len(array), length, *inner.shape[1:])


def _names(label: str, names: Any) -> list[str]:
    """Return the names of columns, which must differ."""
    named = list(names)
    for name, count in Counter(named).items():
        if count > 1:
            raise ValueError(
                f"`{label}` has two columns of the name {name!r}; rename one."
            )
    return named


def checked_codes(label: str, codes: np.ndarray) -> np.ndarray:
    """Return the numbers of categories, none of which is missing."""
    if codes.size and codes.min() < 0:
        raise ValueError(missing(label))
    return codes.astype(np.int32)


def missing(label: str) -> str:
    """Return the message about missing values."""
    return f"`{label}` holds missing values. Drop or impute missing values before."


def refusal(label: str, values: Any) -> str:
    """Return the error message for a dataset that can only be read in its own order."""
    return (
        f"`{label}` is a {type(values).__name__}, whose rows come in its own order. "
        "Minibatches are drawn here, at random at each iteration: pass the arrays that "
        "it was made from, or the file that contains them (np.load(path, mmap_mode='r'), HDF5, "
        "Zarr, Parquet), which may be larger than memory."
    )
