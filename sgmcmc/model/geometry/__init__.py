"""The spaces of parameters, and the coordinates in which a chain moves there."""

from sgmcmc.model.geometry.base import Geometry
from sgmcmc.model.geometry.bijectors import Bijected
from sgmcmc.model.geometry.preconditioners import (
    Arrow,
    ArrowBlocks,
    Preconditioner,
    arrow_of,
    arrow_of_coupled,
    inverse_root,
    root_of,
)
from sgmcmc.model.geometry.space import Space

__all__ = [
    "Arrow",
    "ArrowBlocks",
    "Bijected",
    "Geometry",
    "Preconditioner",
    "Space",
    "arrow_of",
    "arrow_of_coupled",
    "inverse_root",
    "root_of",
]
