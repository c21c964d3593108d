"""Keras networks as models: their weights are the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import describe

Tensors = Mapping[str, tf.Tensor]

_RANDOM = "seed_generator_state"
"""Keras's name of the state of layers that draw random numbers."""

_MOVING = ("moving_mean", "moving_variance")
"""Keras's names of the state of batch normalization."""

_NO_DENSITIES = (
    "hinge", "cosine_similarity", "dice", "tversky", "focal", "circle", "percentage", "logarithmic",
    "kl_divergence", "kullback", "generalized",
)  # fmt: skip
"""Parts of the names of losses of Keras that are no log densities."""


@dataclass(frozen=True)
class KerasModel:
    """A Keras network, as a sampler uses it; :func:`sgmcmc.models.keras_model` makes it.

    Args:
        log_lik: Log-likelihood of each row, of `params` and `dataset`.
        log_prior: Log prior of the weights, N(0, prior_scale²) each.
        params: Starting values: the network's weights as they are, by name.
        predict: Outputs of the network, of `params` and `dataset`, for
            :meth:`sgmcmc.Samples.predict`; the dataset needs no targets.

    Example:
        >>> import keras, numpy as np, sgmcmc
        >>> network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model = sgmcmc.keras_model(network, "mean_squared_error")
        >>> model.predict(model.params, {"X": np.zeros((3, 2), np.float32)}).shape
        TensorShape([3, 1])
    """

    log_lik: Callable[[Tensors, Tensors], tf.Tensor]
    log_prior: Callable[[Tensors], tf.Tensor]
    params: dict[str, np.ndarray]
    predict: Callable[[Tensors, Tensors], tf.Tensor]


def keras_model(
    model: Any,
    likelihood: Any,
    *,
    prior_scale: float = 1.0,
    inputs: str = "X",
    targets: str = "y",
) -> KerasModel:
    """Return log-likelihood, log prior, starting values and predictions of a Keras network.

    log p(y_i | θ) = log p(y_i | f_θ(x_i)), f the network and θ all weights of it that can be
    trained, with the prior θ_j ~ N(0, prior_scale²). The model itself is not changed.

    Args:
        model: A built :class:`keras.Model`. Weights that are frozen stay as they are.
        likelihood: Loss, used as the negative log-likelihood of a row: its name, or a
            :class:`keras.losses.Loss`, such as ``SparseCategoricalCrossentropy(from_logits=True)``;
            or a function of the network's outputs that returns a distribution of TensorFlow
            Probability for the targets.
        prior_scale: SD of every weight.
        inputs: Name of the features in the dataset.
        targets: Name of the targets.

    Returns:
        A :class:`sgmcmc.models.KerasModel`: the arguments of samplers, and `predict`.

    Raises:
        TypeError: The model is not a Keras model, or the likelihood none of these.
        ValueError: The model has no weights yet, has batch normalization, or draws random numbers.

    Example:
        >>> import keras, numpy as np, sgmcmc
        >>> rng = np.random.default_rng(1)
        >>> X = rng.normal(size=(500, 2)).astype("float32")
        >>> y = (X[:, 0] * X[:, 1] > 0).astype("int32")
        >>> dense = keras.layers.Dense
        >>> network = keras.Sequential(
        ...     [keras.Input((2,)), dense(8, "tanh", name="hidden"), dense(2, name="out")])
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model = sgmcmc.keras_model(network, loss)
        >>> list(model.params)
        ['hidden_kernel', 'hidden_bias', 'out_kernel', 'out_bias']
        >>> chain = sgmcmc.sghmc(
        ...     model.log_lik, {"X": X, "y": y}, model.params, 1e-4, log_prior=model.log_prior,
        ...     minibatch_size=100, n_iters=200, verbose=False, seed=1)
        >>> chain.predict(model.predict, {"X": X[:5]}).shape
        (5, 2)

    Source:
        Chen, Fox & Guestrin, ICML 2014, section 4.2, for networks with normal priors.
    """
    check_network(model)
    scale = checks.positive_number("prior_scale", prior_scale)
    log_density = log_density_of(likelihood)
    names = weight_names(model)
    frozen = model.non_trainable_variables

    def predict(params: Tensors, dataset: Tensors) -> tf.Tensor:
        weights = [params[name] for name in names]
        return model.stateless_call(weights, frozen, dataset[inputs], training=False)[0]

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return log_density(dataset[targets], predict(params, dataset))

    def log_prior(params: Tensors) -> tf.Tensor:
        return -0.5 * tf.add_n([tf.reduce_sum((params[name] / scale) ** 2) for name in names])

    start = [np.asarray(variable) for variable in model.trainable_variables]
    return KerasModel(log_lik, log_prior, dict(zip(names, start, strict=True)), predict)


def weight_names(model: Any) -> list[str]:
    """Return names of the weights: layer and kind, with the path before them if needed."""
    paths = [variable.path.split("/") for variable in model.trainable_variables]
    for parts in range(2, max(map(len, paths)) + 1):
        names = ["_".join(path[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{name}_{number}" for number, name in enumerate(names)]


def check_network(model: Any) -> None:
    """Raise an error unless the model is a network with weights, and a function of single rows."""
    import keras

    if not isinstance(model, keras.Model):
        raise TypeError(f"`model` must be a keras.Model; it is {describe(model)}.")
    if not model.built or not model.trainable_variables:
        raise ValueError(
            "`model` has no weights that could be sampled: give it an Input, or call it once, and "
            "leave some of it trainable."
        )
    _refuse_state(model)


def _refuse_state(model: Any) -> None:
    """Raise an error if outputs of one row depend on other rows, or on chance.

    Layers that are frozen do neither, since the network is called as for predictions.
    """
    frozen = {id(v) for layer in all_layers(model) if not layer.trainable for v in layer.variables}
    for variable in model.non_trainable_variables:
        path = ["model", *variable.path.split("/")]
        if id(variable) in frozen:
            continue
        if path[-1] == _RANDOM:
            raise ValueError(
                "`model` draws random numbers, in dropout or a layer of noise. A posterior needs "
                "a likelihood that is the same each time; the draws of the weights replace "
                "dropout. Remove these layers, or freeze them."
            )
        if path[-1] in _MOVING:
            raise ValueError(
                f"`model`: with the batch normalization in {path[-2]!r} the output of a row "
                "depends on the others of its minibatch, so that rows are not independent. Use "
                "keras.layers.LayerNormalization or GroupNormalization, or freeze the layer "
                "(layer.trainable = False): then it uses the means and variances that it has."
            )


def all_layers(model: Any) -> list[Any]:
    """Return all layers of a model, those of models within it included."""
    found = []
    for layer in getattr(model, "layers", []):
        found += [layer, *all_layers(layer)]
    return found


def log_density_of(
    likelihood: Any, argument: str = "likelihood"
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return log p(y | outputs) of each row; ``argument`` is the name for messages."""
    import keras

    if isinstance(likelihood, str):
        try:
            likelihood = keras.losses.get(likelihood)
        except ValueError:
            raise ValueError(f"`{argument}`: Keras has no loss called {likelihood!r}.") from None
        _refuse_loss(getattr(likelihood, "__name__", ""), argument)
        return lambda y, outputs: -_by_row(likelihood(y, outputs))
    if isinstance(likelihood, keras.losses.Loss):
        _refuse_loss(likelihood.name, argument)
        if getattr(likelihood, "_fn_kwargs", {}).get("label_smoothing"):
            raise ValueError(f"`{argument}`: with `label_smoothing` a loss is no log density.")
        return lambda y, outputs: -_by_row(likelihood.call(y, outputs))
    if callable(likelihood):
        return lambda y, outputs: _by_row(likelihood(outputs).log_prob(y))
    raise TypeError(
        f"`{argument}` must be the name of a loss of Keras, a keras.losses.Loss, or a function of "
        f"the outputs that returns a distribution; it is {describe(likelihood)}."
    )


def _refuse_loss(name: str, argument: str) -> None:
    """Raise an error at a loss of Keras whose e^(−loss) is the density of no targets."""
    if any(part in name for part in _NO_DENSITIES):
        raise ValueError(
            f"`{argument}`: {name} is no log density, so that there is no posterior. Use a "
            "cross-entropy, the mean squared error, or a function of the outputs that returns a "
            "distribution."
        )


def _by_row(terms: tf.Tensor) -> tf.Tensor:
    """Return one number for each row."""
    return tf.reduce_sum(tf.reshape(terms, [tf.shape(terms)[0], -1]), axis=1)
