"""Gradients of minibatches, and products of their Hessians with a vector, if d is large."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import PIECE_BYTES, Data
from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.numbers import Purpose, RunPhase, generator
from sgmcmc.graphs.tracing import trace
from sgmcmc.minibatches import Uniform
from sgmcmc.target.target import Target

_ROWS, _CURVATURE_ROWS = 500, 2000
"""Rows of the minibatches for noise, and for Hessian-vector products."""


class Probe:
    """Gradients of minibatches, and products with their Hessians, at any position.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        seed: Seed of the rows and directions.
    """

    def __init__(self, target: Target, data: Data, seed: int) -> None:
        self._target, self._data = target, data
        self.rng = generator(seed, 0, RunPhase.MODE, Purpose.PROBES)
        self._graphs: dict[str, Any] = {}
        # Fewer than all, or there would be no noise to measure.
        self.rows = min(_ROWS, max(1, data.size // 2))

    def _run(self, kind: str, function: Any, *arguments: Any) -> np.ndarray:
        if kind not in self._graphs:
            self._graphs[kind] = trace(function, *arguments)
        return np.asarray(self._graphs[kind](*arguments).numpy(), np.float64)

    def _columns(self, n: int) -> Tensors:
        rows = Uniform().bind(self._data.size, n).draw(self.rng, 1)[0]
        return self._data.rows(rows)

    def _at(self, vector: np.ndarray) -> tf.Tensor:
        return tf.constant(vector, self._target.dtype)

    def noise(self, u: np.ndarray) -> np.ndarray:
        """Return one draw of the gradient noise of a minibatch, (d,)."""
        weight = self._data.size / self.rows

        def difference(u: tf.Tensor, first: Tensors, second: Tensors) -> tf.Tensor:
            a, b = (
                self._target.gradient(u, Minibatch(columns, weight), with_prior=False)
                for columns in (first, second)
            )
            return (a - b) / np.sqrt(2.0)

        columns = self._columns(self.rows), self._columns(self.rows)
        return self._run("noise", difference, self._at(u), *columns)

    def times_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of a minibatch's log posterior times a vector."""
        most = max(1, PIECE_BYTES // max(1, self._data.row_bytes))
        n = min(self._data.size, _CURVATURE_ROWS, most)
        weight = self._data.size / n

        def product(u: tf.Tensor, vector: tf.Tensor, columns: Tensors) -> tf.Tensor:
            minibatch = Minibatch(columns, weight)
            return _product(lambda u: self._target.gradient(u, minibatch), u, vector)

        return self._run("hessian", product, self._at(u), self._at(vector), self._columns(n))

    def times_prior_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of the log-prior times a vector."""

        def product(u: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
            return _product(self._target.prior_gradient, u, vector)

        return self._run("prior", product, self._at(u), self._at(vector))

    def prior_gradient(self, u: np.ndarray) -> np.ndarray:
        """Return the gradient of the log-prior."""
        return self._run("prior gradient", self._target.prior_gradient, self._at(u))

    def signs(self) -> np.ndarray:
        """Return a random direction of signs."""
        return self.rng.choice([-1.0, 1.0], self._target.size)


def _product(function: Any, u: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
    """Return −(∂f/∂u)ᵀ times a vector; f is a gradient, so that its derivative is symmetric."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(u)
        along = tf.reduce_sum(function(u) * vector)
    return -tape.gradient(along, u, unconnected_gradients=tf.UnconnectedGradients.ZERO)
