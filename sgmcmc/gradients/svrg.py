"""The stochastic variance reduced gradient: a control variate whose center follows the chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.checks import whole_number
from sgmcmc.gradients.control_variate import Centered, CenteredState
from sgmcmc.gradients.whole_data import WholeData


@dataclass(frozen=True)
class SVRG(Centered):
    """ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̃)] + Σ_{i∈S} w_i [∇log p(x_i|θ) − ∇log p(x_i|θ̃)].

    Every m iterations θ̃ becomes the present θ, and G = ∇log p(θ̃ | x) is computed again over the
    whole dataset; the first step from there has the exact gradient. No mode is needed.

    Args:
        every: m, the number of iterations between full gradients; by default N/n, so that each full
            gradient comes after one pass over the data in minibatches.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.SVRG(every=100)
        SVRG(every=100)

    Source:
        Dubey, Reddi, Póczos, Smola, Xing & Williamson, NeurIPS 2016, algorithm 2.
    """

    every: int | None = None

    name = "svrg"

    def bind(self, whole: WholeData) -> SVRG:
        """Return this estimator with its constant checked."""
        if self.every is not None:
            whole_number("every", self.every, 1)
        return self

    def refresh_every(self, whole: WholeData) -> int:
        """Return m."""
        if self.every is None:
            return max(1, round(whole.size / whole.minibatch_size))
        return int(self.every)

    def refresh(
        self, whole: WholeData, state: CenteredState, position: np.ndarray, visit: int
    ) -> tuple[np.ndarray, CenteredState]:
        """Return the full gradient at the present position, and the state centered there."""
        gradient = whole.gradient(position, visit)
        return gradient, CenteredState(tf.constant(position), tf.constant(gradient))
