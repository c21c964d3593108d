"""Compiles what a sampler runs many times: with XLA, or as a plain graph where XLA cannot."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from sgmcmc.quiet import without_chatter
from sgmcmc.tracing import trace

_CALL_FUNCTION = ["name", "tensor_inputs", "num_outputs"]
"""The parameters of TensorFlow's own ``Context.call_function``, as we know it."""


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
        self._call = _short_way(self._graph) or (lambda leaves: self._graph(*leaves))

    def __call__(self, leaves: list[tf.Tensor]) -> list[tf.Tensor]:
        return self._call(leaves)


def _short_way(graph: Any) -> Callable[[list[tf.Tensor]], list[tf.Tensor]] | None:
    """Return what hands a graph to the runtime by its name, where TensorFlow has that.

    The public call checks every argument again, which takes as long as the launch itself.
    """
    call = getattr(context.context(), "call_function", None)
    if call is None or list(signature(call).parameters) != _CALL_FUNCTION:
        return None
    name, count, captured = graph.name, len(graph.outputs), graph.captured_inputs
    return lambda leaves: call(name, leaves + captured, count)


class Compiler:
    """Compiles the functions of one sampler, and says once if XLA cannot.

    Args:
        jit_compile: compile with XLA; ``None`` tries it and falls back to plain graphs.
    """

    def __init__(self, jit_compile: bool | None) -> None:
        self._jit_compile = jit_compile
        self._lock = threading.Lock()

    @property
    def plain(self) -> bool:
        """Whether XLA is known to be of no use, so that all graphs will be plain."""
        return self._jit_compile is False

    def lazily(self, function: Callable[..., Any]) -> Compiled:
        """Return ``function``, to be compiled when it is first called."""
        return Compiled(function, self)

    def compile(self, function: Callable[..., Any], *arguments: Any) -> FlatGraph:
        """Return the compiled function for arguments of these shapes and dtypes."""
        if self._jit_compile is not False:
            try:
                graph = FlatGraph(function, *arguments, jit_compile=True)
                with without_chatter():
                    graph(tf.nest.flatten(arguments))
                return graph
            except (tf.errors.OpError, ValueError, NotImplementedError) as error:
                with self._lock:
                    self._fall_back(error)
        return FlatGraph(function, *arguments)

    def _fall_back(self, error: Exception) -> None:
        if self._jit_compile is False:
            return
        if self._jit_compile:
            raise ValueError(
                f"`jit_compile=True`: XLA cannot compile this model: {_culprit(error)}. "
                "Use `jit_compile=False`, or `None` to fall back by itself."
            ) from error
        self._jit_compile = False
        warnings.warn(
            f"XLA cannot compile this model ({_culprit(error)}), so the chain runs as a "
            "plain graph, which is slower. `jit_compile=False` silences this.",
            stacklevel=2,
        )


class Compiled:
    """A function that is compiled when it is first called; threads may share it.

    Args:
        function: takes nested tensors, always of the same shapes, and returns such.
        compiler: compiles it.
    """

    def __init__(self, function: Callable[..., Any], compiler: Compiler) -> None:
        self._function = function
        self._compiler = compiler
        self._graph: FlatGraph | None = None
        self._pack: Pack | None = None
        self._first_call = threading.Lock()

    def compile(self, *arguments: Any) -> FlatGraph:
        """Return the compiled function, made in this thread if it was not before.

        Args:
            arguments: examples of what it will be called with.
        """
        if self._graph is None:
            with self._first_call:
                if self._graph is None:
                    self._graph = self._compiler.compile(self._function, *arguments)
        return self._graph

    def __call__(self, *arguments: Any) -> Any:
        graph = self._graph or self.compile(*arguments)
        leaves = graph(tf.nest.flatten(arguments))
        if self._pack is None:
            self._pack = _packer(graph.result)
        return self._pack(iter(leaves))


Pack = Callable[[Iterator[tf.Tensor]], Any]


def _packer(structure: Any) -> Pack:
    """Return what puts leaves into this structure of dicts and named tuples.

    They come in the order of ``tf.nest``, whose own ``pack_sequence_as`` is so general that it
    takes longer than a call.
    """
    if isinstance(structure, tuple):
        kind, parts = type(structure), [_packer(part) for part in structure]
        return lambda leaves: kind(*[part(leaves) for part in parts])
    if isinstance(structure, dict):
        named = {name: _packer(structure[name]) for name in sorted(structure)}
        return lambda leaves: {name: part(leaves) for name, part in named.items()}
    return next


def _culprit(error: Exception) -> str:
    """Return the op that an XLA error complains of, in words for a person."""
    text = str(error)
    for pattern in (r"unsupported operations[^:]*:\s*(\w+)", r"\{\{node [^}]*?(\w+)\}\}"):
        found = re.search(pattern, text)
        if found:
            return f"the op {found.group(1)}"
    return text.strip().splitlines()[0]
