"""The plain minibatch estimate of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.minibatch import Minibatch
from sgmcmc.gradients.base import Gradient
from sgmcmc.gradients.whole_data import WholeData
from sgmcmc.target.target import Target


class MinibatchState(NamedTuple):
    """Empty state: the plain estimate has no memory."""


@dataclass(frozen=True)
class MinibatchGradient(Gradient):
    """ĝ(θ) = ∇log p(θ) + Σ_{i∈S} w_i ∇log p(x_i | θ), with w_i = N/n for uniform minibatches.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.MinibatchGradient()
        MinibatchGradient()

    Source:
        Welling & Teh, ICML 2011, eq. 4.
    """

    name = "minibatch"

    def init(self, whole: WholeData, position: np.ndarray) -> MinibatchState:
        """Return the state at the start of a chain."""
        return MinibatchState()

    def estimate(
        self,
        target: Target,
        state: MinibatchState,
        position: tf.Tensor,
        minibatch: Minibatch,
        at_center: Minibatch,
    ) -> tuple[tf.Tensor, MinibatchState]:
        """Return ĝ at ``position`` from one minibatch, and the state for the next call."""
        return target.gradient(position, minibatch), state

    def terms(
        self, target: Target, state: MinibatchState, position: tf.Tensor, minibatch: Minibatch
    ) -> tf.Tensor:
        """Return ∇log p(x_i | θ), (n, d)."""
        return target.term_gradients(position, minibatch.columns)


@dataclass(frozen=True)
class FullGradient(MinibatchGradient):
    """ĝ(θ) = ∇log p(θ | x), over the whole dataset at every step; the minibatch size is N.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.FullGradient().whole_dataset
        True

    Source:
        Roberts & Tweedie, Bernoulli 2, 1996, for Langevin dynamics with this gradient.
    """

    name = "full"
    whole_dataset = True
