"""Products of data with numbers of the rows: the same numbers, in another order for many chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.graphs import rewriting
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.model.whole_posterior import WholePosterior
from tests import seams

N, D, CHAINS = 40, 3, 2
Model = Callable[[Any, Any], tf.Tensor]

MODELS: dict[str, Model] = {
    "matvec": lambda p, d: tf.linalg.matvec(d["X"], p["b"]),
    "matmul": lambda p, d: tf.matmul(d["X"], p["b"][:, None])[:, 0],
    "transposed": lambda p, d: tf.matmul(d["X"], p["b"][None], transpose_b=True)[:, 0],
    "tensordot": lambda p, d: tf.tensordot(d["X"], p["b"], 1),
    "two": lambda p, d: tf.reduce_logsumexp(
        tf.matmul(d["X"], tf.stack([p["b"], p["c"]], 1)), 1
    ),
    "columns": lambda p, d: tf.matmul(p["b"][None], d["X"], transpose_b=True)[0],
    "own data": lambda p, d: tf.linalg.matvec(tf.nn.tanh(d["X"]), p["b"] * p["c"]),
    "of parameters": lambda p, d: tf.linalg.matvec(d["X"] * p["c"], p["b"]),
    "no product": lambda p, d: tf.reduce_sum(d["X"] * p["b"], 1),
}
TURNED = {"matvec", "matmul", "tensordot", "two", "own data"}


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams.PRODUCTS_SETTINGS, rewriting._Settings(large=1))


def posterior_of(model: Model, rows: int | None) -> tuple[WholePosterior, Target]:
    rng = np.random.default_rng(1)
    columns = {
        "X": tf.constant(rng.normal(size=(N, D))),
        "y": tf.constant(rng.normal(size=N)),
    }

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        return -((data["y"] - model(params, data)) ** 2)

    target = Target(log_lik, None, Space({"b": (D,), "c": (D,)}), tf.float64)
    return WholePosterior(target, columns, rows), target


def is_usual(name: str, rows: int, pieces: int | None, jit: bool) -> bool:
    """Return whether a way is among the default tests: most models once, and one with XLA."""
    if jit:
        return (name, rows, pieces) == ("two", N, 20)
    if name in ("matmul", "tensordot"):  # of which TensorFlow makes what `matvec` is
        return False
    return rows == 7 and (pieces is not None) == (name in TURNED)


ALL_WAYS = [
    pytest.param(
        name, rows, pieces, jit,
        marks=() if is_usual(name, rows, pieces, jit) else pytest.mark.slow,
    )
    for jit in (True, False)
    for name in MODELS
    for pieces in (None, 20)
    for rows in (N, 7)
]  # fmt: skip


@pytest.mark.parametrize(("name", "rows", "pieces", "jit_compile"), ALL_WAYS)
def test_gradients_of_several_chains(
    name: str,
    rows: int,
    pieces: int | None,
    jit_compile: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if pieces is not None:  # of 6 rows, the last of 4
        settings = rewriting._Settings(large=1, wide=1, piece=pieces)
        monkeypatch.setattr(seams.PRODUCTS_SETTINGS, settings)
    posterior, target = posterior_of(MODELS[name], rows)
    points = tf.constant(np.random.default_rng(2).normal(size=(CHAINS, 2 * D)))

    def together(points: tf.Tensor) -> Any:
        return tf.vectorized_map(posterior, points, fallback_to_while_loop=False)

    values, gradients = tf.function(together, jit_compile=jit_compile, autograph=False)(
        points
    )
    columns = posterior._columns
    for point, value, gradient in zip(points, values, gradients, strict=True):
        with tf.GradientTape() as tape:
            tape.watch(point)
            params = target.space.constrain(point)
            exact = tf.reduce_sum(target.log_lik(dict(params), dict(columns)))
        np.testing.assert_allclose(value, exact, rtol=1e-12)
        np.testing.assert_allclose(
            gradient, tape.gradient(exact, point), rtol=1e-12, atol=1e-11
        )


@pytest.mark.parametrize("name", MODELS)
def test_data_come_last_in_the_products_of_their_gradients(name: str) -> None:
    posterior, _ = posterior_of(MODELS[name], N)
    graph = tf.function(posterior, autograph=False).get_concrete_function(
        tf.TensorSpec([2 * D], tf.float64)
    )
    first = [
        op.inputs[0].shape.as_list()
        for op in graph.graph.get_operations()
        if op.type == "MatMul" and op.get_attr("transpose_a")
    ]
    assert ([N, D] in first) == (name == "of parameters")
    assert (name in TURNED) == any(op.startswith("data_last") for op in names(graph))


def names(graph: Any) -> list[str]:
    return [op.name for op in graph.graph.get_operations()]
