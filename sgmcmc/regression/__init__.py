"""Regressions by formula."""

from sgmcmc.regression.glm import glm
from sgmcmc.regression.result import Loo, Regression

__all__ = ["Loo", "Regression", "glm"]
