"""What the dynamics on manifolds share."""

from __future__ import annotations

from dataclasses import dataclass, field

import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.target.geometry import Space


@dataclass(frozen=True)
class GeodesicDynamics(Dynamics):
    """Moves θ along geodesics, with a velocity ν in the tangent space, on the scale of one step.

    Parameters that are on no manifold move in ℝᵈ, where geodesics are straight.

    Args:
        space: where the parameters live; set by ``bind``.
    """

    space: Space | None = field(
        default=None, repr=False, compare=False, kw_only=True, metadata={"constant": False}
    )

    start_normals = 1
    on_manifolds = True

    def settled(self, position: tf.Tensor, momentum: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return position and velocity with the rounding of a step undone."""
        space = self.known_space
        position = space.retracted(position)
        return position, space.tangent(position, momentum)

    def kicked(
        self, position: tf.Tensor, momentum: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> tf.Tensor:
        """Return ν + (ε/2) Λ(θ) ĝ(θ)."""
        space = self.known_space
        slope = space.tangent(position, space.held(position, gradient, stepsize))
        return momentum + 0.5 * stepsize * slope

    @property
    def known_space(self) -> Space:
        """Where the parameters live."""
        assert self.space is not None, "not bound"
        return self.space
