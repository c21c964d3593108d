"""Gradient estimators: each a small module with a state that is carried, ``init`` and ``estimate``.

Every one derives from :class:`Gradient`, whose docstring describes the parts.
"""

from sgmcmc.gradients.base import Gradient, Search
from sgmcmc.gradients.control_variate import ControlVariate
from sgmcmc.gradients.minibatch import FullGradient, MinibatchGradient
from sgmcmc.gradients.saga import SAGA
from sgmcmc.gradients.svrg import SVRG
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
