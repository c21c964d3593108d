"""Chains on disk: written block by block, read lazily, gone on with after a kill."""

from sgmcmc.store.checkpoints import CHAIN, MODE, Checkpoints
from sgmcmc.store.folder import Store, read_store

__all__ = ["CHAIN", "MODE", "Checkpoints", "Store", "read_store"]
