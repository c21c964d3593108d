"""Products of data with numbers of the rows, in the order that is quick for several chains.

The gradient of a linear predictor Xθ is Xᵀr. With k chains it is XᵀR, R being (n, k), for which XLA
rearranges X: that takes more time than the product. (RᵀX)ᵀ does not, if Rᵀ is what the chains hold,
and takes a third to seven tenths of the time. For one chain the two are the same. Wide X is passed
over in pieces, for which XLA's product takes about half of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

_LARGE = 2**18
"""Numbers of X from which this is quicker."""

_WIDE, _PIECE = 128, 2**20
"""Columns of X from which it is passed over in pieces, and numbers of a piece."""


def import_with_data_last(graph: Any, points: int, given: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the outputs of a graph in which products Xᵀr of data are computed as (rᵀX)ᵀ.

    Args:
        graph: Graph of parameters and data.
        points: Number of its inputs that are parameters; they come first.
        given: Tensors in the place of its inputs, without those that it captured.
    """
    definition, turned = graph.graph.as_graph_def(), _of_data(graph, points)
    held = {
        leaf.name: tf.identity(tensor)  # of this graph, or of one around it
        for leaf, tensor in zip(graph.inputs, [*given, *graph.captured_inputs], strict=True)
    }
    factors = [tensor for op in turned for tensor in op.inputs]
    found = iter(_imported(definition, held, factors))
    for op, data, rows in zip(turned, found, found, strict=False):
        rows = tf.transpose(rows) if op.get_attr("transpose_b") else rows
        held[op.outputs[0].name] = tf.transpose(_in_pieces(data, rows))
    return _imported(definition, held, graph.outputs)


def _imported(
    definition: Any, held: Mapping[str, tf.Tensor], tensors: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Return tensors of a graph, given those that are held, with no operation that is not needed.

    What two imports share is merged later.
    """
    of_held = {name.partition(":")[0] for name in held}
    nodes = {node.name: node for node in definition.node}
    needed: set[str] = set()
    wanted = {tensor.name.partition(":")[0] for tensor in tensors} - of_held
    while wanted:
        needed |= wanted
        names = (name.lstrip("^") for one in wanted for name in nodes[one].input)
        wanted = {name.partition(":")[0] for name in names} - of_held - needed
    kept = tf.compat.v1.GraphDef(
        node=[node for name, node in nodes.items() if name in needed],
        library=definition.library, versions=definition.versions,
    )  # fmt: skip
    used = {name.partition(":")[0] for node in kept.node for name in node.input}
    inputs = {name: a for name, a in held.items() if name.partition(":")[0] in used}
    there = [tensor.name for tensor in tensors if tensor.name not in held]
    new = iter(tf.graph_util.import_graph_def(kept, inputs, there, name="data_last"))
    return [held[a.name] if a.name in held else next(new) for a in tensors]


def _in_pieces(data: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Return RᵀX of data (n, p) and numbers of its rows (n, m)."""
    n, p = data.shape
    size = max(1, _PIECE // p)
    count, rest = divmod(n, size)
    if p < _WIDE or count < 2:
        return tf.matmul(rows, data, transpose_a=True)

    def add(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        some, others = (
            tf.slice(tensor, [i * size, 0], [size, tensor.shape[1]]) for tensor in (rows, data)
        )
        return i + 1, total + tf.matmul(some, others, transpose_a=True)

    start = tf.zeros([rows.shape[1], p], data.dtype)
    if rest:
        start = tf.matmul(rows[count * size :], data[count * size :], transpose_a=True)
    return tf.while_loop(
        lambda i, _: i < count, add, (tf.constant(0), start), parallel_iterations=1
    )[1]


def are_large(columns: Mapping[str, tf.Tensor]) -> bool:
    """Return whether data are large enough for such products to be looked for."""
    return any((column.shape.num_elements() or 0) >= _LARGE for column in columns.values())


def has_products_of_data(graph: Any, points: int) -> bool:
    """Return whether a graph has products Xᵀr of large data."""
    resources = any(leaf.dtype in (tf.resource, tf.variant) for leaf in graph.inputs)
    return not resources and bool(_of_data(graph, points))


def _of_data(graph: Any, points: int) -> list[Any]:
    """Return the products Xᵀr of large X that do not depend on the parameters."""
    moving = {leaf.name for leaf in graph.inputs[:points]}
    found = []
    for op in graph.graph.get_operations():
        moves = [tensor.name in moving for tensor in op.inputs]
        if any(moves):
            moving.update(tensor.name for tensor in op.outputs)
        if op.type == "MatMul" and op.get_attr("transpose_a") and moves == [False, True]:
            if (op.inputs[0].shape.num_elements() or 0) >= _LARGE:
                found.append(op)
    return found
