"""Gradients of minibatches, and products of their Hessians with a vector, if d is large."""

from __future__ import annotations

import numpy as np

from sgmcmc.data.dataset import PIECE_BYTES, Data
from sgmcmc.data.numbers import Purpose, RunPhase, generator
from sgmcmc.minibatches import Uniform
from sgmcmc.target.target import Target
from sgmcmc.tuning.objective import Objective

_ROWS = 500
"""Rows of the minibatches for noise."""

_CURVATURE_ROWS = 2000
"""Rows of the minibatches for Hessian-vector products."""


class Probe:
    """Gradients of minibatches, and products with their Hessians, at any position.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        seed: Seed of the rows and directions.

    Attributes:
        objective: Log posterior over the whole dataset, in the dtype of the chain.
    """

    def __init__(self, target: Target, data: Data, seed: int) -> None:
        self.objective = Objective(target, data, double=False)
        self._data = data
        self.rng = generator(seed, 0, RunPhase.MODE, Purpose.PROBES)
        # Fewer than all, or there would be no noise to measure.
        self.rows = min(_ROWS, max(1, data.size // 2))

    def _minibatch(self, n: int) -> Objective:
        rows = Uniform().bind(self._data.size, n).draw(self.rng, 1)[0]
        return self.objective.over([(rows, self._data.size / n)])

    def noise(self, u: np.ndarray) -> np.ndarray:
        """Return one draw of the gradient noise of a minibatch, (d,)."""
        first, second = self._minibatch(self.rows), self._minibatch(self.rows)
        return (first.likelihood_gradient(u) - second.likelihood_gradient(u)) / np.sqrt(2.0)

    def times_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of a minibatch's log posterior times a vector."""
        most = max(1, PIECE_BYTES // max(1, self._data.row_bytes))
        n = min(self._data.size, _CURVATURE_ROWS, most)
        return self._minibatch(n).times_hessian(u, vector)

    def signs(self) -> np.ndarray:
        """Return a random direction of signs."""
        return self.rng.choice([-1.0, 1.0], self.objective.size)
