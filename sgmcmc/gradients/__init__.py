"""Gradient estimators: each a small module with its state, ``init`` and ``estimate``.

A new estimator is one file here and one row in the table that the tests walk through.
"""

from sgmcmc.gradients.control_variate import ControlVariateGradient
from sgmcmc.gradients.full import full_gradients
from sgmcmc.gradients.minibatch import MinibatchGradient

__all__ = ["ControlVariateGradient", "MinibatchGradient", "full_gradients"]
