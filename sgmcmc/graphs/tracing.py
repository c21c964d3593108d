"""Turns a Python function into a TensorFlow graph, once."""

from __future__ import annotations

from collections.abc import Callable
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
    with without_chatter():
        graph = tf.function(function, autograph=False, jit_compile=jit_compile)
        traced = graph.get_concrete_function(*arguments)
    return same_as_before(traced, jit_compile)


def quiet_start() -> None:
    """Have TensorFlow find its devices now, without its chatter."""
    with without_chatter():
        tf.config.list_logical_devices()
