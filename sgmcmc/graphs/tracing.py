"""Turns a Python function into a TensorFlow graph, once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from sgmcmc.graphs.known import same_as_before
from sgmcmc.graphs.quiet import without_chatter


def trace(function: Callable[..., Any], *arguments: Any, jit_compile: bool = False) -> Any:
    """Return the graph of ``function`` for arguments of these shapes and dtypes.

    The graph is asked for outright, not left to the first call of a ``tf.function``, which
    warns a user who makes a few samplers that functions are traced too often. A graph that was
    there before is taken again, with what TensorFlow has compiled for it.

    Args:
        function: takes tensors, in dicts and named tuples if need be, and returns such.
        arguments: examples of what it will be called with.
        jit_compile: compile it with XLA.
    """
    if any(isinstance(leaf, tf.SparseTensor) for leaf in tf.nest.flatten(arguments)):
        function = partial(_called, function)
    with without_chatter():
        graph = tf.function(function, autograph=False, jit_compile=jit_compile)
        traced = graph.get_concrete_function(*arguments)
    return same_as_before(traced, jit_compile)


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*with_known_shapes(arguments))


def with_known_shapes(arguments: Any) -> Any:
    """Return nested tensors, the shapes of sparse ones as constants of the present graph.

    The shape of a sparse tensor that comes from outside a graph, or a loop, is a tensor like any
    other there, so that nothing would be known of the shape of a product with it.
    """

    def known(value: Any) -> Any:
        if isinstance(value, tf.SparseTensor) and value.shape.is_fully_defined():
            return tf.SparseTensor(value.indices, value.values, value.shape)
        return value

    return tf.nest.map_structure(known, arguments)


def quiet_start() -> None:
    """Have TensorFlow find its devices now, without its chatter."""
    with without_chatter():
        tf.config.list_logical_devices()
