"""Columns that lie in files in a form that must be unpacked: HDF5, Zarr, Dask, Parquet, Arrow.

Single rows of such a form are dear: a chunk is read and decompressed for each. The rows of a block
of minibatches are all over the file, so it is unpacked once, in order, as it is checked: what is
small stays in memory, what is not goes to a file in the temporary folder, which is mapped into
memory and is gone with the process. If that folder lacks the room, whole chunks are read again
and again. HDF5 datasets without chunks are mapped in their files.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from sgmcmc.data.dataset import PIECE_BYTES, DenseColumn, MappedColumn, digest_of_pieces

SLAB_BYTES = PIECE_BYTES // 4
"""Bytes read at a time, at least one chunk."""

Check = Callable[[np.ndarray, int, int], None]
"""Check of a piece of a column, given the number of its first row and its number of rows."""


class Spool:
    """Collects the pieces of a column and returns the column as one array.

    Unless they are to stay ``in_memory``, they go to a file if they are many.
    """

    def __init__(self, dtype: np.dtype, in_memory: bool = False) -> None:
        self._dtype = np.dtype(dtype)
        self._in_memory = in_memory
        self._chunks: list[np.ndarray] = []
        self._file: BinaryIO | None = None
        self._row_shape: tuple[int, ...] = ()
        self.rows = 0

    def add(self, chunk: np.ndarray) -> None:
        """Add the next rows."""
        self._row_shape = chunk.shape[1:]
        self.rows += len(chunk)
        self._chunks.append(chunk.astype(self._dtype, order="C"))
        if (
            not self._in_memory
            and sum(waiting.nbytes for waiting in self._chunks) > PIECE_BYTES
        ):
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="sgmcmc-")
        with no_room():
            for chunk in self._chunks:
                # Not through a mapping: that crashes if the disk is full.
                self._file.write(chunk.data)
            self._file.flush()
        self._chunks = []

    def array(self) -> np.ndarray:
        """Return all rows: in memory, or mapped."""
        if self._file is None:
            empty = np.empty((0, *self._row_shape), self._dtype)
            return np.concatenate([empty, *self._chunks])
        self._write()
        shape = (self.rows, *self._row_shape)
        mapped = np.memmap(self._file, self._dtype, "r", shape=shape)
        self._file.close()
        return mapped


@contextmanager
def no_room() -> Iterator[None]:
    """Add advice to errors of writing."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            "`dataset` is unpacked into a file in the temporary folder, "
            f"{tempfile.gettempdir()}, which has no room for it: {error.strerror}. Have the "
            "environment variable TMPDIR name another folder",
        ) from error


class StoredColumn(DenseColumn):
    """A column that is read slab by slab whenever rows of it are asked for.

    ``source`` has ``shape`` and gives rows when it is sliced. A slab, which is read in one go, has
    ``slab_rows`` rows: whole chunks.
    """

    def __init__(self, source: Any, dtype: np.dtype, slab_rows: int) -> None:
        self._source, self._slab_rows = source, slab_rows
        self._rows = int(source.shape[0])
        self.dtype = np.dtype(dtype)
        self.row_shape = tuple(int(length) for length in source.shape[1:])
        self._last: tuple[int, np.ndarray] = -1, np.empty(0)

    def _read(self, number: int) -> np.ndarray:
        """Return a slab; two threads may do so at once."""
        last, array = self._last
        if last != number:
            start = number * self._slab_rows
            array = np.asarray(
                self._source[start : min(start + self._slab_rows, self._rows)]
            )
            self._last = number, array
        return array

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy these rows into ``out``; each slab that holds some of them is read once."""
        flat = rows.reshape(-1)
        order = np.argsort(flat, kind="stable")
        slabs = flat[order] // self._slab_rows
        target = out.reshape(-1, *self.row_shape)
        for chosen in np.split(order, np.flatnonzero(np.diff(slabs)) + 1):
            number = int(flat[chosen[0]]) // self._slab_rows
            target[chosen] = self._read(number)[flat[chosen] - number * self._slab_rows]

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return the rows from ``start`` to ``stop``."""
        out = np.empty((stop - start, *self.row_shape), self.dtype)
        while start < stop:
            number = start // self._slab_rows
            offset = number * self._slab_rows
            end = min(stop, offset + self._slab_rows)
            out[len(out) - (stop - start) :][: end - start] = self._read(number)[
                start - offset : end - offset
            ]
            start = end
        return out

    def digest(self) -> str:
        """Return the digest of some pieces."""
        return digest_of_pieces(self, self._rows)


class LateColumn(StoredColumn):
    """A column that was checked in another process, and is unpacked only for single rows."""

    def __init__(self, source: Any, dtype: np.dtype) -> None:
        super().__init__(source, dtype, _slab_rows_of(source))
        self._unpacked: MappedColumn | None = None

    def unpack(self) -> None:
        """Prepare random access to rows, if the temporary folder has room."""
        if self._unpacked is None and _has_room(self._source, self.dtype):
            writer = Spool(self.dtype)
            _pass_over(self._source, lambda *_: None, writer.add)
            self._unpacked = MappedColumn(writer.array(), self.dtype)
            self.address = self._unpacked.address

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy these rows into ``out``."""
        if self._unpacked is not None:
            self._unpacked.take(rows, out)
        else:
            super().take(rows, out)

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return the rows from ``start`` to ``stop``."""
        if self._unpacked is not None:
            return self._unpacked.slice(start, stop)
        return super().slice(start, stop)


def open_stored(source: Any, dtype: np.dtype) -> DenseColumn:
    """Return a column that was checked in another process; nothing of it is read now."""
    mapped = source if isinstance(source, np.memmap) else _mapped_in_place(source)
    return LateColumn(source, dtype) if mapped is None else MappedColumn(mapped, dtype)


def read_stored(source: Any, dtype: np.dtype, check: Check) -> DenseColumn:
    """Return a column of an object that has ``shape`` and gives rows when it is sliced.

    ``check`` raises an error if a piece holds forbidden values.
    """
    mapped = source if isinstance(source, np.memmap) else _mapped_in_place(source)
    if mapped is not None:
        _pass_over(mapped, check)
        return MappedColumn(mapped, dtype)
    if not _has_room(source, dtype):
        return StoredColumn(source, dtype, _pass_over(source, check))
    writer = Spool(dtype)
    _pass_over(source, check, writer.add)
    return MappedColumn(writer.array(), dtype)


def _pass_over(
    source: Any, check: Check, use: Callable[[np.ndarray], None] | None = None
) -> int:
    """Check all rows in order, slab by slab, and return how many make a slab."""
    slab_rows, size = _slab_rows_of(source), int(source.shape[0])
    for start in range(0, size, slab_rows):
        stop = min(start + slab_rows, size)
        slab = np.asarray(source[start:stop])
        check(slab, start, stop - start)
        if use is not None:
            use(slab)
    return slab_rows


def _slab_rows_of(source: Any) -> int:
    """Return the number of rows to read at a time: whole chunks if there are any."""
    itemsize = getattr(getattr(source, "dtype", None), "itemsize", 8)
    row = math.prod(int(length) for length in source.shape[1:]) * itemsize
    rows = max(1, SLAB_BYTES // max(1, row))
    chunks = getattr(source, "shards", None) or getattr(source, "chunks", None) or (1,)
    # Dask's chunks of an axis are a tuple of lengths.
    chunk = max(chunks[0]) if isinstance(chunks[0], tuple) else int(chunks[0])
    return max(1, chunk) * max(1, rows // max(1, chunk))


def _has_room(source: Any, dtype: np.dtype) -> bool:
    size = math.prod(int(length) for length in source.shape) * np.dtype(dtype).itemsize
    return (
        size <= PIECE_BYTES or 2 * size <= shutil.disk_usage(tempfile.gettempdir()).free
    )


def _mapped_in_place(source: Any) -> np.ndarray | None:
    """Return an HDF5 dataset mapped into memory, or ``None`` if it does not lie so."""
    if not type(source).__module__.startswith("h5py.") or source.chunks is not None:
        return None
    try:
        source.file.flush()
        offset = source.id.get_offset()
        if offset is None or source.file.driver != "sec2":
            return None
        mapped = np.memmap(
            source.file.filename, source.dtype, "r", offset=offset, shape=source.shape
        )
    except (AttributeError, OSError, ValueError, RuntimeError):
        return None
    # The offset is used only if the file says the same.
    for start in {0, source.shape[0] // 2, max(0, source.shape[0] - 8)}:
        if mapped[start : start + 8].tobytes() != source[start : start + 8].tobytes():
            return None
    return mapped
