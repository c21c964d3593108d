"""Graphs that are kept for calls with the same model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.graphs import tracing
from sgmcmc.plan.objective import Objective
from tests import seams
from tests.plan.models import Array, Tensors, make

RNG = np.random.default_rng(1)
U = np.array([0.3, -0.2])


def columns(n: int) -> dict[str, Array]:
    return {"x": RNG.normal(size=(n, 2)), "y": RNG.normal(size=n)}


def normal(scale: float) -> Callable[..., tf.Tensor]:
    """Return a log-likelihood with a number that each call may have changed."""

    def log_lik(params: Tensors, data: Tensors) -> tf.Tensor:
        return (
            -0.5 * scale * (data["y"] - tf.linalg.matvec(data["x"], params["b"])) ** 2
        )

    return log_lik


def own_slope(factor: float) -> Callable[..., tf.Tensor]:
    """Return a log-likelihood whose gradient alone has a number."""

    @tf.custom_gradient
    def value(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return -(x**2), lambda upstream: -factor * x * upstream

    return lambda params, data: value(
        data["y"] - tf.linalg.matvec(data["x"], params["b"])
    )


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams.TRACING_MODELS, type(tracing._models)())


def of(log_lik: Callable[..., tf.Tensor], data: dict[str, Array]) -> Objective:
    return Objective(*make(log_lik, data, {"b": (2,)}))


def slope(data: dict[str, Array], scale: float = 1.0) -> Array:
    return scale * data["x"].T @ (data["y"] - data["x"] @ U)


@pytest.mark.parametrize("large", [True, False])
def test_same_model_other_data(monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    """Nothing is traced a second time but the model; of a large dataset for any length."""
    if large:
        monkeypatch.setattr(seams.PASSES_LARGE, 1)
        monkeypatch.setattr(seams.OBJECTIVE_LARGE, 1)
    first, second = columns(30), columns(40 if large else 30)
    for number, data in enumerate((first, second)):
        found = of(normal(1.0), data)
        assert bool(found._pass.graphs) == bool(number)
        np.testing.assert_allclose(found.likelihood_gradient(U), slope(data), rtol=1e-6)


def test_other_number_of_few_rows() -> None:
    of(normal(1.0), columns(30)).likelihood_gradient(U)
    assert not of(normal(1.0), columns(31))._pass.graphs


@pytest.mark.parametrize("make_model", [normal, own_slope])
def test_other_number_in_the_model(
    make_model: Callable[[float], Callable[..., tf.Tensor]],
) -> None:
    data = columns(30)
    for number in (2.0, 3.0):
        found = of(make_model(number), data)
        assert not found._pass.graphs
        np.testing.assert_allclose(
            found.likelihood_gradient(U), slope(data, number), rtol=1e-6
        )
    same = of(make_model(3.0), data)
    assert same._pass.graphs or make_model is own_slope
    np.testing.assert_allclose(same.likelihood_gradient(U), slope(data, 3.0), rtol=1e-6)


def test_random_models_are_not_kept() -> None:
    def log_lik(params: Tensors, data: Tensors) -> tf.Tensor:
        return data["y"] * params["b"][0] + tf.random.normal([], dtype=data["y"].dtype)

    for _ in range(2):
        found = of(log_lik, columns(30))
        assert not found._pass.graphs
        found.likelihood_gradient(U)


def test_a_few_models_are_kept() -> None:
    for number in range(20):
        of(normal(1.0 + number), columns(30)).likelihood_gradient(U)
    assert len(tracing._models) == tracing._SETTINGS.models
