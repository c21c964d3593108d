"""Whether what a run keeps fits in memory: said before it runs, not when it is nearly through."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np


def allocate(records: Mapping[str, tuple[tuple[int, ...], Any]]) -> dict[str, np.ndarray]:
    """Return the arrays that draws are written to.

    Args:
        records: shape and dtype of each.

    Raises:
        MemoryError: they take more than the machine has.
    """
    wanted = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in records.values())
    most = _physical()
    try:
        if most is not None and wanted > most:
            raise MemoryError
        return {name: np.empty(*record) for name, record in records.items()}
    except (MemoryError, ValueError):  # NumPy has no arrays beyond the address space
        there = "" if most is None else f", and this machine has {most / 1e9:.3g}"
        raise MemoryError(
            f"`n_iters`: the draws take {wanted / 1e9:.3g} GB of memory{there}. Keep fewer with "
            "`thin`, write them to disk with `store`, or keep only `reductions` of them, with "
            "`store_params=False`."
        ) from None


def _physical() -> int | None:
    """Return the bytes of memory that the machine has, where it tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
