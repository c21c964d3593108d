"""Losses of Keras as log densities: sums over outputs, shapes of targets, what is refused."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
import sgmcmc.keras
from sgmcmc.networks.keras_sampling import KerasNetwork, _read
from sgmcmc.networks.losses import RowDensity

tfd = tfp.distributions
layers = keras.layers
losses = keras.losses
rng = np.random.default_rng(1)
N, K = 7, 5
F = rng.normal(size=(N, K)).astype(np.float32)
P = (np.exp(F) / np.exp(F).sum(1, keepdims=True)).astype(np.float32)
S = (1 / (1 + np.exp(-F))).astype(np.float32)
LABELS = (rng.uniform(size=(N, K)) > 0.5).astype(np.int64)
CODES = rng.integers(0, K, N)
HOT = np.eye(K, dtype=np.float32)[CODES]
Y = rng.normal(size=(N, K)).astype(np.float32)
E = Y - F
ROOT = np.float32(np.sqrt(0.5))
BINARY = (LABELS * np.log(S) + (1 - LABELS) * np.log(1 - S)).sum(1)
LOG_P = np.log(P)[np.arange(N), CODES]
HUBER = np.where(np.abs(E) < 1, 0.5 * E**2, np.abs(E) - 0.5).sum(1)


def density(likelihood: Any) -> RowDensity:
    return RowDensity(likelihood, "loss", "`data`: the targets")


class OwnLoss(losses.Loss):
    """Mean over the outputs, as a class."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.abs(y_true - y_pred), -1)


def heteroscedastic(y: Any, f: Any) -> Any:
    """Mean over outputs of the loss of normals, with means and log SDs side by side."""
    mean, log_sd = tf.split(f, 2, -1)
    return tf.reduce_mean(0.5 * tf.square((y - mean) / tf.exp(log_sd)) + log_sd, -1)


@pytest.mark.parametrize(
    ("likelihood", "y", "outputs", "expected"),
    [
        ("binary_crossentropy", LABELS, S, BINARY),
        ("binary_crossentropy", LABELS.astype(bool), S, BINARY),
        (losses.BinaryCrossentropy(), LABELS, S, BINARY),
        (losses.BinaryCrossentropy(from_logits=True, reduction="sum"), LABELS, F, BINARY),
        (losses.BinaryCrossentropy(from_logits=True, name="mine"), LABELS, F, BINARY),
        (functools.partial(losses.binary_crossentropy, from_logits=True), LABELS, F, BINARY),
        ("mse", Y, F, -(E**2).sum(1)),
        (losses.MeanSquaredError(reduction="none"), Y, F, -(E**2).sum(1)),
        (losses.mean_squared_error, Y, F, -(E**2).sum(1)),
        ("mae", Y, F, -np.abs(E).sum(1)),
        (losses.Huber(), Y, F, -HUBER),
        ("log_cosh", Y, F, -np.log(np.cosh(E)).sum(1)),
        ("poisson", LABELS, S, (LABELS * np.log(S + 1e-7) - S).sum(1)),
        ("categorical_crossentropy", HOT, P, LOG_P),
        (losses.CategoricalCrossentropy(from_logits=True), HOT, F, LOG_P),
        ("sparse_categorical_crossentropy", CODES, P, LOG_P),
        (losses.SparseCategoricalCrossentropy(from_logits=True), CODES[:, None], F, LOG_P),
        (OwnLoss(), Y, F, -np.abs(E).sum(1)),
        (lambda y, f: tf.reduce_mean((y - f) ** 2, -1), Y, F, -(E**2).sum(1)),
        (lambda y, f: tf.reduce_sum((y - f) ** 2, -1), Y, F, -(E**2).sum(1)),
        (lambda y, f: (y - f) ** 2, Y, F, -(E**2).sum(1)),
        (lambda y, f: (y[:, 0] - f[:, 0]) ** 2, Y, F, -(E[:, 0] ** 2)),
        (lambda y, f: (y[:, -1] - f[:, -1]) ** 2, Y, F, -(E[:, -1] ** 2)),
        (
            heteroscedastic, Y, np.concatenate([F, 0 * F], 1), -0.5 * (E**2).sum(1),
        ),
        # One output, with targets of both shapes.
        ("binary_crossentropy", LABELS[:, 0], S[:, :1], np.log(np.where(LABELS, S, 1 - S))[:, 0]),
        ("mse", Y[:, 0], F[:, :1], -(E[:, 0] ** 2)),
        ("mse", Y[:, :1], F[:, :1], -(E[:, 0] ** 2)),
        ("mae", Y[:, :1, None], F[:, :1], -np.abs(E[:, 0])),
        (lambda f: tfd.Normal(f[:, 0], ROOT), Y[:, :1], F[:, :1],
         -(E[:, 0] ** 2) - 0.5 * np.log(np.pi)),
        (lambda f: tfd.Normal(f, ROOT), Y[:, 0], F[:, :1],
         -(E[:, 0] ** 2) - 0.5 * np.log(np.pi)),
        (lambda f: tfd.Normal(f, ROOT), Y, F, -(E**2).sum(1) - 0.5 * K * np.log(np.pi)),
        (lambda f: tfd.MultivariateNormalDiag(f, np.full(K, ROOT)), Y, F,
         -(E**2).sum(1) - 0.5 * K * np.log(np.pi)),
        (lambda f: tfd.Categorical(logits=f), CODES[:, None], F, LOG_P),
        (lambda f: tfd.Poisson(f[:, 0]), CODES[:, None], S[:, :1], None),
    ],
)  # fmt: skip
def test_the_log_density_of_a_row_is_a_sum_over_its_outputs(
    likelihood: Any, y: Any, outputs: Any, expected: Any
) -> None:
    found = density(likelihood)(tf.constant(y), tf.constant(outputs))
    assert found.shape == (len(y),)
    if expected is not None:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "wrong", "outputs"),
    [
        ("sparse_categorical_crossentropy", np.array([0, -1, 2, 9]), P[:4]),
        ("sparse_categorical_crossentropy", np.array([0, 1.5, 2.0, 5.0]), P[:4]),
        ("binary_crossentropy", np.array([0, 2, 1, -1]), S[:4, :1]),
        ("poisson", np.array([0, -2, 1, -1]), S[:4, :1]),
    ],
)
def test_targets_outside_of_the_support_have_no_density(
    loss: Any, wrong: Any, outputs: Any
) -> None:
    """Rows that no trial has seen do not pass either."""
    for run in (lambda f: f, tf.function(jit_compile=True)):
        found = run(lambda y, f: density(loss)(y, f))(
            tf.constant(wrong), tf.constant(outputs)
        )
        np.testing.assert_array_equal(np.isnan(found), [False, True, False, True])
    ignored = losses.SparseCategoricalCrossentropy(ignore_class=-1)
    found = density(ignored)(np.array([0, -1]), P[:2])
    np.testing.assert_allclose(found, [np.log(P[0, 0]), 0.0], rtol=1e-5)


def test_in_graphs_and_over_pixels() -> None:
    """Pixels are outputs too, in a graph whose sizes are unknown as in others."""
    y = rng.normal(size=(4, 3, 2, 5)).astype(np.float32)
    f = rng.normal(size=y.shape).astype(np.float32)
    codes = rng.integers(0, 5, (4, 3, 2))
    log_p = tf.math.log_softmax(f).numpy()
    picked = np.take_along_axis(log_p, codes[..., None], -1).sum((1, 2, 3))
    sparse = losses.SparseCategoricalCrossentropy(from_logits=True)
    hot = np.eye(5, dtype=np.float32)[codes]
    categorical = losses.CategoricalCrossentropy(from_logits=True)
    first = losses.CategoricalCrossentropy(from_logits=True, axis=1)
    moved = [np.moveaxis(each, -1, 1) for each in (hot, f)]

    def over_all(y: Any, f: Any) -> Any:
        return tf.reduce_mean((y - f) ** 2, axis=[1, 2, 3])

    for loss, targets, outputs, expected in (
        ("mse", y, f, -((y - f) ** 2).sum((1, 2, 3))),
        (over_all, y, f, -((y - f) ** 2).sum((1, 2, 3))),
        (sparse, codes, f, picked),
        (sparse, codes[..., None], f, picked),
        (categorical, hot, f, picked),
        (first, *moved, picked),
    ):
        own = density(loss)
        given = [
            tf.TensorSpec([None, *a.shape[1:]], tf.as_dtype(a.dtype))
            for a in (targets, f)
        ]
        loose = [
            tf.TensorSpec([None] * a.ndim, tf.as_dtype(a.dtype)) for a in (targets, f)
        ]
        np.testing.assert_allclose(own(targets, outputs), expected, rtol=1e-4)
        if loss is first:
            continue
        for specs in [given] if loss is sparse else [given, loose]:
            graph = tf.function(own, input_signature=specs, autograph=False)
            np.testing.assert_allclose(graph(targets, outputs), expected, rtol=1e-4)
        np.testing.assert_allclose(
            tf.function(own, jit_compile=True, autograph=False)(targets, outputs),
            expected,
            rtol=1e-4,
        )


@pytest.mark.parametrize(
    ("likelihood", "y", "outputs", "message"),
    [
        (lambda y, f: tf.reduce_mean((y - f) ** 2), Y, F, r"`loss` must return a value for each"),
        (lambda y, f: (y - f[:, 0]) ** 2, Y[:, :1], F, "`loss`: the value of a row depends"),
        (lambda y, f: tf.reduce_mean((y - f) ** 2, 0), Y, F, "`loss` must return a value for each"),
        (lambda f: f, Y, F, "`loss` must return a distribution"),
        (lambda f: tfd.Normal(f[:, 0], 1.0), Y, F, "give both the same shape"),
        (lambda f: tfd.Normal(f, 1.0), Y[:, :1], F, "give both the same shape"),
        (lambda f: tfd.MultivariateNormalDiag(f), Y[:, 0], F, "give both the same shape"),
        ("mse", Y[:, 0], F, r"have the shape \(\)"),
        ("mse", Y[:, :1], F, r"have the shape \(1,\)"),
        ("binary_crossentropy", LABELS[:, 0], S, r"needs \(5,\)"),
        ("categorical_crossentropy", CODES, P, "use sparse_categorical_crossentropy"),
        ("sparse_categorical_crossentropy", HOT, P, "use categorical_crossentropy"),
        ("sparse_categorical_crossentropy", CODES + 1, P, r"from 0 to 4.*from 1 to 5"),
        ("sparse_categorical_crossentropy", CODES + 0.5, P, "must be integers from 0 to 4"),
        ("sparse_categorical_crossentropy", CODES, F, r"Crossentropy\(from_logits=True\)"),
        ("categorical_crossentropy", HOT, F, r"Crossentropy\(from_logits=True\)"),
        ("binary_crossentropy", LABELS, F, r"Crossentropy\(from_logits=True\)"),
        ("binary_crossentropy", LABELS + 1, S, "must be from 0 to 1"),
        ("binary_crossentropy", 2 * LABELS - 1, S, "must be from 0 to 1"),
        ("categorical_crossentropy", LABELS, P, "must have the sum 1"),
        (losses.CategoricalCrossentropy(from_logits=True), HOT, P, "probabilities already"),
        ("poisson", LABELS, F, "exponential"),
        ("poisson", -LABELS, S, "must be counts"),
        (losses.MeanSquaredError, Y, F, r"MeanSquaredError\(\)"),
        ("mse", np.array(["a", "b"] * 4)[:N], F[:, :1], "must be numbers"),
        (functools.partial(losses.binary_crossentropy, label_smoothing=0.1), Y, F, "smoothing"),
        (losses.hinge, Y, F, "no log density"),
        (lambda f: tfd.Gamma(f[:, 0], 1.0), -np.abs(Y[:, :1]), S, "no finite log density"),
    ],
)  # fmt: skip
def test_what_is_refused(likelihood: Any, y: Any, outputs: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        density(likelihood).check(y, outputs)


def dense(*more: Any, outputs: int = 2, **options: Any) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((3,)),
            layers.Dense(4, "tanh"),
            *more,
            layers.Dense(outputs, **options),
        ]
    )


def recurrent(layer: Any, *more: Any) -> keras.Model:
    return keras.Sequential([keras.Input((4, 3)), layer, *more, layers.Dense(1)])


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.LSTM(3),
        lambda: layers.GRU(3),
        lambda: layers.SimpleRNN(3),
        lambda: layers.Bidirectional(layers.LSTM(2)),
        lambda: layers.RNN([layers.GRUCell(2), layers.LSTMCell(2)]),
        lambda: keras.Sequential([layers.ConvLSTM1D(2, 2), layers.Flatten()]),
    ],
)
def test_recurrent_layers_without_dropout(layer: Any) -> None:
    own = layer()
    shape = (4, 5, 3) if isinstance(own, keras.Sequential) else (4, 3)
    own = keras.Sequential([keras.Input(shape), own, layers.Dense(1)])
    model = sgmcmc.keras_model(own, "mse")
    X = rng.normal(size=(6, *shape)).astype(np.float32)
    params = {name: tf.constant(each) for name, each in model.params.items()}

    @tf.function
    def slopes(params: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(params)
            value = tf.reduce_sum(model.log_lik(params, {"X": X, "y": Y[:6, 0]}))
        return value, tape.gradient(value, params)

    value, gradient = slopes(params)
    expected = -((np.asarray(own(X))[:, 0] - Y[:6, 0]) ** 2).sum()
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    assert all(
        np.abs(each).max() > 0 for name, each in gradient.items() if "kernel" in name
    )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: recurrent(layers.LSTM(2, dropout=0.2)), "draws random numbers in 'lstm_cell'"),
        (lambda: recurrent(layers.GRU(2, recurrent_dropout=0.2)), "draws random"),
        (lambda: recurrent(layers.Bidirectional(layers.GRU(2, dropout=0.1))), "draws random"),
        (lambda: dense(layers.GaussianNoise(0.1)), "draws random"),
        (lambda: dense(kernel_regularizer="l2"), "regularizer L2 of .*prior_scale"),
        (lambda: dense(bias_regularizer="l1"), "regularizer L1"),
        (lambda: dense(kernel_constraint="non_neg"), "constraint NonNeg"),
        (lambda: dense(activity_regularizer="l2"), "activity_regularizer"),
        (lambda: dense(layers.ActivityRegularization(0.1)), "no part of the posterior"),
        (lambda: recurrent(layers.Bidirectional(layers.LSTM(2, kernel_regularizer="l2"))), "L2"),
        (lambda: dense(keras.Sequential([layers.BatchNormalization()])), "batch normalization"),
    ],
)  # fmt: skip
def test_networks_that_are_refused(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sgmcmc.keras_model(model(), "mse")


def test_rates_of_zero_and_frozen_layers_pass() -> None:
    own = dense(layers.Dropout(0.0), layers.GaussianNoise(0.0))
    own.layers[0].kernel.regularizer = keras.regularizers.L2(0.1)
    own.layers[0].trainable = False
    assert len(sgmcmc.keras_model(own, "mse").params) == 2


def test_stateful_layers_and_several_inputs_or_outputs() -> None:
    stateful = keras.Sequential(
        [
            keras.Input(batch_shape=(5, 4, 3)),
            layers.LSTM(2, stateful=True),
            layers.Dense(1),
        ]
    )
    with pytest.raises(ValueError, match="stateful=False"):
        sgmcmc.keras_model(stateful, "mse")
    first, second = keras.Input((3,)), keras.Input((3,))
    joined = keras.Model(
        [first, second], layers.Dense(1)(layers.Add()([first, second]))
    )
    with pytest.raises(ValueError, match="2 inputs"):
        sgmcmc.keras_model(joined, "mse")
    forked = keras.Model(first, [layers.Dense(1)(first), layers.Dense(1)(first)])
    X = rng.normal(size=(40, 3)).astype(np.float32)
    with pytest.raises(ValueError, match="2 outputs"):
        sgmcmc.keras.sample_network(forked, (X, X[:, :1]), "mse", epochs=1, n_iters=1)
    model = sgmcmc.keras_model(forked, "mse")
    with pytest.raises(ValueError, match="2 outputs"):
        model.log_lik(model.params, {"X": X, "y": X[:, :1]})


def data_of(y: Any) -> Any:
    return rng.normal(size=(len(y), 3)).astype(np.float32), y


SPARSE = losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize(
    ("data", "loss", "message"),
    [
        (data_of(np.array(["a", "b"] * 20)), SPARSE, "number the classes|Number the classes"),
        (data_of(np.array(["a", "b"] * 20, object)), SPARSE, "must be numbers"),
        (data_of(np.array([1, 2] * 20)), SPARSE, "from 0 to 1.*from 1 to 2"),
        ((*data_of(np.array([0, 1] * 20)), np.ones(40)), SPARSE, "`data` has three parts"),
        (
            tf.data.Dataset.from_tensor_slices((*data_of(np.array([0, 1] * 20)), np.ones(40))),
            SPARSE,
            "`data` has three parts",
        ),
        (data_of(np.array([0, 1] * 20)), "sparse_categorical_crossentropy", "from_logits=True"),
        (data_of(np.array([0, 1] * 20)), "binary_crossentropy", r"from_logits=True|needs \(2,\)"),
        (data_of(np.eye(2)[[0, 1] * 20]), SPARSE, "use categorical_crossentropy"),
        ((np.array([["a"] * 3] * 40), np.array([0, 1] * 20)), SPARSE, "features must be numbers"),
    ],
)  # fmt: skip
def test_data_that_sample_network_refuses(data: Any, loss: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        sgmcmc.keras.sample_network(
            dense(), data, loss, epochs=1, n_iters=1, verbose=False
        )


def test_containers_of_targets() -> None:
    """The same targets are read from any container."""
    pd = pytest.importorskip("pandas")
    X, y = data_of((rng.uniform(size=60) > 0.5).astype(np.int32))
    parts = KerasNetwork(dense(), SPARSE)
    forms = (
        y.astype(np.int64),
        y.astype(np.uint8),
        y.astype(bool),
        y.astype(object),
        y.tolist(),
        pd.Series(y, index=np.arange(60)[::-1]),
        pd.Series(y).astype("Int64"),
        tf.constant(y),
    )
    for form in forms:
        read = _read((X, form), parts).columns["y"].tensor(0, 60)
        assert read.dtype.is_integer
        np.testing.assert_array_equal(read, y)


@pytest.mark.parametrize("function", [sgmcmc.sgld, sgmcmc.sample, sgmcmc.hmc])
@pytest.mark.parametrize(
    ("y", "loss", "message"),
    [
        (np.array([1, 2] * 20), SPARSE, r"`dataset\['y'\]` must be integers from 0 to 1"),
        (np.array([-1, 1] * 20), "mse", r"needs \(2,\)"),
        (np.array([[-1, 1]] * 40), losses.BinaryCrossentropy(from_logits=True), "from 0 to 1"),
        (np.eye(2)[[0, 1] * 20], SPARSE, "use categorical_crossentropy"),
    ],
)  # fmt: skip
def test_targets_that_samplers_refuse(
    function: Any, y: Any, loss: Any, message: str
) -> None:
    model = sgmcmc.keras_model(dense(), loss)
    X, _ = data_of(y)
    given = {"stepsize": 1e-3, "minibatch_size": 20} if function is sgmcmc.sgld else {}
    with pytest.raises(ValueError, match=message):
        function(
            model.log_lik, {"X": X, "y": y}, model.params, log_prior=model.log_prior,
            n_iters=100, verbose=False, **given,
        )  # fmt: skip


def test_calibration_of_every_kind_of_loss() -> None:
    """Ranks of a distribution need targets in its own shape; own losses have no calibration."""
    y = rng.normal(size=(200, 1)).astype(np.float32)
    outputs = np.zeros((4, 200, 2), np.float32)
    parts = KerasNetwork(dense(), lambda f: tfd.Normal(f[:, 0], 1.0))
    found = parts.calibration(outputs, y, 2)
    assert found["calibration error, mean over intervals"] < 0.1
    assert (
        KerasNetwork(dense(), lambda y, f: (y - f) ** 2).calibration(outputs, y, 2)
        == {}
    )
    codes = (rng.uniform(size=200) < 0.5).astype(np.int32)
    assert (
        KerasNetwork(dense(), SPARSE).calibration(outputs, codes, 2)[
            "expected calibration error"
        ]
        < 0.2
    )
    own = losses.BinaryCrossentropy(from_logits=True)
    assert KerasNetwork(dense(), own).calibration(outputs[..., :1], codes, 2)


def test_the_posterior_of_five_labels_is_that_of_five_networks() -> None:
    """A linear network with five labels: SDs as those with one, not √5 times as large."""
    X = np.random.default_rng(3).normal(size=(300, 2)).astype(np.float32)
    y = (np.random.default_rng(4).uniform(size=(300, 5)) < 0.5).astype(np.int32)
    own = keras.Sequential([keras.Input((2,)), layers.Dense(5)])
    model = sgmcmc.keras_model(own, losses.BinaryCrossentropy(from_logits=True))
    params = {name: tf.constant(0 * each) for name, each in model.params.items()}
    with tf.GradientTape() as outer:
        outer.watch(params)
        with tf.GradientTape() as inner:
            inner.watch(params)
            value = tf.reduce_sum(model.log_lik(params, {"X": X, "y": y}))
        bias = next(name for name in params if "bias" in name)
        slope = inner.gradient(value, params)[bias]
    curvature = np.diag(outer.jacobian(slope, params)[bias])
    np.testing.assert_allclose(curvature, -300 * 0.25, rtol=1e-5)


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(3))
def test_columns_of_targets_never_make_pairs_of_rows(seed: int) -> None:
    """Targets (n, 1) beside a distribution (n,): right for every seed, at both doors."""
    X = np.random.default_rng(5).normal(size=(50, 1)).astype(np.float32)
    y = 2 * X
    keras.utils.set_random_seed(seed)
    own = keras.Sequential([keras.Input((1,)), layers.Dense(1)])

    def likelihood(f: Any) -> Any:
        return tfd.Normal(f[:, 0], 0.1)

    model = sgmcmc.keras_model(own, likelihood)
    chain = sgmcmc.sgld(
        model.log_lik, {"X": X, "y": y}, model.params, 1e-4, log_prior=model.log_prior,
        minibatch_size=25, n_iters=300, verbose=False, seed=seed,
    )  # fmt: skip
    kernel = next(name for name in chain if "kernel" in name)
    assert abs(chain[kernel][-100:].mean() - 2) < 0.1


@pytest.mark.slow
def test_a_recurrent_network_is_sampled() -> None:
    """Its loop over time has second derivatives that TensorFlow cannot vectorize."""
    X = rng.normal(size=(120, 6, 2)).astype(np.float32)
    own = keras.Sequential([keras.Input((6, 2)), layers.LSTM(4), layers.Dense(1)])
    model = sgmcmc.keras_model(own, "mse")
    chain = sgmcmc.sgld(
        model.log_lik, {"X": X, "y": X[:, :, 0].sum(1)}, model.params, 1e-4,
        log_prior=model.log_prior, minibatch_size=30, n_iters=100, verbose=False, seed=1,
    )  # fmt: skip
    assert all(np.isfinite(draws).all() for draws in chain.values())
    assert chain.report
