"""The plain minibatch estimate of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from sgmcmc.model import Model, Tensors


class MinibatchState(NamedTuple):
    """The plain estimate remembers nothing."""


@dataclass(frozen=True)
class MinibatchGradient:
    """ĝ(θ) = ∇log p(θ) + (N/n) Σ_{i∈S} ∇log p(x_i | θ).

    Args:
        model: the model.
        scale: N/n.

    Source:
        Welling & Teh, ICML 2011, eq. 4; thesis 4.3.2.
    """

    model: Model
    scale: float
    centred = False

    def init(self) -> MinibatchState:
        """Return the state at the start of a chain."""
        return MinibatchState()

    def estimate(
        self, state: MinibatchState, position: tf.Tensor, minibatch: Tensors, at_centre: None = None
    ) -> tuple[tf.Tensor, MinibatchState]:
        """Return ĝ at ``position`` from one minibatch, and the state for the next call."""
        return self.model.gradient(position, minibatch, self.scale), state
