"""Stochastic gradient Riemannian Langevin dynamics, for points of the simplex."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from sgmcmc.dynamics.langevin import overdamped
from sgmcmc.dynamics.simplex import SimplexDynamics, SimplexState
from sgmcmc.target.geometry.simplex import smallest, usable_counts


@dataclass(frozen=True)
class SGRLD(SimplexDynamics):
    """θ' = | θ + (h/2) [alpha − θ + ĉ − ω Σĉ] + √(hθ) η |.

    Args:
        alpha: Dirichlet concentrations: a number or an array for all parameters, or a dict that
            names those which are points of the simplex.
        theta0: dict of starts of the unnormalised θ > 0; without it θ starts at ω Σâ.
        store_unnormalised: keep θ with each draw.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGRLD(alpha=0.1).alpha
        0.1

    Source:
        Patterson & Teh, NeurIPS 2013, eq. 10; Baker, *Large-Scale Bayesian Computation Using
        Stochastic Gradient MCMC*, Lancaster 2018, section 5.2.2.
    """

    name = "sgrld"

    def step(
        self, state: SimplexState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SimplexState:
        """Return the state one step on; ``normals`` is η, of shape (1, d)."""
        simplices = self.simplices
        u, others = simplices.divide(state.position)
        counts, slopes = simplices.divide(gradient)
        h, epsilon = simplices.divide(stepsize)
        noise, other_noise = simplices.divide(normals[0])
        theta = tf.exp(u)
        moved = theta + 0.5 * h * self.drift(u, usable_counts(counts)) + tf.sqrt(h * theta) * noise
        u = tf.math.log(tf.maximum(tf.abs(moved), smallest(u.dtype)))
        if not simplices.alone:
            others = overdamped(others, slopes, epsilon, other_noise)
        return SimplexState(simplices.unite(u, others))

    def drift(self, u: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Return alpha − θ + ĉ − ωΣĉ, flat, of u = log θ and ĉ."""
        points = tf.exp(self.simplices.log_points(u))
        alpha = tf.constant(self.simplices.alpha, u.dtype)
        return alpha - tf.exp(u) + counts - points * self.simplices.totals(counts)
