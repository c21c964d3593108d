"""The stochastic Cox–Ingersoll–Ross process, for points of the simplex."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics.langevin import overdamped
from sgmcmc.dynamics.simplex import SimplexDynamics, SimplexState
from sgmcmc.dynamics.variates import gamma, poisson
from sgmcmc.target.geometry.simplex import usable_counts


@dataclass(frozen=True)
class SCIR(SimplexDynamics):
    """θ' = (1 − e^(−h))/2 · W, W ~ χ²(2â, 2θ e^(−h)/(1 − e^(−h))), with â = alpha + ĉ.

    The non-central chi-squared law is drawn as what it is, a chi-squared law whose degrees of
    freedom are raised by twice a Poisson number: θ' = (1 − e^(−h)) Γ with Γ ~ Gamma(â + N) and
    N ~ Poisson(θ e^(−h)/(1 − e^(−h))). To have log θ' however small it is, Γ is drawn as
    G V^(1/(â + N)) with G ~ Gamma(â + N + 1) and V uniform.

    Args:
        alpha: Dirichlet concentrations: a number or an array for all parameters, or a dict that
            names those which are points of the simplex.
        theta0: dict of starts of the unnormalised θ > 0; without it θ starts at ω Σâ.
        store_unnormalised: keep θ with each draw.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SCIR(alpha=0.1).alpha
        0.1

    Source:
        Baker, Fearnhead, Fox & Nemeth, NeurIPS 2018, algorithm 1; Baker, *Large-Scale Bayesian
        Computation Using Stochastic Gradient MCMC*, Lancaster 2018, section 5.3.3.
    """

    name = "scir"
    step_normals = 0
    seeds = 7
    compilable = False

    def step(
        self, state: SimplexState, gradient: tf.Tensor, stepsize: tf.Tensor, seeds: tf.Tensor
    ) -> SimplexState:
        """Return the state one step on; ``seeds`` has shape (7, 2)."""
        simplices = self.simplices
        u, others = simplices.divide(state.position)
        counts, slopes = simplices.divide(gradient)
        h, epsilon = simplices.divide(stepsize)
        degrees = tf.constant(simplices.alpha, u.dtype) + usable_counts(counts)
        u = _transition(u, degrees, h, seeds)
        if not simplices.alone:
            normals = tf.random.stateless_normal(others.shape, seeds[6], dtype=others.dtype)
            others = overdamped(others, slopes, epsilon, normals)
        return SimplexState(simplices.unite(u, others))


def _transition(u: tf.Tensor, degrees: tf.Tensor, h: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Return a draw of log θ', given u = log θ and â."""
    rate = tf.exp(u) / tf.math.expm1(h)
    # TensorFlow's gamma and Poisson draws never return from what is not finite.
    good = tf.math.is_finite(rate) & tf.math.is_finite(degrees)
    rate, degrees = tf.where(good, rate, 1.0), tf.where(good, degrees, 1.0)
    degrees += poisson(rate, seeds[:2])
    # 1 − V is as uniform as V, and never zero.
    uniform = tf.random.stateless_uniform(u.shape, seeds[2], dtype=u.dtype)
    log_gamma = tf.math.log(gamma(degrees + 1.0, seeds[3:6])) + tf.math.log1p(-uniform) / degrees
    log_theta = tf.math.log(-tf.math.expm1(-h)) + log_gamma
    return tf.where(good, log_theta, np.nan)
