"""Draws on disk."""

from sgmcmc.results.store.files import CHAIN, REDUCTION, checkpoint, explained
from sgmcmc.results.store.folder import Store, read_store

__all__ = ["CHAIN", "REDUCTION", "Store", "checkpoint", "explained", "read_store"]
