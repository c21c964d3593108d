"""Compiles functions that a sampler runs many times: with XLA, or as a plain graph if XLA cannot.

Graphs are called by a short way into TensorFlow's runtime, an interface that is not public; if
this TensorFlow does not have that interface, the public call is used.

Graphs that XLA does not compile need one thing more. TensorFlow turns sums of three and more
tensors into additions to a temporary variable, whose name is the same in all calls of a graph, so
that two threads in the same iteration of a loop now and then meet in it, and one of them fails with
``AlreadyExistsError`` or both write into one piece of memory. Chains run side by side; theirs are
called without the rewriting that does so, which is part of the optimizers of arithmetic and memory.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import pass_on
from sgmcmc.libraries import need_no_fork, without_chatter

try:
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
    from tensorflow.python.eager import context
except ImportError:  # a TensorFlow that keeps them elsewhere
    context = None

# The expected parameters of TensorFlow's `Context.call_function`.
_KNOWN = ["name", "tensor_inputs", "num_outputs"]

FlatCall = Callable[[list[tf.Tensor]], list[tf.Tensor]]


def calls_directly() -> bool:
    """Return whether graphs can be handed to the runtime directly."""
    call = getattr(context and context.context(), "call_function", None)
    as_expected = call is not None and list(signature(call).parameters) == _KNOWN
    return as_expected and not libraries.public_calls()


def flat_call(graph: Any) -> FlatCall:
    """Return a function that calls a traced graph with a flat list of tensors."""
    if not calls_directly():
        return lambda leaves: graph(*leaves)
    call = context.context().call_function
    name, count = graph.name, len(graph.outputs)
    captured = graph.captured_inputs
    return lambda leaves: call(name, leaves + captured, count)


def side_by_side(call: FlatCall) -> FlatCall:
    """Return the same call of a graph that XLA does not compile, for several threads at a time."""
    options = getattr(context and context.context(), "function_call_options", None)
    if options is None or not hasattr(context, "FunctionCallOptions"):
        return call
    config = ConfigProto.FromString(options.config_proto_serialized or b"")
    rewriting = config.graph_options.rewrite_options
    rewriting.arithmetic_optimization = RewriterConfig.OFF
    rewriting.memory_optimization = RewriterConfig.NO_MEM_OPT
    call_options = context.FunctionCallOptions(options.executor_type, config)

    def called(leaves: list[tf.Tensor]) -> list[tf.Tensor]:
        now = context.context()
        before, now.function_call_options = now.function_call_options, call_options
        try:
            return call(leaves)
        finally:
            now.function_call_options = before

    return called


class FlatGraph:
    """A graph that is called with a flat list of tensors and returns one.

    Going through lists spares TensorFlow the matching of nested arguments at every call, which
    takes longer than the call itself. ``result`` is the structure of the result.
    """

    def __init__(
        self, function: Callable[..., Any], *arguments: Any, jit_compile: bool = False
    ) -> None:
        self.result: Any = None

        def flat(*leaves: tf.Tensor) -> list[tf.Tensor]:
            self.result = function(*tf.nest.pack_sequence_as(arguments, leaves))
            return tf.nest.flatten(self.result)

        self._graph = trace(flat, *tf.nest.flatten(arguments), jit_compile=jit_compile)
        call = flat_call(self._graph)
        self._call = call if jit_compile else side_by_side(call)

    def __call__(self, leaves: list[tf.Tensor]) -> list[tf.Tensor]:
        """Return the tensors of the result."""
        need_no_fork()
        return self._call(leaves)


class Compiled:
    """A compiled function of nested tensors; threads may share it.

    It raises MemoryError when called, if the memory was not enough.
    """

    def __init__(self, graph: FlatGraph) -> None:
        self._graph = graph
        self._pack = _packer(graph.result)

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's result."""
        try:
            results = self._graph(tf.nest.flatten(arguments))
        except tf.errors.ResourceExhaustedError as error:
            raise _no_memory(error) from error
        return self._pack(iter(results))


class Compiler:
    """Compiles the functions of one sampler, and warns once if XLA cannot.

    ``jit_compile=None`` tries XLA and falls back to plain graphs; ``uses_xla`` says which.
    """

    def __init__(self, jit_compile: bool | None) -> None:
        self._required = jit_compile is True
        self.uses_xla = jit_compile is not False

    def compile(self, function: Callable[..., Any], *arguments: Any) -> Compiled | None:
        """Return the function compiled for arguments of these shapes and dtypes.

        ``None`` says that XLA cannot compile it: a warning has said why, ``uses_xla`` is
        false from now on, and the caller may have to pass another function for a plain graph.
        """
        if not self.uses_xla:
            return Compiled(FlatGraph(function, *arguments))
        try:
            return _by_xla(function, *arguments)
        except tf.errors.ResourceExhaustedError as error:
            raise _no_memory(error) from error
        except (tf.errors.OpError, ValueError, NotImplementedError) as error:
            pass_on(error)
            if self._required:
                raise ValueError(
                    f"`jit_compile=True`: XLA cannot compile this model: {_culprit(error)}. "
                    "Use `jit_compile=False`, or `None` to fall back by itself."
                ) from error
            self.uses_xla = False
            warnings.warn(
                f"XLA cannot compile this model ({_culprit(error)}), so the chain runs as a "
                "plain graph, which is slower. `jit_compile=False` silences this.",
                stacklevel=1,
            )
            return None

    def try_to_compile(
        self, function: Callable[..., Any], *arguments: Any
    ) -> Compiled | None:
        """Return the function compiled by XLA, or ``None``, without a message, if that fails.

        It is for callers with an equivalent function: errors of both show there.
        """
        if not self.uses_xla:
            return None
        try:
            return _by_xla(function, *arguments)
        except Exception as error:  # TensorFlow and users' functions raise of all kinds
            pass_on(error)
            return None


def _by_xla(function: Callable[..., Any], *arguments: Any) -> Compiled:
    """Return a function compiled by XLA, which is seen to work once."""
    graph = FlatGraph(function, *arguments, jit_compile=True)
    with without_chatter():
        graph(tf.nest.flatten(arguments))
    return Compiled(graph)


def _no_memory(error: tf.errors.ResourceExhaustedError) -> MemoryError:
    return MemoryError(
        "There was not enough memory for the compiled chain. Use a smaller `minibatch_size`, or "
        f"fewer parameters. {_first_line(error)}"
    )


Pack = Callable[[Iterator[tf.Tensor]], Any]


def _packer(structure: Any) -> Pack:
    """Return a function that packs leaves into this structure of dicts and named tuples.

    They come in the order of ``tf.nest``, whose own ``pack_sequence_as`` is so general that it
    takes longer than a call.
    """
    if isinstance(structure, tuple):
        kind = type(structure)
        packers = [_packer(part) for part in structure]
        if not hasattr(kind, "_fields"):
            return lambda leaves: tuple([packer(leaves) for packer in packers])
        return lambda leaves: kind(*[packer(leaves) for packer in packers])
    if isinstance(structure, dict):
        named = {name: _packer(structure[name]) for name in sorted(structure)}
        return lambda leaves: {name: packer(leaves) for name, packer in named.items()}
    return next


def _culprit(error: Exception) -> str:
    """Return the op that an XLA error complains of, in words for a person."""
    text = str(error)
    for pattern in (
        r"unsupported operations[^:]*:\s*(\w+)",
        r"\{\{node [^}]*?(\w+)\}\}",
    ):
        match = re.search(pattern, text)
        if match:
            return f"the op {match.group(1)}"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
