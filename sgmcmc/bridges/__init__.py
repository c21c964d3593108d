"""Models from other libraries, and simulation-based calibration."""

from sgmcmc.bridges.calibration import Calibration, sbc
from sgmcmc.bridges.jax_functions import JaxFunction, from_jax
from sgmcmc.bridges.joint import JointModel, from_joint
from sgmcmc.bridges.numpyro_models import NumPyroModel, from_numpyro
from sgmcmc.bridges.pymc_models import PyMCModel, from_pymc

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
