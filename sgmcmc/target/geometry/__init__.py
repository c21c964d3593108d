"""The spaces of parameters, and the coordinates in which a chain moves there."""

from sgmcmc.target.geometry.arrow import Arrow, arrow_of, arrow_of_coupled, inverse_root
from sgmcmc.target.geometry.base import Bijected, Geometry, Preconditioner, root_of
from sgmcmc.target.geometry.space import Space

__all__ = [
    "Arrow",
    "Bijected",
    "Geometry",
    "Preconditioner",
    "Space",
    "arrow_of",
    "arrow_of_coupled",
    "inverse_root",
    "root_of",
]
