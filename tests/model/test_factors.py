"""Hessians and leverages of linear predictors, which are found in the graph of a model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.model.geometry import Bijected, Space
from sgmcmc.model.target import Target
from sgmcmc.plan.objective import Objective
from tests import seams

RNG = np.random.default_rng(1)
N, D = 40, 3
COLUMNS = {
    "X": RNG.normal(size=(N, D)),
    "y": (RNG.uniform(size=N) < 0.5).astype(float),
    "f": RNG.integers(0, 4, N).astype(np.int32),
    "g": RNG.integers(0, 5, N),
}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams.FACTORED_FROM, 1)


LogLik = Callable[[Any, Any], tf.Tensor]


def logistic(params: Any, data: Any) -> tf.Tensor:
    logits = params["a"] + tf.linalg.matvec(data["X"], params["b"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(labels=data["y"], logits=logits)


def normal(params: Any, data: Any) -> tf.Tensor:
    """Coefficients scaled by another parameter, and a scale: v is not linear in u."""
    mean = tf.linalg.matvec(data["X"], params["b"] * params["a"])
    return -tf.math.log(params["s"]) - 0.5 * ((data["y"] - mean) / params["s"]) ** 2


def multinomial(params: Any, data: Any) -> tf.Tensor:
    logits = tf.matmul(data["X"], params["B"]) + params["c"]
    labels = tf.cast(data["y"], tf.int32)
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def poisson_sum(params: Any, data: Any) -> tf.Tensor:
    eta = tf.tensordot(data["X"], params["b"], 1)
    return tf.reduce_sum(data["y"] * eta - tf.exp(eta))


def crossed(params: Any, data: Any) -> tf.Tensor:
    """Effects of two factors, one times a scale, a slope by one of them, and a common mean."""
    one = tf.gather(params["a"], data["f"])
    eta = params["s"] * tf.gather(params["r"], data["g"]) + one
    eta += data["X"][:, 0] * tf.gather(params["t"], data["f"])
    eta += tf.linalg.matvec(data["X"], params["b"])
    return -tf.math.log(params["s"]) - 0.5 * (data["y"] - eta) ** 2 / params["s"]


def levels_of_classes(params: Any, data: Any) -> tf.Tensor:
    """Effects of a factor on each of two classes, by the last axis; and by the first."""
    first = tf.transpose(tf.gather(params["A"], data["f"], axis=-1))
    logits = first + tf.gather(params["B"], data["g"]) + params["c"]
    labels = tf.cast(data["y"], tf.int32)
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def picked(params: Any, data: Any) -> tf.Tensor:
    """A predictor, and single coefficients by row: too many numbers that are in no product."""
    rows = tf.gather(params["u"], tf.cast(data["y"], tf.int32)[:, tf.newaxis])[:, 0]
    return tf.linalg.matvec(data["X"], params["b"]) - rows**2


def mixed_rows(params: Any, data: Any) -> tf.Tensor:
    """A sum over pairs of rows."""
    return -(tf.cumsum(tf.linalg.matvec(data["X"], params["b"])) ** 2)


EXP = {"s": Bijected(tfp.bijectors.Exp(), ())}
MODELS: dict[str, tuple[LogLik, Space]] = {
    "logistic": (logistic, Space({"a": (), "b": (D,)})),
    "normal": (normal, Space({"a": (), "b": (D,), "s": ()}, EXP)),
    "multinomial": (multinomial, Space({"B": (D, 2), "c": (2,)})),
    "poisson": (poisson_sum, Space({"b": (D,)})),
    "crossed": (
        crossed,
        Space({"a": (4,), "r": (5,), "t": (4,), "b": (D,), "s": ()}, EXP),
    ),
    "levels": (levels_of_classes, Space({"A": (2, 4), "B": (5, 2), "c": (2,)})),
}


def of(log_lik: LogLik, space: Space) -> tuple[Objective, np.ndarray]:
    data = Data({name: ArrayColumn(a) for name, a in COLUMNS.items()}, N)
    u = 0.3 * np.random.default_rng(2).standard_normal(space.layout.size)
    return Objective(Target(log_lik, None, space, tf.float64), data), u


@functools.cache
def of_model(name: str) -> tuple[Objective, np.ndarray]:
    """Return the objective of a model in the table, whose graphs are made once."""
    return of(*MODELS[name])


OFTEN = ("levels",)


def those(*names: str, often: tuple[str, ...] = OFTEN) -> list[Any]:
    """Return names of models as cases, of which some are among the slow."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in often))
        for name in names
    ]


@pytest.mark.parametrize("name", those(*MODELS))
def test_hessian_of_linear_predictors(name: str) -> None:
    """That of differentiating twice, and its products with vectors."""
    objective, u = of_model(name)
    assert objective.has_factors(u)
    found = objective.likelihood_hessian(u)
    (exact,) = objective._sum("hessian", u)
    np.testing.assert_allclose(
        found, exact, rtol=1e-10, atol=1e-10 * np.abs(exact).max()
    )
    vectors = np.random.default_rng(3).standard_normal((len(u), 2))
    products = objective.times_hessians(u, vectors)
    np.testing.assert_allclose(
        products, exact @ vectors, atol=1e-10 * np.abs(exact).max()
    )


@pytest.mark.parametrize(
    "name",
    those("logistic", "normal", "multinomial", "crossed", "levels", often=("crossed",)),
)
def test_leverages_add_up_to_the_trace(name: str) -> None:
    """Row by row the curvature of the row alone; over all rows that of the Hessian."""
    objective, u = of_model(name)
    root = np.tril(np.random.default_rng(4).standard_normal((len(u), len(u)))) * 1e-3
    found = objective.leverages(u, root)
    assert found is not None
    trace = -np.trace(root.T @ objective.likelihood_hessian(u) @ root)
    assert found.sum() == pytest.approx(trace, rel=1e-6)
    first = objective.over([(np.array([5]), 1.0)])
    alone = -np.trace(root.T @ first.likelihood_hessian(u) @ root)
    assert found[5] == pytest.approx(alone, rel=1e-5)


def test_other_models_have_the_general_way() -> None:
    objective, u = of(picked, Space({"b": (D,), "u": (8,)}))
    assert not objective.has_factors(u)
    assert objective.leverages(u, np.eye(len(u))) is None
    objective, u = of(poisson_sum, MODELS["poisson"][1])
    assert objective.leverages(u, np.eye(len(u))) is None  # a sum has no terms by row
    objective, u = of(mixed_rows, Space({"b": (D,)}))
    assert not objective.has_factors(u)
    (exact,) = objective._sum("hessian", u)
    np.testing.assert_allclose(objective.likelihood_hessian(u), exact)


def test_functions_in_the_graph_have_the_general_way() -> None:
    """TFP's density calls one, whose second derivatives are lost when a graph is imported."""

    def negative_binomial(params: Any, data: Any) -> tf.Tensor:
        eta = tf.linalg.matvec(data["X"], params["b"])
        law = tfp.distributions.NegativeBinomial(
            tf.exp(params["a"]), logits=eta - params["a"]
        )
        return law.log_prob(data["y"])

    objective, u = of(negative_binomial, Space({"a": (), "b": (D,)}))
    assert not objective.has_factors(u)
    (exact,) = objective._sum("hessian", u)
    np.testing.assert_allclose(objective.likelihood_hessian(u), exact)
