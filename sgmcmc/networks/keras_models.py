"""Keras networks as models: their weights are the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import describe
from sgmcmc.networks.losses import RowDensity

Tensors = Mapping[str, tf.Tensor]

_RANDOM = "seed_generator_state"  # Keras's name of the state of layers that draw random numbers
_MOVING = "moving_mean", "moving_variance"  # and of the state of batch normalization

# Attributes of Keras's layers for the amount of noise
_RATES = (
    "rate",
    "dropout",
    "recurrent_dropout",
    "dropout_rate",
    "drop_rate",
    "stddev",
    "factor",
)


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
            or a function of targets and outputs that returns a loss for each row. Of a loss that is
            a mean over the outputs of a row the sum is used. Or a function of the network's outputs
            that returns a distribution of TensorFlow Probability for the targets.
        prior_scale: SD of every weight.
        inputs: Name of the features in the dataset.
        targets: Name of the targets.

    Returns:
        A :class:`sgmcmc.models.KerasModel`: the arguments of samplers, and `predict`.

    Raises:
        TypeError: The model is not a Keras model, or the likelihood none of these.
        ValueError: The model has no weights yet, more than one input, batch normalization,
            regularizers or constraints, or draws random numbers; the loss is no log density, or
            needs other outputs or targets than there are.

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
    log_density = RowDensity(
        likelihood, "likelihood", f"The targets in `dataset[{targets!r}]`"
    )
    if len(getattr(model, "inputs", None) or []) > 1:
        raise ValueError(
            f"`model` has {len(model.inputs)} inputs; features must be one array."
        )
    outputs = outputs_on_trial(model)
    if outputs is not None and log_density.loss is not None:
        log_density.check_outputs(outputs)
    names = weight_names(model)
    values = [np.asarray(variable) for variable in model.trainable_variables]
    start = dict(zip(names, values, strict=True))
    frozen = model.non_trainable_variables

    def predict(params: Tensors, dataset: Tensors) -> tf.Tensor:
        weights = [params[name] for name in names]
        return model.stateless_call(weights, frozen, dataset[inputs], training=False)[0]

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return log_density(dataset[targets], predict(params, dataset))

    def check_rows(dataset: Tensors) -> None:
        log_density.check(np.asarray(dataset[targets]), predict(start, dataset))

    log_lik.check_rows = check_rows  # type: ignore[attr-defined]

    def log_prior(params: Tensors) -> tf.Tensor:
        return -0.5 * tf.add_n(
            [tf.reduce_sum((params[name] / scale) ** 2) for name in names]
        )

    return KerasModel(log_lik, log_prior, start, predict)


def weight_names(model: Any) -> list[str]:
    """Return names of the weights: layer and kind, with the path before them if needed."""
    paths = [variable.path.split("/") for variable in model.trainable_variables]
    for depth in range(2, max(map(len, paths)) + 1):
        names = ["_".join(path[-depth:]) for path in paths]
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
    _refuse_unused(model)


def _refuse_state(model: Any) -> None:
    """Raise an error if outputs of one row depend on other rows, on earlier calls, or on chance.

    Layers that are frozen do neither, since the network is called as for predictions.
    """
    layers = all_layers(model)
    frozen = {id(v) for layer in layers if not layer.trainable for v in layer.variables}
    # The innermost layer of a variable is last.
    owners = {id(v): layer for layer in layers for v in layer.variables}
    for layer in layers:
        if getattr(layer, "stateful", False):
            raise ValueError(
                f"`model`: with stateful=True in {layer.name!r} the output of a row depends on "
                "the rows before it. Use stateful=False."
            )
    for variable in model.non_trainable_variables:
        path = ["model", *variable.path.split("/")]
        if id(variable) in frozen:
            continue
        owner = owners.get(id(variable))
        if path[-1] == _RANDOM:
            # Recurrent layers have a generator for dropout at a rate of zero too.
            rates = [getattr(owner, name) for name in _RATES if hasattr(owner, name)]
            if not rates or any(rates):
                name = getattr(owner, "name", path[0])
                raise ValueError(
                    f"`model` draws random numbers in {name!r}, in dropout or a layer of noise. A "
                    "posterior needs a likelihood that is the same each time; the draws of the "
                    "weights replace dropout. Remove these layers, use a rate of 0, or freeze them."
                )
        if path[-1] in _MOVING:
            raise ValueError(
                f"`model`: with the batch normalization in {path[-2]!r} the output of a row "
                "depends on the others of its minibatch, so that rows are not independent. Use "
                "keras.layers.LayerNormalization or GroupNormalization, or freeze the layer "
                "(layer.trainable = False): then it uses the means and variances that it has."
            )


def _refuse_unused(model: Any) -> None:
    """Raise an error at regularizers and constraints, which a posterior does not have."""
    for variable in model.trainable_variables:
        for kind in ("regularizer", "constraint"):
            penalty = getattr(variable, kind, None)
            if penalty is None:
                continue
            name = "_".join(variable.path.split("/")[-2:])
            advice = (
                "Remove it: the prior of a weight takes its place. L2(λ) added to a mean loss over "
                "N rows is the prior N(0, 1/(2λN)), see `prior_scale`."
                if kind == "regularizer"
                else "Remove it, and constrain the weight inside a layer, such as by tf.exp, or "
                "sample your own `log_lik` with `bijectors`."
            )
            raise ValueError(
                f"`model`: the {kind} {type(penalty).__name__} of {name!r} is no part of the "
                f"posterior. {advice}"
            )
    for layer in all_layers(model):
        if layer.trainable and getattr(layer, "activity_regularizer", None) is not None:
            raise ValueError(
                f"`model`: the activity_regularizer of {layer.name!r} is no part of the "
                "posterior. Remove it, or write a `log_lik` that has the term."
            )
        if layer.trainable and type(layer).__name__ == "ActivityRegularization":
            raise ValueError(
                f"`model`: {layer.name!r} is no part of the posterior. Remove it."
            )


def all_layers(model: Any) -> list[Any]:
    """Return all layers of a model, those within models, wrappers and recurrent layers included.

    A layer follows those that it is part of.
    """
    flatten = getattr(model, "_flatten_layers", None)
    if flatten is not None:
        return list(flatten(include_self=False))
    layers = []
    for layer in getattr(model, "layers", []):
        layers += [layer, *all_layers(layer)]
    return layers


def outputs_on_trial(model: Any) -> Any:
    """Return outputs for random features, or ``None`` if the model says too little of its inputs.

    Args:
        model: Keras model.
    """
    inputs = getattr(model, "inputs", None) or []
    rng = np.random.default_rng(1)
    if len(inputs) != 1:
        return None
    rows = 16  # of random features, and the length of their axes that have none
    shape = [rows, *(length or rows for length in inputs[0].shape[1:])]
    try:
        integers = str(inputs[0].dtype).startswith("int")
        features = np.zeros(shape, np.int32) if integers else rng.normal(size=shape)
        outputs = model(tf.constant(features, inputs[0].dtype), training=False)
        return np.asarray(outputs, np.float32)
    except Exception:
        return None  # the chain's own trial has rows of the data
