"""Turns a Python function into a TensorFlow graph, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sgmcmc.quiet import without_chatter


class FlatGraph:
    """A graph that is called with a flat list of tensors and returns one.

    Going through lists spares TensorFlow the matching of nested arguments at every call, which
    takes longer than the call itself.

    Args:
        function: takes nested arguments and returns a nested result.
        arguments: examples of what it will be called with.
        jit_compile: compile it with XLA.

    Attributes:
        result: the structure of the result, filled with placeholders.
    """

    def __init__(
        self, function: Callable[..., Any], *arguments: Any, jit_compile: bool = False
    ) -> None:
        self.result: Any = None

        def flat(*leaves: tf.Tensor) -> list[tf.Tensor]:
            self.result = function(*tf.nest.pack_sequence_as(arguments, leaves))
            return tf.nest.flatten(self.result)

        self._graph = trace(flat, *tf.nest.flatten(arguments), jit_compile=jit_compile)
        # The public call checks every argument again; where the short way is not there, it serves.
        self._short_way = getattr(self._graph, "_call_flat", None)

    def __call__(self, leaves: list[tf.Tensor]) -> list[tf.Tensor]:
        if self._short_way is None:
            return self._graph(*leaves)
        return self._short_way(leaves, self._graph.captured_inputs)


def trace(function: Callable[..., Any], *arguments: Any, jit_compile: bool = False) -> Any:
    """Return the graph of ``function`` for arguments of these shapes and dtypes.

    The graph is asked for outright, not left to the first call of a ``tf.function``, which
    warns a user who makes a few samplers that functions are traced too often.

    Args:
        function: takes tensors, in dicts and named tuples if need be, and returns such.
        arguments: examples of what it will be called with.
        jit_compile: compile it with XLA.
    """
    with without_chatter():
        graph = tf.function(function, autograph=False, jit_compile=jit_compile)
        return graph.get_concrete_function(*arguments)


def quiet_start() -> None:
    """Have TensorFlow find its devices now, without its chatter."""
    with without_chatter():
        tf.config.list_logical_devices()
