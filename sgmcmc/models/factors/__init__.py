"""Bayesian probabilistic matrix factorisation: ratings as products of factors."""

from __future__ import annotations

from sgmcmc.models.factors.factorisation import matrix_factorisation
from sgmcmc.models.factors.held_out import HeldOutRatings
from sgmcmc.models.factors.model import MatrixFactorisation

__all__ = ["HeldOutRatings", "MatrixFactorisation", "matrix_factorisation"]
