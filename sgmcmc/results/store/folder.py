"""The folder of a store: made, locked, compared, written to, enlarged and read.

It holds ``about.json`` (what made it), one npy file for each record (draws, gradients, test
functions, log posterior estimates), and for each chain a small file that says where it is and how
much of the arrays counts. Rows are written first and that file is replaced after, so at whatever
instant a process is killed, what the file says is there is there.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from sgmcmc.atomic_files import read_arrays, refuse_saved_model, write_arrays
from sgmcmc.data.dataset import PIECE_BYTES
from sgmcmc.results.schema import Schema, difference
from sgmcmc.results.store.files import (
    ABOUT,
    FileRows,
    Record,
    arrays_of,
    checkpoint,
    checksums,
    counted,
    create_array,
    explained,
    remember,
    saved_results,
    state_of,
    unsigned,
    verify,
    write_about,
)

FORMAT = 3
_LOCK, _HANDOVER, _WARM_UP = "lock", "handover.npz", "warm-up.npz"

_SOON_READ = 2**30  # bytes that are read in about a second


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
            "format": FORMAT,
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
            verified = sum(array.nbytes for array in arrays.values()) <= _SOON_READ
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
        if about["format"] == FORMAT:
            return unsigned(about)
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{str(path / ABOUT)!r} is damaged: {error}.") from error
    else:
        raise ValueError(
            f"{str(path)!r} has the format {about['format']}, this version's is {FORMAT}."
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
