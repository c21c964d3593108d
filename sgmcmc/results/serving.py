"""Predictions as a SavedModel, which TensorFlow can load and call without this package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc._version import __version__
from sgmcmc.atomic_files import new_folder
from sgmcmc.checks import whole_number
from sgmcmc.data.dataset import Tensors
from sgmcmc.data.levels import Levels, key_of, text_of
from sgmcmc.graphs.tracing import vectorized_map
from sgmcmc.libraries import without_chatter
from sgmcmc.results.draws import Draws
from sgmcmc.results.evaluation import (
    Evaluation,
    OfRows,
    Span,
    arrays_of,
    data_of,
    dtype_of,
)


@dataclass(frozen=True)
class Served:
    """Function of draws and rows that is written.

    Attributes:
        function: Function of the parameters of one draw and of rows.
        draws: Draws by parameter, (chains, draws, *shape).
        weights: Weights of the draws of each chain; ``None`` if all are alike.
        quantiles: Probabilities that the signature ``quantiles`` gives.
    """

    function: OfRows
    draws: Mapping[str, np.ndarray]
    weights: np.ndarray | None
    quantiles: Sequence[float]

    @classmethod
    def of(
        cls, draws: Draws, function: OfRows, limit: int, quantiles: Sequence[float]
    ) -> Served:
        """Return a function of evenly spaced draws that count, at most a number of all chains."""
        if draws.origin is not None and draws.origin.groups is not None:
            raise ValueError(
                "`samples` is of a model with groups, whose effects a SavedModel does not have."
            )
        arrays, weights = arrays_of(draws), draws.weights
        if weights is not None:
            # Draws of exploring stages need no room.
            counted = weights > 0
            arrays = {name: array[:, counted] for name, array in arrays.items()}
            weights = weights[counted]
        chains, count = next(iter(arrays.values())).shape[:2]
        length = whole_number("draws", limit, chains) // chains
        step = -(-count // length)
        arrays = {
            name: np.ascontiguousarray(a[:, ::step]) for name, a in arrays.items()
        }
        weights = None if weights is None else weights[::step]
        return cls(function, arrays, weights, quantiles)


class _SavedModel(tf.Module):
    """The draws, and a function of them and of rows.

    Args:
        served: Function, draws and weights.
        levels: Levels of the columns that hold categories.
    """

    def __init__(self, served: Served, levels: Mapping[str, Levels]) -> None:
        super().__init__()
        keys = {name: _keys_of(name, values) for name, values in levels.items()}
        self.levels = {
            name: tf.Variable(values, trainable=False) for name, values in keys.items()
        }
        # Of the numbers of levels; -1 for others.
        tables = {}
        for name, values in keys.items():
            numbers = tf.range(tf.size(values, tf.int64), dtype=tf.int64)
            initializer = tf.lookup.KeyValueTensorInitializer(values, numbers)
            tables[name] = tf.lookup.StaticHashTable(initializer, -1)
        self.tables = tables
        self._function = served.function
        self._chains, self._draws = next(iter(served.draws.values())).shape[:2]
        self.params = {
            name: tf.Variable(array.reshape(-1, *array.shape[2:]), trainable=False)
            for name, array in served.draws.items()
        }
        self.probabilities = tf.constant(list(served.quantiles), tf.float64)
        self.weights, weights = None, served.weights
        if weights is not None:
            draw_weights = np.tile(weights / weights.sum(), self._chains) / self._chains
            self.weights = tf.Variable(draw_weights, trainable=False)
        # A constant would not be written.
        self.sgmcmc_version = tf.Variable(__version__, trainable=False)

    def values(self, rows: Tensors) -> tf.Tensor:
        """Return the values at all draws of all chains, (chains * draws, rows, ...)."""
        codes = {name: self._codes(name, rows[name]) for name in self.tables}
        coded = {**rows, **codes}
        points = {name: tf.convert_to_tensor(a) for name, a in self.params.items()}
        return vectorized_map(
            lambda params: self._function(params, dict(coded)), points
        )

    def _codes(self, name: str, values: tf.Tensor) -> tf.Tensor:
        """Return the numbers of levels; one that the model has not seen is an error."""
        codes = tf.cast(self.tables[name].lookup(values), tf.int32)
        message = f"`{name}` must hold levels that the model has seen, which `levels` of it has."
        shown = [message, "It holds:", tf.boolean_mask(values, codes < 0)]
        check = tf.debugging.Assert(tf.reduce_all(codes >= 0), shown)
        with tf.control_dependencies([check]):
            return tf.identity(codes)

    def mean(self, rows: Tensors) -> dict[str, tf.Tensor]:
        """Return the mean over all draws, with their weights, in float64."""
        values = tf.cast(self.values(rows), tf.float64)
        if self.weights is None:
            return {"mean": tf.reduce_mean(values, axis=0)}
        return {"mean": tf.tensordot(tf.convert_to_tensor(self.weights), values, 1)}

    def quantiles(self, rows: Tensors) -> dict[str, tf.Tensor]:
        """Return quantiles over all draws, by linear interpolation, as those of ``predict``."""
        values = tf.cast(self.values(rows), tf.float64)
        if self.weights is not None:
            return {"quantiles": self._weighted_quantiles(values)}
        values = tf.sort(values, axis=0)
        last = self._chains * self._draws - 1
        positions = self.probabilities * last
        below = tf.cast(tf.floor(positions), tf.int32)
        below = tf.clip_by_value(below, 0, max(0, last - 1))
        above = tf.minimum(below + 1, last)
        fraction = positions - tf.cast(below, tf.float64)
        ones = tf.ones(tf.rank(values) - 1, tf.int32)
        fraction = tf.reshape(fraction, tf.concat([[-1], ones], 0))
        low, high = tf.gather(values, below), tf.gather(values, above)
        return {"quantiles": low + fraction * (high - low)}

    def _weighted_quantiles(self, values: tf.Tensor) -> tf.Tensor:
        """Return quantiles of values with weights, as :func:`weighted_quantiles` does."""
        shape = tf.shape(values)
        flat = tf.transpose(tf.reshape(values, [shape[0], -1]))
        order = tf.argsort(flat, axis=1)
        ordered = tf.gather(flat, order, batch_dims=1)
        weights = tf.gather(tf.convert_to_tensor(self.weights), order)
        middle = tf.cumsum(weights, axis=1) - 0.5 * (weights + weights[:, :1])
        ranks = tf.math.divide_no_nan(middle, middle[:, -1:])
        columns = tf.shape(ranks)[0]
        last = shape[0] - 1
        probabilities = tf.tile(self.probabilities[tf.newaxis], [columns, 1])
        above = tf.searchsorted(ranks, probabilities)
        above = tf.clip_by_value(above, 1, tf.maximum(last, 1))
        above = tf.minimum(above, last)
        below = tf.maximum(above - 1, 0)
        low = tf.gather(ordered, below, batch_dims=1)
        high = tf.gather(ordered, above, batch_dims=1)
        start = tf.gather(ranks, below, batch_dims=1)
        stop = tf.gather(ranks, above, batch_dims=1)
        fraction = tf.math.divide_no_nan(probabilities - start, stop - start)
        fraction = tf.clip_by_value(fraction, 0.0, 1.0)
        quantiles = tf.transpose(low + fraction * (high - low))
        size = [len(self.probabilities)]
        return tf.reshape(quantiles, tf.concat([size, shape[1:]], 0))

    def draws(self, rows: Tensors) -> dict[str, tf.Tensor]:
        """Return all values, (chains, draws, rows, ...)."""
        values = self.values(rows)
        shape = tf.concat([[self._chains, self._draws], tf.shape(values)[1:]], 0)
        outputs = {"draws": tf.reshape(values, shape)}
        if self.weights is not None:
            outputs["weights"] = tf.reshape(self.weights, [self._chains, self._draws])
        return outputs


def _keys_of(name: str, levels: Levels) -> tf.Tensor:
    """Return the levels of a column, as integers or else as text.

    Raises:
        ValueError: Two levels have the same text.
    """
    whole = [key_of(value)[1] for value in levels.values]
    if all(isinstance(value, int) for value in whole):
        return tf.constant(whole, tf.int64)
    texts = list(map(text_of, levels.values))
    if len(set(texts)) < len(texts):
        raise ValueError(
            f"`dataset[{name!r}]` has two levels that look alike; rename one."
        )
    return tf.constant(texts, tf.string)


def write_saved_model(
    folder: str | os.PathLike[str],
    served: Served,
    draws: Draws,
    dataset: Mapping[str, Any] | None,
) -> Path:
    """Write a SavedModel to a folder that appears only once it is whole.

    Args:
        folder: Path of the folder; it must not exist, or be empty.
        served: Function, draws and weights.
        draws: Draws of the run, whose model has levels of categories.
        dataset: Some rows, for names, shapes and dtypes, all of which are inputs; ``None`` for the
            chain's own, of which only those that the function reads are.
    """
    path = Path(folder)
    data = data_of(draws, dataset)
    evaluation = Evaluation("f", served.function, served.draws, data, dtype_of(draws))
    columns = evaluation.columns(Span(0, 1, 0))
    levels = data.levels
    if dataset is None:
        read = _read_by(served, columns)
        columns = {name: columns[name] for name in columns if name in read} or columns
        levels = {name: levels[name] for name in levels if name in columns}
    for name, column in columns.items():
        if isinstance(column, tf.SparseTensor):
            raise ValueError(
                f"`dataset[{name!r}]` is sparse, which a signature does not support."
            )
        if not name.isidentifier():
            raise ValueError(
                f"`dataset`: a signature cannot have an input called {name!r}."
            )
    model = _SavedModel(served, levels)
    kinds = {name: keys.dtype for name, keys in model.levels.items()}
    inputs = {}
    for name, column in columns.items():
        kind = kinds.get(name, column.dtype)
        inputs[name] = tf.TensorSpec([None, *column.shape[1:]], kind, name)
    signatures = {}
    for name in ("mean", "quantiles", "draws"):
        signature = getattr(model, name)
        graph = tf.function(signature, autograph=False, input_signature=[inputs])
        try:
            with without_chatter():
                signatures[name] = graph.get_concrete_function()
        except Exception as error:
            raise ValueError(
                "`f` must work for any number of rows, which is unknown while it is compiled: "
                f"use tf.shape, not the shape of an array. {error}"
            ) from error
    with new_folder("folder", path) as temporary, without_chatter():
        tf.saved_model.save(model, str(temporary), signatures)
    return path


def _read_by(served: Served, columns: Tensors) -> set[str]:
    """Return the names of the columns that the values of a function depend on, by its graph."""
    names = list(columns)
    params = {name: tf.constant(array[0, 0]) for name, array in served.draws.items()}

    def of_columns(*values: Any) -> tf.Tensor:
        return served.function(dict(params), dict(zip(names, values, strict=True)))

    with without_chatter():
        graph = tf.function(of_columns, autograph=False).get_concrete_function(
            *columns.values()
        )
    waiting = [tensor.op for tensor in graph.graph.outputs]
    seen: set[Any] = set()
    while waiting:
        op = waiting.pop()
        if op.name not in seen:
            seen.add(op.name)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    read, inputs = set(), iter(graph.graph.inputs)
    for name, column in columns.items():
        components = tf.nest.flatten(column, expand_composites=True)
        tensors = [next(inputs) for _ in components]
        if any(tensor.op.name in seen for tensor in tensors):
            read.add(name)
    return read
