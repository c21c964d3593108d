"""Keras networks as models: the same log-likelihood as by hand, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc

layers = keras.layers
rng = np.random.default_rng(1)
X = rng.normal(size=(60, 3)).astype(np.float32)
Y = rng.integers(0, 2, 60).astype(np.int32)


def network(*more: Any, outputs: int = 2) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((3,)),
            layers.Dense(4, activation="tanh"),
            *more,
            layers.Dense(outputs),
        ]
    )


def logits(params: dict[str, np.ndarray], X: np.ndarray) -> np.ndarray:
    W, b, V, a = params.values()
    return np.tanh(X @ W + b) @ V + a


CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize(
    "likelihood",
    [CROSS_ENTROPY, lambda outputs: tfp.distributions.Categorical(logits=outputs)],
    ids=["loss", "distribution"],
)
def test_log_lik(likelihood: Callable[..., Any]) -> None:
    """By row, for a loss and for a distribution, as by hand."""
    model = sgmcmc.keras_model(network(), likelihood, prior_scale=2.0)
    z = logits(model.params, X)
    expected = z[np.arange(60), Y] - np.log(np.exp(z).sum(1))
    found = model.log_lik(model.params, {"X": X, "y": Y})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        model.predict(model.params, {"X": X}), z, rtol=1e-4, atol=1e-5
    )
    squares = sum((w.astype(float) ** 2).sum() for w in model.params.values())
    np.testing.assert_allclose(model.log_prior(model.params), -squares / 8, rtol=1e-5)


def test_names_of_losses() -> None:
    """A loss with several targets a row is summed over them."""
    model = sgmcmc.keras_model(network(), "mean_squared_error", inputs="a", targets="b")
    b = rng.normal(size=(60, 2)).astype(np.float32)
    expected = -((logits(model.params, X) - b) ** 2).sum(1)
    np.testing.assert_allclose(
        model.log_lik(model.params, {"a": X, "b": b}), expected, rtol=1e-4, atol=1e-5
    )


def test_sampled() -> None:
    """The chain runs, the model stays as it was, and predictions are averages over draws."""
    own = network()
    before = [np.array(weight) for weight in own.get_weights()]
    model = sgmcmc.keras_model(own, CROSS_ENTROPY)
    chain = sgmcmc.sgld(
        model.log_lik, {"X": X, "y": Y}, model.params, 1e-3, log_prior=model.log_prior,
        minibatch_size=20, n_iters=50, verbose=False, seed=1, jit_compile=False,
    )  # fmt: skip
    assert (
        chain["dense_kernel" if "dense_kernel" in chain else next(iter(chain))].shape[0]
        == 50
    )
    for old, new in zip(before, own.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    draws = [{name: chain[name][i] for name in chain} for i in range(50)]
    by_hand = np.mean([logits(draw, X[:5]) for draw in draws], 0)
    np.testing.assert_allclose(
        chain.predict(model.predict, {"X": X[:5]}), by_hand, rtol=1e-3, atol=1e-4
    )


def test_frozen_weights() -> None:
    """They are no parameters, and are used as they are."""
    own = network()
    own.layers[0].trainable = False
    model = sgmcmc.keras_model(own, CROSS_ENTROPY)
    assert len(model.params) == 2
    np.testing.assert_allclose(
        model.predict(model.params, {"X": X}), own(X), rtol=1e-5, atol=1e-6
    )


def test_convolutions() -> None:
    """A gradient compiled by XLA passes through them."""
    own = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(2, 3, activation="relu"),
            layers.MaxPooling2D(),
        ]
        + [layers.Flatten(), layers.Dense(2)]
    )
    model = sgmcmc.keras_model(own, CROSS_ENTROPY)
    images = rng.normal(size=(60, 6, 6, 1)).astype(np.float32)
    chain = sgmcmc.sgld(
        model.log_lik, {"X": images, "y": Y}, model.params, 1e-4, log_prior=model.log_prior,
        minibatch_size=20, n_iters=5, verbose=False, seed=1, jit_compile=True,
    )  # fmt: skip
    assert all(np.isfinite(draws).all() for draws in chain.values())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (network(layers.Dropout(0.5)), CROSS_ENTROPY),
            ValueError,
            "`model` draws random",
        ),
        (
            (network(layers.BatchNormalization()), CROSS_ENTROPY),
            ValueError,
            "LayerNormalization",
        ),
        ((tf.identity, CROSS_ENTROPY), TypeError, "`model` must be a keras.Model"),
        (
            (keras.Sequential([layers.Dense(2)]), CROSS_ENTROPY),
            ValueError,
            "`model` has no weights",
        ),
        ((network(), "no such loss"), ValueError, "`likelihood`"),
        ((network(), 3), TypeError, "`likelihood`"),
    ],
)
def test_refused(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sgmcmc.keras_model(*arguments)
