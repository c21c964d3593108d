"""Posteriors without constants from the user: chosen, run, and reported on."""

from sgmcmc.run.automatic.posterior import run_automatically

__all__ = ["run_automatically"]
