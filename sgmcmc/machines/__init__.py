"""Executors: work in this process, or in the workers of an executor."""

from sgmcmc.machines.spread import HERE, Machines, Spread
from sgmcmc.machines.worker import PickleRecipe

__all__ = ["HERE", "Machines", "PickleRecipe", "Spread"]
