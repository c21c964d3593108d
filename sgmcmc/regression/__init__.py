"""Regressions by formula."""

from sgmcmc.regression.combining import combine
from sgmcmc.regression.fit import Regression
from sgmcmc.regression.glm import glm
from sgmcmc.results.loo import Difference, Loo

__all__ = ["Difference", "Loo", "Regression", "combine", "glm"]
