"""Divide and conquer: shards of a dataset are sampled apart, and their draws combined."""

from sgmcmc.shards.subposteriors import divide

__all__ = ["divide"]
