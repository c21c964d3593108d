"""Sampling without constants from the user."""

from sgmcmc.plan.automatic.posterior import run_automatically

__all__ = ["run_automatically"]
