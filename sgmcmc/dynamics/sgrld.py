"""Stochastic gradient Riemannian Langevin dynamics, for points of the simplex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.sgld import langevin
from sgmcmc.simplex import Simplex, smallest, usable_counts


class SGRLDState(NamedTuple):
    """The state of SGRLD.

    Attributes:
        position: flat; u = log θ for points of the simplex, the parameter itself for others.
    """

    position: tf.Tensor


@dataclass(frozen=True)
class SGRLD(Dynamics):
    """θ' = | θ + (h/2) [alpha − θ + ĉ − ω Σĉ] + √(hθ) η |.

    Parameters that are no points of the simplex move by SGLD.

    Args:
        simplex: which parameters are points of the simplex.
        scaled: names of those whose θ is given at the start; of the others it is ω Σâ.

    Source:
        Patterson & Teh, NeurIPS 2013, eq. 10; thesis 5.2.2.
    """

    simplex: Simplex
    scaled: tuple[str, ...] = ()

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGRLDState:
        """Return the state at the start of a chain; ``gradient`` holds ĉ for the simplices."""
        return SGRLDState(self.simplex.at_start(position, gradient, self.scaled))

    def move(
        self, state: SGRLDState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGRLDState:
        """Return the state one step on; ``normals`` is η, of shape (1, d)."""
        simplex = self.simplex
        u, others = simplex.divide(state.position)
        counts, slopes = simplex.divide(gradient)
        h, epsilon = simplex.divide(stepsize)
        noise, other_noise = simplex.divide(normals[0])
        theta = tf.exp(u)
        moved = theta + 0.5 * h * self.drift(u, usable_counts(counts)) + tf.sqrt(h * theta) * noise
        u = tf.math.log(tf.maximum(tf.abs(moved), smallest(u.dtype)))
        if not simplex.alone:
            others = langevin(others, slopes, epsilon, other_noise)
        return SGRLDState(simplex.unite(u, others))

    def drift(self, u: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Return alpha − θ + ĉ − ωΣĉ, flat, of u = log θ and ĉ."""
        points = tf.exp(self.simplex.log_points(u))
        alpha = tf.constant(self.simplex.alpha, u.dtype)
        return alpha - tf.exp(u) + counts - points * self.simplex.totals(counts)
