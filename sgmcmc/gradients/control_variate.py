"""The control variate estimate of the gradient, centred at a mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from sgmcmc.model import Model, Tensors


class ControlVariateState(NamedTuple):
    """Where the control variate is centred.

    Attributes:
        centre: θ̂, flat.
        full_gradient: G = ∇log p(θ̂ | x) over the whole dataset, flat.
    """

    centre: tf.Tensor
    full_gradient: tf.Tensor


@dataclass(frozen=True)
class ControlVariateGradient:
    """ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + (N/n) Σ_{i∈S} [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].

    Args:
        model: the model.
        scale: N/n.

    Source:
        Thesis 3.3.1; Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9.
    """

    model: Model
    scale: float
    centred = True

    def init(self, centre: tf.Tensor, full_gradient: tf.Tensor) -> ControlVariateState:
        """Return the state at the start of a chain."""
        return ControlVariateState(centre, full_gradient)

    def estimate(
        self,
        state: ControlVariateState,
        position: tf.Tensor,
        minibatch: Tensors,
        at_centre: Tensors | None = None,
    ) -> tuple[tf.Tensor, ControlVariateState]:
        """Return ĝ at ``position`` from one minibatch, and the state for the next call.

        Args:
            state: where the control variate is centred.
            position: θ, flat and unconstrained.
            minibatch: the observations.
            at_centre: the same with latent variables drawn at the centre, if there are such.
        """
        here = self.model.gradient(position, minibatch, self.scale)
        centred = minibatch if at_centre is None else at_centre
        centre = self.model.gradient(state.centre, centred, self.scale)
        return state.full_gradient + (here - centre), state
