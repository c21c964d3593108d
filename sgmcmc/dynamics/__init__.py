"""The dynamics: each a small module that says how the state moves, given a gradient and noise.

Every one derives from :class:`Dynamics` and has the same parts, described in its docstring.
None of them knows about data, likelihoods, loops or storage.
"""

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.exact import ExactDynamics
from sgmcmc.dynamics.gsgnht import GSGNHT
from sgmcmc.dynamics.hmc import HMC
from sgmcmc.dynamics.nuts import NUTS
from sgmcmc.dynamics.scir import SCIR
from sgmcmc.dynamics.sgd import SGD
from sgmcmc.dynamics.sggmc import SGGMC
from sgmcmc.dynamics.sghmc import SGHMC
from sgmcmc.dynamics.sgld import SGLD
from sgmcmc.dynamics.sgnht import SGNHT
from sgmcmc.dynamics.sgrld import SGRLD
from sgmcmc.dynamics.underdamped import Underdamped

__all__ = [
    "GSGNHT",
    "HMC",
    "NUTS",
    "SCIR",
    "SGD",
    "SGGMC",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRLD",
    "Dynamics",
    "ExactDynamics",
    "Underdamped",
]
