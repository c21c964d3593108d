"""Regressions by formula."""

from sgmcmc.regression.glm import glm
from sgmcmc.regression.result import Regression
from sgmcmc.results.loo import Difference, Loo

__all__ = ["Difference", "Loo", "Regression", "glm"]
