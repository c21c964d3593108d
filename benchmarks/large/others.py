"""Wide regressions, softmax, horseshoe, a random walk, robust regression, a small network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from benchmarks.large.base import Large, large
from benchmarks.large.gibbs import SLAB
from benchmarks.large.hierarchical import drawn, normal, terms

WIDE, RARE = 2500, 0.2


def dense_features(N: int, d: int, seed: int = 1) -> np.ndarray:
    """Return features with correlation 0.9, a fifth of them rare indicators."""
    rng = np.random.default_rng(seed)
    common = np.sqrt(0.9) * rng.normal(size=(N, 1))
    X = rng.normal(size=(N, d))  # changed in place: it may be most of the memory
    X *= np.sqrt(0.1)
    X += common
    rare = int(RARE * d)
    X[:, d - rare :] = rng.random((N, rare)) < 0.005
    return X.astype(np.float32)


def wide(family: str, N: int, d: int) -> Large:
    """Return a regression on dense features; of the normal one the variance is known."""
    rng, X = np.random.default_rng(2), dense_features(N, d)
    eta = X @ (rng.normal(size=d) / np.sqrt(d))
    y = drawn(family, eta, rng)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        eta = tf.linalg.matvec(data["X"], params["beta"])
        return terms(family, data["y"], eta, {"sigma": tf.ones([], eta.dtype)})

    def exact() -> tuple[np.ndarray, np.ndarray]:
        information, pull = np.eye(d), np.zeros(d)
        for first in range(0, N, 50_000):
            part = X[first : first + 50_000].astype(float)
            information += part.T @ part
            pull += part.T @ y[first : first + 50_000]
        covariance = np.linalg.inv(information)
        return covariance @ pull, np.sqrt(np.diag(covariance))

    start = {"beta": np.zeros(d)}
    about = f"{family} regression on {d} dense, correlated and rare features"
    return Large(
        about, N, {"X": X, "y": y}, start, log_lik, lambda params: normal(params["beta"]),
        normal=exact if family == "normal" else None,
    )  # fmt: skip


large("wide-normal")(lambda: wide("normal", 20_000, WIDE))
large("wide-logistic")(lambda: wide("logistic", 50_000, WIDE))
large("wide-logistic-600")(lambda: wide("logistic", 100_000, 600))
large("wide-normal-500-million")(lambda: wide("normal", 1_000_000, 500))


@large("rare-poisson-million")
def rare() -> Large:
    """Return a Poisson regression of a million rows with indicators of about twelve rows each."""
    rng = np.random.default_rng(11)
    N, common, each, rows = 1_000_000, 15, 15, 12
    X = rng.normal(size=(N, common + each)).astype(np.float32)
    X[:, 0] = 1.0
    X[:, common:] = rng.random((N, each), np.float32) < rows / N
    beta = np.concatenate(
        [[-1.2], rng.normal(size=common - 1) * 0.1, rng.normal(size=each) * 0.5]
    )
    y = drawn("Poisson", X @ beta, rng)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        return terms(
            "Poisson", data["y"], tf.linalg.matvec(data["X"], params["beta"]), params
        )

    return Large(
        f"Poisson regression, {each} indicators of about {rows} rows each", N, {"X": X, "y": y},
        {"beta": np.zeros(common + each)}, log_lik, lambda params: normal(params["beta"]),
    )  # fmt: skip


def sparse(family: str) -> Large:
    """Return a regression on 20 000 sparse features, twelve of which each row has."""
    rng = np.random.default_rng(6)
    N, d, each = 60_000, 20_000, 12
    places = (d * rng.random((N, each)) ** 2).astype(np.int32)
    X = scipy.sparse.csr_matrix(
        (np.ones(N * each), (np.repeat(np.arange(N), each), places.ravel())), (N, d)
    )
    y = drawn(family, X @ (0.5 * rng.normal(size=d)), rng)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        eta = tf.reduce_sum(tf.gather(params["beta"], data["places"]), 1)
        return terms(family, data["y"], eta, {"sigma": tf.ones([], eta.dtype)})

    def exact() -> tuple[np.ndarray, np.ndarray]:
        J = (X.T @ X + scipy.sparse.eye(d)).tocsc()
        solve = scipy.sparse.linalg.factorized(J)
        sds = np.full(d, np.nan)
        for place in coordinates(d):
            unit = np.zeros(d)
            unit[place] = 1.0
            sds[place] = np.sqrt(solve(unit)[place])
        return solve(X.T @ y.astype(float)), sds

    start, dataset = {"beta": np.zeros(d)}, {"places": tf.constant(places), "y": y}
    about = f"{family} regression on {d} sparse features"
    return Large(
        about, N, dataset, start, log_lik, lambda params: normal(params["beta"]),
        normal=exact if family == "normal" else None,
    )  # fmt: skip


large("sparse-normal")(lambda: sparse("normal"))
large("sparse-logistic")(lambda: sparse("logistic"))


def coordinates(size: int, most: int = 200) -> np.ndarray:
    """Return which coordinates of a parameter are compared: evenly some of very many."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(int))


@large("softmax-mnist")
def softmax() -> Large:
    """Return a softmax regression on 10 000 images."""
    data = sgmcmc.get_dataset("mnist")["train"]
    images, labels = data["images"][:10_000], data["labels"][:10_000].astype(np.float32)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        scores = tf.matmul(data["images"], params["W"]) + params["b"]
        chosen = tf.reduce_sum(scores * data["labels"], 1)
        return chosen - tf.reduce_logsumexp(scores, 1)

    start = {"W": np.zeros((784, 10)), "b": np.zeros(10)}
    return Large(
        "softmax regression on 10 000 images of MNIST",
        len(images),
        {"images": images, "labels": labels},
        start,
        log_lik,
        lambda params: normal(params["W"]) + normal(params["b"]),
    )


@large("horseshoe")
def horseshoe() -> Large:
    """Return a regularized horseshoe on 400 features; a half-Cauchy scale has no moments."""
    rng = np.random.default_rng(7)
    N, d = 1000, 400
    X = rng.normal(size=(N, d)).astype(np.float32)
    beta = np.zeros(d)
    beta[:10] = rng.normal(size=10)
    y = (X @ beta + rng.normal(size=N)).astype(np.float32)

    def coefficients(params: Mapping[str, Any]) -> tf.Tensor:
        scale = params["tau"] * params["local"]
        return params["z"] * scale / tf.sqrt(1.0 + (scale / SLAB) ** 2)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        eta = tf.linalg.matvec(data["X"], coefficients(params))
        return terms("normal", data["y"], eta, params)

    def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
        value = normal(params["z"]) - params["sigma"]
        value -= tf.reduce_sum(tf.math.log1p(params["local"] ** 2))
        return value - tf.math.log1p((params["tau"] / 0.01) ** 2)

    start = {"z": np.zeros(d), "local": np.ones(d), "tau": 0.01, "sigma": 1.0}
    return Large(
        "normal regression with a regularized horseshoe on 400 features",
        N,
        {"X": X, "y": y},
        start,
        log_lik,
        log_prior,
        dict.fromkeys(("local", "tau", "sigma"), tfp.bijectors.Exp()),
        judged=lambda params: {
            "beta": coefficients(params),
            "log local": tf.math.log(params["local"]),
            "tau": params["tau"],
            "sigma": params["sigma"],
        },
    )


@large("random-walk")
def random_walk() -> Large:
    """Return counts whose log rate is a random walk over 3000 times."""
    rng = np.random.default_rng(8)
    T, each = 3000, 4
    level = 1.0 + np.cumsum(0.05 * rng.normal(size=T))
    time = np.repeat(np.arange(T), each).astype(np.int32)
    y = rng.poisson(np.exp(level[time])).astype(np.float32)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        eta = tf.gather(params["level"], data["time"])
        return terms("Poisson", data["y"], eta, params)

    def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
        level, tau = params["level"], params["tau"]
        steps = (level[1:] - level[:-1]) / tau
        value = normal(steps) - (T - 1) * tf.math.log(tau) + normal(level[0], 3.0)
        return value - 10.0 * tau

    start = {"level": np.full(T, 1.0), "tau": 0.1}
    dataset = {"y": y, "time": tf.constant(time)}
    about = "Poisson counts, log rate a random walk over 3000 times"
    return Large(
        about, len(y), dataset, start, log_lik, log_prior, {"tau": tfp.bijectors.Exp()}
    )


@large("robust-million")
def robust() -> Large:
    """Return a robust regression with a million rows."""
    rng = np.random.default_rng(9)
    N, d = 1_000_000, 12
    X = rng.normal(size=(N, d)).astype(np.float32)
    X[:, 0] = 1.0
    y = (X @ rng.normal(size=d) + 0.7 * rng.standard_t(3.0, N)).astype(np.float32)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        away = (data["y"] - tf.linalg.matvec(data["X"], params["beta"])) / params[
            "scale"
        ]
        nu = params["nu"]
        constant = (
            tf.math.lgamma((nu + 1) / 2) - tf.math.lgamma(nu / 2) - tf.math.log(nu) / 2
        )
        value = constant - (nu + 1) / 2 * tf.math.log1p(away**2 / nu)
        return value - tf.math.log(params["scale"])

    def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
        return normal(params["beta"], 2.0) - params["scale"] - params["nu"] / 10

    start = {"beta": np.zeros(d), "scale": 1.0, "nu": 5.0}
    bijectors = dict.fromkeys(("scale", "nu"), tfp.bijectors.Exp())
    about = "robust regression, Student's t with unknown degrees of freedom"
    return Large(about, N, {"X": X, "y": y}, start, log_lik, log_prior, bijectors)


@large("network")
def network() -> Large:
    """Return a small network with 601 weights, judged by its predictions."""
    rng = np.random.default_rng(10)
    N, hidden, inputs = 2000, 50, 10
    X = rng.normal(size=(N, inputs)).astype(np.float32)
    y = (np.tanh(X[:, 0]) * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=N)).astype(
        np.float32
    )
    new = tf.constant(rng.normal(size=(50, inputs)), tf.float32)

    def fitted(params: Mapping[str, Any], X: tf.Tensor) -> tf.Tensor:
        inner = tf.tanh(tf.matmul(X, params["W"]) + params["b"])
        return tf.linalg.matvec(inner, params["v"])

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        return -0.5 * ((data["y"] - fitted(params, data["X"])) / 0.3) ** 2

    def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
        return normal(params["W"]) + normal(params["b"]) + normal(params["v"], 0.3)

    shapes = {"W": (inputs, hidden), "b": (hidden,), "v": (hidden,)}
    start = {name: 0.1 * rng.normal(size=shape) for name, shape in shapes.items()}
    return Large(
        "a network with 50 hidden units, predictions at 50 new rows",
        N,
        {"X": X, "y": y},
        start,
        log_lik,
        log_prior,
        judged=lambda params: {
            "prediction": fitted(params, tf.cast(new, params["W"].dtype))
        },
    )
