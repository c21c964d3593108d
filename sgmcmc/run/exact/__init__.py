"""Hamiltonian Monte Carlo on the whole dataset, without constants from the user."""

from sgmcmc.run.exact.posterior import is_hamiltonian, run_exactly

__all__ = ["is_hamiltonian", "run_exactly"]
