"""The large files of a store, arrays that rows are written into, and their checksums.

Arrays are in NumPy's npy format and are read by memory mapping, so that opening costs nothing and a
slice reads only itself. Rows are written with ordinary writes, not through the mapping, because a
full disk is then an error and not the end of the process. A checksum of the rows that count is kept
as they are written, so that a damaged draw is never read as a draw.
"""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc import atomic_files
from sgmcmc.atomic_files import read_arrays, write_json
from sgmcmc.results.arrays import Results
from sgmcmc.results.schema import LOG_POST

ABOUT = "about.json"  # file that describes the store, and names the files of its arrays
CHAIN = "chain"  # kind of the checkpoints of the draws
REDUCTION = "reduction/"  # prefix of the names of results of reductions in a checkpoint
CHECKSUM = "checksum/"  # the same of the checksums of the rows that count, by record
_READ_BYTES = 2**24  # bytes that are read at a time

Record = tuple[tuple[int, ...], np.dtype]  # shape, chains first, and dtype of an array

_CHECKSUM, _RECORDS = "checksum", "records"
_FILE = re.compile(r"array-\d+(-\d+)?\.npy", re.ASCII)


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
        self._last_checksum = 0, 0

    def know(self, rows: int, checksum: int) -> None:
        """Set the known checksum of the first rows."""
        self._last_checksum = rows, checksum

    def __setitem__(self, rows: slice, values: np.ndarray) -> None:
        data = left = memoryview(np.ascontiguousarray(values, self._dtype).tobytes())
        checksum = zlib.crc32(data, self.checksum(rows.start))
        with explained(self._path.parent):
            self._file.seek(self._start + rows.start * self._row_bytes)
            while left:
                left = left[self._file.write(left) :]
        self._last_checksum = rows.stop, checksum

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.array(mapped_array(self._path)[self._chain, rows])

    def checksum(self, rows: int) -> int:
        """Return the checksum of the first rows; those just written are not read again."""
        if self._last_checksum[0] != rows:
            checksum, left = 0, rows * self._row_bytes
            self._file.seek(self._start)
            while left:
                data = self._file.read(min(left, _READ_BYTES))
                if not data:
                    raise ValueError(f"`store`: {str(self._path)!r} is cut off.")
                checksum, left = zlib.crc32(data, checksum), left - len(data)
            self._last_checksum = rows, checksum
        return self._last_checksum[1]

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
    """Return the file with the state of a runner; ``"*"`` matches any number."""
    return folder / f"{kind}-{number}.npz"


def saved_results(state: Mapping[str, np.ndarray]) -> Results:
    """Return the results of reductions in a checkpoint."""
    return Results.nested(
        {
            name[len(REDUCTION) :]: value
            for name, value in state.items()
            if name.startswith(REDUCTION)
        }
    )


def write_about(
    path: Path, about: Mapping[str, Any], records: Mapping[str, Record]
) -> None:
    """Write the description of a store, with its own checksum.

    Args:
        path: Folder.
        about: Description of the store.
        records: Shape and dtype of each array.
    """
    shapes = {
        name: [list(shape), dtype.str] for name, (shape, dtype) in records.items()
    }
    contents = {**about, _RECORDS: shapes}
    write_json(path / ABOUT, {**contents, _CHECKSUM: _of_facts(contents)})


def unsigned(about: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a store without its checksum, after a check of this and the files.

    A store of an earlier version has none.

    Raises:
        ValueError: It is not that of what is said, or files are named that lie elsewhere.
    """
    contents = {name: value for name, value in about.items() if name != _CHECKSUM}
    if _CHECKSUM in about and about[_CHECKSUM] != _of_facts(contents):
        raise ValueError("its checksum is another")
    files = contents.get("arrays")
    if not isinstance(files, dict) or not all(map(_is_ours, files.values())):
        raise ValueError("it names files that are none of a store")
    return contents


def _is_ours(file: Any) -> bool:
    """Return whether a file lies in the folder of a store, and nowhere else."""
    return isinstance(file, str) and _FILE.fullmatch(file) is not None


def arrays_of(path: Path, about: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the arrays of a store, mapped.

    Raises:
        ValueError: One is damaged.
        OSError: One cannot be read.
    """
    arrays: dict[str, np.ndarray] = {
        name: mapped_array(path / file) for name, file in about["arrays"].items()
    }
    for name, (shape, dtype) in about.get(_RECORDS, {}).items():
        if [list(arrays[name].shape), arrays[name].dtype.str] != [shape, dtype]:
            raise ValueError(
                f"{str(path / about['arrays'][name])!r} is damaged: its shape is another."
            )
    return arrays


def state_of(path: Path, chain: int) -> dict[str, np.ndarray] | None:
    """Return the contents of a chain's checkpoint, or ``None`` if there is none yet."""
    file = checkpoint(path, CHAIN, chain)
    return read_arrays(file) if file.exists() else None


def counted(state: Mapping[str, np.ndarray], name: str) -> int:
    """Return the number of valid rows of a record."""
    return int(state["blocks" if name == LOG_POST else "draws"])


def verify(
    arrays: Mapping[str, np.ndarray],
    path: Path,
    about: Mapping[str, Any],
    states: Sequence[Mapping[str, np.ndarray] | None],
) -> None:
    """Read all rows that count, and see that they are those that were written.

    Args:
        arrays: Arrays of the store, mapped.
        path: Folder.
        about: Description of the store.
        states: Contents of the checkpoints of the chains.

    Raises:
        ValueError: Some are not.
    """
    for number, state in enumerate(states):
        for name, array in arrays.items():
            expected = None if state is None else state.get(CHECKSUM + name)
            if state is None or expected is None:
                continue
            rows = np.ascontiguousarray(array[number, : counted(state, name)])
            if zlib.crc32(rows.reshape(-1).view(np.uint8).data) != int(expected):
                raise ValueError(
                    f"{str(path / about['arrays'][name])!r} is damaged: what it holds of chain "
                    f"{number} is not what was written."
                )


def checksums(
    rows: Mapping[str, FileRows], state: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the checksums of the rows that count, for a checkpoint.

    Args:
        rows: Rows of a chain, by record.
        state: Contents of the checkpoint.
    """
    return {
        CHECKSUM + name: np.array(record.checksum(counted(state, name)))
        for name, record in rows.items()
    }


def remember(
    rows: Mapping[str, FileRows], state: Mapping[str, np.ndarray] | None
) -> None:
    """Restore the checksums that a checkpoint has kept."""
    for name, record in rows.items():
        if state is not None and CHECKSUM + name in state:
            record.know(counted(state, name), int(state[CHECKSUM + name]))


def _of_facts(facts: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())
