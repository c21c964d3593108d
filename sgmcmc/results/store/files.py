"""The large files of a store: arrays that rows are written into.

Arrays are in NumPy's npy format and are read by memory mapping, so opening costs nothing and a
slice reads only itself. Rows are written with ordinary writes, not through the mapping, because
a full disk then is an error that can be told and not the end of the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from sgmcmc.results.arrays import Results

ABOUT = "about.json"
"""What made the store, and which files its arrays lie in."""
CHAIN = "chain"
"""The kind of the checkpoints that tell how far the draws are."""
REDUCTION = "reduction/"
"""How the names begin under which a checkpoint holds results of reductions."""

Record = tuple[tuple[int, ...], np.dtype]
"""Shape, chains first, and dtype of an array."""


class FileRows:
    """The rows of one chain in an array on disk of shape ``(chains, rows, ...)``.

    Args:
        path: the npy file.
        chain: number of the chain.
    """

    def __init__(self, path: Path, chain: int) -> None:
        self._path = path
        mapped = np.load(path, mmap_mode="r")
        self._dtype = mapped.dtype
        self._row_bytes = mapped.dtype.itemsize * int(np.prod(mapped.shape[2:]))
        self._start = mapped.offset + chain * mapped.shape[1] * self._row_bytes
        self._file = open(path, "r+b", buffering=0)

    def __setitem__(self, rows: slice, values: np.ndarray) -> None:
        data = memoryview(np.ascontiguousarray(values, self._dtype).tobytes())
        with explained(self._path.parent):
            self._file.seek(self._start + rows.start * self._row_bytes)
            while data:
                data = data[self._file.write(data) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Name the store in errors of the operating system."""
    try:
        yield
    except OSError as error:
        raise type(error)(
            error.errno,
            f"`store`: cannot write to {str(path)!r}; what was written before is whole. "
            f"{error.strerror}",
        ) from error


def create_array(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Make an array on disk, which takes up room only as it is written."""
    if 0 in shape:
        np.save(path, np.empty(shape, dtype))
    else:
        np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)


def checkpoint(folder: Path, kind: str, number: int | str) -> Path:
    """Return the file that says where a runner is; ``"*"`` stands for any number."""
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
