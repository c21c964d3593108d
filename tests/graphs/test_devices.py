"""Every compiled chain has a GPU kernel for each of its operations, as far as a CPU can tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

import sgmcmc
from sgmcmc.data.reading import read_dataset
from sgmcmc.graphs import compiler
from sgmcmc.networks import training
from sgmcmc.networks.training import Network
from tests.conftest import log_lik, observations

SHAPES_ALONE = {"Placeholder", "Const", "NoOp", "Assert", "StringFormat"}
"""Operations that compute nothing, or words for an error, on whatever device."""


def operations(graph: Any) -> Iterator[str]:
    """Yield the kinds of all operations of a graph, those of its functions included."""
    definition = graph.graph.as_graph_def()
    functions = [function.node_def for function in definition.library.function]
    for nodes in (definition.node, *functions):
        for node in nodes:
            yield node.op


def without_gpu(graphs: list[Any]) -> set[str]:
    """Return operations of which TensorFlow has no kernel for a GPU."""
    found = set()
    for name in {name for graph in graphs for name in operations(graph)} - SHAPES_ALONE:
        devices = {
            each.device_type
            for each in kernels.get_registered_kernels_for_op(name).kernel
        }
        if devices and not devices & {"GPU", "DEFAULT"}:
            found.add(name)
    return found


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All graphs that are traced while a test runs."""
    found: list[Any] = []
    for module in (compiler, training):

        def kept(*arguments: Any, own: Any = module.trace, **options: Any) -> Any:
            made = own(*arguments, **options)
            found.append(made)
            return made

        monkeypatch.setattr(module, "trace", kept)
    return found


def test_an_operation_that_only_a_cpu_has_is_found() -> None:
    own = tf.function(lambda x: tf.raw_ops.UniqueV2(x=x, axis=[0]).y)
    assert without_gpu([own.get_concrete_function(tf.zeros(3))]) == {"UniqueV2"}


@pytest.mark.some(1)
@pytest.mark.parametrize("gradient", ["minibatch", "saga", "svrg", "full"])
@pytest.mark.parametrize(
    "dynamics", ["underdamped", "sghmc", "sgld", "sgnht", "badodab", "psgld"]
)
def test_chains(traced: list[Any], dynamics: str, gradient: str) -> None:
    """The block of a plain graph, which XLA compiles as a whole."""
    sgmcmc.sample(
        log_lik, {"x": observations()}, {"theta": 0.0}, dynamics=dynamics, gradient=gradient,
        minibatches="uniform", minibatch_size=None if gradient == "full" else 5,
        preconditioner="none", stepsize=1e-3, n_chains=2, n_iters=10, burn_in=4, seed=1,
        jit_compile=False, verbose=False,
    )  # fmt: skip
    assert traced and not without_gpu(traced)


def test_training_of_networks(traced: list[Any]) -> None:
    rng = np.random.default_rng(1)
    columns = {
        "X": rng.normal(size=(40, 2)),
        "y": rng.normal(size=40),
        "weight": np.ones(40),
    }
    network = Network(
        lambda weights, X: weights["W"] @ tf.transpose(X),
        lambda y, outputs: -tf.square(y - outputs[:, 0]),
        {"W": 1.0},
        jit_compile=False,
    )
    rows = np.arange(30), np.arange(30, 40)
    data = read_dataset(columns, tf.float32)
    schedule = training.Schedule(2, 10)
    start = {"W": np.zeros((2, 1, 2))}
    training.Training(network, data, schedule, rng).run(start, rows)
    assert traced and not without_gpu(traced)
