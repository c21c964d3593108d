"""How many cores there are, and whether one is to spare."""

from __future__ import annotations

import os


def count() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def to_spare(chains: int) -> bool:
    """Tell whether there are more cores than chains, so that one can prepare blocks ahead."""
    return chains < count()
