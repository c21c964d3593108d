"""Sees that a log-likelihood is a sum over the observations, where it is taken in pieces."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.data.sparse import Parts
from sgmcmc.graphs.tracing import trace
from sgmcmc.target.posterior import piece_rows
from sgmcmc.target.target import Target

_ROUNDING = 1e-3
"""How far the sum over two halves may be from the whole, as a part of their sizes."""


def need_sum_of_pieces(target: Target, data: Data, start: np.ndarray) -> None:
    """Raise an error where the log-likelihood of some rows is not the sum over two halves of them.

    A dataset that is taken as a whole need not be a sum.

    Args:
        target: the log posterior.
        data: the dataset.
        start: a flat position.
    """
    rows = piece_rows(data.rows(np.arange(1)))
    if data.size <= rows:
        return
    rows -= rows % 2
    columns = data.rows(np.arange(max(2, rows)))

    def values(position: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        half = max(2, rows) // 2
        halves = Parts(columns)
        parts = [columns, halves.part(0, half), halves.part(half, max(2, rows) - half)]
        params = target.space.constrain(position)
        return [tf.reduce_sum(target.log_lik(dict(params), part)) for part in parts]

    point = tf.constant(start)
    whole, *halves = (float(v) for v in trace(values, point, columns)(point, columns))
    size = max(sum(map(abs, halves)), 1.0)
    if np.isfinite(whole) and abs(sum(halves) - whole) > _ROUNDING * size:
        raise ValueError(
            f"`log_lik` must be a sum over the observations. On {max(2, rows)} of them it is "
            f"{whole:g}, and on the two halves of these {halves[0]:g} and {halves[1]:g}. Sum over "
            "the observations with tf.reduce_sum, and do not divide by their number."
        )
