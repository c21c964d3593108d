"""The Dirichlet-process mixture of categoricals, by the stochastic slice sampler."""

from __future__ import annotations

from sgmcmc.models.mixtures.dirichlet_process import dp_mixture
from sgmcmc.models.mixtures.model import DPMixture
from sgmcmc.models.mixtures.prediction import Prediction

__all__ = ["DPMixture", "Prediction", "dp_mixture"]
