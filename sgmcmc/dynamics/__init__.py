"""The dynamics: each a small module that says how the state moves, given a gradient and noise.

Every one has the same parts. ``steps`` is the number of gradients an iteration takes;
``refresh_normals``, ``step_normals`` and ``start_normals`` say how many vectors of standard
normals it needs at the start of each iteration, at each step, and once at the start of the chain;
``seeds`` how many seeds at each step, where it draws from laws that normals do not give.
``init`` makes the state, ``refresh`` opens an iteration, ``move`` takes the position to its next
value, and ``close`` ends a step with the gradient at that new position. None of them knows about
data, likelihoods, loops or storage.

A new dynamics is one file here and one row in the table that the tests walk through.
"""

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.scir import SCIR
from sgmcmc.dynamics.sgd import SGD
from sgmcmc.dynamics.sghmc import SGHMC
from sgmcmc.dynamics.sgld import SGLD
from sgmcmc.dynamics.sgnht import SGNHT
from sgmcmc.dynamics.sgrld import SGRLD

__all__ = ["SCIR", "SGD", "SGHMC", "SGLD", "SGNHT", "SGRLD", "Dynamics"]
