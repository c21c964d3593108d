"""The stochastic Cox–Ingersoll–Ross process, for points of the simplex."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.checks import flag
from sgmcmc.dynamics.langevin import overdamped
from sgmcmc.dynamics.simplex import SimplexDynamics, SimplexState
from sgmcmc.dynamics.variates import gamma, poisson
from sgmcmc.target.geometry import Space
from sgmcmc.target.geometry.simplex import usable_counts


@dataclass(frozen=True)
class SCIR(SimplexDynamics):
    """θ' = (1 − e^(−h))/2 · W, W ~ χ²(2â, 2θ e^(−h)/(1 − e^(−h))), with â = alpha + ĉ.

    The non-central chi-squared law is drawn as what it is, a chi-squared law whose degrees of
    freedom are raised by twice a Poisson number: θ' = (1 − e^(−h)) Γ with Γ ~ Gamma(â + N) and
    N ~ Poisson(θ e^(−h)/(1 − e^(−h))). To have log θ' however small it is, Γ is drawn as
    G V^(1/(â + N)) with G ~ Gamma(â + N + 1) and V uniform.

    Σθ of the last step depends on the counts of the last step. Where latent variables are drawn
    and the totals Σĉ of several points differ from draw to draw, it is not independent of ω, and
    the law of ω is wrong at any h. ``fresh_scale`` draws Σθ ~ Gamma(Σâ) before each step; then
    ω ~ Dirichlet(â) goes to ω' ~ Dirichlet(â) whatever Σθ was.

    Args:
        alpha: Dirichlet concentrations: a number or an array for all parameters, or a dict that
            names those which are points of the simplex.
        theta0: dict of starts of the unnormalised θ > 0; without it θ starts at ω Σâ.
        store_unnormalised: keep θ with each draw.
        fresh_scale: draw Σθ ~ Gamma(Σâ) afresh before each step.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SCIR(alpha=0.1).alpha
        0.1

    Source:
        Baker, Fearnhead, Fox & Nemeth, NeurIPS 2018, algorithm 1; Baker, *Large-Scale Bayesian
        Computation Using Stochastic Gradient MCMC*, Lancaster 2018, section 5.3.3.
    """

    fresh_scale: bool = False

    name = "scir"
    step_normals = 0
    seeds = 7
    compilable = False

    def bind(self, space: Space) -> SCIR:
        """Return these dynamics, knowing which coordinates are on simplices."""
        flag("fresh_scale", self.fresh_scale)
        return super().bind(space)

    def step(
        self, state: SimplexState, gradient: tf.Tensor, stepsize: tf.Tensor, seeds: tf.Tensor
    ) -> SimplexState:
        """Return the state one step on; ``seeds`` has shape (7, 2)."""
        simplices = self.simplices
        u, others = simplices.divide(state.position)
        counts, slopes = simplices.divide(gradient)
        h, epsilon = simplices.divide(stepsize)
        degrees = tf.constant(simplices.alpha, u.dtype) + usable_counts(counts)
        if self.fresh_scale:
            u = self._rescaled(u, degrees, seeds[6])
        u = _transition(u, degrees, h, seeds)
        if not simplices.alone:
            normals = tf.random.stateless_normal(others.shape, seeds[6], dtype=others.dtype)
            others = overdamped(others, slopes, epsilon, normals)
        return SimplexState(simplices.unite(u, others))

    def _rescaled(self, u: tf.Tensor, degrees: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return log θ with the same ω and Σθ ~ Gamma(Σâ)."""
        seeds = tf.random.split(seed, 4, alg="philox")
        log_scale = _log_gamma(self.simplices.sums(degrees), seeds)
        return self.simplices.log_points(u) + self.simplices.spread(log_scale)


def _transition(u: tf.Tensor, degrees: tf.Tensor, h: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Return a draw of log θ', given u = log θ and â."""
    rate = tf.exp(u) / tf.math.expm1(h)
    # TensorFlow's Poisson draws never return from what is not finite.
    good = tf.math.is_finite(rate) & tf.math.is_finite(degrees)
    rate, degrees = tf.where(good, rate, 1.0), tf.where(good, degrees, 1.0)
    degrees += poisson(rate, seeds[:2])
    log_theta = tf.math.log(-tf.math.expm1(-h)) + _log_gamma(degrees, seeds[2:6])
    return tf.where(good, log_theta, np.nan)


def _log_gamma(shape: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Return logs of numbers with the laws Gamma(shape, 1), however small; seeds are (4, 2)."""
    # TensorFlow's gamma draws never return from what is not finite.
    good = tf.math.is_finite(shape)
    shape = tf.where(good, shape, 1.0)
    # 1 − V is as uniform as V, and never zero.
    uniform = tf.random.stateless_uniform(shape.shape, seeds[0], dtype=shape.dtype)
    drawn = tf.math.log(gamma(shape + 1.0, seeds[1:])) + tf.math.log1p(-uniform) / shape
    return tf.where(good, drawn, np.nan)
