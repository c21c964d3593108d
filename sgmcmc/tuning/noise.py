"""The noise of a gradient estimate where the posterior is, measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Minibatch
from sgmcmc.data.rng import Purpose, RunPhase, generator
from sgmcmc.graphs.tracing import trace
from sgmcmc.minibatches import RowDraws

_ROUND = 64
"""Pairs of minibatches that are gathered at once."""

Estimate = Callable[[tf.Tensor, Minibatch], tf.Tensor]


def estimate_noise(
    estimate: Estimate,
    data: Data,
    draws: RowDraws,
    positions: np.ndarray,
    dtype: tf.DType,
    seed: int,
) -> np.ndarray:
    """Return the gradient's noise at each position: half the difference of two estimates, ×√2.

    Args:
        estimate: the gradient estimate at a position from a minibatch.
        data: the dataset.
        draws: how rows are drawn.
        positions: where, (k, d).
        dtype: of the chain.
        seed: for the rows.

    Returns:
        (k, d), with the covariance of the noise.
    """
    rng = generator(seed, 0, RunPhase.MODE, Purpose.MINIBATCH)
    weights = None if draws.weights is None else draws.weights.astype(dtype.as_numpy_dtype)
    scale = data.size / draws.size

    def difference(arguments: tuple[tf.Tensor, ...]) -> tf.Tensor:
        position, columns, each = arguments
        first, second = (
            estimate(
                position,
                Minibatch(
                    {n: c[k] for n, c in columns.items()}, scale if weights is None else each[k]
                ),
            )
            for k in (0, 1)
        )
        return (first - second) / np.sqrt(2.0)

    def differences(
        positions: tf.Tensor, columns: dict[str, tf.Tensor], each: tf.Tensor
    ) -> tf.Tensor:
        return tf.map_fn(
            difference, (positions, columns, each), fn_output_signature=positions.dtype
        )

    graph, found = None, []
    for start in range(0, len(positions), _ROUND):
        at = positions[start : start + _ROUND]
        rows = draws.draw(rng, 2 * _ROUND).reshape(_ROUND, 2, -1)[: len(at)]
        columns = {name: tf.constant(a) for name, a in data.rows(rows).items()}
        each = tf.zeros([len(at), 2], dtype) if weights is None else tf.constant(weights[rows])
        arguments = (tf.constant(at, dtype), columns, each)
        if graph is None or len(at) != _ROUND:
            graph = trace(differences, *arguments)
        found.append(graph(*arguments).numpy())
    return np.concatenate(found).astype(np.float64)
