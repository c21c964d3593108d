"""A dataset on its way to other processes: data in files are opened there, others are sent."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc.data.dataset import ArrayColumn, Column, Data, DenseColumn, digest
from sgmcmc.data.levels import Levels
from sgmcmc.data.named import is_url
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.stored import open_stored
from sgmcmc.libraries import library_of
from sgmcmc.machines import HERE, Machines, Spread

_ROWS = 16  # rows at the beginning, in the middle and at the end by which a file is recognized

_TABLE = ""  # stands for a dataset that is one table

Opener = Callable[[], Any]
"""Opens the user's object in a worker."""


def read_machines(executor: Any) -> Machines:
    """Return the executors of chains and passes over the data, from the user's ``executor``."""
    if executor is None:
        return HERE
    return (
        executor
        if isinstance(executor, Machines)
        else Spread(executor, {Data: courier})
    )


def courier(data: Data) -> tuple[str, Callable[[], Any]]:
    """Return the key of a dataset, and the function that makes what unpickles to it."""
    if data.key is None:
        columns = data.columns.items()
        facts: list[Any] = [(name, column.digest()) for name, column in columns]
        if not all(isinstance(column, ArrayColumn) for _, column in columns):
            # Digests of files are those of some rows alone.
            facts.append(uuid.uuid4().hex)
        data.key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return data.key, partial(_PackedData, data)


class _PackedData:
    """A dataset on its way: it unpickles to the dataset."""

    def __init__(self, data: Data) -> None:
        source, dtype, integers, levels = data.given or ({}, None, (), None)
        openers = _openers(source)
        opened = [name for name in data.columns if name in openers or _TABLE in openers]
        self._arguments = (
            {
                n: _portable(c, data.size)
                for n, c in data.columns.items()
                if n not in opened
            },
            openers,
            {name: _sample_digest(data.columns[name], data.size) for name in opened},
            [(name, column.dtype) for name, column in data.columns.items()],
            data.size,
            dtype,
            tuple(integers),
            levels,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_dataset, self._arguments


def _open_dataset(
    sent: Mapping[str, Column],
    openers: Mapping[str, Opener],
    digests: Mapping[str, str],
    dtypes: Sequence[tuple[str, np.dtype]],
    size: int,
    dtype: Any,
    integers: tuple[str, ...],
    levels: Mapping[str, Levels] | None,
) -> Data:
    """Return a dataset in a worker, which reads only the parts of files that it passes over.

    Args:
        sent: Columns that were sent as they are.
        openers: Functions that open the others, by name, or all of them as one table.
        digests: Digests of a few rows of each, by name.
        dtypes: Dtypes of all columns, in their order.
        size: Number of observations.
        dtype, integers: Dtype of the chain, and the columns that stay integers.
        levels: Levels of the model, by column, if these rows are new to it.
    """
    columns = dict(sent)
    try:
        opened = {name: opener() for name, opener in openers.items()}
        for name, kind in dtypes:
            if (
                name in opened
                and _is_array(opened[name])
                and name not in (levels or ())
            ):
                columns[name] = open_stored(opened.pop(name), kind)
        if opened:
            columns |= read_dataset(
                opened.get(_TABLE, opened), dtype, integers, levels=levels
            ).columns
        changed = [
            n
            for n, expected in digests.items()
            if _sample_digest(columns[n], size) != expected
        ]
    except OSError as error:
        raise OSError(
            "`executor`: a worker cannot open the dataset. Files must be where all workers "
            f"find them, under the same path. {error}"
        ) from None
    if changed:
        raise ValueError(
            f"`executor`: a worker finds other values in `dataset[{changed[0]!r}]` than the "
            "process that makes the call. Is it another file, or has it changed?"
        )
    return Data({name: columns[name] for name, _ in dtypes}, size)


def _is_array(source: Any) -> bool:
    """Return whether rows of an opened source can be read from any place."""
    is_table = isinstance(source, str | os.PathLike) or hasattr(source, "to_dask_array")
    return not is_table and library_of(source) != "pyarrow"


def _sample_digest(column: Column, size: int) -> str:
    """Return a digest of a few rows of a column; a digest of all would have to read them."""
    starts = sorted({0, size // 2, max(0, size - _ROWS)})
    arrays = [
        np.asarray(column.tensor(start, min(start + _ROWS, size))) for start in starts
    ]
    return f"{size} rows, " + digest(np.concatenate(arrays))


def _portable(column: Column, size: int) -> Column:
    """Return a column whose values are in memory."""
    if isinstance(column, DenseColumn) and column.stored_dtype != column.dtype:
        return column
    if isinstance(column, DenseColumn) and not isinstance(column, ArrayColumn):
        return ArrayColumn(np.array(column.slice(0, size)))
    return column


def _openers(source: Any) -> dict[str, Opener]:
    """Return functions that open those entries of a dataset that are in files."""
    if not isinstance(source, Mapping):
        opener = _opener(source)
        return {} if opener is None else {_TABLE: opener}
    openers = {name: _opener(values) for name, values in source.items()}
    return {name: opener for name, opener in openers.items() if opener is not None}


def _opener(values: Any) -> Opener | None:
    """Return a function that opens an array in another process; ``None`` if it must be sent."""
    if isinstance(values, np.ndarray):
        return _memmap_opener(values)
    kind = type(values).__module__.partition(".")[0]
    if (
        kind == "h5py"
        and getattr(getattr(values, "file", None), "driver", "") == "sec2"
    ):
        return partial(_open_hdf5, os.path.abspath(values.file.filename), values.name)
    if is_url(values):
        return partial(_as_it_is, values)
    if isinstance(values, str | os.PathLike):
        return partial(Path, os.path.abspath(values))
    if kind in ("zarr", "dask") or (
        library_of(values) == "pyarrow" and "Dataset" in type(values).__name__
    ):
        # These are pickled as their place, without their content.
        return partial(_as_it_is, values)
    return None


def _memmap_opener(array: np.ndarray) -> Opener | None:
    """Return a function that maps a file, or a part of it, that is mapped here."""
    filename = getattr(array, "filename", None)
    root = array
    while isinstance(root.base, np.memmap):
        root = root.base
    if (
        filename is None
        or not array.flags.c_contiguous
        or not isinstance(root, np.memmap)
    ):
        return None
    offset = root.offset + array.ctypes.data - root.ctypes.data
    return partial(
        np.memmap, os.path.abspath(filename), array.dtype, "r", offset, array.shape
    )


def _open_hdf5(path: str, name: str) -> Any:
    import h5py

    return h5py.File(path, "r")[name]


def _as_it_is(values: Any) -> Any:
    return values
