"""The functions that users call: a module for each dynamics, and one for any parts."""

from sgmcmc.samplers.gsgnht import gsgnht, gsgnht_setup
from sgmcmc.samplers.hmc import hmc, nuts
from sgmcmc.samplers.sample import sample, setup
from sgmcmc.samplers.scir import scir, scir_setup
from sgmcmc.samplers.sggmc import sggmc, sggmc_setup
from sgmcmc.samplers.sghmc import sghmc, sghmc_setup, sghmccv, sghmccv_setup
from sgmcmc.samplers.sgld import sgld, sgld_setup, sgldcv, sgldcv_setup
from sgmcmc.samplers.sgnht import sgnht, sgnht_setup, sgnhtcv, sgnhtcv_setup
from sgmcmc.samplers.sgrld import sgrld, sgrld_setup

__all__ = [
    "gsgnht",
    "gsgnht_setup",
    "hmc",
    "nuts",
    "sample",
    "scir",
    "scir_setup",
    "sggmc",
    "sggmc_setup",
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
    "setup",
]
