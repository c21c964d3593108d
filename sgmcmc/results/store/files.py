"""The large files of a store: arrays that rows are written into.

Arrays are in NumPy's npy format and are read by memory mapping, so that opening costs nothing and a
slice reads only itself. Rows are written with ordinary writes, not through the mapping, because a
full disk is then an error and not the end of the process. A checksum of the rows that count is kept
as they are written, so that a damaged draw is never read as a draw.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sgmcmc import atomic_files
from sgmcmc.results.arrays import Results

ABOUT = "about.json"
"""File that describes the store, and names the files of its arrays."""
CHAIN = "chain"
"""Kind of the checkpoints of the draws."""
REDUCTION = "reduction/"
"""How the names begin under which a checkpoint holds results of reductions."""
CHECKSUM = "checksum/"
"""The same of the checksums of the rows that count, by record."""

_PIECE = 2**24
"""Bytes that are read at a time."""

Record = tuple[tuple[int, ...], np.dtype]
"""Shape, chains first, and dtype of an array."""


class FileRows:
    """The rows of one chain in an array on disk of shape ``(chains, rows, ...)``.

    Args:
        path: Path of the npy file.
        chain: Number of the chain.
    """

    def __init__(self, path: Path, chain: int) -> None:
        self._path, self._chain = path, chain
        mapped = mapped_array(path)
        self._dtype = mapped.dtype
        self._row_bytes = mapped.dtype.itemsize * int(np.prod(mapped.shape[2:]))
        self._start = mapped.offset + chain * mapped.shape[1] * self._row_bytes
        self._file = open(path, "r+b", buffering=0)
        self._known = 0, 0

    def know(self, rows: int, checksum: int) -> None:
        """Set the known checksum of the first rows."""
        self._known = rows, checksum

    def __setitem__(self, rows: slice, values: np.ndarray) -> None:
        data = left = memoryview(np.ascontiguousarray(values, self._dtype).tobytes())
        checksum = zlib.crc32(data, self.checksum(rows.start))
        with explained(self._path.parent):
            self._file.seek(self._start + rows.start * self._row_bytes)
            while left:
                left = left[self._file.write(left) :]
        self._known = rows.stop, checksum

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.array(mapped_array(self._path)[self._chain, rows])

    def checksum(self, rows: int) -> int:
        """Return the checksum of the first rows; those just written are not read again."""
        if self._known[0] != rows:
            checksum, left = 0, rows * self._row_bytes
            self._file.seek(self._start)
            while left:
                data = self._file.read(min(left, _PIECE))
                if not data:
                    raise ValueError(f"`store`: {str(self._path)!r} is cut off.")
                checksum, left = zlib.crc32(data, checksum), left - len(data)
            self._known = rows, checksum
        return self._known[1]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def explained(path: Path) -> contextlib.AbstractContextManager[None]:
    """Name the store in errors of the operating system."""
    return atomic_files.explained("store", path, "what was written before is intact")


def mapped_array(path: Path) -> np.memmap:
    """Return an array on disk, mapped.

    Raises:
        ValueError: The file is damaged.
        OSError: It cannot be read.
    """
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error


def create_array(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Make an array on disk, which takes up room only as it is written."""
    if 0 in shape:
        np.save(path, np.empty(shape, dtype))
    else:
        np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)


def checkpoint(folder: Path, kind: str, number: int | str) -> Path:
    """Return the file that says where a runner is; ``"*"`` matches any number."""
    return folder / f"{kind}-{number}.npz"


def saved_results(state: Mapping[str, np.ndarray]) -> Results:
    """Return the results of reductions among what a checkpoint holds."""
    return Results.nested(
        {
            name[len(REDUCTION) :]: value
            for name, value in state.items()
            if name.startswith(REDUCTION)
        }
    )
