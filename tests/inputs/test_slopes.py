"""Functions whose gradient is not that of their values, or not finite; rows from everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import sparse

import sgmcmc
from sgmcmc.data.reading import read_dataset
from sgmcmc.inputs.dry_run import Demands, dry_run
from sgmcmc.inputs.silent_mistakes import rows_from_everywhere
from sgmcmc.inputs.user_model import UserModel
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from tests.conftest import short_call

Tensors = dict[str, tf.Tensor]

RNG = np.random.default_rng(3)
N = 80
X = RNG.normal(size=N).astype(np.float32)
Y = (0.7 * X + RNG.normal(size=N)).astype(np.float32)
COUNTS = RNG.poisson(np.where(np.arange(N) < 30, 3.0, 8.0)).astype(np.float32)
DATA = {"x": X, "y": Y, "counts": COUNTS, "t": np.arange(N, dtype=np.float32)}
START = {"a": 0.3, "b": 0.2}


def normal(mean: Any, dataset: Tensors) -> tf.Tensor:
    return -0.5 * (dataset["y"] - mean) ** 2


def line(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return params["a"] + params["b"] * dataset["x"]


def in_python(params: Tensors, dataset: Tensors) -> tf.Tensor:
    b = tf.numpy_function(lambda b: b, [params["b"]], params["b"].dtype)
    return normal(params["a"] + tf.reshape(b, []) * dataset["x"], dataset)


def switched(params: Tensors, dataset: Tensors) -> tf.Tensor:
    later = tf.cast(dataset["t"] > 40.0 + params["b"], params["a"].dtype)
    return normal(params["a"] + later, dataset)


def poisson(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return dataset["counts"] * params["a"] - tf.exp(params["a"])


WRONG: dict[str, Callable[..., tf.Tensor]] = {
    "round": lambda p, d: normal(p["a"] + tf.round(p["b"] * 3.0) * d["x"], d),
    "floor": lambda p, d: normal(p["a"] + tf.floor(p["b"]) * d["x"], d),
    "stop_gradient": lambda p, d: normal(p["a"] + tf.stop_gradient(p["b"]) * d["x"], d),
    "a part of it": lambda p, d: normal(
        line(p, d) + tf.stop_gradient(p["b"]) * d["x"], d
    ),
    "sign": lambda p, d: normal(p["a"] + tf.sign(p["b"] - 0.5) * d["x"], d),
    "integers": lambda p, d: normal(
        p["a"] + tf.cast(tf.cast(2.0 * p["b"], tf.int32), p["a"].dtype) * d["x"], d
    ),
    "a switch point": switched,
    "Python": in_python,
    "a rounded fit": lambda p, d: normal(p["a"] + tf.round(p["b"] * d["x"]), d),
    "constants of float32": lambda p, d: normal(
        p["a"] + tf.round(p["b"] * 3.0) * d["x"] * tf.constant(1.0), d
    ),
}


def wide(params: Tensors) -> tf.Tensor:
    return -0.5 * (params["a"] ** 2 + params["b"] ** 2) / 25.0


@pytest.mark.some(2)
@pytest.mark.parametrize("name", WRONG)
def test_gradients_that_are_not_of_the_values_are_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"`log_lik` depends on the parameter 'b'.*gradient"
    ):
        tried(WRONG[name], log_prior=wide)


def tried(
    log_lik: Any, params: Any = None, log_prior: Any = None, **more: Any
) -> dict[str, float]:
    """Try functions as a sampler does."""
    start = {k: np.asarray(v, np.float32) for k, v in (params or START).items()}
    space = Space({name: value.shape for name, value in start.items()})
    target = Target(log_lik, log_prior, space, tf.float32)
    data = read_dataset(more.pop("dataset", DATA), tf.float32)
    starts = [space.start(start, tf.float32)]
    model = UserModel(target, data, more.pop("rows", 20))
    return dry_run(model, starts, Demands(**more))


MANY: dict[str, float] = {f"a{place}": 0.1 for place in range(29)} | {"z": 0.2}
HIDDEN: dict[str, tuple[Any, Any]] = {
    "one coordinate of two": (
        lambda p, d: normal(p["v"][0] + tf.round(3.0 * p["v"][1]), d),
        {"v": np.array([0.3, 0.2])},
    ),
    "one coordinate of a hundred": (
        lambda p, d: normal(tf.reduce_sum(p["v"][1:]) + tf.round(3.0 * p["v"][0]), d),
        {"v": np.full(100, 0.1)},
    ),
    "the last of thirty parameters": (
        lambda p, d: normal(
            tf.add_n([p[n] for n in MANY if n != "z"]) + tf.round(3 * p["z"]), d
        ),
        MANY,
    ),
    "rounded values, slopes that are not": (
        lambda p, d: normal(p["a"] + tf.stop_gradient(tf.round(p["a"]) - p["a"]), d),
        {"a": np.float64(1.0)},
    ),
    "sparse rows": (
        lambda p, d: normal(
            tf.sparse.sparse_dense_matmul(
                d["S"], tf.stop_gradient(p["v"])[:, tf.newaxis]
            )[:, 0],
            d,
        ),
        {"v": np.zeros(9)},
    ),
}
SPARSE = sparse.random(N, 9, 0.4, format="csr", dtype=np.float32, random_state=1)


def all_wide(params: Tensors) -> tf.Tensor:
    return -0.02 * tf.add_n([tf.reduce_sum(value**2) for value in params.values()])


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.slow] * (name == "the last of thirty parameters")
        )
        for name in HIDDEN
    ],
)
def test_wrong_gradients_of_a_few_coordinates_are_found(name: str) -> None:
    log_lik, params = HIDDEN[name]
    with pytest.raises(ValueError, match="its gradient does not show how"):
        tried(log_lik, params, all_wide, dataset={"y": Y, "S": SPARSE})


@pytest.mark.some(1)
@pytest.mark.parametrize("start", [0.0, 0.1])
def test_coordinates_that_no_row_looks_at_pass(start: float) -> None:
    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        rows = tf.cast(dataset["counts"], tf.int32)
        hidden = tf.nn.relu(dataset["x"][:, tf.newaxis] * params["w"] - 3.0)
        sparse_part = tf.sparse.sparse_dense_matmul(
            dataset["S"], params["v"][:9, tf.newaxis]
        )
        mean = tf.gather(params["v"], rows) + tf.linalg.matvec(hidden, params["w"])
        return normal(mean + sparse_part[:, 0], dataset)

    params = {"v": np.full(200, start), "w": np.full(8, start)}
    tried(log_lik, params, all_wide, dataset={**DATA, "S": SPARSE})


def test_priors_of_graphs_alone_pass() -> None:
    def log_prior(params: Tensors) -> tf.Tensor:
        return wide(params) + 0.0 * tf.hessians(wide(params), params["b"])[0]

    params = {"v": np.zeros(2), **START}
    tried(lambda p, d: normal(line({**p, "a": p["v"][0]}, d), d), params, log_prior)


def test_the_message_says_which_function() -> None:
    def rounded(params: Tensors) -> tf.Tensor:
        return wide(params) - 50.0 * tf.round(4.0 * params["a"]) ** 2

    with pytest.raises(ValueError, match=r"`log_prior` depends on the parameter 'a'"):
        tried(lambda p, d: normal(line(p, d), d), log_prior=rounded)


def test_moves_that_values_correct_are_warned_of() -> None:
    with pytest.warns(
        UserWarning, match=r"depends on the parameter 'b'.*draws are right"
    ):
        tried(WRONG["round"], log_prior=wide, corrected=True)


tfd = tfp.distributions
BASE = tf.constant(1e6)
RIGHT: dict[str, tuple[Any, Any]] = {
    "linear": (lambda p, d: normal(line(p, d), d), wide),
    "flat": (lambda p, d: normal(line(p, d), d), None),
    "Laplace": (
        lambda p, d: -tf.abs(d["y"] - line(p, d)),
        lambda p: -tf.abs(p["a"]) - 30.0 * tf.abs(p["b"] - 0.2),
    ),
    "relu": (lambda p, d: normal(tf.nn.relu(line(p, d)), d), wide),
    "a bent line": (
        lambda p, d: normal(p["a"] * tf.maximum(d["x"] - p["b"], 0.0), d),
        wide,
    ),
    "a steep switch": (
        lambda p, d: normal(p["a"] + tf.sigmoid((d["x"] - p["b"]) * 500.0), d),
        wide,
    ),
    "Poisson": (lambda p, d: poisson(p, d) + 0.01 * p["b"], wide),
    "a scale": (
        lambda p, d: normal(p["a"], d) / tf.exp(p["b"]) ** 2 - p["b"],
        wide,
    ),
    "a scale without a bijector": (
        lambda p, d: normal(p["a"], d) / p["b"] ** 2 - tf.math.log(p["b"]),
        lambda p: tfd.HalfNormal(5.0).log_prob(p["b"]) + wide(p),
    ),
    "waves": (
        lambda p, d: normal(tf.sin(40.0 * p["a"]) + tf.cos(9.0 * p["b"] * d["x"]), d),
        wide,
    ),
    "large numbers": (
        lambda p, d: -0.5 * ((1e6 + d["y"]) - (1e6 + line(p, d))) ** 2,
        wide,
    ),
    "large numbers of float32": (
        lambda p, d: -0.5 * ((BASE + d["y"]) - (BASE + line(p, d))) ** 2,
        wide,
    ),
    "a straight line": (lambda p, d: 1e-3 * line(p, d), wide),
    "Student": (lambda p, d: -tf.math.log1p((d["y"] - line(p, d)) ** 2), wide),
    "a truncated prior far away": (
        lambda p, d: normal(line(p, d), d),
        lambda p: tfd.Uniform(-50.0, 50.0).log_prob(p["a"]) + 0.0 * p["b"],
    ),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", RIGHT)
def test_other_gradients_pass(name: str) -> None:
    log_lik, log_prior = RIGHT[name]
    tried(log_lik, log_prior=log_prior)


def test_every_sampler_refuses_them() -> None:
    given = {"dataset": DATA, "params": START, "minibatch_size": 20, "log_prior": wide}
    with pytest.raises(ValueError, match="'b'"):
        short_call(**given, log_lik=lambda p, d: 1.0 * WRONG["round"](p, d))
    with pytest.raises(ValueError, match="'b'"):
        sgmcmc.sample(
            lambda p, d: 2.0 * WRONG["round"](p, d),
            DATA,
            START,
            wide,
            seed=1,
            verbose=False,
        )


DEPENDENT: dict[str, Callable[..., tf.Tensor]] = {
    "centered": lambda p, d: normal(
        p["a"] + p["b"] * (d["x"] - tf.reduce_mean(d["x"])), d
    ),
    "a product centered": lambda p, d: normal(
        p["a"] + p["b"] * d["x"] - tf.reduce_mean(d["x"] * p["b"]), d
    ),
    "lags": lambda p, d: tf.reduce_sum(
        -0.5 * (d["y"][1:] - p["a"] - p["b"] * d["y"][:-1]) ** 2
    ),
    "cumsum": lambda p, d: normal(p["a"] + p["b"] * tf.cumsum(d["x"]) / 10.0, d),
    "scaled by the largest": lambda p, d: normal(
        p["a"] + p["b"] * d["x"] / tf.reduce_max(d["x"]), d
    ),
    "softmax": lambda p, d: (
        d["y"] * tf.nn.log_softmax(p["b"] * d["x"]) + p["a"] * d["x"]
    ),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_each_other_at_another_place(name: str) -> None:
    """At a start of zero the rows do not meet."""
    with pytest.raises(ValueError, match="sum over the observations"):
        tried(DEPENDENT[name], {"a": 0.0, "b": 0.0}, wide)


def test_first_and_last_rows_that_look_alike() -> None:
    """What differs in the middle alone."""
    group = np.zeros(400, np.float32)
    group[100:300] = RNG.integers(0, 2, 200)
    data = {"y": RNG.normal(size=400).astype(np.float32), "g": group}

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        share = tf.reduce_mean(dataset["g"])
        return normal(params["a"] + params["b"] * share * (1.0 - share), dataset)

    with pytest.raises(ValueError, match="sum over the observations"):
        tried(log_lik, log_prior=wide, dataset=data)


@pytest.mark.parametrize(
    ("size", "count"), [(2, 1), (3, 2), (7, 6), (65, 64), (10**7, 64)]
)
def test_rows_from_everywhere(size: int, count: int) -> None:
    rows = rows_from_everywhere(size, count)
    assert len(np.unique(rows)) == count and (np.diff(rows) > 0).all()
    assert (
        (rows[0] == 0 or count == 1)
        and rows[-1] < size
        and (count < 2 or rows[-1] >= size - 2)
    )


def test_a_branch_that_is_not_taken() -> None:
    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        z = tf.maximum(dataset["t"] - 5.0, 0.0) * params["b"]
        return normal(line(params, dataset), dataset) + tf.where(
            z > 0.0, tf.math.log(z), 0.0
        )

    with pytest.raises(ValueError, match=r"'b' is nan .*value is finite.*tf\.where"):
        tried(log_lik)


@pytest.mark.parametrize("row", [3, 70])
def test_infinite_data_are_named(row: int) -> None:
    x = X.copy()
    x[row] = np.inf
    data = {**DATA, "x": x}
    with pytest.raises(
        ValueError, match=rf"dataset\['x'\]` holds .* index {row}, and `log_lik`"
    ):
        tried(lambda p, d: normal(line(p, d), d), dataset=data)


@pytest.mark.some(1)
@pytest.mark.parametrize("row", [3, 70])
def test_infinite_bounds_are_let_pass(row: int) -> None:
    upper = np.zeros(N, np.float32)
    upper[row] = np.inf
    data = {**DATA, "upper": upper}

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        known = tf.math.is_inf(dataset["upper"])
        safe = tf.where(known, 0.0, dataset["upper"])
        return tf.where(
            known, 0.0, tf.math.log_sigmoid(safe - line(params, dataset))
        ) + normal(params["b"], dataset)

    tried(log_lik, dataset=data)
