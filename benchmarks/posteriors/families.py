"""All posteriors of the collection: importing this fills `base.POSTERIORS`."""

from __future__ import annotations

from benchmarks.posteriors import (
    choices,
    counts,
    hierarchical,
    lifetimes,
    normal,
    robust,
)
from benchmarks.posteriors.base import POSTERIORS

__all__ = [
    "POSTERIORS",
    "choices",
    "counts",
    "hierarchical",
    "lifetimes",
    "normal",
    "robust",
]
