"""The stochastic gradient lattice random walk: steps of one size, whose sign the gradient draws."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.langevin import PositionState


@dataclass(frozen=True)
class SGLRW(Dynamics):
    """θ' = θ + √ε b, with b = 1 with probability (1 + √ε ĝ(θ)/2)/2, otherwise −1, by coordinate.

    The probability is cut off at 0 and 1. A step has the mean (ε/2) ĝ and the second moment ε, as
    one of SGLD has to first order in ε, but it is never longer than √ε in any coordinate, and its
    second moment is ε whatever the noise of ĝ is.

    On a normal posterior, where probabilities are not cut off, the covariance Σ solves
    ε(HΣ + ΣH)/2 = εI + (ε²/4) offdiag(HΣH + V), with H the precision and V the covariance of ĝ:
    the noise of gradients, and the discretization, come in only through what coordinates share. In
    coordinates that are independent of each other, noise included, variances are exact at any ε.
    Beyond |ĝ| = 2/√ε the probability is cut off, and the drift is too small there.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGLRW()
        SGLRW()

    Source:
        Mensch, Holdijk, Duffield, Aifer, Coles, Welling & Cheng, arXiv 2602.15925, 2026. The
        equation is written here in the constants of SGLD.
    """

    name = "sglrw"

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> PositionState:
        """Return the state at the start of a chain."""
        return PositionState(position)

    def step(
        self, state: PositionState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> PositionState:
        """Return the state one step on; ``normals`` are those that draw b, of shape (1, d)."""
        size = tf.sqrt(stepsize) * tf.ones_like(gradient)
        # 2Φ(z) − 1 of a standard normal z is uniform on (−1, 1).
        uniform = tf.math.erf(normals[0] / math.sqrt(2.0))
        drift = 0.5 * size * gradient
        moved = tf.where(uniform <= drift, size, -size)
        # A drift that is not a number must not go unseen.
        return PositionState(state.position + tf.where(tf.math.is_nan(drift), drift, moved))
