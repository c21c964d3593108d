"""Files that appear under their name, or are replaced, only once they are whole."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to one file, in NumPy's npz format."""
    with _Replacement(path) as part, open(part, "xb") as file:
        np.savez(file, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read what ``write_arrays`` wrote; nothing in it is ever executed."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts to a file."""
    with _Replacement(path) as part, open(part, "x", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)


class _Replacement:
    """A file beside ``path`` that takes its place if all goes well, and else goes away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")

    def __enter__(self) -> Path:
        return self._part

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            os.replace(self._part, self._path)
        else:
            self._part.unlink(missing_ok=True)
