"""A network of Keras as an ensemble uses it: frozen layers, computed once, and the rest."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from sgmcmc.data.dataset import Data
from sgmcmc.ensembles.network import Array, Network, Weights
from sgmcmc.ensembles.report import classes_judged, uniformity_error
from sgmcmc.models.losses import BINARY, SPARSE, RowDensity
from sgmcmc.models.networks import all_layers, check_network, weight_names

_PIECE = 256  # rows of features that frozen layers compute at a time


class Parts:
    """A network in two parts: frozen layers, whose outputs are computed once, and the rest.

    Args:
        model: Keras model.
        loss: Loss, as the user gave it.
    """

    def __init__(self, model: Any, loss: Any) -> None:
        check_network(model)
        self.log_density = RowDensity(loss, "loss", "`data`: the targets")
        self.names = weight_names(model)
        inputs = getattr(model, "inputs", None) or []
        if len(inputs) > 1:
            raise ValueError(
                f"`model` has {len(inputs)} inputs; features must be one array."
            )
        self.integers = bool(inputs) and str(inputs[0].dtype).startswith("int")
        self._frozen, self._trainable = _split(model)
        self.has_frozen = self._frozen is not None
        self.kernels = [
            variable.path.endswith("kernel") for variable in model.trainable_variables
        ]
        self.shapes = [tuple(variable.shape) for variable in model.trainable_variables]
        self.size = sum(int(np.prod(shape)) for shape in self.shapes)
        layers = [type(layer).__name__ for layer in all_layers(self._trainable)]
        # The convolutions of XLA on a CPU take five times as long as TensorFlow's own.
        self.jit_compile = False if any("Conv" in name for name in layers) else None

    def typed(self, X: Any) -> Array:
        """Return features in the dtype of the network's input."""
        try:
            return np.asarray(X, np.int32 if self.integers else np.float32)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`data`: the features must be numbers in an array, a row for each target; {error}."
            ) from None

    def features(self, X: Array) -> Array:
        """Return the outputs of the frozen layers for some features."""
        if self._frozen is None:
            return X
        starts = range(0, len(X), _PIECE)
        return np.concatenate(
            [
                np.asarray(self._frozen(X[k : k + _PIECE], training=False))
                for k in starts
            ]
        )

    def outputs(self, weights: Mapping[str, Any], features: Any) -> tf.Tensor:
        """Return the outputs of one set of weights, float32 whatever the network computes in."""
        values = [weights[name] for name in self.names]
        fixed = self._trainable.non_trainable_variables
        outputs = self._trainable.stateless_call(
            values, fixed, features, training=False
        )[0]
        if isinstance(outputs, list | tuple | dict):
            raise ValueError(
                f"`model` has {len(outputs)} outputs; they must be one array: join them with "
                "keras.layers.Concatenate."
            )
        return tf.cast(outputs, tf.float32)

    def check(self, data: Data, weights: Weights) -> None:
        """Raise an error if targets and outputs are not those that the loss is made for.

        Args:
            data: Features, those after the frozen layers, and targets.
            weights: Weights of all members, the first of which makes the outputs.
        """
        y = np.asarray(data.columns["y"].tensor(0, data.size))
        one = {name: tf.constant(array[0]) for name, array in weights.items()}
        rows = data.rows(np.arange(min(_PIECE, data.size)))
        self.log_density.check(y, np.asarray(self.outputs(one, rows["X"])))

    def network(self, scale: float) -> Network:
        """Return the network of an ensemble, in which each member has its own kernel."""
        sds = {
            name: scale / np.sqrt(np.prod(shape[:-1])) if kernel else 1.0
            for name, shape, kernel in zip(
                self.names, self.shapes, self.kernels, strict=True
            )
        }

        def forward(weights: Weights, features: Any) -> tf.Tensor:
            count = weights[self.names[0]].shape[0]
            members = [
                {name: a[k] for name, a in weights.items()} for k in range(count)
            ]
            return tf.stack([self.outputs(one, features) for one in members])

        def log_density(y: Any, outputs: tf.Tensor) -> tf.Tensor:
            densities = [
                self.log_density(y, outputs[k]) for k in range(outputs.shape[0])
            ]
            return tf.stack(densities)

        return Network(
            forward, log_density, sds, one_by_one=True, jit_compile=self.jit_compile
        )

    def calibration(self, outputs: Array, y: Array, members: int) -> dict[str, Any]:
        """Return facts on calibration, of outputs (draws, n, ...), if the loss has any."""
        density = self.log_density
        if density.loss is not None:
            return (
                _classes(density, outputs, y, members)
                if "crossentropy" in density.name
                else {}
            )
        try:
            cdf = [density.distribution(tf.constant(one)).cdf(y) for one in outputs]
        except (NotImplementedError, AttributeError):
            return {}
        return {
            "calibration error, mean over intervals": uniformity_error(
                np.mean(cdf, 0).ravel()
            )
        }


def _classes(
    density: RowDensity, outputs: Array, y: Array, members: int
) -> dict[str, Any]:
    logits = density.from_logits
    if density.name == BINARY:
        p = 1 / (1 + np.exp(-outputs)) if logits else outputs
        if p.shape[-1] != 1:
            return {}
        return classes_judged(
            np.concatenate([1 - p, p], -1), y.ravel().astype(int), members
        )
    p = softmax(outputs, -1) if logits else outputs
    codes = y.ravel().astype(int) if density.name == SPARSE else y.argmax(-1)
    return classes_judged(p, codes, members) if p.ndim == 3 else {}


def _split(model: Any) -> tuple[Any, Any]:
    """Return the frozen layers at the beginning of a Sequential, or ``None``, and the rest."""
    import keras

    layers = model.layers if isinstance(model, keras.Sequential) else []
    first = next((k for k, layer in enumerate(layers) if layer.trainable_variables), 0)
    if not any(layer.variables for layer in layers[:first]):
        return None, model
    frozen = keras.Model(model.inputs[0], layers[first - 1].output)
    shape = tuple(frozen.output.shape[1:])
    trainable = keras.Sequential(
        [keras.Input(shape, dtype=frozen.output.dtype), *layers[first:]]
    )
    return frozen, trainable


def new_members(models: Sequence[Any], members: int, seed: int) -> Weights:
    """Return the starting weights of all members, (members, ...)."""
    import keras

    names = weight_names(models[0])
    if len(models) == 1:
        before = random.getstate()  # from which Keras draws the seeds of new weights
        random.seed(seed)
        try:
            models = [
                *models,
                *(keras.models.clone_model(models[0]) for _ in range(members - 1)),
            ]
        except (ValueError, NotImplementedError, TypeError) as error:
            raise ValueError(
                "`model` cannot be copied by keras.models.clone_model, so that there is one "
                "member: give a list of built models, or members=1."
            ) from error
        finally:
            random.setstate(before)
    shapes = [
        [tuple(array.shape) for array in one.trainable_variables] for one in models
    ]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "`model`: all models of the list must have weights of the same shapes."
        )
    values = zip(*(one.trainable_variables for one in models), strict=True)
    return {
        name: np.stack([np.asarray(array, np.float32) for array in all_])
        for name, all_ in zip(names, values, strict=True)
    }
