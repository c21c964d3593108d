"""The spaces of parameters, and the coordinates in which a chain moves there."""

from sgmcmc.target.geometry.base import Geometry, Preconditioner, root_of
from sgmcmc.target.geometry.bijected import Bijected
from sgmcmc.target.geometry.space import Space

__all__ = ["Bijected", "Geometry", "Preconditioner", "Space", "root_of"]
