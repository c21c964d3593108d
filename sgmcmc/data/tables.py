"""Tables: data frames, Arrow, Hugging Face, and streams of batches of tf.data, PyTorch or Python.

No library is imported here unless one of its objects is passed.

Minibatches are drawn at random and again at each iteration, so what comes once and in order
is unpacked first, into memory or into a file as data in chunks are. That is done once for as long
as the object lives: a generator that is used up gives the same rows to the next call.
"""

from __future__ import annotations

import importlib
import itertools
import math
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import PIECE_BYTES, Data
from sgmcmc.data.levels import Categories, Coder, read_categories
from sgmcmc.data.named import RemoteTable, arrow_batches
from sgmcmc.data.stored import SLAB_BYTES
from sgmcmc.libraries import library_of

Batch = dict[str, np.ndarray]
"""Some rows of each column of a table."""


@dataclass(frozen=True)
class _Settings:
    table_rows: int = 2**16  # that are read from a table of Hugging Face at a time
    torch_rows: int = 4096  # of a PyTorch dataset, which come one by one, in a batch


_SETTINGS = _Settings()


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
    streams = hasattr(type(values), "__arrow_c_stream__")
    return streams and library_of(values) in ("polars", "")


def is_table(values: Any) -> bool:
    """Return whether an object is read by its columns, even if it looks like something else."""
    return hasattr(values, "read_next_batch") or has_arrow_stream(values)


def of_column(label: str, name: Any) -> str:
    """Return the label of a column in messages; without a name it is the only one."""
    return label if name == "" else f"{label}[{name!r}]"


def is_plain_frame(values: Any) -> bool:
    """Return whether an object is a data frame of nothing but numbers, a matrix to NumPy."""
    if library_of(values) == "polars":
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
            series = frame[name]
            if coder is not None:
                batch[name] = checked_codes(column_label, coder.add(series))
                continue
            if series.isna().any():
                raise ValueError(missing(column_label))
            # Before pandas 2.2 its own kinds of numbers, such as Float32, become objects.
            dtype = getattr(series.dtype, "numpy_dtype", None)
            batch[name] = of_objects(series.to_numpy(dtype=dtype))
        yield batch

    return Table(names, batches, categories, one_is_vector=False, in_memory=True)


def of_objects(array: np.ndarray) -> np.ndarray:
    """Return objects that are real numbers, such as decimals, as numbers; others as they are."""
    if array.dtype.kind != "O":
        return array
    values = array.ravel().tolist()
    kinds = {type(value) for value in values}
    if kinds <= {bool, np.bool_}:
        return array.astype(bool)
    if bool in kinds or not all(issubclass(kind, Real | Decimal) for kind in kinds):
        return array
    plain = np.array(values)
    if plain.dtype.kind == "O":
        try:
            plain = np.array([float(value) for value in values])
        except OverflowError:
            return array
    return plain.reshape(array.shape)


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
        step = _SETTINGS.table_rows
        for start in range(0, len(rows), step):
            yield from rows[start : start + step].to_batches()

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
    return replace(table, in_memory=library_of(values) == "polars")


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
                column_label, coder = of_column(label, name), categories.get(name)
                array = batch.column(position)
                if coder is None:
                    columns[name] = _numbers(column_label, array)
                elif name in named:
                    numbers = _numbers(column_label, array)
                    columns[name] = _labels(column_label, numbers, coder, named[name])
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
    length = getattr(array.type, "list_size", 0)
    if len(array):
        length = len(inner) // len(array)
    lengths = length
    if hasattr(array, "value_lengths"):
        lengths = np.asarray(array.value_lengths())
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


# Unpacked parts of objects that are still in memory, by their ids.
_unpacked_streams: dict[int, tuple[weakref.ref[Any], dict[Any, Data]]] = {}


def unpacked_once(stream: Any, key: Any, unpack: Callable[[], Data]) -> Data:
    """Return the unpacked data of a stream under a key; unpack them if that is new."""
    name = id(stream)
    unpacked = unpacked_before(stream, key)
    if unpacked is not None:
        return unpacked
    entry = _unpacked_streams.get(name)
    data = unpack()
    data.read_from = None
    try:
        alive = weakref.ref(stream, lambda _: _unpacked_streams.pop(name, None))
    except TypeError:
        return data  # of a type whose objects nobody can watch, such as `map` and `zip`
    if entry is None or entry[0]() is not stream:
        _unpacked_streams[name] = alive, {}
    _unpacked_streams[name][1][key] = data
    return data


def unpacked_before(stream: Any, key: Any) -> Data | None:
    """Return the unpacked data of a stream under a key, if there are such."""
    entry = _unpacked_streams.get(id(stream))
    return entry[1].get(key) if entry is not None and entry[0]() is stream else None


def as_entry(label: str, stream: Any) -> TypeError:
    """Return the message about a stream as an entry of `dataset`."""
    return TypeError(
        f"`{label}` is a {type(stream).__name__}, whose rows come in its own order, while "
        "minibatches are drawn at random. Pass it as the whole `dataset`, with dicts of arrays "
        "as elements, so that the rows of all columns match; or pass the arrays that it was made "
        "from, or their file (np.load(path, mmap_mode='r'), HDF5, Zarr, Parquet)."
    )


def table_of(stream: Any, coded: Collection[str] = ()) -> Table:
    """Return a stream as a table, whose batches can be asked for once.

    Args:
        stream: Stream.
        coded: Names of columns that are read as categories, whatever they hold.
    """
    if isinstance(stream, tf.data.Dataset):
        batches = _of_tf(stream)
    elif library_of(stream) == "datasets":
        batches = stream.iter(batch_size=_SETTINGS.torch_rows)
    elif is_torch(stream):
        batches = _of_torch(stream)
    else:
        if isinstance(stream, itertools.cycle | itertools.count | itertools.repeat):
            raise ValueError(_endless(f"it is itertools.{type(stream).__name__}"))
        batches = iter(stream)
    coders: dict[str, Coder] = {name: Coder(f"dataset[{name!r}]") for name in coded}
    arrays = _arrays(batches, coders)
    first = next(arrays, None)
    if first is None:
        raise ValueError(
            "`dataset` is empty: it has no observations. An iterator is used up once it was gone "
            "through, by a call that failed or by yourself; make a new one."
        )
    categories = {name: coder for name, coder in coders.items() if name in first}
    return Table(tuple(first), lambda: itertools.chain([first], arrays), categories)


def _endless(reason: str) -> str:
    return (
        f"`dataset` must come to an end, since all of its rows are unpacked once: {reason}. Leave "
        "out repeat(), or pass one pass: dataset.take(n) of tf.data, itertools.islice(batches, "
        "n) of any iterator."
    )


def _of_tf(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Return the elements of a dataset of `tf.data`, in batches of a size that suits us."""
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError(_endless("this dataset of tf.data repeats without end"))
    spec = dataset.element_spec
    if not isinstance(spec, Mapping) or not spec:
        raise TypeError(
            _names_wanted(spec, "dataset.map(lambda x, y: {'x': x, 'y': y})")
        )
    for name, column_spec in spec.items():
        if not isinstance(column_spec, tf.TensorSpec):
            raise TypeError(
                f"`dataset[{name!r}]` must be a dense tensor; it is a "
                f"{type(column_spec).__name__}. Turn it into dense ones by map()."
            )
    shapes = [column_spec.shape for column_spec in spec.values()]
    if any(shape.rank is None for shape in shapes):
        return dataset.as_numpy_iterator()
    firsts = {shape[0] for shape in shapes if shape.rank}
    are_rows = len(firsts) != 1 or any(shape.rank == 0 for shape in shapes)
    if not are_rows and None not in firsts:
        raise ValueError(
            f"`dataset`: its elements have the shapes {', '.join(map(str, shapes))}, which may be "
            "those of single rows or of batches. If they are rows, pass dataset.batch(1000); if "
            "they are batches, dataset.unbatch().batch(1000)."
        )
    if are_rows and None in firsts:
        return dataset.as_numpy_iterator()  # which will be found out to be no batches
    inner = shapes if are_rows else [shape[1:] for shape in shapes]
    row = sum(
        column_spec.dtype.size * math.prod(length or 1 for length in shape)
        for column_spec, shape in zip(spec.values(), inner, strict=True)
    )
    rows = max(1, min(2**16, SLAB_BYTES // max(1, row)))
    return (
        dataset.batch(rows) if are_rows else dataset.rebatch(rows)
    ).as_numpy_iterator()


def _of_torch(stream: Any) -> Iterator[Any]:
    """Return the batches of a loader, or those that rows of a dataset are put together to."""
    kinds = {kind.__name__ for kind in type(stream).__mro__}
    if "DataLoader" in kinds:
        size = stream.batch_size
        if getattr(stream.sampler, "replacement", False):
            raise ValueError(
                "`dataset`: its sampler draws rows with replacement, so that some would be there "
                "twice and others not at all. Hand in a DataLoader without it."
            )
        if getattr(stream, "drop_last", False) and size and len(stream.sampler) % size:
            raise ValueError(
                "`dataset`: drop_last=True leaves rows out. Hand in a DataLoader without it."
            )
        return iter(stream)
    if "IterableDataset" in kinds or not isinstance(stream, Sized):
        raise TypeError(
            f"`dataset` is a {type(stream).__name__}, of which it is not known whether it gives "
            "rows or batches. Hand in DataLoader(dataset, batch_size=1000) if it gives rows, "
            "DataLoader(dataset, batch_size=None) if batches."
        )
    return _rows_together(stream)


def _rows_together(rows: Any) -> Iterator[Batch]:
    """Yield rows of a dataset of PyTorch's, which are dicts, in batches."""
    step = _SETTINGS.torch_rows
    for start in range(0, len(rows), step):
        chunk = [rows[k] for k in range(start, min(start + step, len(rows)))]
        if not isinstance(chunk[0], Mapping):
            raise TypeError(_names_wanted(chunk[0], _FOR_ITERATORS))
        yield {
            name: np.stack([_array(row[name]) for row in chunk]) for name in chunk[0]
        }


_FOR_ITERATORS = "({'x': x, 'y': y} for x, y in batches)"


def _names_wanted(element: Any, how: str) -> str:
    kind = type(element).__name__
    return (
        f"`dataset`: its elements must be dicts, with a name for each array; they are of the kind "
        f"{kind}. Name them: {how}."
    )


def _array(values: Any) -> np.ndarray:
    """Return an array; PyTorch's may be on another device, or have a gradient."""
    for method in ("detach", "cpu"):
        values = getattr(values, method, lambda unchanged=values: unchanged)()
    return np.asarray(values)


def _arrays(batches: Iterable[Any], coders: dict[str, Coder]) -> Iterator[Batch]:
    """Yield batches as dicts of arrays, each like the first and as long as the others.

    Args:
        batches: Batches.
        coders: What numbers the levels of columns, to which those that hold categories are added.
    """
    like: dict[str, tuple[int, ...]] | None = None
    rows = size = unseen = 0
    for element in batches:
        if not isinstance(element, Mapping) or not element:
            raise TypeError(_names_wanted(element, _FOR_ITERATORS))
        batch = {}
        for name, values in element.items():
            if name not in coders and read_categories(values) is not None:
                if like is not None:
                    raise TypeError(
                        f"`dataset[{name!r}]` holds categories after {rows} rows without."
                    )
                coders[name] = Coder(f"dataset[{name!r}]")
            coder = coders.get(name)
            batch[name] = (
                _array(values)
                if coder is None
                else checked_codes(f"dataset[{name!r}]", coder.add(values))
            )
        for name, array in batch.items():
            if array.ndim == 0:
                raise ValueError(
                    f"`dataset[{name!r}]` is a single number in an element. Elements must be "
                    "batches, with a first axis that counts rows."
                )
        lengths = {name: len(array) for name, array in batch.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"`dataset`: the arrays of a batch must have as many rows as each other; they have "
                f"{lengths}."
            )
        shapes = {name: array.shape[1:] for name, array in batch.items()}
        if like is None:
            like = shapes
        elif shapes != like:
            raise ValueError(
                f"`dataset`: all batches must hold rows of the same names and shapes; after {rows} "
                f"rows of {like} there are some of {shapes}."
            )
        rows += next(iter(lengths.values()))
        new = sum(array.nbytes for array in batch.values())
        size, unseen = size + new, unseen + new
        if unseen > PIECE_BYTES:
            unseen = 0
            if size > shutil.disk_usage(tempfile.gettempdir()).free:
                raise ValueError(
                    _endless(
                        f"it has given {rows} rows, {size / 2**30:.1f} GB, and the temporary "
                        f"folder, {tempfile.gettempdir()}, has little room left. (If it does come "
                        "to an end, have the environment variable TMPDIR name another folder)"
                    )
                )
        yield {name: batch[name] for name in like}


def is_stream(values: Any) -> bool:
    """Return whether an object gives rows only in its own order."""
    if isinstance(values, tf.data.Dataset) or is_torch(values):
        return True
    return (
        hasattr(values, "__iter__")
        and not any(
            hasattr(values, name) for name in ("__getitem__", "__array__", "shape")
        )
        and not isinstance(values, set | frozenset)
    )


def is_torch(values: Any) -> bool:
    """Return whether an object is a dataset or loader of PyTorch."""
    return any(
        kind.__module__.startswith("torch.utils.data") for kind in type(values).__mro__
    )
