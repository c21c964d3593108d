"""The spherical admixture model: documents and topics as unit vectors."""

from __future__ import annotations

from sgmcmc.models.spherical.admixture import sam
from sgmcmc.models.spherical.held_out import HeldOut
from sgmcmc.models.spherical.model import SphericalTopicModel

__all__ = ["HeldOut", "SphericalTopicModel", "sam"]
