"""Functions of many points, and derivatives, at once; in a loop if TensorFlow cannot do so.

TensorFlow vectorizes most operations. It has no rule for some, such as the derivatives of
``tf.cond`` and of some loops: of these each point, or each row of a derivative, is computed after
the other, which is slower and gives the same. A warning says so, one for each call of a sampler.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from sgmcmc.checks import outside
from sgmcmc.interrupts import pass_on

_state = threading.local()  # whether this thread makes loops, `in_loops`

_warned = threading.Event()  # whether the present call of a sampler has warned


def begin_call() -> None:
    """Have the next loop that takes the place of vectorized operations warn again."""
    _warned.clear()


@contextlib.contextmanager
def in_loops() -> Iterator[None]:
    """Make loops at once in this thread in the ``with`` block, without a warning."""
    before, _state.loops = makes_loops(), True
    try:
        yield
    finally:
        _state.loops = before


def makes_loops() -> bool:
    """Return whether loops are made without a try."""
    return getattr(_state, "loops", False)


def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Any:
    """Return a function's results for each entry of nested tensors along their first axis.

    Args:
        function: Function of nested tensors without that axis.
        elements: Nested tensors.
    """
    if not makes_loops():
        try:
            return tf.vectorized_map(function, elements)
        except (
            Exception
        ) as error:  # TensorFlow and what a user wrote raise of all kinds
            results = _in_a_loop(
                function, elements
            )  # which raises what is wrong with the function
            pass_on(error)
            warn_of_loops()
            return results
    return _in_a_loop(function, elements)


def _in_a_loop(function: Callable[[Any], Any], elements: Any) -> Any:
    elements = tf.nest.map_structure(tf.convert_to_tensor, elements)

    def spec(tensor: tf.Tensor) -> tf.TensorSpec:
        return tf.TensorSpec(tensor.shape[1:], tensor.dtype)

    one = tf.function(function, autograph=False)
    graph = one.get_concrete_function(tf.nest.map_structure(spec, elements))
    results = tf.nest.map_structure(
        lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype),
        graph.structured_outputs,
    )
    return tf.map_fn(function, elements, fn_output_signature=results)


def jacobian(
    function: Callable[[tf.Tensor], tf.Tensor], u: tf.Tensor, vectorized: bool = True
) -> tf.Tensor:
    """Return the derivative of a function of a flat position, by reverse differentiation.

    Args:
        function: Function.
        u: Position.
        vectorized: Whether to try all rows of it at once.
    """
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(u)
        value = function(u)

    def derivative(vectorized: bool) -> tf.Tensor:
        return tape.jacobian(
            value,
            u,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
            experimental_use_pfor=vectorized,
        )

    if vectorized and not makes_loops() and not _has_loops(value):
        try:
            return derivative(True)
        except Exception as error:
            looped = derivative(False)
            pass_on(error)
            warn_of_loops()
            return looped
    return derivative(False)


def _has_loops(value: tf.Tensor) -> bool:
    """Return whether the graph of a value has loops, whose vectorized derivatives are slow to make.

    Most cannot be made, which shows after half a minute.
    """
    if not tf.is_symbolic_tensor(value):
        return False
    return any(
        node.op in ("While", "StatelessWhile")
        for node in nodes_of(value.graph.as_graph_def())
    )


def nodes_of(definition: tf.compat.v1.GraphDef) -> Iterator[Any]:
    """Yield the nodes of a graph, and of the functions that it calls."""
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def warn_of_loops() -> None:
    """Warn that what TensorFlow does not vectorize runs in a loop, once a call."""
    if _warned.is_set():
        return
    _warned.set()
    warnings.warn(
        "TensorFlow cannot vectorize this model, such as one with tf.cond, so that derivatives and "
        "single rows are computed in a loop, which is slower. tf.where in place of tf.cond, and "
        "operations on whole tensors in place of loops, avoid this.",
        stacklevel=outside(),
    )
