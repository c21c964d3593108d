"""Draws on disk."""

from sgmcmc.results.store.files import CHAIN, REDUCTION, checkpoint, explained
from sgmcmc.results.store.folder import Store, blamed, read_store

__all__ = [
    "CHAIN",
    "REDUCTION",
    "Store",
    "blamed",
    "checkpoint",
    "explained",
    "read_store",
]
