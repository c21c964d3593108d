"""Gradient estimators: each a small module with a state that is carried, ``init`` and ``estimate``.

Every one derives from :class:`Gradient`, whose docstring describes the parts.
"""

from sgmcmc.gradients.base import FullGradient, Gradient, MinibatchGradient, Search
from sgmcmc.gradients.control_variate import SVRG, ControlVariate
from sgmcmc.gradients.saga import SAGA
from sgmcmc.gradients.whole_data import WholeData

__all__ = [
    "SAGA",
    "SVRG",
    "ControlVariate",
    "FullGradient",
    "Gradient",
    "MinibatchGradient",
    "Search",
    "WholeData",
]
