"""Manifolds: spaces in ℝᵈ that a parameter has to stay on.

``manifolds={"v": sgmcmc.manifolds.Sphere()}`` says that the parameter ``v`` is made of unit
vectors. :func:`sgmcmc.sggmc` and :func:`sgmcmc.gsgnht` move such a parameter along geodesics.
"""

from sgmcmc.manifolds.base import Manifold
from sgmcmc.manifolds.stiefel import Simplex, Sphere, Stiefel

__all__ = ["Manifold", "Simplex", "Sphere", "Stiefel"]
