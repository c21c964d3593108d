"""Models from other libraries, and simulation-based calibration."""

from sgmcmc.neighbours.calibration import Calibration, sbc
from sgmcmc.neighbours.jax_functions import JaxFunction, from_jax
from sgmcmc.neighbours.joint import JointModel, from_joint
from sgmcmc.neighbours.numpyro_models import NumPyroModel, from_numpyro
from sgmcmc.neighbours.pymc_models import PyMCModel, from_pymc

__all__ = [
    "Calibration",
    "JaxFunction",
    "JointModel",
    "NumPyroModel",
    "PyMCModel",
    "from_jax",
    "from_joint",
    "from_numpyro",
    "from_pymc",
    "sbc",
]
