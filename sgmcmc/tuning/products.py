"""Products of the Hessian with many vectors at once, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import pass_on
from sgmcmc.target.target import Target
from sgmcmc.tuning.objective import Objective, along, slope_over

_NUMBERS = 2**22
"""Largest size of an intermediate result."""

_TOGETHER = 64
"""Largest number of vectors of an intermediate result."""

_ROWS = 2**16
"""Largest number of rows of an intermediate result."""

_FEW = 100
"""Products up to which compiling takes longer than it gains."""


class Products:
    """The negative Hessian of the log posterior over all rows, times vectors.

    Args:
        objective: Log posterior.
        target: Log posterior, in the dtype in which many products are computed.
        data: Dataset.
    """

    def __init__(self, objective: Objective, target: Target, data: Data) -> None:
        self._objective, self._target, self._data = objective, target, data
        pieces = -(-data.size // _ROWS)
        self._bounds = np.linspace(0, data.size, pieces + 1).astype(int)
        rows = int(np.diff(self._bounds).max())
        self.together = int(np.clip(_NUMBERS // rows, 1, _TOGETHER))
        self._graphs: dict[Any, Any] = {}
        self._compiles = not data.sparse

    def __call__(self, u: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the products at a position with each of some vectors, (k, d)."""
        if len(vectors) > _FEW and self._compiles:
            try:
                return self._many(u, vectors)
            except (tf.errors.OpError, ValueError, TypeError, NotImplementedError) as error:
                # Operations that neither XLA nor vectorization supports are computed one by one.
                pass_on(error)
                self._compiles = False
        return np.stack([self._objective.times_hessian(u, vector) for vector in vectors])

    def _many(self, u: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        found = np.empty((len(vectors), len(u)))
        point = tf.constant(u, self._target.dtype)
        for first in range(0, len(vectors), self.together):
            some = vectors[first : first + self.together]
            padded = np.zeros((self.together, len(u)))
            padded[: len(some)] = some
            found[first : first + len(some)] = self._block(point, padded)[: len(some)]
        return found

    def _block(self, point: tf.Tensor, vectors: np.ndarray) -> np.ndarray:
        batch = tf.constant(vectors, self._target.dtype)
        total = self._run(("prior",), self._prior, point, batch)
        for start, stop in zip(self._bounds, self._bounds[1:], strict=False):
            columns = self._data.slice(int(start), int(stop))
            total = total + self._run(("rows", stop - start), self._rows, point, batch, columns)
        return -total

    def _run(self, key: Any, function: Callable[..., tf.Tensor], *arguments: Any) -> np.ndarray:
        if key not in self._graphs:
            self._graphs[key] = trace(function, *arguments, jit_compile=True)
        return np.asarray(self._graphs[key](*arguments).numpy(), np.float64)

    def _prior(self, u: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        return tf.vectorized_map(lambda v: along(self._target.prior_gradient, u, v), vectors)

    def _rows(self, u: tf.Tensor, vectors: tf.Tensor, columns: Tensors) -> tf.Tensor:
        slope = slope_over(self._target, columns)
        return tf.vectorized_map(lambda v: along(slope, u, v), vectors)
