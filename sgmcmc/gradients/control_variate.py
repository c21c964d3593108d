"""The control variate estimate of the gradient, centred at a mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data import Data
from sgmcmc.model import Model, Tensors
from sgmcmc.tracing import trace


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
    looks_ahead = True

    def init(self, centre: tf.Tensor, full_gradient: tf.Tensor) -> ControlVariateState:
        """Return the state at the start of a chain."""
        return ControlVariateState(centre, full_gradient)

    def look_ahead(self, state: ControlVariateState, minibatch: Tensors) -> tf.Tensor:
        """Return the minibatch gradient at the centre, which needs no position."""
        return self.model.gradient(state.centre, minibatch, self.scale)

    def estimate(
        self,
        state: ControlVariateState,
        position: tf.Tensor,
        minibatch: Tensors,
        known: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, ControlVariateState]:
        """Return ĝ at ``position`` from one minibatch, and the state for the next call.

        Args:
            state: where the control variate is centred.
            position: θ, flat and unconstrained.
            minibatch: the observations.
            known: what ``look_ahead`` returned for them, if it was asked before.
        """
        here = self.model.gradient(position, minibatch, self.scale)
        centre = self.look_ahead(state, minibatch) if known is None else known
        return state.full_gradient + (here - centre), state


def full_gradients(model: Model, data: Data, positions: list[np.ndarray]) -> list[np.ndarray]:
    """Return G = ∇log p(θ | x) over the whole dataset at each of some positions.

    The dataset is passed over once, in pieces that fit in memory, which are added in float64.

    Args:
        model: the model.
        data: the dataset.
        positions: where, flat and unconstrained.
    """
    points = [tf.constant(position) for position in positions]
    totals = [np.zeros(position.shape) for position in positions]
    graphs: dict[tuple[bool, int], Callable[[tf.Tensor, Tensors], tf.Tensor]] = {}
    for number, piece in enumerate(data.pieces()):
        kind = number == 0, len(next(iter(piece.values())))
        if kind not in graphs:
            # The prior and the Jacobian count once, with the first piece.
            graphs[kind] = trace(_gradient_of_piece(model, kind[0]), points[0], piece)
        for point, total in zip(points, totals, strict=True):
            total += graphs[kind](point, piece).numpy()
    dtype = model.dtype.as_numpy_dtype
    return [total.astype(dtype) for total in totals]


def _gradient_of_piece(model: Model, with_prior: bool) -> Callable[[tf.Tensor, Tensors], tf.Tensor]:
    return lambda position, piece: model.gradient(position, piece, 1.0, with_prior)
