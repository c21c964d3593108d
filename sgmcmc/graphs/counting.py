"""Arithmetic operations of a graph, counted from the shapes of its tensors.

A count is the same on a busy machine and on an idle one, so that choices that depend on it are,
too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class _Settings:
    special: float = 20.0  # of exp, log, tanh: about what vectorized code takes
    gamma: float = 60.0  # of lgamma, digamma, and the like: series
    factorization: float = 10.0  # of an eigenvalue or singular value, times the size
    trips: float = 32.0  # of a loop whose number of rounds is computed


_SETTINGS = _Settings()

_SPECIAL = frozenset(
    "Exp Expm1 Log Log1p Sigmoid Tanh Softplus Softmax LogSoftmax Erf Erfc Erfinv Ndtri Pow Sin "
    "Cos Tan Asin Acos Atan Atan2 Sinh Cosh Sqrt Rsqrt Elu Selu Xlogy Xlog1py".split()
)
_GAMMA = frozenset(
    "Lgamma Digamma Polygamma Zeta Igamma Igammac IgammaGradA Betainc BesselI0e BesselI1e".split()
)
_FACTORIZATIONS = {
    "Cholesky": 1 / 3, "MatrixTriangularSolve": 1.0, "MatrixSolve": 1.0, "MatrixInverse": 2.0,
    "MatrixDeterminant": 2 / 3, "LogMatrixDeterminant": 2 / 3, "Lu": 2 / 3,
    "SelfAdjointEigV2": _SETTINGS.factorization, "Svd": _SETTINGS.factorization, "Qr": 4 / 3,
}  # fmt: skip
_REDUCTIONS = frozenset(
    "Sum Max Min Mean Prod All Any Cumsum SegmentSum UnsortedSegmentSum BiasAddGrad".split()
)
_FREE = frozenset(
    "Const Fill Placeholder Identity IdentityN NoOp Reshape ExpandDims Squeeze Shape ShapeN "
    "StopGradient ReadVariableOp PreventGradient".split()
)


Shapes = list[list[int]]  # of the results of a node


def count_operations(graph: tf.Graph, unknown: int = 1) -> float:
    """Return the arithmetic operations of one run of a graph, with the functions that it calls.

    Args:
        graph: Graph.
        unknown: Size of an axis whose size the graph does not say.
    """
    definition = graph.as_graph_def(add_shapes=True)
    functions = {f.signature.name: f for f in definition.library.function}
    return _Count(functions, unknown).of_nodes(definition.node, {})


@dataclass
class _Count:
    """Operations of nodes and functions.

    Attributes:
        functions: Functions that nodes call, by name.
        unknown: Size of an axis of unknown size.
        known: Operations of those that have been counted.
    """

    functions: Mapping[str, Any]
    unknown: int
    known: dict[str, float] = field(default_factory=dict)

    def of_function(self, name: str) -> float:
        """Return the operations of a function."""
        if name not in self.known:
            definition = self.functions[name]
            shapes = {
                argument.name: self._shapes(definition.arg_attr[k])
                for k, argument in enumerate(definition.signature.input_arg)
            }
            self.known[name] = self.of_nodes(definition.node_def, shapes)
        return self.known[name]

    def of_nodes(self, nodes: Iterable[Any], shapes: dict[str, Shapes]) -> float:
        """Return the operations of nodes, with the shapes of what comes from outside of them."""
        nodes = list(nodes)
        shapes = {**shapes, **{node.name: self._shapes(node) for node in nodes}}
        constants = {node.name: node for node in nodes if node.op == "Const"}
        return sum(self._of_node(node, shapes, constants) for node in nodes)

    def _of_node(
        self, node: Any, shapes: Mapping[str, Shapes], constants: Mapping[str, Any]
    ) -> float:
        if node.op in _FREE:
            return 0.0
        if node.op.endswith("While"):
            names = node.attr["body"].func.name, node.attr["cond"].func.name
            # The largest number of rounds is its second input, if that is a number.
            maximum = None
            if len(node.input) > 1:
                maximum = constants.get(node.input[1].split(":")[0])
            trips = _SETTINGS.trips
            if maximum is not None:
                number = int(tf.make_ndarray(maximum.attr["value"].tensor))
                trips = number if number > 0 else trips
            return trips * sum(map(self.of_function, names))
        if node.op.endswith(("If", "Case")):
            branches = [node.attr["then_branch"].func, node.attr["else_branch"].func]
            branches += node.attr["branches"].list.func
            return max(
                self.of_function(branch.name) for branch in branches if branch.name
            )
        if node.op.endswith("PartitionedCall"):
            return self.of_function(node.attr["f"].func.name)
        inputs = []
        for name in node.input:
            if name[0] == "^":  # no value, but an order
                continue
            source, *index = name.split(":")
            number = int(index[-1]) if index else 0
            of_source = shapes.get(source, [])
            inputs.append(of_source[number] if number < len(of_source) else [])
        results = sum(math.prod(shape) for shape in shapes[node.name])
        return _of_arithmetic(node, inputs, results)

    def _shapes(self, node: Any) -> Shapes:
        listed = node.attr["_output_shapes"].list.shape
        return [
            [self.unknown if dim.size < 0 else dim.size for dim in shape.dim]
            for shape in listed
        ]


def _of_arithmetic(node: Any, inputs: Shapes, results: float) -> float:
    """Return the operations of a node that calls nothing, from its inputs and numbers."""
    if node.op.startswith(("MatMul", "BatchMatMul")):
        transposed = node.attr["transpose_a"].b or node.attr["adj_x"].b
        return 2.0 * results * inputs[0][-2 if transposed else -1]
    if node.op == "SparseTensorDenseMatMul":
        nonzeros, columns = math.prod(inputs[1]), inputs[3][-1]
        return 2.0 * nonzeros * columns
    if node.op == "Einsum":
        labels = node.attr["equation"].s.decode().split("->")[0].split(",")
        sizes = {
            label: size
            for names, shape in zip(labels, inputs, strict=True)
            for label, size in zip(reversed(names), reversed(shape), strict=False)
        }
        return 2.0 * math.prod(sizes.values())
    if node.op in _FACTORIZATIONS:
        return _FACTORIZATIONS[node.op] * math.prod(inputs[0]) * inputs[0][-1]
    if node.op in _REDUCTIONS:
        return float(math.prod(inputs[0]))
    factor = 1.0
    if node.op in _GAMMA:
        factor = _SETTINGS.gamma
    elif node.op.removesuffix("Grad") in _SPECIAL:
        factor = _SETTINGS.special
    return factor * results
