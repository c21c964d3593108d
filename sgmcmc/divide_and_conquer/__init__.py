"""Divide and conquer: shards of a dataset are sampled apart, and their draws combined."""

from sgmcmc.divide_and_conquer.shards import divide

__all__ = ["divide"]
