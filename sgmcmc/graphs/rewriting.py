"""Graphs changed on import: tensors replaced, products in another order, sums in a loop over rows.

The gradient of a linear predictor Xθ is Xᵀr. With k chains it is XᵀR, R being (n, k), for which XLA
rearranges X: that takes more time than the product. (RᵀX)ᵀ does not, if Rᵀ is what the chains hold,
and takes a third to seven tenths of the time. For one chain the two are the same. Wide X is passed
over in pieces, for which XLA's product takes about half of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


def imported(
    graph: Any,
    arguments: Sequence[tf.Tensor],
    replacements: Mapping[str, tf.Tensor],
    names: Sequence[str],
    scope: str,
) -> list[tf.Tensor]:
    """Return tensors of a graph, computed again in the present one by the operations they need.

    What two imports of a graph share is merged when the present one is compiled.

    Args:
        graph: Graph of a function.
        arguments: Tensors in the place of its inputs, without those that it captured.
        replacements: Tensors in the place of some of its others, by name.
        names: Names of the tensors.
        scope: Scope of the operations.
    """
    # Tensors of the present graph, or of one around it.
    inputs = map(tf.identity, [*arguments, *graph.captured_inputs])
    replacements = {
        **replacements,
        **{leaf.name: new for leaf, new in zip(graph.inputs, inputs, strict=True)},
    }
    replaced = {name.partition(":")[0] for name in replacements}
    definition = graph.graph.as_graph_def()
    nodes = {node.name: node for node in definition.node}
    needed: set[str] = set()
    pending = {name.partition(":")[0] for name in names} - replaced
    while pending:
        needed |= pending
        before = {name for consumer in pending for name in nodes[consumer].input}
        controls = {name[1:] for name in before if name.startswith("^")}
        data = {name.partition(":")[0] for name in before if not name.startswith("^")}
        pending = controls | (data - replaced)
        pending -= needed
    subgraph = tf.compat.v1.GraphDef(
        node=[node for name, node in nodes.items() if name in needed],
        library=definition.library,
        versions=definition.versions,
    )
    used = {name.partition(":")[0] for node in subgraph.node for name in node.input}
    mapped = {
        name: tensor
        for name, tensor in replacements.items()
        if name.partition(":")[0] in used
    }
    computed = [name for name in names if name not in replacements]
    new = iter(tf.graph_util.import_graph_def(subgraph, mapped, computed, name=scope))
    return [replacements[name] if name in replacements else next(new) for name in names]


def sum_of_pieces(size: int, length: int, summand: Callable[[Any, int], Any]) -> Any:
    """Return the sum of nested tensors over consecutive pieces of rows, in a loop of the graph.

    Args:
        size: Number of rows.
        length: Number of rows in a piece, at most all; the last one may have fewer.
        summand: Function of the first row of a piece, maybe a tensor, and of its number of rows.
    """
    count, remainder = divmod(size, length)
    total = summand(count * length if remainder else 0, remainder or length)

    def add(i: tf.Tensor, total: Any) -> tuple[tf.Tensor, Any]:
        more = summand(i * length, length)
        return i + 1, tf.nest.map_structure(tf.add, total, more)

    first = tf.constant(0 if remainder else 1)
    return tf.while_loop(
        lambda i, _: i < count, add, (first, total), parallel_iterations=1
    )[1]


@dataclass(frozen=True)
class _Settings:
    large: int = 2**18  # numbers of X from which (RᵀX)ᵀ is quicker
    wide: int = 128  # columns of X from which it is passed over in pieces
    piece: int = 2**20  # numbers of such a piece


_SETTINGS = _Settings()


def import_with_data_last(
    graph: Any, points: int, arguments: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Return the outputs of a graph in which products Xᵀr of data are computed as (rᵀX)ᵀ.

    Args:
        graph: Graph of parameters and data.
        points: Number of its inputs that are parameters; they come first.
        arguments: Tensors in the place of its inputs, without those that it captured.
    """
    products = _products_of_data(graph, points)
    factors = [tensor.name for op in products for tensor in op.inputs]
    operands = imported(graph, arguments, {}, factors, "data_last")
    replaced = {}
    for op, data, rows in zip(products, operands[::2], operands[1::2], strict=True):
        rows = tf.transpose(rows) if op.get_attr("transpose_b") else rows
        replaced[op.outputs[0].name] = tf.transpose(_product(data, rows))
    outputs = [output.name for output in graph.outputs]
    return imported(graph, arguments, replaced, outputs, "data_last")


def _product(data: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Return RᵀX of data (n, p) and numbers of its rows (n, m)."""
    n, p = data.shape
    length = max(1, _SETTINGS.piece // p)
    if p < _SETTINGS.wide or n < 2 * length:
        return tf.matmul(rows, data, transpose_a=True)

    def product_of_rows(first: Any, count: int) -> tf.Tensor:
        some_rows = tf.slice(rows, [first, 0], [count, rows.shape[1]])
        some_data = tf.slice(data, [first, 0], [count, p])
        return tf.matmul(some_rows, some_data, transpose_a=True)

    return sum_of_pieces(n, length, product_of_rows)


def are_large(columns: Mapping[str, tf.Tensor]) -> bool:
    """Return whether data are large enough for such products to be looked for."""
    return any(map(_is_large, columns.values()))


def has_products_of_data(graph: Any, points: int) -> bool:
    """Return whether a graph has products Xᵀr of large data."""
    resources = any(leaf.dtype in (tf.resource, tf.variant) for leaf in graph.inputs)
    return not resources and bool(_products_of_data(graph, points))


def _products_of_data(graph: Any, points: int) -> list[Any]:
    """Return the products Xᵀr of large X that do not depend on the parameters."""
    dependent = {leaf.name for leaf in graph.inputs[:points]}
    products = []
    for op in graph.graph.get_operations():
        depends = [tensor.name in dependent for tensor in op.inputs]
        if any(depends):
            dependent.update(tensor.name for tensor in op.outputs)
        is_transposed = op.type == "MatMul" and op.get_attr("transpose_a")
        if is_transposed and depends == [False, True] and _is_large(op.inputs[0]):
            products.append(op)
    return products


def _is_large(tensor: tf.Tensor) -> bool:
    return (tensor.shape.num_elements() or 0) >= _SETTINGS.large
