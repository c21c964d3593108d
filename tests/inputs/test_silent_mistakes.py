"""Mistakes in the user's functions that no error gives away are found before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.reading import read_dataset
from sgmcmc.inputs.silent_mistakes import Trial
from sgmcmc.inputs.user_model import UserModel
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from tests import seams
from tests.conftest import short_call

Tensors = dict[str, tf.Tensor]

RNG = np.random.default_rng(5)
N = 60
X = RNG.normal(size=(N, 3)).astype(np.float32)
Y = (X @ np.array([1.0, -1.0, 0.5]) + RNG.normal(size=N)).astype(np.float32)
GIVEN: dict[str, Any] = {
    "dataset": {"X": X, "y": Y},
    "params": {"beta": np.zeros(3)},
    "minibatch_size": 10,
    "n_iters": 2,
    "stepsize": 1e-5,
}
DROPOUT = tf.keras.layers.Dropout(0.3)
TRACED = np.random.default_rng(1)


def fit(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return tf.linalg.matvec(dataset["X"], params["beta"])


def squares(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return -0.5 * (dataset["y"] - fit(params, dataset)) ** 2


def total(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return tf.reduce_sum(squares(params, dataset))


def with_matmul(params: Tensors, dataset: Tensors) -> tf.Tensor:
    fitted = tf.matmul(dataset["X"], params["beta"][:, tf.newaxis])
    return -0.5 * tf.reduce_sum((dataset["y"] - fitted) ** 2)


def by_logits(params: Tensors, dataset: Tensors) -> tf.Tensor:
    logits = fit(params, dataset)
    wide = logits - tf.zeros_like(dataset["y"])
    return -tf.reduce_sum(tf.nn.softplus(wide) - (dataset["y"] * logits))


def with_dropout(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return total(params, {**dataset, "X": tf.nn.dropout(dataset["X"], 0.2)})


def with_keras_dropout(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return total(params, {**dataset, "X": DROPOUT(dataset["X"], training=True)})


COLUMN = {"dataset": {"X": X, "y": Y[:, None]}}
Case = tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]
MISTAKES: dict[str, Case] = {
    "y is a column": (total, COLUMN, ("dataset['y']", "(N, 1)", "n × n", "y[:, 0]")),
    "y is a column, whole": (
        total,
        {**COLUMN, "minibatch_size": N},
        ("dataset['y']", "(N, 1)", "n × n", "y[:, 0]"),
    ),
    "y is a column of zeros and ones": (
        by_logits,
        {"dataset": {"X": X, "y": (Y > 0)[:, None]}},
        ("dataset['y']", "(N, 1)", "y[:, 0]"),
    ),
    "terms of a column": (
        lambda p, d: tf.reduce_sum(squares(p, d), 1),
        COLUMN,
        ("sum over the observations", "(n, 1) set against an (n,)"),
    ),
    "a fit that is a column": (
        with_matmul,
        {},
        ("dataset['y']", "(n, 1)", "tf.squeeze"),
    ),
    "a mean": (
        lambda p, d: tf.reduce_mean(squares(p, d)),
        {},
        ("mean", "tf.reduce_sum", "N/n", "10 of them"),
    ),
    "a mean, whole": (
        lambda p, d: tf.reduce_mean(squares(p, d)),
        {"minibatch_size": N},
        ("mean", "tf.reduce_sum"),
    ),
    "an odd minibatch's mean": (
        lambda p, d: tf.reduce_mean(squares(p, d)),
        {"minibatch_size": 7},
        ("mean", "tf.reduce_sum"),
    ),
    "a minibatch of one": (
        lambda p, d: tf.reduce_mean(squares(p, d)),
        {"minibatch_size": 1},
        ("mean", "tf.reduce_sum"),
    ),
    "divided by n": (
        lambda p, d: total(p, d) / d["y"].shape[0],
        {},
        ("divide", "tf.reduce_sum"),
    ),
    "terms divided by n": (
        lambda p, d: squares(p, d) / d["y"].shape[0],
        {},
        ("divide",),
    ),
    "scaled by N/n": (lambda p, d: total(p, d) * N / d["y"].shape[0], {}, ("N/n",)),
    "divided by the root of n": (
        lambda p, d: total(p, d) / np.sqrt(d["y"].shape[0]),
        {},
        ("sum over the observations", "do not divide", "halves"),
    ),
    "with the prior": (
        lambda p, d: total(p, d) - tf.reduce_sum(p["beta"] ** 2),
        {},
        ("`log_prior`", "N/n"),
    ),
    "nothing of the data": (
        lambda p, d: -tf.reduce_sum(p["beta"] ** 2),
        {},
        ("`log_prior`",),
    ),
    "tf.random": (
        lambda p, d: total(p, d) + tf.random.normal([]),
        {},
        ("`log_lik` draws random numbers", "tf.random", "training=False", "`gibbs`"),
    ),
    "a seed of TensorFlow's": (
        lambda p, d: total(p, d) * tf.random.uniform([], seed=3),
        {},
        ("`log_lik` draws random numbers",),
    ),
    "np.random": (
        lambda p, d: total(p, {**d, "y": d["y"] + np.float32(TRACED.normal())}),
        {},
        ("`log_lik` draws random numbers", "np.random", "once and for all"),
    ),
    "dropout": (with_dropout, {}, ("`log_lik` draws random numbers", "training=False")),
    "dropout of Keras": (with_keras_dropout, {}, ("`log_lik` draws random numbers",)),
    "dropout of the whole": (
        with_dropout,
        {"minibatch_size": N},
        ("draws random numbers",),
    ),
    "a random prior": (
        total,
        {
            "log_prior": lambda p: (
                -tf.random.uniform([]) * tf.reduce_sum((p["beta"] - 1.0) ** 2)
            )
        },
        ("`log_prior` draws random numbers",),
    ),
}


VARIANTS = {
    "y is a column, whole", "a mean, whole", "an odd minibatch's mean", "terms divided by n",
    "dropout of the whole", "a seed of TensorFlow's", "nothing of the data",
}  # fmt: skip


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in VARIANTS))
        for name in MISTAKES
    ],
)
def test_mistakes_are_found(mistake: str) -> None:
    log_lik, given, says = MISTAKES[mistake]
    with pytest.raises(ValueError) as caught:
        short_call(**{**GIVEN, **given}, log_lik=log_lik)
    for part in says:
        assert part in str(caught.value)
    assert len(str(caught.value)) < 700, "a message is for reading"


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", [60, 107])
def test_two_values_that_are_close_by_chance(seed: int) -> None:
    """With these seeds the first two values near the start differ by less than a ten-thousandth."""
    tf.random.set_seed(seed)
    with pytest.raises(ValueError, match="draws random numbers"):
        short_call(**{**GIVEN, "minibatch_size": N}, log_lik=with_dropout)


def test_random_numbers_of_what_fails_on_halves() -> None:
    """It is tried on the whole minibatch alone."""

    def of_many(params: Tensors, dataset: Tensors) -> tf.Tensor:
        enough = tf.debugging.assert_greater(tf.reduce_sum(dataset["one"]), 9.5)
        with tf.control_dependencies([enough]):
            return with_dropout(params, dataset)

    dataset = {"X": X, "y": Y, "one": np.ones(N)}
    with pytest.raises(ValueError, match="draws random numbers"):
        short_call(**{**GIVEN, "dataset": dataset}, log_lik=of_many)


def test_an_unexpected_error_of_the_trial_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(seams.SILENT_MISTAKES_TRIAL, fails)
    with pytest.raises(RuntimeError, match="no such thing"):
        short_call(**GIVEN, log_lik=lambda p, d: 1.25 * total(p, d))


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["sgldcv", "sghmc", "sgnht"])
def test_every_sampler_finds_them(method: str) -> None:
    with pytest.raises(ValueError, match=r"dataset\['y'\].*\(N, 1\)"):
        short_call(method, **{**GIVEN, **COLUMN}, log_lik=total)


def test_the_call_without_constants_finds_them() -> None:
    many = {"X": np.tile(X, (40, 1)), "y": np.tile(Y, 40)[:, None]}
    for dataset in (GIVEN["dataset"] | COLUMN["dataset"], many):
        with pytest.raises(ValueError, match=r"dataset\['y'\].*\(N, 1\)"):
            sgmcmc.sample(total, dataset, GIVEN["params"], verbose=False, seed=1)
    with pytest.raises(ValueError, match="draws random numbers"):
        sgmcmc.hmc(
            with_dropout, GIVEN["dataset"], GIVEN["params"], verbose=False, seed=1
        )


def cancelling(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return a sum of large terms of both signs."""
    return tf.reduce_sum(1e5 * dataset["X"] @ params["beta"][:, None]) + total(
        params, dataset
    )


def of_ten(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return total(params, {**dataset, "y": tf.reshape(dataset["y"], [10])})


def kernel(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return what is no sum over the observations: a Gaussian process."""
    covariance = tf.exp(-((dataset["x"] - tf.transpose(dataset["x"])) ** 2))
    root = tf.linalg.cholesky(tf.exp(params["scale"]) * covariance + tf.eye(N))
    white = tf.linalg.triangular_solve(root, dataset["y"][:, None])
    return -0.5 * tf.reduce_sum(white**2) - tf.reduce_sum(
        tf.math.log(tf.linalg.diag_part(root))
    )


def numbers_of_a_seed(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return a sum that takes random numbers which are the same each time."""
    noise = tf.random.stateless_normal([], seed=[1, 2])
    return total(params, dataset) + noise * tf.reduce_sum(params["beta"] * dataset["X"])


RIGHT: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "a sum": (total, {}),
    "terms": (squares, {}),
    "with a constant": (lambda p, d: total(p, d) - 1e4, {}),
    "columns throughout": (with_matmul, COLUMN),
    "large terms of both signs": (cancelling, {"stepsize": 1e-12}),
    "for ten rows alone": (of_ten, {}),
    "numbers of a seed": (numbers_of_a_seed, {}),
    "a Gaussian process": (
        kernel,
        {
            "dataset": {"x": X[:, :1], "y": Y},
            "params": {"scale": 0.0},
            "minibatch_size": N,
        },
    ),
    "a prior beside the whole": (
        lambda p, d: total(p, d) - tf.reduce_sum(p["beta"] ** 2),
        {"minibatch_size": N},
    ),
    "one observation": (
        lambda p, d: tf.reduce_mean(squares(p, d)),
        {"dataset": {"X": X[:1], "y": Y[:1]}, "minibatch_size": 1},
    ),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_let_pass(name: str) -> None:
    log_lik, given = RIGHT[name]
    assert len(short_call(**{**GIVEN, **given}, log_lik=log_lik)) == 1


def mixture(params: Tensors, dataset: Tensors) -> tf.Tensor:
    means = tf.where(dataset["z"] > 0.5, params["beta"][0], params["beta"][1])
    return -0.5 * tf.reduce_sum((dataset["y"] - means) ** 2)


def by_seed(params: Tensors, dataset: Tensors, seed: tf.Tensor) -> Tensors:
    return {**dataset, "z": tf.random.stateless_uniform([dataset["y"].shape[0]], seed)}


def by_tensorflow(params: Tensors, dataset: Tensors, seed: tf.Tensor) -> Tensors:
    return {**dataset, "z": tf.random.uniform([dataset["y"].shape[0]])}


def by_numpy(params: Tensors, dataset: Tensors, seed: tf.Tensor) -> Tensors:
    return {**dataset, "z": tf.constant(TRACED.uniform(size=10).astype(np.float32))}


@pytest.mark.some(1)
@pytest.mark.parametrize("gibbs", [by_tensorflow, by_numpy])
def test_gibbs_must_draw_by_its_seed(gibbs: Callable[..., Any]) -> None:
    given = {**GIVEN, "params": {"beta": np.zeros(2)}}
    with pytest.raises(ValueError, match="`gibbs`.*'z'.*stateless"):
        short_call(**given, log_lik=mixture, gibbs=gibbs)
    short_call(**given, log_lik=mixture, gibbs=by_seed)


def test_a_mean_beside_gibbs_is_found() -> None:
    given = {**GIVEN, "params": {"beta": np.zeros(2)}, "gibbs": by_seed}
    with pytest.raises(ValueError, match="a mean over them"):
        short_call(**given, log_lik=lambda p, d: mixture(p, d) / d["y"].shape[0])


INDEXED: dict[str, Callable[..., tf.Tensor]] = {
    "gather": lambda u, g: tf.gather(u, g),
    "one_hot": lambda u, g: tf.linalg.matvec(tf.one_hot(g, 3), u),
    "segments": lambda u, g: u * tf.math.unsorted_segment_sum(tf.ones_like(g), g, 3),
    "labels": lambda u, g: tf.nn.sparse_softmax_cross_entropy_with_logits(
        g, tf.stack([u] * 10)
    ),
    "brackets": lambda u, g: u[g[0]],
}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", INDEXED)
def test_a_float_that_should_be_an_index(name: str) -> None:
    """NumPy's integers become floats; the message says how they stay what they are."""
    groups = RNG.integers(0, 3, N)

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return -tf.reduce_sum(INDEXED[name](params["beta"], dataset["g"]) ** 2)

    given = {**GIVEN, "dataset": {"g": groups}}
    with pytest.raises(TypeError) as caught:
        short_call(**given, log_lik=log_lik)
    for part in (
        "`log_lik`",
        "float32",
        "integers=['g']",
        "tf.constant(g, tf.int32)",
        "tf.cast",
    ):
        assert part in str(caught.value)
    assert len(str(caught.value)) < 700


def test_what_gibbs_adds_need_not_be_of_rows() -> None:
    """A tensor with as many entries as there are rows, by chance, is not taken apart."""

    def gibbs(params: Tensors, dataset: Tensors, seed: tf.Tensor) -> Tensors:
        drawn = by_seed(params, dataset, seed)["z"]
        return {**dataset, "z": tf.fill([10], tf.reduce_sum(drawn))}

    def by_ten(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return (
            tf.reduce_sum(dataset["z"] * tf.linspace(0.0, 1.0, 10)) * params["beta"][0]
        )

    given = {**GIVEN, "params": {"beta": np.zeros(1)}}
    short_call(**given, log_lik=by_ten, gibbs=gibbs)


def test_a_change_names_the_position_that_it_leads_to() -> None:
    """Halves that are not finite at the nearer position leave the change to the farther one."""
    data = read_dataset({"X": X, "y": Y}, tf.float32)
    space = Space({"beta": tf.TensorShape([3])})
    target = Target(squares, None, space, tf.float32)
    trial = Trial(UserModel(target, data, 10), np.zeros(3, np.float32), data.whole)
    assert [change.number for change in trial.changes()] == [1, 2]
    trial.values[1]["halves"] = [np.nan, np.nan]
    assert [change.number for change in trial.changes()] == [2]


def test_what_is_no_number_on_halves_of_the_rows_is_no_sum() -> None:
    """An SD of the minibatch's rows, which are all the same in the halves that are tried."""
    x = np.array([0.0, 0.0] + [1.0] * 98)

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        z = (dataset["x"] - params["theta"]) / tf.math.reduce_std(dataset["x"])
        return -0.5 * tf.reduce_sum(z**2)

    with pytest.raises(ValueError, match="`log_lik` must be a sum over the observ"):
        sgmcmc.sgld(
            log_lik, {"x": x}, {"theta": 0.5}, 1e-4, minibatch_size=4, verbose=False
        )
