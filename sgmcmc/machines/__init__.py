"""Where work is done: in this process, or in the workers of an executor."""

from sgmcmc.machines.here import HERE, Machines
from sgmcmc.machines.parcels import Courier
from sgmcmc.machines.spread import Spread

__all__ = ["HERE", "Courier", "Machines", "Spread"]
