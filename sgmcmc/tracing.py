"""Turns a Python function into a TensorFlow graph, once."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from sgmcmc.quiet import without_chatter

_FOR_XLA: ContextVar[bool] = ContextVar("for_xla", default=False)


def traced_for_xla() -> bool:
    """Tell, inside a function that is being traced, whether XLA is to compile its graph."""
    return _FOR_XLA.get()


def trace(function: Callable[..., Any], *arguments: Any, jit_compile: bool = False) -> Any:
    """Return the graph of ``function`` for arguments of these shapes and dtypes.

    The graph is asked for outright, not left to the first call of a ``tf.function``, which
    warns a user who makes a few samplers that functions are traced too often.

    Args:
        function: takes tensors, in dicts and named tuples if need be, and returns such.
        arguments: examples of what it will be called with.
        jit_compile: compile it with XLA.
    """
    before = _FOR_XLA.set(jit_compile)
    try:
        with without_chatter():
            graph = tf.function(function, autograph=False, jit_compile=jit_compile)
            return graph.get_concrete_function(*arguments)
    finally:
        _FOR_XLA.reset(before)


def quiet_start() -> None:
    """Have TensorFlow find its devices now, without its chatter."""
    with without_chatter():
        tf.config.list_logical_devices()
