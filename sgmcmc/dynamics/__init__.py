"""The dynamics: how the state of a chain moves, given a gradient and noise.

Every one derives from :class:`Dynamics` and has the same parts, described in its docstring.
A dynamics does not touch data, likelihoods, loops or storage.
"""

from sgmcmc.dynamics.adaptive import PSGLD, SGFS
from sgmcmc.dynamics.base import Dynamics, ExactDynamics
from sgmcmc.dynamics.exchange import ReplicaExchange
from sgmcmc.dynamics.geodesic import GSGNHT, SGGMC
from sgmcmc.dynamics.hamiltonian import HMC, MALA
from sgmcmc.dynamics.isokinetic import SMILE, EnergyTuner
from sgmcmc.dynamics.langevin import SGD, SGLD, SGLRW, Barker
from sgmcmc.dynamics.momentum import BADODAB, SGHMC, SGNHT, Underdamped
from sgmcmc.dynamics.no_u_turn import NUTS
from sgmcmc.dynamics.riemannian import SGRLD
from sgmcmc.dynamics.scir import SCIR
from sgmcmc.dynamics.subsampling import MHSS, ZigZag

__all__ = [
    "BADODAB",
    "GSGNHT",
    "HMC",
    "MALA",
    "MHSS",
    "NUTS",
    "PSGLD",
    "SCIR",
    "SGD",
    "SGFS",
    "SGGMC",
    "SGHMC",
    "SGLD",
    "SGLRW",
    "SGNHT",
    "SGRLD",
    "SMILE",
    "Barker",
    "Dynamics",
    "EnergyTuner",
    "ExactDynamics",
    "ReplicaExchange",
    "Underdamped",
    "ZigZag",
]
