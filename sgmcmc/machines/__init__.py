"""Executors: work in this process, or in the workers of an executor."""

from sgmcmc.machines.calls import HERE, Machines, Workers
from sgmcmc.machines.worker import PickleRecipe

__all__ = ["HERE", "Machines", "PickleRecipe", "Workers"]
