"""Predictions as a SavedModel, which TensorFlow can load and call without this package."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from sgmcmc._version import __version__
from sgmcmc.atomic_files import new_folder
from sgmcmc.data.levels import Levels, key_of, text_of
from sgmcmc.data.minibatch import Tensors
from sgmcmc.libraries import without_chatter

Served = Callable[[Tensors], dict[str, tf.Tensor]]


class _Predictor(tf.Module):
    """The draws, and a function of them and of rows.

    Args:
        function: Function of the parameters of one draw and of rows.
        draws: Draws by parameter, (chains, draws, *shape).
        quantiles: Probabilities that the signature ``quantiles`` gives.
        levels: Levels of the columns that hold categories.
    """

    def __init__(
        self,
        function: Callable[[Tensors, Tensors], tf.Tensor],
        draws: Mapping[str, np.ndarray],
        quantiles: Sequence[float],
        levels: Mapping[str, Levels],
    ) -> None:
        super().__init__()
        keys = {name: _keys_of(name, own) for name, own in levels.items()}
        self.levels = {name: tf.Variable(own, trainable=False) for name, own in keys.items()}
        self.tables = {name: _table_of(own) for name, own in keys.items()}
        self._function = function
        self._chains, self._draws = next(iter(draws.values())).shape[:2]
        self.params = {
            name: tf.Variable(array.reshape(-1, *array.shape[2:]), trainable=False)
            for name, array in draws.items()
        }
        self.wanted = tf.constant(list(quantiles), tf.float64)
        # A constant would not be written.
        self.sgmcmc_version = tf.Variable(__version__, trainable=False)

    def values(self, rows: Tensors) -> tf.Tensor:
        """Return the values at all draws of all chains, (chains * draws, rows, ...)."""
        rows = {**rows, **{name: self._codes(name, rows[name]) for name in self.tables}}
        points = {name: tf.convert_to_tensor(values) for name, values in self.params.items()}
        return tf.vectorized_map(lambda params: self._function(params, dict(rows)), points)

    def _codes(self, name: str, values: tf.Tensor) -> tf.Tensor:
        """Return the numbers of levels; one that the model has not seen is an error."""
        codes = tf.cast(self.tables[name].lookup(values), tf.int32)
        message = f"`{name}` must hold levels that the model has seen, which `levels` of it has."
        shown = [message, "It holds:", tf.boolean_mask(values, codes < 0)]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(codes >= 0), shown)]):
            return tf.identity(codes)

    def mean(self, rows: Tensors) -> dict[str, tf.Tensor]:
        """Return the mean over all draws, in float64."""
        return {"mean": tf.reduce_mean(tf.cast(self.values(rows), tf.float64), axis=0)}

    def quantiles(self, rows: Tensors) -> dict[str, tf.Tensor]:
        """Return quantiles over all draws, by linear interpolation, as NumPy's."""
        values = tf.sort(tf.cast(self.values(rows), tf.float64), axis=0)
        last = self._chains * self._draws - 1
        places = self.wanted * last
        below = tf.clip_by_value(tf.cast(tf.floor(places), tf.int32), 0, max(0, last - 1))
        part = places - tf.cast(below, tf.float64)
        part = tf.reshape(part, tf.concat([[-1], tf.ones(tf.rank(values) - 1, tf.int32)], 0))
        low, high = tf.gather(values, below), tf.gather(values, tf.minimum(below + 1, last))
        return {"quantiles": low + part * (high - low)}

    def draws(self, rows: Tensors) -> dict[str, tf.Tensor]:
        """Return all values, (chains, draws, rows, ...)."""
        values = self.values(rows)
        shape = tf.concat([[self._chains, self._draws], tf.shape(values)[1:]], 0)
        return {"draws": tf.reshape(values, shape)}


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
        raise ValueError(f"`dataset[{name!r}]` has two levels that look alike; rename one.")
    return tf.constant(texts, tf.string)


def _table_of(keys: tf.Tensor) -> tf.lookup.StaticHashTable:
    """Return the table of the numbers of levels; -1 for others."""
    numbers = tf.range(tf.size(keys, tf.int64), dtype=tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, numbers), -1)


def write_saved_model(
    folder: str | os.PathLike[str],
    function: Callable[[Tensors, Tensors], tf.Tensor],
    draws: Mapping[str, np.ndarray],
    columns: Tensors,
    quantiles: Sequence[float],
    levels: Mapping[str, Levels],
) -> Path:
    """Write a SavedModel to a folder that appears only once it is whole.

    Args:
        folder: Path of the folder; it must not exist, or be empty.
        function: Function of the parameters of one draw and of rows.
        draws: Draws by parameter, (chains, draws, *shape).
        columns: Some rows, for names, shapes and dtypes.
        quantiles: Probabilities that the signature ``quantiles`` gives.
        levels: Levels of the columns that hold categories, which the signatures take.
    """
    path = Path(folder)
    for name, column in columns.items():
        if isinstance(column, tf.SparseTensor):
            raise ValueError(f"`dataset[{name!r}]` is sparse, which a signature does not support.")
        if not name.isidentifier():
            raise ValueError(f"`dataset`: a signature cannot have an input called {name!r}.")
    model = _Predictor(function, draws, quantiles, levels)
    kinds = {name: keys.dtype for name, keys in model.levels.items()}
    asked = [
        {
            name: tf.TensorSpec([None, *column.shape[1:]], kinds.get(name, column.dtype), name)
            for name, column in columns.items()
        }
    ]
    signatures = {}
    for name in ("mean", "quantiles", "draws"):
        graph = tf.function(getattr(model, name), autograph=False, input_signature=asked)
        try:
            with without_chatter():
                signatures[name] = graph.get_concrete_function()
        except Exception as error:
            raise ValueError(
                "`f` must work for any number of rows, which is unknown while it is compiled: "
                f"use tf.shape, not the shape of an array. {error}"
            ) from error
    with new_folder("folder", path) as part, without_chatter():
        tf.saved_model.save(model, str(part), signatures)
    return path
