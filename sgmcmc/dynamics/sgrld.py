"""Stochastic gradient Riemannian Langevin dynamics, for points of the simplex."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from sgmcmc.dynamics.points import PointDynamics, PointState
from sgmcmc.dynamics.sgld import langevin
from sgmcmc.simplex import smallest, usable_counts


@dataclass(frozen=True)
class SGRLD(PointDynamics):
    """θ' = | θ + (h/2) [alpha − θ + ĉ − ω Σĉ] + √(hθ) η |.

    Source:
        Patterson & Teh, NeurIPS 2013, eq. 10; thesis 5.2.2.
    """

    def move(
        self, state: PointState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> PointState:
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
        return PointState(simplex.unite(u, others))

    def drift(self, u: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Return alpha − θ + ĉ − ωΣĉ, flat, of u = log θ and ĉ."""
        points = tf.exp(self.simplex.log_points(u))
        alpha = tf.constant(self.simplex.alpha, u.dtype)
        return alpha - tf.exp(u) + counts - points * self.simplex.totals(counts)
