"""What the dynamics for points of the simplex share: their state, and how it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.simplex import Simplex


class PointState(NamedTuple):
    """The state of a chain on simplices.

    Attributes:
        position: flat; u = log θ for points of the simplex, the parameter itself for others.
    """

    position: tf.Tensor


@dataclass(frozen=True)
class PointDynamics(Dynamics):
    """Moves u = log θ, ω = θ / Σθ; parameters that are no points of the simplex move by SGLD.

    Args:
        simplex: which parameters are points of the simplex.
        scaled: names of those whose θ is given at the start; of the others it is ω Σâ.
    """

    simplex: Simplex
    scaled: tuple[str, ...] = ()

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> PointState:
        """Return the state at the start of a chain; ``gradient`` holds ĉ for the simplices."""
        return PointState(self.simplex.at_start(position, gradient, self.scaled))
