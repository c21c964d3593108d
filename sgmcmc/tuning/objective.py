"""The log posterior over the whole dataset, as optimisers want it: in float64, with a Hessian."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.shards import Shard, map_over, pieces, shards
from sgmcmc.data.sparse import has_sparse
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import pass_on
from sgmcmc.target.target import Target

_PIECE_NUMBERS, _FEW = 2**23, 32
"""How many numbers a Hessian's intermediate results may hold, which are n × d in each piece; and
numbers of a row in place of d, in a product with it."""


_LARGE = 10_000
"""Rows from which on a dataset is looked at in parts of several sizes."""

Strata = Sequence[tuple[np.ndarray, float]]
"""Row numbers, and the number of rows that each of them represents."""


class Objective:
    """The log posterior and its derivatives at a flat position, added up over the dataset.

    If the user's functions allow it everything is computed in float64; if they hold float32
    constants, in the dtype of the chain, and added up in float64. Graphs of a large dataset are
    traced once for any number of rows, unless the user's functions ask how many there are.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        rows: Row numbers of the part of it that represents all; ``None`` for the whole.

    Attributes:
        evaluations: Number of passes over the data so far, Hessians counted like gradients.
    """

    def __init__(self, target: Target, data: Data, rows: np.ndarray | None = None) -> None:
        self._data = data
        self._strata: Strata | None = None if rows is None else [(rows, data.size / len(rows))]
        self._taken: list[Tensors] = []
        self._graphs: dict[tuple[Any, ...], Any] = {}
        self.evaluations = 0
        self.target = self._in_double(target)
        self.size = target.size

    def over(self, strata: Strata | None) -> Objective:
        """Return the same over rows that represent all, or over all, with the same graphs."""
        found = copy.copy(self)
        found._strata, found._taken, found.evaluations = strata, [], 0
        found._graphs = self._graphs
        return found

    @property
    def weight(self) -> float:
        """Average number of rows that one of those used represents."""
        if self._strata is None:
            return 1.0
        return self._data.size / sum(len(rows) for rows, _ in self._strata)

    def _in_double(self, target: Target) -> Target:
        """Return the target in float64, or as it is if the user's functions do not allow that."""
        double = Target(target.log_lik, target.log_prior, target.space, tf.float64)
        first = self._data.rows(np.arange(1))
        try:
            point = tf.zeros([target.size], tf.float64)
            trace(lambda u, row: double.log_post(u, Minibatch(_cast(row, double))), point, first)
        except Exception as error:
            pass_on(error)
            return target
        return double

    def __getstate__(self) -> dict[str, Any]:
        # A worker traces its own graphs.
        return {**self.__dict__, "_graphs": {}, "_taken": []}

    def _sum(self, kind: str, u: np.ndarray) -> list[np.ndarray]:
        """Return the sums over the data of what a function of position and columns returns."""
        self.evaluations += 1
        if self._strata is not None:
            if not self._taken:
                self._taken = [self._data.rows(rows) for rows, _ in self._strata]
            return _added(
                [weight * part for part in self._of_piece(kind, u, columns)]
                for columns, (_, weight) in zip(self._taken, self._strata, strict=True)
            )
        # Only a Hessian takes n × d numbers.
        most = _PIECE_NUMBERS // _FEW if kind == "product" else _PIECE_NUMBERS // (1 + self.size)
        every = shards(self._data, most, self.target.row_terms)
        calls = [(kind, u, shard) for shard in every]
        return _added(map_over(self._data, self, "of_shard", calls))

    def of_shard(self, kind: str, u: np.ndarray, shard: Shard) -> list[np.ndarray]:
        """Return the sums over a part of the data."""
        return _added(self._of_piece(kind, u, columns) for *_, columns in pieces(self._data, shard))

    def _of_piece(self, kind: str, u: np.ndarray, columns: Tensors) -> list[np.ndarray]:
        """Return what a function of position and columns returns.

        Args:
            kind: Name of one of the functions below.
            u: Position.
            columns: Some rows.
        """
        point = tf.constant(u, self.target.dtype)
        graph = self._graph(kind, point, columns)
        return [part.numpy().astype(np.float64) for part in graph(point, columns)]

    def _graph(self, kind: str, point: tf.Tensor, columns: Tensors) -> Any:
        """Return the graph of a function: one for any number of rows, if that can be had."""
        if (kind,) not in self._graphs:
            self._graphs[kind,] = None
            if self._data.size >= _LARGE and not has_sparse(columns):
                try:
                    specs = {
                        name: tf.TensorSpec([None, *column.shape[1:]], column.dtype)
                        for name, column in columns.items()
                    }
                    self._graphs[kind,] = self._traced(kind, point, specs)
                except Exception as error:  # the user's functions ask for the number of rows
                    pass_on(error)
        if self._graphs[kind,] is not None:
            return self._graphs[kind,]
        key = (kind, next(iter(columns.values())).shape[0])
        if key not in self._graphs:
            self._graphs[key] = self._traced(kind, point, columns)
        return self._graphs[key]

    def _traced(self, kind: str, point: tf.Tensor, columns: Any) -> Any:
        kinds = {"gradient": self._gradient, "hessian": self._hessian, "product": self._product}
        function = kinds[kind]
        return trace(lambda u, columns: function(u, _cast(columns, self.target)), point, columns)

    def _gradient(self, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        target, params = self.target, self.target.space.constrain(u)
        value = tf.reduce_sum(target.log_lik(dict(params), dict(columns)))
        return [value, target.gradient(u, Minibatch(columns), with_prior=False)]

    def _hessian(self, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        slope = partial(self.target.gradient, minibatch=Minibatch(columns), with_prior=False)
        return [_jacobian(slope, u, vectorized=not has_sparse(columns))]

    def _product(self, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        slope = partial(self.target.gradient, minibatch=Minibatch(columns), with_prior=False)
        return [_along(slope, u)]

    def times_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of the log posterior times a vector, (d,)."""
        both = np.stack([u, vector])
        (likelihood,) = self._sum("product", both)
        prior = self._prior("prior product", partial(_along, self.target.prior_gradient), both)
        return -likelihood - prior.numpy().astype(np.float64)

    def _prior(self, kind: str, function: Callable[[tf.Tensor], Any], points: np.ndarray) -> Any:
        """Return what a function of the position alone returns."""
        point = tf.constant(points, self.target.dtype)
        key = (kind, points.shape)
        if key not in self._graphs:
            self._graphs[key] = trace(function, point)
        return self._graphs[key](point)

    def value_and_gradient(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log posterior and its gradient."""
        value, gradient = self._sum("gradient", u)
        prior = self._prior("prior", self._prior_value_and_gradient, u)
        return (
            float(value) + float(prior[0]),
            gradient + prior[1].numpy().astype(np.float64),
        )

    def likelihood_gradient(self, u: np.ndarray) -> np.ndarray:
        """Return the gradient of the log-likelihood, (d,)."""
        return self._sum("gradient", u)[1]

    def _prior_value_and_gradient(self, u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        target = self.target
        params, coordinates = target.space.constrain(u), target.space.coordinates(u)
        return target.prior_value(params, coordinates), target.prior_gradient(u)

    def likelihood_hessian(self, u: np.ndarray) -> np.ndarray:
        """Return the Hessian of the log-likelihood, (d, d)."""
        (hessian,) = self._sum("hessian", u)
        return (hessian + hessian.T) / 2

    def prior_hessian(self, u: np.ndarray) -> np.ndarray:
        """Return the Hessian of log-prior and log-Jacobian, (d, d), as derivatives tell it."""
        found = self._prior(
            "prior hessian", lambda u: _jacobian(self.target.prior_gradient, u), u
        ).numpy()
        return (found.astype(np.float64) + found.T) / 2

    def prior_gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradient of log-prior and log-Jacobian at several positions, (k, d)."""
        found = self._prior(
            "prior gradients",
            partial(tf.vectorized_map, self.target.concatenated().prior_gradient),
            points,
        )
        return found.numpy().astype(np.float64)

    def prior_values(self, points: np.ndarray) -> np.ndarray:
        """Return log-prior and log-Jacobian at several positions, (k,)."""

        def value(u: tf.Tensor) -> tf.Tensor:
            space = self.target.space
            return self.target.prior_value(space.constrain(u), space.coordinates(u))

        found = self._prior("prior values", lambda us: tf.vectorized_map(value, us), points)
        return found.numpy().astype(np.float64)


def _along(gradient: Callable[[tf.Tensor], tf.Tensor], both: tf.Tensor) -> tf.Tensor:
    """Return the derivative of a gradient at the first row along the second."""
    u, vector = both[0], both[1]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(u)
        along = tf.reduce_sum(gradient(u) * vector)
    return tape.gradient(along, u, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def _added(parts: Iterable[list[np.ndarray]]) -> list[np.ndarray]:
    """Return sums, added up in order."""
    totals: list[np.ndarray] = []
    for part in parts:
        totals = [a + b for a, b in zip(totals, part, strict=True)] if totals else part
    return totals


def _cast(columns: Tensors, target: Target) -> Tensors:
    """Return the columns in the dtype of the target; integers stay as they are."""
    return {
        name: tf.cast(value, target.dtype) if value.dtype.is_floating else value
        for name, value in columns.items()
    }


def _jacobian(
    function: Callable[[tf.Tensor], tf.Tensor], u: tf.Tensor, vectorized: bool = True
) -> tf.Tensor:
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(u)
        value = function(u)
    return tape.jacobian(
        value,
        u,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
        experimental_use_pfor=vectorized,
    )
