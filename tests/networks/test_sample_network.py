"""Networks of Keras, sampled: frozen layers, streams, stored predictions, and what is refused."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc.keras
from sgmcmc.networks.keras_sampling import KerasNetwork, new_members

layers = keras.layers
rng = np.random.default_rng(1)
X = rng.normal(size=(300, 3)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.int32)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
QUICK: dict[str, Any] = {
    "members": 2, "epochs": 20, "n_iters": 60, "draws": 5, "batch_size": 64, "seed": 1,
    "verbose": False,
}  # fmt: skip


def network(*more: Any, width: int = 6) -> keras.Model:
    return keras.Sequential(
        [keras.Input((3,)), layers.Dense(width, "tanh"), *more, layers.Dense(2)]
    )


@pytest.mark.slow
def test_frozen_layers_are_computed_once_and_only_predictions_are_kept() -> None:
    own = network(layers.BatchNormalization())
    own.layers[0].trainable = own.layers[1].trainable = False
    before = [np.array(each) for each in own.get_weights()]
    stream = tf.data.Dataset.from_tensor_slices((X, Y)).batch(50)
    fit = sgmcmc.keras.sample_network(
        own, stream, LOSS, predict_at=X[:7], store_weights=False, **QUICK
    )
    assert fit.predictions is not None and fit.predictions.shape == (2, 5, 7, 2)
    assert fit.report["Chain"]["weights of each"] == 6 * 2 + 2 and not len(fit.samples)
    for old, new in zip(before, own.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    with pytest.raises(ValueError, match="`store_weights`"):
        fit.predict(X)


def test_features_and_the_rest_are_the_whole() -> None:
    own = network(layers.LayerNormalization())
    own.layers[0].trainable = False
    parts = KerasNetwork(own, LOSS)
    weights = {
        name: np.asarray(each)
        for name, each in zip(parts.names, own.trainable_variables, strict=True)
    }
    found = parts.outputs(weights, parts.features(X))
    np.testing.assert_allclose(found, own(X), rtol=1e-5, atol=1e-6)
    assert parts.features(X).shape == (300, 6)


@pytest.mark.slow
def test_predictions_are_means_over_members_and_draws() -> None:
    fit = sgmcmc.keras.sample_network(
        network(), (X, Y), LOSS, predict_at=X[:7], **QUICK
    )
    assert fit.predictions is not None
    outputs = fit.predictions.reshape(-1, 7, 2)
    p = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    np.testing.assert_allclose(fit.predict(X[:7], "softmax"), p.mean(0), atol=1e-5)
    exact = np.log(p[:, np.arange(7), Y[:7]].mean(0)).mean()
    assert fit.log_score(X[:7], Y[:7]) == pytest.approx(exact, abs=1e-5)
    assert {array.shape[:2] for array in fit.samples.values()} == {(2, 5)}
    held = fit.report["Held out"]
    assert held["rows"] == 30 and 0 <= held["expected calibration error"] < 0.5


def test_members_start_anew_by_the_seed_and_leave_the_generator_of_keras_alone() -> (
    None
):
    own = network()
    keras.utils.set_random_seed(3)
    expected = keras.random.normal((2,))
    keras.utils.set_random_seed(3)
    one, other, third = (new_members([own], 3, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(keras.random.normal((2,)), expected)
    name = next(iter(one))
    np.testing.assert_array_equal(one[name], other[name])
    np.testing.assert_array_equal(one[name][0], own.trainable_variables[0])
    assert not np.array_equal(one[name][1], third[name][1])
    assert not np.array_equal(one[name][1], one[name][2])


def test_copies_are_of_a_network_that_is_compiled_by_a_loss_of_the_users() -> None:
    """Keras would look for the loss by its name; the user's network stays compiled."""
    own = network()
    own.compile(loss=lambda y, outputs: keras.ops.mean((y - outputs) ** 2))
    start = new_members([own], 2, 1)
    assert own.compiled and all(len(weights) == 2 for weights in start.values())


def test_the_members_of_a_list_are_its_networks() -> None:
    fit = sgmcmc.keras.sample_network([network()], (X, Y), LOSS, **QUICK)
    assert fit.samples is not None
    assert {array.shape[0] for array in fit.samples.values()} == {1}
    assert "trained on" not in fit.report["Held out"]["judged by"]


def test_weights_that_were_given_may_have_seen_the_rows_that_judge_them() -> None:
    given = {**QUICK, "epochs": 0, "members": 1}
    fit = sgmcmc.keras.sample_network(network(), (X, Y), LOSS, **given)
    assert "trained on" in fit.report["Held out"]["judged by"]


@pytest.mark.slow
def test_half_precision() -> None:
    """Layers compute in bfloat16, the weights and the posterior are in float32."""
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        own = network()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    given = {**QUICK, "epochs": 200, "n_iters": 300}
    fit = sgmcmc.keras.sample_network(own, {"X": X, "y": Y}, LOSS, **given)
    assert {array.dtype for array in fit.samples.values()} == {np.dtype("f")}
    assert fit.log_score(X, Y) > -0.4


@pytest.mark.slow
def test_a_wide_network_keeps_predictions_alone() -> None:
    """A million weights, in memory for the members and not for the draws."""
    own = keras.Sequential(
        [keras.Input((100,)), layers.Dense(9100, "relu"), layers.Dense(10)]
    )
    wide = rng.normal(size=(2000, 100)).astype(np.float32)
    label = wide[:, :10].argmax(1).astype(np.int32)
    given = {**QUICK, "epochs": 2, "n_iters": 40, "draws": 20}
    fit = sgmcmc.keras.sample_network(
        own, (wide, label), LOSS, predict_at=wide[:50], store_weights=False, **given
    )
    assert fit.predictions is not None
    assert fit.report["Chain"]["weights of each"] > 10**6
    assert np.isfinite(fit.predictions).all()


def normal(outputs: Any) -> Any:
    return tfp.distributions.Normal(outputs[:, 0], 1.0)


@pytest.mark.parametrize(
    ("model", "data", "loss", "given", "error", "message"),
    [
        (
            network(layers.BatchNormalization()),
            (X, Y),
            LOSS,
            {},
            ValueError,
            "freeze the layer",
        ),
        (network(layers.Dropout(0.5)), (X, Y), LOSS, {}, ValueError, "draws random"),
        (tf.identity, (X, Y), LOSS, {}, TypeError, "`model` must be a keras.Model"),
        (
            network(),
            (X, Y),
            "categorical_hinge",
            {},
            ValueError,
            "`loss`: .* no log density",
        ),
        (network(), (X, Y), keras.losses.CosineSimilarity(), {}, ValueError, "`loss`"),
        (
            network(),
            (X, Y),
            keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
            {},
            ValueError,
            "label_smoothing",
        ),
        (
            network(),
            (X, np.zeros(300, int)),
            LOSS,
            {},
            ValueError,
            "`data`: the targets",
        ),
        (network(), (X[:5], Y), LOSS, {}, ValueError, "`data`"),
        (network(), (np.full_like(X, np.nan), Y), LOSS, {}, ValueError, "`data"),
        (network(), X, LOSS, {}, TypeError, "`data` must be a pair"),
        (network(), (X, Y), LOSS, {"members": 0}, ValueError, "`members`"),
        (network(), (X, Y), LOSS, {"members": 10**9}, ValueError, "`members`: "),
        (
            network(),
            (X, Y),
            LOSS,
            {"validation_fraction": 1},
            ValueError,
            "`validation_fraction`",
        ),
        (
            network(),
            (X, Y),
            LOSS,
            {"store_weights": False},
            ValueError,
            "give `predict_at`",
        ),
        ([network(), network(width=5)], (X, Y), LOSS, {}, ValueError, "same shapes"),
        ([], (X, Y), LOSS, {}, ValueError, "`model`: the list is empty"),
    ],
)
def test_what_is_refused(
    model: Any,
    data: Any,
    loss: Any,
    given: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        sgmcmc.keras.sample_network(model, data, loss, **{**QUICK, **given})
