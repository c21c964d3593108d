"""Sampling without constants from the user."""

from sgmcmc.run.automatic.posterior import run_automatically

__all__ = ["run_automatically"]
