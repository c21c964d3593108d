"""The functions that users call: the named samplers by their space, and those for any parts."""

from sgmcmc.samplers.constrained import (
    gsgnht,
    gsgnht_setup,
    scir,
    scir_setup,
    sggmc,
    sggmc_setup,
    sgrld,
    sgrld_setup,
)
from sgmcmc.samplers.euclidean import (
    sghmc,
    sghmc_setup,
    sghmccv,
    sghmccv_setup,
    sgld,
    sgld_setup,
    sgldcv,
    sgldcv_setup,
    sgnht,
    sgnht_setup,
    sgnhtcv,
    sgnhtcv_setup,
)
from sgmcmc.samplers.exact import hmc, mala, mhss, nuts, predictor_bound, zigzag
from sgmcmc.samplers.sample import sample, setup

__all__ = [
    "gsgnht",
    "gsgnht_setup",
    "hmc",
    "mala",
    "mhss",
    "nuts",
    "predictor_bound",
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
    "zigzag",
]
