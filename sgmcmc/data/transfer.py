"""A dataset on its way to other processes: data in files are opened there, others are sent."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from sgmcmc.machines import HERE, Machines, Workers

_TABLE = ""  # stands for a dataset that is one table

Opener = Callable[[], Any]
"""Opens the user's object in a worker."""


def read_machines(executor: Any) -> Machines:
    """Return the executors of chains and passes over the data, from the user's ``executor``."""
    if executor is None:
        return HERE
    if isinstance(executor, Machines):
        return executor
    return Workers(executor, {Data: courier})


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
        source, dtype, integers, levels = data.read_from or ({}, None, (), None)
        entries = source if isinstance(source, Mapping) else {_TABLE: source}
        openers = {}
        for name, values in entries.items():
            opener = _opener(values)
            if opener is not None:
                openers[name] = opener
        opened = [name for name in data.columns if name in openers or _TABLE in openers]
        self._parcel = _Parcel(
            sent={
                name: _portable(column, data.size)
                for name, column in data.columns.items()
                if name not in opened
            },
            openers=openers,
            digests={
                name: _sample_digest(data.columns[name], data.size) for name in opened
            },
            dtypes=[(name, column.dtype) for name, column in data.columns.items()],
            size=data.size,
            reading=(dtype, tuple(integers), levels),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _Parcel.open, (self._parcel,)


@dataclass(frozen=True)
class _Parcel:
    """Contents of a dataset that are sent.

    Attributes:
        sent: Columns that are sent as they are.
        openers: Functions that open the others, by name, or all of them as one table.
        digests: Digests of a few rows of each of these, by name.
        dtypes: Dtypes of all columns, in their order.
        size: Number of observations.
        reading: Dtype of the chain, columns that stay integers, and levels of the model by column,
            if these rows are new to it.
    """

    sent: Mapping[str, Column]
    openers: Mapping[str, Opener]
    digests: Mapping[str, str]
    dtypes: Sequence[tuple[str, np.dtype]]
    size: int
    reading: tuple[Any, tuple[str, ...], Mapping[str, Levels] | None]

    def open(self) -> Data:
        """Return the dataset in a worker, which reads only the rows that it passes over."""
        try:
            columns = self._columns()
            changed = [
                name
                for name, expected in self.digests.items()
                if _sample_digest(columns[name], self.size) != expected
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
        return Data({name: columns[name] for name, _ in self.dtypes}, self.size)

    def _columns(self) -> dict[str, Column]:
        columns = dict(self.sent)
        dtype, integers, levels = self.reading
        sources = {name: opener() for name, opener in self.openers.items()}
        for name, kind in self.dtypes:
            if name not in sources or name in (levels or ()):
                continue
            source = sources[name]
            is_path = isinstance(source, str | os.PathLike)
            is_table = is_path or hasattr(source, "to_dask_array")
            # Rows of an array can be read from any place.
            if not is_table and library_of(source) != "pyarrow":
                columns[name] = open_stored(sources.pop(name), kind)
        if sources:
            source = sources.get(_TABLE, sources)
            columns |= read_dataset(source, dtype, integers, levels=levels).columns
        return columns


def _sample_digest(column: Column, size: int) -> str:
    """Return a digest of a few rows of a column; a digest of all would have to read them."""
    rows = 16  # at the beginning, in the middle, and at the end
    starts = sorted({0, size // 2, max(0, size - rows)})
    arrays = [
        np.asarray(column.tensor(start, min(start + rows, size))) for start in starts
    ]
    return f"{size} rows, " + digest(np.concatenate(arrays))


def _portable(column: Column, size: int) -> Column:
    """Return a column whose values are in memory."""
    if isinstance(column, DenseColumn) and column.stored_dtype != column.dtype:
        return column
    if isinstance(column, DenseColumn) and not isinstance(column, ArrayColumn):
        return ArrayColumn(np.array(column.slice(0, size)))
    return column


def _opener(values: Any) -> Opener | None:
    """Return a function that opens an array in another process; ``None`` if it must be sent."""
    if isinstance(values, np.ndarray):
        # A part of a file that is mapped here.
        filename = getattr(values, "filename", None)
        root = values
        while isinstance(root.base, np.memmap):
            root = root.base
        if filename is None or not isinstance(root, np.memmap):
            return None
        if not values.flags.c_contiguous:
            return None
        offset = root.offset + values.ctypes.data - root.ctypes.data
        path = os.path.abspath(filename)
        return partial(np.memmap, path, values.dtype, "r", offset, values.shape)
    kind = type(values).__module__.partition(".")[0]
    driver = getattr(getattr(values, "file", None), "driver", "")
    if kind == "h5py" and driver == "sec2":
        return partial(_open_hdf5, os.path.abspath(values.file.filename), values.name)
    if is_url(values):
        return partial(_as_it_is, values)
    if isinstance(values, str | os.PathLike):
        return partial(Path, os.path.abspath(values))
    is_arrow = library_of(values) == "pyarrow" and "Dataset" in type(values).__name__
    if is_arrow or kind in ("zarr", "dask"):
        # These are pickled as their place, without their content.
        return partial(_as_it_is, values)
    return None


def _open_hdf5(path: str, name: str) -> Any:
    import h5py

    return h5py.File(path, "r")[name]


def _as_it_is(values: Any) -> Any:
    return values
