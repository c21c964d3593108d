"""The short way into TensorFlow's runtime, by an interface that is not public.

The public call checks every argument again, which takes as long as the launch itself. Where this
TensorFlow does not have what we know, the public call serves.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import tensorflow as tf

from sgmcmc import switches

try:
    from tensorflow.python.eager import context
except ImportError:  # a TensorFlow that keeps it elsewhere
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
