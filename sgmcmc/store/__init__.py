"""Chains on disk: written block by block, read lazily, gone on with after a kill."""

from sgmcmc.store.folder import Store, read_store

__all__ = ["Store", "read_store"]
