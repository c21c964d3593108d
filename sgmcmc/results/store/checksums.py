"""Checksums of a store, verified before it is used."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc.atomic_files import read_arrays, write_json
from sgmcmc.results.schema import LOG_POST
from sgmcmc.results.store.files import (
    ABOUT,
    CHAIN,
    CHECKSUM,
    FileRows,
    Record,
    checkpoint,
    mapped_array,
)

_CHECKSUM, _RECORDS = "checksum", "records"
_FILE = re.compile(r"array-\d+(-\d+)?\.npy", re.ASCII)


def write_about(path: Path, about: Mapping[str, Any], records: Mapping[str, Record]) -> None:
    """Write the description of a store, with its own checksum.

    Args:
        path: Folder.
        about: Description of the store.
        records: Shape and dtype of each array.
    """
    shapes = {name: [list(shape), dtype.str] for name, (shape, dtype) in records.items()}
    said = {**about, _RECORDS: shapes}
    write_json(path / ABOUT, {**said, _CHECKSUM: _of_facts(said)})


def unsigned(about: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of a store without its checksum, which is looked at, as are its files.

    A store of an earlier version has none.

    Raises:
        ValueError: It is not that of what is said, or files are named that lie elsewhere.
    """
    said = {name: value for name, value in about.items() if name != _CHECKSUM}
    if _CHECKSUM in about and about[_CHECKSUM] != _of_facts(said):
        raise ValueError("its checksum is another")
    files = said.get("arrays")
    if not isinstance(files, dict) or not all(map(_is_ours, files.values())):
        raise ValueError("it names files that are none of a store")
    return said


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
    """Return how many rows of a record count."""
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


def remember(rows: Mapping[str, FileRows], state: Mapping[str, np.ndarray] | None) -> None:
    """Restore the checksums that a checkpoint has kept."""
    for name, record in rows.items():
        if state is not None and CHECKSUM + name in state:
            record.know(counted(state, name), int(state[CHECKSUM + name]))


def _of_facts(facts: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())
