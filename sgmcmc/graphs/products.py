"""Products of data with numbers of the rows, in the order that is quick for several chains.

The gradient of a linear predictor Xθ is Xᵀr. With k chains it is XᵀR, R being (n, k), for which XLA
rearranges X: that takes more time than the product. (RᵀX)ᵀ does not, if Rᵀ is what the chains hold,
and takes a third to seven tenths of the time. For one chain the two are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

_LARGE = 2**18
"""Numbers of X from which this is quicker."""


def import_with_data_last(graph: Any, points: int, given: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the outputs of a graph in which products Xᵀr of data are computed as (rᵀX)ᵀ.

    Args:
        graph: Graph of parameters and data.
        points: Number of its inputs that are parameters; they come first.
        given: Tensors in the place of its inputs, without those that it captured.
    """
    definition = graph.graph.as_graph_def()
    turned = _of_data(graph, points)
    for node in [node for node in definition.node if node.name in turned]:
        data, rows = node.input
        with_rows = definition.node.add()
        with_rows.CopyFrom(node)
        with_rows.name = f"{node.name}/data_last"
        with_rows.input[:] = [rows, data]
        with_rows.attr["transpose_a"].b = not node.attr["transpose_b"].b
        with_rows.attr["transpose_b"].b = False
        order = definition.node.add()
        order.CopyFrom(tf.compat.v1.NodeDef(name=f"{node.name}/order", op="Const"))
        order.attr["dtype"].type = tf.int32.as_datatype_enum
        order.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([1, 0], tf.int32))
        dtype = node.attr["T"].type
        node.op, node.input[:] = "Transpose", [with_rows.name, order.name]
        node.attr.clear()
        node.attr["T"].type = dtype
        node.attr["Tperm"].type = tf.int32.as_datatype_enum
    # Placeholders would stay in the graph, and XLA has none.
    of_inputs = {leaf.op.name for leaf in graph.inputs}
    nodes = [node for node in definition.node if node.name not in of_inputs]
    used = {name.partition(":")[0] for node in nodes for name in node.input}
    kept = tf.compat.v1.GraphDef(
        node=nodes, library=definition.library, versions=definition.versions
    )
    held = {
        leaf.name: tf.identity(tensor)  # of this graph, or of one around it
        for leaf, tensor in zip(graph.inputs, [*given, *graph.captured_inputs], strict=True)
        if leaf.op.name in used
    }
    outputs = [output.name for output in graph.outputs]
    return tf.graph_util.import_graph_def(kept, held, outputs, name="data_last")


def are_large(columns: Mapping[str, tf.Tensor]) -> bool:
    """Return whether data are large enough for such products to be looked for."""
    return any((column.shape.num_elements() or 0) >= _LARGE for column in columns.values())


def has_products_of_data(graph: Any, points: int) -> bool:
    """Return whether a graph has products Xᵀr of large data."""
    resources = any(leaf.dtype in (tf.resource, tf.variant) for leaf in graph.inputs)
    return not resources and bool(_of_data(graph, points))


def _of_data(graph: Any, points: int) -> set[str]:
    """Return the names of the products Xᵀr of large X that do not depend on the parameters."""
    moving = {leaf.name for leaf in graph.inputs[:points]}
    found = set()
    for op in graph.graph.get_operations():
        moves = [tensor.name in moving for tensor in op.inputs]
        if any(moves):
            moving.update(tensor.name for tensor in op.outputs)
        if op.type == "MatMul" and op.get_attr("transpose_a") and moves == [False, True]:
            if (op.inputs[0].shape.num_elements() or 0) >= _LARGE:
                found.add(op.name)
    return found
