"""Hamiltonian Monte Carlo on the whole dataset, without constants from the user."""

from sgmcmc.plan.exact.posterior import run_exactly

__all__ = ["run_exactly"]
