"""Predictions as a SavedModel, which TensorFlow can load and call without this package."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from sgmcmc._version import __version__
from sgmcmc.atomic_files import new_folder
from sgmcmc.data.minibatch import Tensors
from sgmcmc.libraries import without_chatter

Served = Callable[[Tensors], dict[str, tf.Tensor]]


class _Predictor(tf.Module):
    """The draws, and a function of them and of rows.

    Args:
        function: Function of the parameters of one draw and of rows.
        draws: Draws by parameter, (chains, draws, *shape).
        quantiles: Probabilities that the signature ``quantiles`` gives.
    """

    def __init__(
        self,
        function: Callable[[Tensors, Tensors], tf.Tensor],
        draws: Mapping[str, np.ndarray],
        quantiles: Sequence[float],
    ) -> None:
        super().__init__()
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
        points = {name: tf.convert_to_tensor(values) for name, values in self.params.items()}
        return tf.vectorized_map(lambda params: self._function(params, dict(rows)), points)

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


def write_saved_model(
    folder: str | os.PathLike[str],
    function: Callable[[Tensors, Tensors], tf.Tensor],
    draws: Mapping[str, np.ndarray],
    columns: Tensors,
    quantiles: Sequence[float],
) -> Path:
    """Write a SavedModel to a folder that appears only once it is whole.

    Args:
        folder: Path of the folder; it must not exist, or be empty.
        function: Function of the parameters of one draw and of rows.
        draws: Draws by parameter, (chains, draws, *shape).
        columns: Some rows, for names, shapes and dtypes.
        quantiles: Probabilities that the signature ``quantiles`` gives.
    """
    path = Path(folder)
    for name, column in columns.items():
        if isinstance(column, tf.SparseTensor):
            raise ValueError(f"`dataset[{name!r}]` is sparse, which a signature does not support.")
        if not name.isidentifier():
            raise ValueError(f"`dataset`: a signature cannot have an input called {name!r}.")
    asked = [
        {
            name: tf.TensorSpec([None, *column.shape[1:]], column.dtype, name)
            for name, column in columns.items()
        }
    ]
    model = _Predictor(function, draws, quantiles)
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
