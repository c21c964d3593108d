"""How much each observation bends the log posterior, against the posterior's own width."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.data.rng import Purpose, RunPhase, generator
from sgmcmc.graphs.tracing import trace
from sgmcmc.minibatches import Weighted
from sgmcmc.target.geometry import Preconditioner
from sgmcmc.target.target import Target

PROBES = 48
_UNIFORM = 0.1
"""What part of the probability is shared out evenly, so that no row is left out for long."""

_STEP = 1.5
"""How many posterior sds a probe goes to each side; over less, rounding would show."""

_PIECE_NUMBERS = 2**22


def leverage(target: Target, data: Data, whitening: Preconditioner, seed: int) -> np.ndarray:
    """Return the whitened curvature of each observation's term at the mode, (N,), in float64.

    h_i is the trace of Cᵀ(−∇² log p(x_i | θ̂))C with CCᵀ = M, and is estimated by the mean over
    random directions z of −[ℓ_i(θ̂ + sCz) − 2ℓ_i(θ̂) + ℓ_i(θ̂ − sCz)]/s². In one pass over the data.

    Args:
        target: the log posterior, without a preconditioner.
        data: the dataset.
        whitening: θ̂ and C.
        seed: for the directions.
    """
    rng = generator(seed, 0, RunPhase.MODE, Purpose.PROBES)
    signs = rng.choice([-1.0, 1.0], (PROBES, target.size))
    root = whitening.root
    moves = _STEP * (signs @ root.T if whitening.dense else signs * root)
    points = np.concatenate([[np.zeros(target.size)], moves, -moves]) + whitening.origin
    positions = tf.constant(points, target.dtype)

    def terms(positions: tf.Tensor, columns: Tensors) -> tf.Tensor:
        return tf.vectorized_map(
            lambda u: target.terms(target.space.constrain(u), columns), positions
        )

    graphs: dict[int, object] = {}
    found, start = np.empty(data.size), 0
    for columns in data.pieces(most_rows=max(1, _PIECE_NUMBERS // len(points))):
        length = next(iter(columns.values())).shape[0]
        if length not in graphs:
            graphs[length] = trace(terms, positions, columns)
        values = graphs[length](positions, columns).numpy().astype(np.float64)  # type: ignore[operator]
        bends = 2 * values[0] - values[1 : PROBES + 1] - values[PROBES + 1 :]
        found[start : start + length] = np.maximum(bends.mean(0), 0.0) / _STEP**2
        start += length
    return found


def leverage_minibatches(leverages: np.ndarray) -> Weighted:
    """Return minibatches whose rows are drawn nine times in ten in proportion to leverage."""
    N, total = len(leverages), leverages.sum()
    share = leverages / total if total > 0 else np.full(N, 1 / N)
    return Weighted((1 - _UNIFORM) * share + _UNIFORM / N)
