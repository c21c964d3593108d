"""The one-call functions: a module for each dynamics, with all its forms."""

from sgmcmc.samplers.scir import scir, scir_setup
from sgmcmc.samplers.sghmc import sghmc, sghmc_setup, sghmccv, sghmccv_setup
from sgmcmc.samplers.sgld import sgld, sgld_setup, sgldcv, sgldcv_setup
from sgmcmc.samplers.sgnht import sgnht, sgnht_setup, sgnhtcv, sgnhtcv_setup
from sgmcmc.samplers.sgrld import sgrld, sgrld_setup

__all__ = [
    "scir",
    "scir_setup",
    "sghmc",
    "sghmc_setup",
    "sghmccv",
    "sghmccv_setup",
    "sgld",
    "sgld_setup",
    "sgldcv",
    "sgldcv_setup",
    "sgnht",
    "sgnht_setup",
    "sgnhtcv",
    "sgnhtcv_setup",
    "sgrld",
    "sgrld_setup",
]
