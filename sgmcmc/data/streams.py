"""Data that come in a fixed order: `tf.data`, PyTorch's, iterators of batches.

Minibatches are drawn here, at random and again at each iteration, so what comes once and in order
is unpacked first, into memory or into a file as data in chunks are. That is done once for as long
as the object lives: a generator that is used up gives the same rows to the next call.
"""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import PIECE_BYTES, Data
from sgmcmc.data.entries import is_torch
from sgmcmc.data.levels import Coder, read_categories
from sgmcmc.data.stored import SLAB_BYTES
from sgmcmc.data.tables import Batch, Table, checked_codes
from sgmcmc.libraries import library_of

_ROWS = 4096  # rows of a PyTorch dataset, which come one by one, that are put together

# Unpacked parts of objects that are still in memory, by their ids.
_known: dict[int, tuple[weakref.ref[Any], dict[Any, Data]]] = {}


def unpacked_once(stream: Any, key: Any, unpack: Callable[[], Data]) -> Data:
    """Return the unpacked data of a stream under a key; unpack them if that is new."""
    name = id(stream)
    unpacked = unpacked_before(stream, key)
    if unpacked is not None:
        return unpacked
    entry = _known.get(name)
    data = unpack()
    data.given = None
    try:
        alive = weakref.ref(stream, lambda _: _known.pop(name, None))
    except TypeError:
        return data  # of a type whose objects nobody can watch, such as `map` and `zip`
    if entry is None or entry[0]() is not stream:
        _known[name] = alive, {}
    _known[name][1][key] = data
    return data


def unpacked_before(stream: Any, key: Any) -> Data | None:
    """Return the unpacked data of a stream under a key, if there are such."""
    entry = _known.get(id(stream))
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
        batches = stream.iter(batch_size=_ROWS)
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
    for start in range(0, len(rows), _ROWS):
        chunk = [rows[k] for k in range(start, min(start + _ROWS, len(rows)))]
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
