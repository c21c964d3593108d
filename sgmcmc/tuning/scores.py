"""Scores: gradients of the log-likelihood of single observations, and their covariance."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.data.passes import Pass
from sgmcmc.target.target import Target
from sgmcmc.tuning.objective import kept_graphs

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

    def scores(position: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        found = tf.cast(target.term_gradients(position, columns), tf.float64)
        return [tf.reduce_sum(found, 0), tf.matmul(found, found, transpose_a=True)]

    over = Pass(data, {"scores": scores}, graphs=kept_graphs(target, data))
    position = u.astype(target.dtype.as_numpy_dtype)
    if rows is None:
        most = max(1, _PIECE_NUMBERS // target.size)
        sums, products = over.sums("scores", position, most=most)
    else:
        sums, products = (p.numpy() for p in over.run("scores", position, data.rows(rows)))
    size = data.size if rows is None else len(rows)
    return (products - np.outer(sums, sums) / size) * (data.size / size)
