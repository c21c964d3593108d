"""The short way into TensorFlow's runtime, by an interface that is not public.

The public call checks every argument again, which takes as long as the launch itself. Where this
TensorFlow does not have what we know, the public call serves.

Graphs that XLA does not compile need one thing more. TensorFlow turns sums of three and more
tensors into additions to a temporary variable, whose name is the same in all calls of a graph, so
that two threads in the same iteration of a loop now and then meet in it, and one of them fails with
``AlreadyExistsError``. Chains run side by side; theirs are called without that rewriting.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import tensorflow as tf

from sgmcmc import switches

try:
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
    from tensorflow.python.eager import context
except ImportError:  # a TensorFlow that keeps them elsewhere
    context = None

_KNOWN = ["name", "tensor_inputs", "num_outputs"]
"""The parameters of TensorFlow's ``Context.call_function``, as we know it."""

FlatCall = Callable[[list[tf.Tensor]], list[tf.Tensor]]


def available() -> bool:
    """Tell whether graphs can be handed to the runtime directly."""
    call = getattr(context and context.context(), "call_function", None)
    known = call is not None and list(signature(call).parameters) == _KNOWN
    return known and not switches.public_calls()


def flat_call(graph: Any) -> FlatCall:
    """Return what calls a traced graph with a flat list of tensors.

    Args:
        graph: a concrete function that takes and returns tensors alone.
    """
    if not available():
        return lambda leaves: graph(*leaves)
    call = context.context().call_function
    name, count, captured = graph.name, len(graph.outputs), graph.captured_inputs
    return lambda leaves: call(name, leaves + captured, count)


def side_by_side(call: FlatCall) -> FlatCall:
    """Return the same call of a graph that XLA does not compile, for several threads at a time."""
    options = getattr(context and context.context(), "function_call_options", None)
    if options is None or not hasattr(context, "FunctionCallOptions"):
        return call
    config = ConfigProto.FromString(options.config_proto_serialized or b"")
    config.graph_options.rewrite_options.arithmetic_optimization = RewriterConfig.OFF
    own = context.FunctionCallOptions(options.executor_type, config)

    def called(leaves: list[tf.Tensor]) -> list[tf.Tensor]:
        now = context.context()
        before, now.function_call_options = now.function_call_options, own
        try:
            return call(leaves)
        finally:
            now.function_call_options = before

    return called
