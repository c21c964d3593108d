"""The one-call functions: a module for each dynamics, with its plain and control variate forms."""

from sgmcmc.samplers.sghmc import sghmc, sghmccv
from sgmcmc.samplers.sgld import sgld, sgldcv
from sgmcmc.samplers.sgnht import sgnht, sgnhtcv

__all__ = ["sghmc", "sghmccv", "sgld", "sgldcv", "sgnht", "sgnhtcv"]
