"""The store: draws on disk, in a folder that is made, locked, compared, enlarged and read.

It holds ``about.json`` (what made it), one npy file for each record (draws, gradients, test
functions, log posterior estimates), and for each chain a small file that says where it is and how
much of the arrays counts. Rows are written first and that file is replaced after, so at whatever
instant a process is killed, what the file says is there is there.

Arrays are read by memory mapping, so that opening costs nothing and a slice reads only itself. Rows
are written with ordinary writes, not through the mapping, because a full disk is then an error and
not the end of the process. A checksum of the rows that count is kept as they are written, so that a
damaged draw is never read as a draw.
"""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from sgmcmc import atomic_files
from sgmcmc.atomic_files import (
    read_arrays,
    refuse_saved_model,
    write_arrays,
    write_json,
)
from sgmcmc.data.dataset import PIECE_BYTES
from sgmcmc.results.arrays import Results
from sgmcmc.results.schema import LOG_POST, Schema, difference

ABOUT = "about.json"  # file that describes the store, and names the files of its arrays
CHAIN = "chain"  # kind of the checkpoints of the draws
REDUCTION = "reduction/"  # prefix of the names of results of reductions in a checkpoint
CHECKSUM = "checksum/"  # the same of the checksums of the rows that count, by record

Record = tuple[tuple[int, ...], np.dtype]  # shape, chains first, and dtype of an array

_CHECKSUM, _RECORDS = "checksum", "records"
_FILE = re.compile(r"array-\d+(-\d+)?\.npy", re.ASCII)
_LOCK, _HANDOVER, _WARM_UP = "lock", "handover.npz", "warm-up.npz"


@dataclass(frozen=True)
class _StoreSettings:
    format: int = 3  # version of the folder
    read: int = 2**24  # bytes that are read at a time
    verified: int = 2**30  # bytes that are read in about a second


_SETTINGS = _StoreSettings()


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
                data = self._file.read(min(left, _SETTINGS.read))
                if not data:
                    raise ValueError(f"`store`: {str(self._path)!r} is cut off.")
                checksum = zlib.crc32(data, checksum)
                left = left - len(data)
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


class Store:
    """A store that this process alone writes to, while the ``with`` block lasts.

    Args:
        path: Path of the folder; it is created if it does not exist.

    Raises:
        ValueError: The folder holds something else, or another process writes to it.
        OSError: It cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with blamed("store"):
            self.about = _read_about(path)
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path / _LOCK, timeout=0)
        self._rows: dict[int, dict[str, FileRows]] = {}

    def __enter__(self) -> Store:
        with explained(self.path):
            try:
                self._lock.acquire()
            except Timeout:
                raise ValueError(
                    f"`store`: another process is writing to {str(self.path)!r}. Wait for it, or "
                    "use another path."
                ) from None
        # The one before may have made it in the meantime.
        with blamed("store"):
            self.about = _read_about(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        for records in self._rows.values():
            for rows in records.values():
                rows.close()
        self._lock.release()

    @property
    def seed(self) -> int | None:
        """The seed of the chain that is there, if there is one."""
        return None if self.about is None else self.about["fingerprint"]["seed"]

    @property
    def n_iters(self) -> int | None:
        """Number of iterations after burn-in for which there is room, if there is a chain."""
        return None if self.about is None else self.about["fingerprint"]["n_iters"]

    def prepare(
        self,
        fingerprint: dict[str, Any],
        schema: Schema,
        records: Mapping[str, Record],
    ) -> None:
        """Make the files, or see that those there belong to the same chain, and are large enough.

        Args:
            fingerprint: Fingerprint of the call that made the chain, including ``n_iters``, which
                may have grown.
            schema: Description of its arrays.
            records: Shape, chains first, and dtype of each array.

        Raises:
            ValueError: The chain there was made otherwise, or is damaged; nothing was changed.
        """
        if self.about is not None:
            before = self.about["fingerprint"]
            mismatch = difference(
                {**before, "n_iters": None}, {**fingerprint, "n_iters": None}
            )
            if mismatch is not None:
                raise ValueError(
                    f"`store`: {str(self.path)!r} holds another chain: {mismatch}. Use another "
                    "path, or the arguments it was made with. Nothing was changed."
                )
            if fingerprint["n_iters"] < before["n_iters"]:
                raise ValueError(
                    f"`store`: {str(self.path)!r} holds a longer chain: `n_iters` was "
                    f"{before['n_iters']} and is {fingerprint['n_iters']}. A chain may be "
                    "continued, but is never cut; use a slice of its draws. Nothing was changed."
                )
            with blamed("store"):
                arrays = arrays_of(self.path, self.about)
                states = _states(self.path, arrays)
                verify(arrays, self.path, self.about, states)
            with explained(self.path):
                n_iters = fingerprint["n_iters"]
                # A store of an earlier version may have room for fewer estimates.
                short = any(
                    shape[1] > arrays[name].shape[1]
                    for name, (shape, _) in records.items()
                )
                if n_iters > before["n_iters"] or short:
                    self.about = grow(self.path, self.about, n_iters, records, states)
                remove_others(self.path, self.about["arrays"].values())
            return
        files = {name: f"array-{number}.npy" for number, name in enumerate(records)}
        about = {
            "format": _SETTINGS.format,
            "fingerprint": fingerprint,
            "schema": schema.to_json(),
            "arrays": files,
        }
        with explained(self.path):
            for name, (shape, dtype) in records.items():
                create_array(self.path / files[name], shape, dtype)
            write_about(self.path, about, records)
        self.about = json.loads(json.dumps(about))

    def rows(self, chain: int) -> dict[str, FileRows]:
        """Return the arrays to which a chain's records are written."""
        assert self.about is not None
        rows = {
            name: FileRows(self.path / f, chain)
            for name, f in self.about["arrays"].items()
        }
        remember(rows, state_of(self.path, chain))
        self._rows[chain] = rows
        return rows

    def checksums(
        self, chain: int, state: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return the checksums of a chain's valid rows according to a checkpoint."""
        return checksums(self._rows[chain], state)

    def handover(self) -> dict[str, np.ndarray] | None:
        """Return the results of the phases before the chain, if they are done."""
        return self._arrays_in(_HANDOVER)

    def warm_up(self) -> dict[str, np.ndarray] | None:
        """Return the constants chosen before the chain was made, if that is done."""
        return self._arrays_in(_WARM_UP)

    def _arrays_in(self, file: str) -> dict[str, np.ndarray] | None:
        path = self.path / file
        with blamed("store"):
            return read_arrays(path) if path.exists() else None

    def save_warm_up(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Save the constants chosen before the chain was made."""
        with explained(self.path):
            write_arrays(self.path / _WARM_UP, arrays)

    def save_handover(
        self, arrays: Mapping[str, np.ndarray], kinds: Iterable[str]
    ) -> None:
        """Save the results of the phases before the chain.

        Args:
            arrays: ``positions`` of the chains, flat; and if they are modes, ``gradients`` there
                and the ``modes`` as the user sees them.
            kinds: Kinds of the phases whose own checkpoints are no longer needed.
        """
        with explained(self.path):
            write_arrays(self.path / _HANDOVER, arrays)
            for kind in kinds:
                for path in self.path.glob(checkpoint(self.path, kind, "*").name):
                    path.unlink()


@contextlib.contextmanager
def blamed(argument: str) -> Iterator[None]:
    """Have errors about a file begin with the argument that names it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"`{argument}`: {error}") from error


def read_store(path: Path, verified: bool | None = False) -> dict[str, Any]:
    """Return the present content of a store, memory-mapped, as arguments of ``Samples``.

    Args:
        path: Folder.
        verified: Whether to read everything once and compare it with its checksums; ``None`` does
            so if that takes no longer than about a second.

    Raises:
        ValueError: It is not a store, or damaged, or holds no draw yet.
        OSError: It cannot be read.
    """
    refuse_saved_model("path", path)
    with blamed("path"):
        about, arrays = _open(path)
        if verified is None:
            verified = (
                sum(array.nbytes for array in arrays.values()) <= _SETTINGS.verified
            )
        states = _states(path, arrays)
        if verified:
            verify(arrays, path, about, states)
        handover = read_arrays(path / _HANDOVER) if (path / _HANDOVER).exists() else {}
    present = [state for state in states if state is not None]
    if len(present) < len(states):
        raise ValueError(f"`path`: {str(path)!r} holds no draws yet.")
    return Schema.from_json(about["schema"]).fields(
        arrays,
        min(int(state["draws"]) for state in present),
        min(int(state["blocks"]) for state in present),
        (handover["modes"], handover["gradients"]) if "modes" in handover else None,
        [saved_results(state) for state in present],
    )


def _states(
    path: Path, arrays: Mapping[str, np.ndarray]
) -> list[dict[str, np.ndarray] | None]:
    """Return the checkpoints of the chains; ``None`` for a chain without one."""
    return [
        state_of(path, chain) for chain in range(next(iter(arrays.values())).shape[0])
    ]


def _open(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description of a store and its arrays, mapped."""
    while True:
        about = _read_about(path)
        if about is None:
            raise ValueError(f"{str(path)!r} is not a folder that `store` made.")
        try:
            return about, arrays_of(path, about)
        except FileNotFoundError:
            # The store may have grown in the meantime, and its arrays lie in other files.
            if _read_about(path) == about:
                raise


def _read_about(path: Path) -> dict[str, Any] | None:
    """Return the description of a store, or ``None`` if there is none yet."""
    if not path.exists():
        return None
    if not path.is_dir():
        raise ValueError(
            f"{str(path)!r} is a file, and a store is a folder; Samples.load reads files."
        )
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        if about["format"] == _SETTINGS.format:
            return unsigned(about)
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{str(path / ABOUT)!r} is damaged: {error}.") from error
    else:
        raise ValueError(
            f"{str(path)!r} has the format {about['format']}, this version's is {_SETTINGS.format}."
        )
    # A process killed while it made the store leaves these.
    ours = [
        *path.glob("array-*.npy"),
        *path.glob("*.part"),
        path / _LOCK,
        path / _WARM_UP,
    ]
    foreign = sorted(
        {entry.name for entry in path.iterdir()} - {entry.name for entry in ours}
    )
    if foreign:
        raise ValueError(
            f"the folder {str(path)!r} holds other things ({foreign[0]!r}, ...); give an "
            "empty or a new one. Nothing was changed."
        )
    return None


def grow(
    path: Path,
    about: Mapping[str, Any],
    n_iters: int,
    records: Mapping[str, Record],
    states: Sequence[Mapping[str, np.ndarray] | None],
) -> dict[str, Any]:
    """Make room for more iterations, and return the new description of the store.

    Its arrays are copied to larger ones next to them, and what is said of the store, which names
    the files, is replaced once those are whole: at whatever instant the process is killed, the
    store is either what it was or has grown.

    Args:
        path: Folder.
        about: Former description of the store.
        n_iters: Number of iterations after burn-in to make room for.
        records: Shape, chains first, and dtype of each array.
        states: Contents of the checkpoints of the chains.
    """
    generation = about.get("generation", 0) + 1
    files = {
        name: f"array-{generation}-{number}.npy" for number, name in enumerate(records)
    }
    for name, (shape, dtype) in records.items():
        create_array(path / files[name], shape, dtype)
        for chain, state in enumerate(states):
            rows = 0 if state is None else counted(state, name)
            _copy(path / about["arrays"][name], path / files[name], chain, rows)
    grown = {
        **about,
        "generation": generation,
        "arrays": files,
        "fingerprint": {**about["fingerprint"], "n_iters": n_iters},
    }
    write_about(path, grown, records)
    return grown


def remove_others(path: Path, files: Iterable[str]) -> None:
    """Remove arrays that a store does not name: those it has outgrown, or half grown."""
    for name in {entry.name for entry in path.glob("array-*.npy")} - set(files):
        # Windows keeps files that somebody reads.
        with contextlib.suppress(OSError):
            (path / name).unlink()


def _copy(old: Path, new: Path, chain: int, rows: int) -> None:
    """Copy the first rows of a chain from one file to another."""
    if rows == 0:
        return
    array = np.load(old, mmap_mode="r", allow_pickle=False)
    length = max(
        1, PIECE_BYTES // max(1, array.itemsize * int(np.prod(array.shape[2:])))
    )
    with contextlib.closing(FileRows(new, chain)) as to:
        for start in range(0, rows, length):
            stop = min(start + length, rows)
            to[start:stop] = array[chain, start:stop]
