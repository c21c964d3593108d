"""Regressions by formula."""

from sgmcmc.regression.glm import glm
from sgmcmc.regression.result import Regression
from sgmcmc.results.loo import Loo

__all__ = ["Loo", "Regression", "glm"]
