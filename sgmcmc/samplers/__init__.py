"""The one-call functions: a module for each dynamics, with its plain and control variate forms."""

from sgmcmc.samplers.sghmc import sghmc, sghmc_setup, sghmccv, sghmccv_setup
from sgmcmc.samplers.sgld import sgld, sgld_setup, sgldcv, sgldcv_setup
from sgmcmc.samplers.sgnht import sgnht, sgnht_setup, sgnhtcv, sgnhtcv_setup

__all__ = [
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
]
