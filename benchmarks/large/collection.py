"""All large posteriors, by name."""

from benchmarks.large import hierarchical, others
from benchmarks.large.base import POSTERIORS

__all__ = ["POSTERIORS", "hierarchical", "others"]
