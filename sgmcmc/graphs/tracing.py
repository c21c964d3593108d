"""Graphs of Python functions, each made once, and functions of many points at once.

XLA compiles every function that it is handed again, and TensorFlow gives nothing of that back as
long as the process lives, not even when the function is gone. Two functions whose graphs are the
same, node by node, compute the same, so one of them is enough, whatever they came from.

TensorFlow vectorizes most operations. It has no rule for some, such as the derivatives of
``tf.cond`` and of some loops: of these each point, or each row of a derivative, is computed after
the other, which is slower and gives the same. A warning says so, one for each call of a sampler.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import outside
from sgmcmc.interrupts import pass_on
from sgmcmc.libraries import need_no_fork, without_chatter

# Ends of the names of loops, branches and Python code, which XLA compiles in some cases, or never.
_NOT_ALWAYS_COMPILED = ("While", "If", "Case", "PyFunc", "PyFuncStateless")


@dataclass(frozen=True)
class _Settings:
    graphs: int = 64  # that are kept
    largest_graph: int = 2**22  # bytes of a graph that is kept, with all its constants
    models: int = 8  # of which further graphs are kept
    some_rows: int = 4  # in place of an unknown number, to see whether XLA compiles


_SETTINGS = _Settings()


def trace(
    function: Callable[..., Any], *arguments: Any, jit_compile: bool = False
) -> Any:
    """Return the graph of ``function`` for arguments of these shapes and dtypes.

    The graph is asked for outright, not left to the first call of a ``tf.function``, which
    warns a user who makes a few samplers that functions are traced too often. An equal graph that
    exists already is used again, with its compiled code; one that captured other tensors too.
    """
    need_no_fork()
    traced = _traced(function, arguments, jit_compile)
    captured = list(traced.captured_inputs)
    # The attribute is not public: it may be renamed.
    replaces_captured = bool(captured) and "_captured_inputs" in vars(traced)
    graph = same_as_before(traced, jit_compile, any_captured=replaces_captured)
    pairs = zip(graph.captured_inputs, captured, strict=True)
    if replaces_captured and any(a is not b for a, b in pairs):
        graph = copy.copy(graph)
        graph._captured_inputs = captured
    return graph


def _traced(
    function: Callable[..., Any], arguments: tuple[Any, ...], jit_compile: bool
) -> Any:
    if any(isinstance(leaf, tf.SparseTensor) for leaf in tf.nest.flatten(arguments)):
        function = partial(_call_with_known_shapes, function)
    with without_chatter():
        graph = tf.function(function, autograph=False, jit_compile=jit_compile)
        concrete = graph.get_concrete_function(*arguments)
        if not jit_compile and _has_unsafe_products(concrete.graph):
            graph = tf.function(function, autograph=False, jit_compile=True)
            nodes = nodes_of(concrete.graph.as_graph_def())
            may_fail = any(node.op.endswith(_NOT_ALWAYS_COMPILED) for node in nodes)
            if not may_fail or _compiles(graph, arguments, concrete.captured_inputs):
                return graph.get_concrete_function(*arguments)
            with in_loops():  # the products are those of a vectorized function
                plain = tf.function(function, autograph=False)
                concrete = plain.get_concrete_function(*arguments)
            warn_of_loops()
    return concrete


def _compiles(
    graph: Any, arguments: tuple[Any, ...], captured: Sequence[tf.Tensor]
) -> bool:
    """Return whether XLA can translate a function; unknown numbers of rows are replaced."""
    if any(map(tf.is_symbolic_tensor, captured)):  # tensors of a graph around it
        return False

    def sized(tensor: Any) -> tf.TensorSpec:
        return tf.TensorSpec(
            [size or _SETTINGS.some_rows for size in tensor.shape], tensor.dtype
        )

    try:
        with tf.init_scope():
            specs = tf.nest.map_structure(sized, arguments)
            graph.experimental_get_compiler_ir(*specs)(stage="hlo")
    except Exception as error:  # of any kind: what it is does not matter here
        pass_on(error)
        return False
    return True


def _has_unsafe_products(graph: Any) -> bool:
    """Return whether a graph has a product that may end the process, unless XLA compiles it.

    With oneDNN TensorFlow 2.21 writes outside of its memory if it multiplies stacks of matrices, of
    two and more axes, by matrices of fewer stacks: the gradients of single rows of a model with
    ``tf.linalg.matvec(dataset["X"], params["beta"])``, where a row of X is a matrix.
    """
    for op in graph.get_operations():
        if op.type.startswith("BatchMatMul"):
            left, right = (tensor.shape for tensor in op.inputs)
            if None not in (left.rank, right.rank) and max(left.rank, right.rank) >= 4:
                if left[:-2].as_list() != right[:-2].as_list():
                    return True
    return False


def _call_with_known_shapes(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*with_known_shapes(arguments))


def with_known_shapes(arguments: Any) -> Any:
    """Return nested tensors, the shapes of sparse ones as constants of the present graph.

    The shape of a sparse tensor that comes from outside a graph, or a loop, is a tensor like any
    other there, so that nothing would be known of the shape of a product with it.
    """

    def with_constant_shape(value: Any) -> Any:
        if isinstance(value, tf.SparseTensor) and value.shape.is_fully_defined():
            return tf.SparseTensor(value.indices, value.values, value.shape)
        return value

    return tf.nest.map_structure(with_constant_shape, arguments)


def spec_of(tensor: tf.Tensor) -> tf.TensorSpec:
    """Return the shape and dtype of a tensor."""
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def quiet_start() -> None:
    """Have TensorFlow find its devices now, without its chatter."""
    need_no_fork()
    with without_chatter():
        tf.config.list_logical_devices()


# Attributes that differ from trace to trace, and matter only to who differentiates once more.
_ACCIDENTAL = (
    "_gradient_op_type",
    "_uid",
    "forward_function_name",
    "backward_function_name",
)

_graphs: OrderedDict[bytes, Any] = OrderedDict()
_models: OrderedDict[bytes, tuple[Any, dict[Any, Any]]] = OrderedDict()
_lock = threading.Lock()


def graphs_of(model: Any) -> dict[Any, Any]:
    """Return the dict of graphs of a model, which models that compute the same share.

    Args:
        model: Graph of its value, and of its derivatives if :func:`has_own_gradients`.
    """
    content = _content(model, jit_compile=False)
    if content is None:
        return {}
    # The graph holds what has the ids.
    return _kept(_models, content, (model, {}), _SETTINGS.models)[1]


def has_own_gradients(graph: Any) -> bool:
    """Return whether derivatives of a graph are not those of its operations."""
    return any(
        node.attr["_gradient_op_type"].s.startswith(b"CustomGradient")
        for node in nodes_of(graph.graph.as_graph_def())
        if "_gradient_op_type" in node.attr
    )


def same_as_before(graph: Any, jit_compile: bool, any_captured: bool = False) -> Any:
    """Return a graph that computes the same and may be compiled already, or this one.

    Args:
        graph: Graph.
        jit_compile: Whether it is compiled by XLA.
        any_captured: Whether it will be called with its own captured tensors.
    """
    content = _content(graph, jit_compile, any_captured)
    if content is None:
        return graph
    return _kept(_graphs, content, graph, _SETTINGS.graphs)


def _kept(cache: OrderedDict[bytes, Any], key: bytes, new: Any, most: int) -> Any:
    """Return the entry of a cache for a key, or keep a new one; the oldest makes room."""
    with _lock:
        entry = cache.pop(key, new)
        cache[key] = entry
        if len(cache) > most:
            cache.popitem(last=False)
    return entry


def _content(graph: Any, jit_compile: bool, any_captured: bool = False) -> bytes | None:
    """Return a key that equivalent graphs share, or ``None`` for a graph that is not kept."""
    captured = list(graph.captured_inputs)
    if any(tensor.dtype in (tf.resource, tf.variant) for tensor in captured):
        return None
    if any(map(tf.is_symbolic_tensor, captured)):  # it belongs to a graph around it
        return None
    sizes = [tensor.dtype.size * int(np.prod(tensor.shape)) for tensor in captured]
    if sum(sizes) > _SETTINGS.largest_graph:
        return None
    try:
        definition = graph.graph.as_graph_def()
    except ValueError:  # more than a protocol buffer holds
        return None
    if definition.ByteSize() > _SETTINGS.largest_graph or _draws(definition):
        return None
    digest = hashlib.sha256(b"XLA" if jit_compile else b"graph")
    count = len(graph.inputs) - len(captured)  # captured ones come last
    labels = {
        leaf.op.name: f"captured {k}" for k, leaf in enumerate(graph.inputs[count:])
    }
    for node in definition.node:
        if node.name in labels:
            node.name = labels[node.name]
            node.attr.pop("_user_specified_name", None)
        node.input[:] = [_renamed_input(name, labels) for name in node.input]
    names = [
        _renamed_input(leaf.name, labels) for leaf in (*graph.inputs, *graph.outputs)
    ]
    structure = (graph.structured_input_signature, graph.structured_outputs)
    # The cache holds the graph, and that these: as long as it does, nothing else has their id.
    alive = [id(kind) for kind in _kinds(structure)]
    alive += [-1 if any_captured else id(tensor) for tensor in captured]
    digest.update(repr((names, structure, alive)).encode())
    digest.update(_renamed(definition))
    return digest.digest()


def _kinds(structure: Any) -> list[type]:
    """Return the classes of all tuples and dicts in a structure; a user may have changed theirs."""
    if isinstance(structure, dict):
        children = list(structure.values())
    elif isinstance(structure, tuple | list):
        children = list(structure)
    else:
        return []
    return [type(structure), *(kind for child in children for kind in _kinds(child))]


def _draws(definition: tf.compat.v1.GraphDef) -> bool:
    """Return whether a graph draws random numbers that go on from call to call."""
    return any("seed2" in node.attr for node in nodes_of(definition))


def _renamed(definition: tf.compat.v1.GraphDef) -> bytes:
    """Return a graph whose functions are named by their order, without accidental attributes."""
    library = {
        function.signature.name: function for function in definition.library.function
    }
    labels: dict[str, str] = {}
    ordered: list[Any] = []

    def label(name: str) -> str:
        if name not in library:
            return name
        if name not in labels:
            labels[name] = f"function {len(labels)}"
            ordered.append(library[name])
        return labels[name]

    def rename(nodes: Any) -> None:
        for node in nodes:
            if node.op in library:
                node.op = label(node.op)
            for key in _ACCIDENTAL:
                node.attr.pop(key, None)
            for key in sorted(node.attr):
                value = node.attr[key]
                for called in (value.func, *value.list.func) if _calls(value) else ():
                    called.name = label(called.name)

    rename(definition.node)
    for function in ordered:  # which grows on the way
        function.signature.name = label(function.signature.name)
        rename(function.node_def)
        for key in _ACCIDENTAL:
            function.attr.pop(key, None)
    _rename_arguments(ordered)
    messages = [
        message.SerializeToString(deterministic=True)
        for message in (*definition.node, *ordered)
    ]
    return b"|".join(messages)


def _rename_arguments(functions: list[Any]) -> None:
    """Rename arguments and results of functions by their order.

    Those of loops are named after functions, and captured ones by a number that counts upwards.
    """
    for function in functions:
        labels = {
            argument.name: f"argument {k}"
            for k, argument in enumerate(function.signature.input_arg)
        }
        for argument in function.signature.input_arg:
            argument.name = labels[argument.name]
        for attributes in function.arg_attr.values():
            attributes.attr.pop("_user_specified_name", None)
        for node in function.node_def:
            for index, tensor in enumerate(node.input):
                node.input[index] = _renamed_input(tensor, labels)
        for k, result in enumerate(function.signature.output_arg):
            tensor, result.name = function.ret.pop(result.name), f"result {k}"
            function.ret[result.name] = _renamed_input(tensor, labels)


def _renamed_input(tensor: str, labels: dict[str, str]) -> str:
    name, colon, output = tensor.partition(":")
    return labels.get(name, name) + colon + output


def _calls(value: Any) -> bool:
    return value.HasField("func") or (
        value.HasField("list") and len(value.list.func) > 0
    )


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
        except Exception as error:  # TensorFlow and users' functions raise of all kinds
            # This raises an error if the function is wrong.
            results = _in_a_loop(function, elements)
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

    if not vectorized or makes_loops():
        return derivative(False)
    if tf.is_symbolic_tensor(value):
        # Vectorized derivatives of loops are slow to make; most cannot be made, which shows after
        # half a minute.
        nodes = nodes_of(value.graph.as_graph_def())
        if any(node.op in ("While", "StatelessWhile") for node in nodes):
            return derivative(False)
    try:
        return derivative(True)
    except Exception as error:
        looped = derivative(False)
        pass_on(error)
        warn_of_loops()
        return looped


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
