"""Files that appear under their name, or are replaced, only once they are whole."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to one file, in NumPy's npz format."""
    with replacement(path) as part, open(part, "xb") as file:
        np.savez(file, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read what ``write_arrays`` wrote; nothing in it is ever executed."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts to a file."""
    with replacement(path) as part, open(part, "x", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Give the path of a file to write, which takes the place of ``path`` if all goes well."""
    part = part_of(path)
    try:
        yield part
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """Return a name next to ``path``, of no other process, for a file that is not whole yet."""
    return path.with_name(f"{path.name}.{secrets.token_hex(16)}.part")
