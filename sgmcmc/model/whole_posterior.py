"""The log posterior over the whole dataset and its gradient, added up piece by piece."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data, Minibatch, Tensors
from sgmcmc.data.sparse import RowSlices, has_sparse
from sgmcmc.graphs.rewriting import (
    are_large,
    has_products_of_data,
    import_with_data_last,
    sum_of_pieces,
)
from sgmcmc.graphs.tracing import spec_of
from sgmcmc.model.target import Target


@dataclass(frozen=True)
class _Settings:
    # Bytes of the results for all rows up to which a gradient is computed in one piece: a product
    # with a vector then takes a quarter to three quarters of the time, since XLA computes those
    # with a selection of rows number by number.
    max_bytes: int = 2**28
    bytes_per_term: int = 64  # of such results, if a row stands for many terms
    max_summed_rows: int = 2**14  # in a user's own sum in float32, right to 10⁻³
    piece_numbers: int = 2**18  # of the dataset: they stay in a core's cache
    piece_rows: int = 2048  # whose sum in float32 is then right to about 10⁻³
    # With very many coordinates:
    max_piece_rows: int = 2**17
    numbers_per_coordinate: int = 32  # of a piece


_SETTINGS = _Settings()


class WholePosterior:
    """log p(θ | x) and its gradient over all observations, for use inside a compiled chain.

    Terms are computed in the dtype of the chain and their sums over pieces of rows are added up in
    float64: a log posterior of 10⁶ has a resolution of 0.06 in float32, and differences of less
    decide whether a move is accepted.

    Args:
        target: Log posterior.
        columns: Whole dataset.
        rows: Number of observations in a piece; ``None`` to choose.
    """

    def __init__(
        self, target: Target, columns: Tensors, rows: int | None = None
    ) -> None:
        self._target = target
        self._columns = columns
        self._slices = RowSlices(columns)
        self._size = next(iter(columns.values())).shape[0]
        self._rows = rows
        self._traced: tuple[Any, Any] = (None, None)

    def __call__(self, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the value, a scalar, and the gradient at a flat position, (d,), in float64.

        If the log posterior is not a number it is minus infinity, and if its gradient has
        entries that are not finite these are zero.
        """

        def value_and_gradient(
            position: tf.Tensor, columns: Tensors
        ) -> tuple[tf.Tensor, tf.Tensor]:
            whole = self
            if columns is not self._columns:  # those of a graph that is traced once
                whole = WholePosterior(self._target, columns, self._rows)
            return whole._value_and_gradient(position)

        position = tf.cast(position, self._target.dtype)
        return self._target.once(
            ("whole", self._rows), value_and_gradient, position, self._columns
        )

    def _value_and_gradient(self, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        target, space = self._target, self._target.space
        u, points = space.differentiated(position)
        value, gradients = self._sum(points)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(points.values()))
            prior = target.prior_value(space.of_points(points), u)
        gradients = [
            a + tf.cast(b, tf.float64)
            for a, b in zip(gradients, _gradients(tape, prior, points), strict=True)
        ]
        value += tf.cast(prior, tf.float64)
        named = {
            name: tf.cast(gradient, target.dtype)
            for name, gradient in zip(points, gradients, strict=True)
        }
        gradient = tf.cast(space.slope(points, named), tf.float64)
        return (
            tf.where(tf.math.is_finite(value), value, -math.inf),
            tf.where(tf.math.is_finite(gradient), gradient, 0.0),
        )

    def prior(self, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the log prior with the log-Jacobian, and its gradient, (d,)."""
        target, space = self._target, self._target.space
        params = space.constrain(position)
        value = target.prior_value(params, space.coordinates(position))
        return value, target.prior_gradient(position)

    def terms(self, position: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Return the terms of some rows at a position, (n,)."""
        return self._target.terms(
            self._target.space.constrain(position), self._selected_rows(rows)
        )

    def term_gradient(self, position: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """Return the gradient of the term of one row, (d,)."""
        minibatch = Minibatch(self._selected_rows(tf.reshape(row, [1])))
        return self._target.gradient(position, minibatch, with_prior=False)

    def _selected_rows(self, rows: tf.Tensor) -> Tensors:
        return {name: tf.gather(column, rows) for name, column in self._columns.items()}

    def _sum(self, points: Tensors) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the log-likelihood and its gradients at the points, over all pieces."""
        if self._rows is None:
            self._rows = piece_rows(self._columns, self._target.size)
            if self._rows < self._size and self._in_one_piece(points):
                self._rows = self._size
        rows = min(self._size, self._rows)
        if rows == self._size:
            return self._gradient_of_piece(points, self._columns)

        def of_piece(first: Any, count: int) -> tuple[tf.Tensor, list[tf.Tensor]]:
            return self._gradient_of_piece(points, self._slices.rows(first, count))

        return sum_of_pieces(self._size, rows, of_piece)

    def _in_one_piece(self, points: Tensors) -> bool:
        """Return whether a gradient over all rows at once is precise, and takes little memory.

        A log-likelihood that adds up its terms by itself does so in the dtype of the chain. Of the
        results counted here XLA keeps but a part in memory.
        """
        target = self._target
        graph = self._graph(points, self._columns)
        is_scalar = graph.structured_outputs[0].shape.rank == 0
        is_own_sum = is_scalar and target.dtype != tf.float64
        if is_own_sum and self._size > _SETTINGS.max_summed_rows:
            return False
        size = 0
        if target.row_terms > 1:  # results that are not counted below
            size = _SETTINGS.bytes_per_term * target.row_terms * self._size
        for operation in graph.graph.get_operations():
            if operation.type == "Placeholder":
                continue
            for result in operation.outputs:
                numbers = result.shape.num_elements() or 0
                if numbers >= self._size:
                    size += numbers * result.dtype.size
        return size <= _SETTINGS.max_bytes

    def _gradient_of_piece(
        self, points: Tensors, columns: Tensors
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the log-likelihood of a piece and its gradients at the points, in float64."""
        if has_sparse(columns) or not are_large(columns) or tf.executing_eagerly():
            return self._gradient(points, columns)[1:]
        graph = self._graph(points, columns)
        if not has_products_of_data(graph, len(points)):
            return self._gradient(points, columns)[1:]
        inputs = tf.nest.flatten([points, columns])
        _, value, *gradients = import_with_data_last(graph, len(points), inputs)
        return value, gradients

    def _graph(self, points: Tensors, columns: Tensors) -> Any:
        specs = tf.nest.map_structure(spec_of, points)
        if has_sparse(columns):
            graph = tf.function(
                partial(self._gradient, columns=columns), autograph=False
            )
            return graph.get_concrete_function(specs)
        # What it captures belongs to the present graph.
        key = (next(iter(columns.values())).shape[0], tf.compat.v1.get_default_graph())
        if self._traced[0] != key:
            graph = tf.function(self._gradient, autograph=False)
            column_specs = tf.nest.map_structure(spec_of, columns)
            self._traced = key, graph.get_concrete_function(specs, column_specs)
        return self._traced[1]

    def _gradient(
        self, points: Tensors, columns: Tensors
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """Return the result of the user's log-likelihood, its sum, and the gradients of that."""
        target = self._target
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(points.values()))
            result = target.log_lik(dict(target.space.of_points(points)), dict(columns))
            value = tf.reduce_sum(tf.cast(result, tf.float64))
        gradients = _gradients(tape, value, points)
        return result, value, [tf.cast(gradient, tf.float64) for gradient in gradients]


def _gradients(
    tape: tf.GradientTape, value: tf.Tensor, points: Tensors
) -> list[tf.Tensor]:
    gradients = tape.gradient(
        value, list(points.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def is_in_pieces(data: Data) -> bool:
    """Return whether the posterior over a dataset is added up piece by piece."""
    return data.size > piece_rows(data.rows(np.arange(1)))


def piece_rows(columns: Tensors, d: int = 1) -> int:
    """Return the number of rows of these columns in a piece.

    A piece of few numbers and very many coordinates is larger: its gradient has d of them.
    """
    dense = [
        column for column in columns.values() if not isinstance(column, tf.SparseTensor)
    ]
    numbers = max(1, sum(math.prod(column.shape[1:]) for column in dense))
    rows = min(_SETTINGS.piece_rows, max(1, _SETTINGS.piece_numbers // numbers))
    of_coordinates = _SETTINGS.numbers_per_coordinate * d // numbers
    return int(max(rows, min(_SETTINGS.max_piece_rows, of_coordinates)))
