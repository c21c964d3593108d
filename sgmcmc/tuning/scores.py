"""Scores: gradients of the log-likelihood of single observations, and their covariance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.data.shards import Shard, map_over, pieces, shards
from sgmcmc.graphs.tracing import trace
from sgmcmc.target.target import Target

_PIECE_NUMBERS = 2**22


def score_covariance(
    target: Target, data: Data, u: np.ndarray, rows: np.ndarray | None = None
) -> np.ndarray:
    """Return Σ s_i s_iᵀ − N s̄ s̄ᵀ of the scores s_i = ∇ log p(x_i | θ), (d, d), in one pass.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        u: Position, (d,).
        rows: Row numbers that represent all; ``None`` for all.
    """
    d = target.size
    scores = _Scores(target, data, u)
    sums, products = np.zeros(d), np.zeros((d, d))
    if rows is None:
        calls = [(shard,) for shard in shards(data, max(1, _PIECE_NUMBERS // d))]
        parts = map_over(data, scores, "of_shard", calls)
    else:
        parts = iter([scores.of_rows(data.rows(rows))])
    for own, square in parts:
        sums += own
        products += square
    size = data.size if rows is None else len(rows)
    return (products - np.outer(sums, sums) / size) * (data.size / size)


@dataclass
class _Scores:
    """Sums of scores and of their products.

    Attributes:
        target: Log posterior.
        data: Dataset.
        u: Position.
    """

    target: Target
    data: Data
    u: np.ndarray
    _graphs: dict[int, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        # A worker traces its own graphs.
        return {**self.__dict__, "_graphs": {}}

    def of_shard(self, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of scores and that of their products, over a part of the data."""
        sums, products = np.zeros(len(self.u)), np.zeros((len(self.u), len(self.u)))
        for *_, columns in pieces(self.data, shard):
            own, square = self.of_rows(columns)
            sums += own
            products += square
        return sums, products

    def of_rows(self, columns: Tensors) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of scores and that of their products, over some rows."""
        position = tf.constant(self.u, self.target.dtype)
        length = int(next(iter(columns.values())).shape[0])
        if length not in self._graphs:
            self._graphs[length] = trace(self._sums, position, columns)
        own, square = self._graphs[length](position, columns)
        return own.numpy(), square.numpy()

    def _sums(self, position: tf.Tensor, columns: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.cast(self.target.term_gradients(position, columns), tf.float64)
        return tf.reduce_sum(found, 0), tf.matmul(found, found, transpose_a=True)
