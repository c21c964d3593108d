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

from sgmcmc.graphs.tracing import imported, sum_of_pieces

_LARGE = 2**18  # numbers of X from which this is quicker

# Columns of X from which it is passed over in pieces, and numbers of a piece.
_WIDE, _PIECE = 128, 2**20


def import_with_data_last(
    graph: Any, points: int, arguments: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Return the outputs of a graph in which products Xᵀr of data are computed as (rᵀX)ᵀ.

    Args:
        graph: Graph of parameters and data.
        points: Number of its inputs that are parameters; they come first.
        arguments: Tensors in the place of its inputs, without those that it captured.
    """
    products = _of_data(graph, points)
    factors = [tensor.name for op in products for tensor in op.inputs]
    operands = imported(graph, arguments, {}, factors, "data_last")
    replaced = {}
    for op, data, rows in zip(products, operands[::2], operands[1::2], strict=True):
        rows = tf.transpose(rows) if op.get_attr("transpose_b") else rows
        replaced[op.outputs[0].name] = tf.transpose(_product(data, rows))
    return imported(
        graph,
        arguments,
        replaced,
        [output.name for output in graph.outputs],
        "data_last",
    )


def _product(data: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Return RᵀX of data (n, p) and numbers of its rows (n, m)."""
    n, p = data.shape
    length = max(1, _PIECE // p)
    if p < _WIDE or n < 2 * length:
        return tf.matmul(rows, data, transpose_a=True)

    def product_of_rows(first: Any, count: int) -> tf.Tensor:
        slices = (tf.slice(a, [first, 0], [count, a.shape[1]]) for a in (rows, data))
        return tf.matmul(*slices, transpose_a=True)

    return sum_of_pieces(n, length, product_of_rows)


def are_large(columns: Mapping[str, tf.Tensor]) -> bool:
    """Return whether data are large enough for such products to be looked for."""
    return any(
        (column.shape.num_elements() or 0) >= _LARGE for column in columns.values()
    )


def has_products_of_data(graph: Any, points: int) -> bool:
    """Return whether a graph has products Xᵀr of large data."""
    resources = any(leaf.dtype in (tf.resource, tf.variant) for leaf in graph.inputs)
    return not resources and bool(_of_data(graph, points))


def _of_data(graph: Any, points: int) -> list[Any]:
    """Return the products Xᵀr of large X that do not depend on the parameters."""
    dependent = {leaf.name for leaf in graph.inputs[:points]}
    products = []
    for op in graph.graph.get_operations():
        depends = [tensor.name in dependent for tensor in op.inputs]
        if any(depends):
            dependent.update(tensor.name for tensor in op.outputs)
        if (
            op.type == "MatMul"
            and op.get_attr("transpose_a")
            and depends == [False, True]
        ):
            if (op.inputs[0].shape.num_elements() or 0) >= _LARGE:
                products.append(op)
    return products
