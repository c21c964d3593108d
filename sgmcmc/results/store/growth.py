"""A store whose chains are to go on for more iterations than it was made for.

Its arrays are copied to larger ones next to them, and what is said of the store, which names the
files, is replaced once those are whole: at whatever instant the process is killed, the store is
either what it was or has grown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc.data.dataset import PIECE_BYTES
from sgmcmc.results.store.checksums import counted, write_about
from sgmcmc.results.store.files import FileRows, Record, create_array


def grow(
    path: Path,
    about: Mapping[str, Any],
    n_iters: int,
    records: Mapping[str, Record],
    states: Sequence[Mapping[str, np.ndarray] | None],
) -> dict[str, Any]:
    """Make room for more iterations, and return what is now said of the store.

    Args:
        path: Folder.
        about: Former description of the store.
        n_iters: Number of iterations after burn-in to make room for.
        records: Shape, chains first, and dtype of each array.
        states: Contents of the checkpoints of the chains.
    """
    generation = about.get("generation", 0) + 1
    files = {name: f"array-{generation}-{number}.npy" for number, name in enumerate(records)}
    for name, (shape, dtype) in records.items():
        create_array(path / files[name], shape, dtype)
        for chain, state in enumerate(states):
            rows = 0 if state is None else counted(state, name)
            _copy(path / about["arrays"][name], path / files[name], chain, rows)
    found = {
        **about,
        "generation": generation,
        "arrays": files,
        "fingerprint": {**about["fingerprint"], "n_iters": n_iters},
    }
    write_about(path, found, records)
    return found


def remove_others(path: Path, files: Iterable[str]) -> None:
    """Remove arrays that a store does not name: those it has outgrown, or half grown."""
    for other in {entry.name for entry in path.glob("array-*.npy")} - set(files):
        # Windows keeps files that somebody reads.
        with contextlib.suppress(OSError):
            (path / other).unlink()


def _copy(old: Path, new: Path, chain: int, rows: int) -> None:
    """Copy the first rows of a chain from one file to another."""
    if rows == 0:
        return
    array = np.load(old, mmap_mode="r", allow_pickle=False)
    length = max(1, PIECE_BYTES // max(1, array.itemsize * int(np.prod(array.shape[2:]))))
    with contextlib.closing(FileRows(new, chain)) as to:
        for start in range(0, rows, length):
            stop = min(start + length, rows)
            to[start:stop] = array[chain, start:stop]
