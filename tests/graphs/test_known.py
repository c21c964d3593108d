"""The same call again compiles nothing; another model is never taken for one that was there."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from google.protobuf import text_format

import sgmcmc
from sgmcmc.graphs import tracing
from sgmcmc.graphs.compiler import FlatGraph, calls_directly
from sgmcmc.graphs.tracing import trace
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.model.geometry.bijectors import Bijected

X = tf.constant([1.0, 2.0, 3.0])


def looped(
    factor: Any, body: Callable[[tf.Tensor], tf.Tensor] = tf.sin
) -> Callable[..., Any]:
    """Return a new function with a loop, and so with functions inside its graph."""

    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, y: (i + 1, factor * body(y)),
            (tf.constant(0), x),
        )[1]

    return function


def traced(
    function: Callable[..., Any], argument: Any = X, jit_compile: bool = True
) -> Any:
    return trace(function, argument, jit_compile=jit_compile)


def test_same_graph() -> None:
    """Functions made again, with the same body, share what was compiled."""
    first = traced(looped(2.0))
    assert traced(looped(2.0)) is first
    np.testing.assert_array_equal(first(X), looped(2.0)(X))


def test_gradients() -> None:
    """Graphs with gradients of loops are known again, whatever their functions are called."""

    def made() -> Callable[..., Any]:
        return lambda x: tf.gradients(tf.reduce_sum(looped(2.0)(x)), x)[0]

    assert traced(made()) is traced(made())


def test_longer_names() -> None:
    """TensorFlow numbers its functions; a number of one more digit makes no other graph of it."""

    def with_captured(x: tf.Tensor) -> tf.Tensor:
        return looped(tf.reduce_sum(x))(x)

    graph = tf.function(with_captured, autograph=False).get_concrete_function(X).graph
    definition = graph.as_graph_def()
    longer = text_format.Parse(
        re.sub(
            r"(_cond_|_body_)(\d+)",
            r"\g<1>9\2",
            text_format.MessageToString(definition),
        ),
        tf.compat.v1.GraphDef(),
    )
    assert longer != definition
    assert tracing._renamed(longer) == tracing._renamed(definition)


def test_other_graphs() -> None:
    """Another constant, op, shape, dtype, structure or way of compiling is another graph."""
    first = traced(looped(2.0))
    others = [
        traced(looped(2.5)),
        traced(looped(2.0, tf.cos)),
        traced(looped(2.0), X[:2]),
        traced(looped(2.0), tf.cast(X, tf.float64)),
        traced(lambda x: {"a": looped(2.0)(x)}),
        traced(looped(2.0), jit_compile=False),
    ]
    assert len({id(graph) for graph in [first, *others]}) == 1 + len(others)


def test_captured_tensors() -> None:
    """Functions that have captured other tensors share a graph, and each computes with its own."""
    a, b = tf.random.normal([300]), tf.random.normal([300])
    x = tf.zeros([300])
    first = traced(lambda x: x + a, x)
    assert traced(lambda x: x + a, x) is first
    other = traced(lambda x: x + b, x)
    assert other is not first
    np.testing.assert_array_equal(other(x), b)
    assert other.graph is first.graph
    for graph, own in ((first, a), (other, b)):
        np.testing.assert_array_equal(graph(x), own)
        within = traced(lambda x, graph=graph: tf.gradients(graph(x) ** 2, x)[0], x)
        np.testing.assert_allclose(within(x), 2 * own, rtol=1e-6)


def test_graphs_traced_within_others() -> None:
    """A graph that captured what another graph computes belongs to it."""

    def outer(x: tf.Tensor) -> tf.Tensor:
        inside = 2.0 * x
        return trace(lambda y: y + inside, X)(x)

    np.testing.assert_array_equal(traced(outer)(X), 3.0 * X)
    np.testing.assert_array_equal(traced(lambda x: outer(x) + 1.0)(X), 3.0 * X + 1.0)


def test_graphs_that_nobody_has_are_gone() -> None:
    """A graph traced again in vain is given back, though TFP caches what bijectors computed."""
    geometry = Bijected(
        tfp.bijectors.Chain([tfp.bijectors.Exp(), tfp.bijectors.Tanh()]), (3,)
    )
    graphs: list[weakref.ref[Any]] = []

    def density(u: tf.Tensor) -> tf.Tensor:
        graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
        value = tf.reduce_sum(geometry.constrain(u)) + geometry.log_jacobian(u)
        return tf.gradients(value, u)[0]

    first = trace(density, X)
    assert trace(density, X) is first
    gc.collect()
    assert [graph() is None for graph in graphs] == [False, True]


def test_captured_variables() -> None:
    """Variables may change hands; graphs with them are not shared."""
    variable = tf.Variable(X)
    assert traced(lambda x: x + variable) is not traced(lambda x: x + variable)


def test_classes_of_the_same_name() -> None:
    """A named tuple that was written again is not taken for the one before."""

    def made() -> tuple[type, Any]:
        class State(NamedTuple):
            x: tf.Tensor

        return State, traced(lambda x: State(x + 3.5))

    (first, _), (second, graph) = made(), made()
    assert first is not second
    assert type(graph(X)) is second


def test_random_numbers() -> None:
    """A graph whose random numbers go on from call to call begins again each time."""

    def drawn(x: tf.Tensor) -> tf.Tensor:
        return x + tf.random.normal([3], seed=1)

    assert traced(drawn, jit_compile=False) is not traced(drawn, jit_compile=False)


def test_few_are_kept() -> None:
    """The oldest goes, and large constants are not held."""
    first = traced(lambda x: x * 0.5)
    for number in range(tracing._SETTINGS.graphs):
        traced(lambda x, number=number: x + float(number) + 0.25, jit_compile=False)
    assert traced(lambda x: x * 0.5) is not first
    assert len(tracing._graphs) <= tracing._SETTINGS.graphs
    large = np.random.default_rng(1).normal(
        size=tracing._SETTINGS.largest_graph // 8 + 1
    )
    assert traced(lambda x: large + x[0], tf.zeros([1], tf.float64)) is not traced(
        lambda x: large + x[0], tf.zeros([1], tf.float64)
    )


def test_samplers() -> None:
    """A second call with a log-likelihood written again adds no graph, and gives the same bits."""
    data = {"x": np.random.default_rng(1).normal(size=(50, 2))}

    def call() -> np.ndarray:
        def log_lik(params: Any, dataset: Any) -> tf.Tensor:
            return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)

        return sgmcmc.sgld(
            log_lik, data, {"theta": np.zeros(2)}, 1e-3, minibatch_size=5, n_iters=20, seed=1,
            verbose=False,
        )["theta"]  # fmt: skip

    first = call()
    graphs = list(tracing._graphs)
    np.testing.assert_array_equal(call(), first)
    assert sorted(tracing._graphs) == sorted(graphs)


def test_other_captured_tensors() -> None:
    """A chain with other numbers of its preconditioner runs what was compiled, with its own."""
    numbers = [tf.constant(np.arange(200) + shift, tf.float32) for shift in (0.0, 5.0)]
    graphs, results = [], []
    for held in numbers:

        def function(x: tf.Tensor, held: tf.Tensor = held) -> tf.Tensor:
            return looped(2.0, lambda y: y + held[:3])(x)

        made = FlatGraph(function, X, jit_compile=True)
        graphs.append(made._graph.graph)
        results.append(made([X])[0])
        np.testing.assert_array_equal(results[-1], function(X))
    assert graphs[0] is graphs[1] or not calls_directly()
    assert not np.array_equal(*results)
    assert traced(lambda x: x + numbers[0][:3]) is not traced(
        lambda x: x + numbers[1][:3]
    )


def test_other_preconditioner() -> None:
    """Nothing of a preconditioner is a constant of the graph, however short it is."""
    rng = np.random.default_rng(1)
    graphs = []
    for _ in range(2):
        root, origin = np.tril(rng.normal(size=(3, 3))), rng.normal(size=3)
        changed = Preconditioner(root, origin)
        graph = FlatGraph(lambda z, c=changed: (c.out_of(z), c.slope(z), c.score(z)), X)
        graphs.append(graph._graph.graph)
        x = X.numpy()
        expected = (origin + root @ x, root.T @ x, np.linalg.inv(root).T @ x)
        for found, wanted in zip(graph([X]), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert graphs[0] is graphs[1] or not calls_directly()
