"""The gradient over the whole dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data import Data
from sgmcmc.latents import Latents
from sgmcmc.model import Model, Tensors
from sgmcmc.streams import Phase, Purpose, generator
from sgmcmc.tracing import trace

PASSES = 100
"""Passes over the dataset that the gradient is averaged over where latent variables are drawn."""


def full_gradients(
    model: Model,
    data: Data,
    positions: list[np.ndarray],
    latents: Latents | None = None,
    seed: int = 0,
) -> list[np.ndarray]:
    """Return G = ∇log p(θ | x) over the whole dataset at each of some positions.

    The dataset is passed over in pieces that fit in memory, which are added in float64: once, or
    ``PASSES`` times where latent variables are drawn, whose noise G is then the mean over. Where
    their values are kept from pass to pass, the first half of the passes is dropped.

    Args:
        model: the model.
        data: the dataset.
        positions: where, flat and unconstrained.
        latents: draws the latent variables, if there are any.
        seed: for them.
    """
    one_pass = _Pass(model, data, latents)
    points = [tf.constant(position) for position in positions]
    dtype = model.dtype.as_numpy_dtype
    if latents is None:
        return [one_pass.gradient(point, {}, None)[0].astype(dtype) for point in points]
    means = []
    for chain, point in enumerate(points):
        kept, gradients = latents.start(), []
        for number in range(PASSES):
            rng = generator(seed, chain, Phase.MODE, Purpose.FULL_GRADIENT, number)
            gradient, kept = one_pass.gradient(point, kept, rng)
            gradients.append(gradient)
            if number == 1 and np.array_equal(gradients[0], gradients[1]):
                break  # nothing is drawn at random
        warm_up = len(gradients) // 2 if kept else 0
        means.append(np.mean(gradients[warm_up:], 0).astype(dtype))
    return means


class _Pass:
    """A pass over the dataset, whose graphs are made once."""

    def __init__(self, model: Model, data: Data, latents: Latents | None) -> None:
        self._model, self._data, self._latents = model, data, latents
        self._graphs: dict[tuple[bool, int], Any] = {}

    def gradient(
        self, point: tf.Tensor, kept: Tensors, rng: np.random.Generator | None
    ) -> tuple[np.ndarray, Tensors]:
        """Return the gradient over all pieces, and what is kept of latent variables then."""
        total, start = np.zeros(point.shape), 0
        for piece in self._data.pieces():
            length = next(iter(piece.values())).shape[0]
            seed = [0, 0] if rng is None else rng.integers(-(2**31), 2**31, 2, dtype=np.int32)
            arguments = (point, piece, tf.constant(start), kept, tf.constant(seed, tf.int32))
            # The prior and the Jacobian count once, with the first piece.
            kind = start == 0, length
            if kind not in self._graphs:
                self._graphs[kind] = trace(self._of_piece(*kind), *arguments)
            part, kept = self._graphs[kind](*arguments)
            total += part.numpy()
            start += length
        return total, kept

    def _of_piece(self, with_prior: bool, length: int) -> Any:
        model, latents = self._model, self._latents

        def gradient(
            point: tf.Tensor, piece: Tensors, start: tf.Tensor, kept: Tensors, seed: tf.Tensor
        ) -> tuple[tf.Tensor, Tensors]:
            if latents is not None:
                rows = start + tf.range(length)
                piece, kept = latents.draw(model.constrain(point), piece, rows, kept, seed)
            return model.gradient(point, piece, 1.0, with_prior), kept

        return gradient
