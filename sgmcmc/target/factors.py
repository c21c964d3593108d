"""Linear predictors, found in the graph of a log-likelihood.

In most regressions the data meet the parameters in products of matrices: log p(x_i | θ) =
f_i(η_i, φ) with predictors η_i = x_i A, where A and φ do not depend on the data. To look up an
effect by the level of a row is such a product, with indicators of the levels. With v = (A, φ) a
function of the flat position u and J = ∂v/∂u, the Hessian is Jᵀ H J + Σ_k (∂ℓ/∂v_k) ∂²v_k/∂u², and
H consists of blocks Xᵀ W X, Xᵀ c and sums, with one number for each row and pair of predictors. So
it costs a few gradients, whatever the number of coordinates, and so does the curvature of each row.
The graph shows whether a model is of this form; other models have a general way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.data.minibatch import Tensors
from sgmcmc.data.passes import Function, cast, of_any_length
from sgmcmc.data.sparse import has_sparse
from sgmcmc.graphs.tracing import imported, trace
from sgmcmc.graphs.vectorization import vectorized_map
from sgmcmc.interrupts import pass_on
from sgmcmc.target.designs import Columns, Levels, Numbers, Paired, between, forms, weighted
from sgmcmc.target.target import Target

_MOST = 6
"""Most predictors of a row, and most numbers φ."""

_PARAMETERS = 1
"""Bit of a tensor that depends on the parameters."""

_DATA = 2
"""Bit of a tensor that depends on the data."""

_DRAWN = 4
"""Bit of a tensor that depends on data that are drawn, and so are no X of a product."""


class _Product(NamedTuple):
    """A product η = X A in the graph, by the names of its tensors.

    Attributes:
        data: X, or the place of each row's level.
        matrix: A, or its transpose, or its only column.
        result: η; its transpose, or its only column, if A is so and looked up.
        transposed: Whether A is transposed.
        levels: Whether X consists of indicators of levels.
        flat: Whether A is looked up as a vector.
        shape: Shape of A.
    """

    data: str
    matrix: str
    result: str
    transposed: bool
    levels: bool
    flat: bool
    shape: tuple[int, int]

    @property
    def columns(self) -> int:
        """Number of predictors."""
        return self.shape[1]

    def design(self, data: tf.Tensor) -> Columns:
        """Return X."""
        return Levels(data, self.shape[0]) if self.levels else Numbers(data, self.shape[0])

    def factor(self, matrix: tf.Tensor) -> tf.Tensor:
        """Return A."""
        return tf.reshape(tf.transpose(matrix) if self.transposed else matrix, self.shape)

    def joined(self, etas: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return η, as the graph has it, of its columns, (n, 1) each."""
        found = tf.concat(list(etas), 1)
        if self.flat:
            return found[:, 0]
        return tf.transpose(found) if self.levels and self.transposed else found


class Second(NamedTuple):
    """Derivatives of the terms with respect to predictors and φ.

    Attributes:
        terms: Terms of the log-likelihood, (n,).
        data: X of each predictor, (n, d).
        slopes: ∂ℓ/∂η by predictor, (n,).
        ends: ∂ℓ/∂φ by number, summed over the rows.
        within: ∂²ℓ/∂η∂η' by pair of predictors: of the same row, and perhaps of others.
        across: ∂²ℓ/∂φ∂η by number and predictor, (n,).
        rest: ∂²ℓ/∂φ∂φ' by pair of numbers, summed over the rows.
    """

    terms: tf.Tensor
    data: list[Columns]
    slopes: list[tf.Tensor]
    ends: list[tf.Tensor]
    within: list[list[tf.Tensor | Paired]]
    across: list[list[tf.Tensor]]
    rest: list[list[tf.Tensor]]

    @property
    def sizes(self) -> list[int]:
        """Number of columns of X, of each predictor."""
        return [x.size for x in self.data]


class Predictors(ABC):
    """A log-likelihood of linear predictors, by its derivatives with respect to them."""

    @property
    def rows(self) -> int:
        """Number of the user's rows in one of the dataset."""
        return 1

    @property
    @abstractmethod
    def width(self) -> int:
        """Size of the data of a row, indicators of levels counted as one number."""

    @abstractmethod
    def values(self, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        """Return the parts of v, column by column of A; the columns of data do not matter."""

    @abstractmethod
    def second(self, u: tf.Tensor, columns: Tensors) -> Second:
        """Return derivatives of the terms of some rows."""

    def flat(self, u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        """Return v, (m,)."""
        return tf.concat(self.values(u, columns), 0)

    def jacobian(self, u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        """Return ∂v/∂u, (m, d)."""
        return tf.concat([_rows(part, u) for part in self.values(u, columns)], 0)

    def bend(self, u: tf.Tensor, slope: tf.Tensor, columns: Tensors) -> tf.Tensor:
        """Return Σ_k s_k ∂²v_k/∂u² for a vector s, (d, d)."""
        parts = self.values(u, columns)
        slopes = tf.split(slope, [part.shape[0] for part in parts])
        value = sum(tf.reduce_sum(s * part) for s, part in zip(slopes, parts, strict=True))
        return _rows(_gradients(value, [u])[0], u)

    def hessian(self, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        """Return gradient and Hessian of the log-likelihood with respect to v, (m,) and (m, m)."""
        found = self.second(u, columns)
        blocks: list[list[tf.Tensor]] = [[] for _ in found.data]
        for a, left in enumerate(found.data):
            for b, right in enumerate(found.data):
                if b < a:
                    blocks[a].append(tf.transpose(blocks[b][a]))
                else:
                    blocks[a].append(between(left, found.within[a][b], right))
        square = tf.concat([tf.concat(row, 1) for row in blocks], 0)
        slope = _to_columns(found.data, found.slopes)
        if found.ends:
            beside = tf.stack([_to_columns(found.data, rows) for rows in found.across])
            below = tf.concat([beside, tf.stack([tf.stack(row) for row in found.rest])], 1)
            square = tf.concat([tf.concat([square, tf.transpose(beside)], 1), below], 0)
            slope = tf.concat([slope, tf.stack(found.ends)], 0)
        return [slope, square]

    def products_with(self, u: tf.Tensor, moves: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        """Return the gradient with respect to v, and the Hessian times several vectors, (m, k)."""
        found = self.second(u, columns)
        each, ends = self._split(moves, found)
        along = [x.times(move) for x, move in zip(found.data, each, strict=True)]
        parts = []
        for a, x in enumerate(found.data):
            rows = sum(weighted(w, z) for w, z in zip(found.within[a], along, strict=True))
            for across, end in zip(found.across, ends, strict=True):
                rows += across[a][:, tf.newaxis] * end
            parts.append(x.onto(rows))
        for across, rest in zip(found.across, found.rest, strict=True):
            row = sum(
                tf.linalg.matvec(z, c, transpose_a=True) for z, c in zip(along, across, strict=True)
            )
            row += sum(r * end for r, end in zip(rest, ends, strict=True))
            parts.append(row[tf.newaxis])
        slope = _to_columns(found.data, found.slopes)
        return [
            tf.concat([slope, tf.stack(found.ends)], 0) if found.ends else slope,
            tf.concat(parts, 0),
        ]

    def _split(self, moves: tf.Tensor, found: Second) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return rows of v by predictor, (d, k) each, and by number φ, (k,) each."""
        *rows, last = tf.split(moves, [*found.sizes, len(found.ends)], 0)
        return rows, [last[k] for k in range(len(found.ends))]


@dataclass(frozen=True)
class Factors(Predictors):
    """Linear predictors as they are in the graph of a log-likelihood.

    Attributes:
        graph: Graph of the log-likelihood as a function of the flat position and the columns.
        products: Products of data and parameters.
        others: Names of the tensors φ.
    """

    graph: Any
    products: tuple[_Product, ...]
    others: tuple[str, ...]

    def values(self, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        """Return the parts of v."""
        matrices, others = self._parts(u, columns)
        return [tf.reshape(part, [-1]) for part in (*map(tf.transpose, matrices), *others)]

    def curvature(
        self, u: tf.Tensor, square: tf.Tensor, bend: tf.Tensor, columns: Tensors
    ) -> list[tf.Tensor]:
        """Return the sum of each term's negative second derivatives along directions, (n,).

        Args:
            u: Position, flat.
            square: Derivatives of v along the directions times their transpose, (m, m).
            bend: Sum of the second derivatives of v along them, (m,).
            columns: Some rows, whose terms the log-likelihood returns.
        """
        found = self.second(u, columns, by_row=True)
        count = len(found.data)
        rows, numbers = self._split(square, found)
        blocks = [tf.split(part, [*found.sizes, len(found.ends)], 1) for part in rows]
        bends, corners = self._split(bend[:, tf.newaxis], found)
        total = tf.zeros_like(found.slopes[0])
        for a, left in enumerate(found.data):
            for b, right in enumerate(found.data):
                total += found.within[a][b] * forms(left, blocks[a][b], right)
            ends = left.times(blocks[a][count])
            for r, across in enumerate(found.across):
                total += 2 * across[a] * ends[:, r]
            total += found.slopes[a] * left.times(bends[a])[:, 0]
        first = sum(found.sizes)
        for r, rest in enumerate(found.rest):
            for c, each in enumerate(rest):
                total += each * numbers[r][first + c]
            total += found.ends[r] * corners[r][0]
        return [-total]

    @property
    def width(self) -> int:
        """Size of the data of a row."""
        return sum(1 if product.levels else product.shape[0] for product in self.products)

    def second(self, u: tf.Tensor, columns: Tensors, by_row: bool = False) -> Second:
        """Return derivatives of the terms of some rows.

        The log-likelihood is linear in the weights of its terms, so that the derivative of a sum
        with respect to them is what it is made of, row by row.

        Args:
            u: Position, flat.
            columns: Some rows.
            by_row: Whether sums over rows are wanted row by row, too.
        """
        matrices, others = self._parts(u, columns)
        data = self.designs(u, columns)
        flat = [a[:, j : j + 1] for a in matrices for j in range(a.shape[1])]
        etas = [x.times(a) for x, a in zip(data, flat, strict=True)]
        numbers = [part for other in others for part in tf.unstack(tf.reshape(other, [-1]))]
        points, count = [*etas, *numbers], len(etas)
        terms = self._terms(u, columns, others, points)
        weights = tf.ones_like(terms)
        slopes = _gradients(tf.reduce_sum(weights * terms), points)
        square = [_gradients(tf.reduce_sum(slope), points) for slope in slopes]
        ends, rest = slopes[count:], [row[count:] for row in square[count:]]
        if by_row:
            ends = [_gradients(end, [weights])[0] for end in ends]
            rest = [[_gradients(end, [weights])[0] for end in row] for row in rest]
        of_rows = [[column[:, 0] for column in row[:count]] for row in square]
        slopes = [slope[:, 0] for slope in slopes[:count]]
        return Second(terms, data, slopes, ends, of_rows[:count], of_rows[count:], rest)

    def _parts(self, u: tf.Tensor, columns: Tensors) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return the matrices A and the tensors φ at a position."""
        found = self._import(u, columns, {}, [*(p.matrix for p in self.products), *self.others])
        count = len(self.products)
        matrices = [p.factor(part) for p, part in zip(self.products, found, strict=False)]
        return matrices, found[count:]

    def designs(self, u: tf.Tensor, columns: Tensors) -> list[Columns]:
        """Return X of each predictor, one object if they have the same levels of the same rows."""
        names = list(dict.fromkeys(product.data for product in self.products))
        held = dict(zip(names, self._import(u, columns, {}, names), strict=True))
        made = {(p.data, p.levels, p.shape[0]): p.design(held[p.data]) for p in self.products}
        return [made[p.data, p.levels, p.shape[0]] for p in self.products for _ in range(p.columns)]

    def _terms(
        self,
        u: tf.Tensor,
        columns: Tensors,
        others: list[tf.Tensor],
        points: Sequence[tf.Tensor],
    ) -> tf.Tensor:
        """Return the log-likelihood's terms for some predictors and numbers φ."""
        cut, left = {}, list(points)
        for product in self.products:
            taken, left = left[: product.columns], left[product.columns :]
            cut[product.result] = product.joined(taken)
        for name, other in zip(self.others, others, strict=True):
            size = other.shape.num_elements()
            taken, left = left[:size], left[size:]
            cut[name] = tf.reshape(tf.stack(taken), other.shape)
        return self._import(u, columns, cut, [self.graph.outputs[0].name])[0]

    def _import(
        self, u: tf.Tensor, columns: Tensors, cut: Tensors, wanted: list[str]
    ) -> list[tf.Tensor]:
        """Return tensors of the graph, others being put in the place of those that are cut."""
        return imported(self.graph, [u, *tf.nest.flatten(columns)], cut, wanted, "factors")


class Factored:
    """Functions of linear predictors, which are found once for all of them.

    Args:
        target: Log posterior, without a preconditioner.
        graphs: Dict in which they are kept, as "factors".
    """

    def __init__(self, target: Target, graphs: dict[Any, Any]) -> None:
        self._target, self._graphs = target, graphs

    def __getstate__(self) -> dict[str, Any]:
        # A worker finds its own: graphs stay in their process.
        return {**self.__dict__, "_graphs": {}}

    def of(self, columns: Tensors) -> Predictors | None:
        """Return the predictors of the log-likelihood, if there are some.

        Args:
            columns: Some rows.
        """
        if "factors" not in self._graphs:
            with tf.init_scope():
                find = getattr(self._target.log_lik, "find_factors", find_factors)
                self._graphs["factors"] = find(self._target, columns)
        found: Predictors | None = self._graphs["factors"]
        return found

    def by_row(self, columns: Tensors) -> bool:
        """Return whether there is a curvature of each row."""
        found = self.of(columns)
        return isinstance(found, Factors) and found.graph.outputs[0].shape.rank == 1

    @property
    def functions(self) -> dict[str, Function]:
        """The functions of :class:`Factors`, by name."""
        return {
            "jacobian": partial(self._call, "jacobian"),
            "bend": partial(self._call, "bend"),
            "values": partial(self._call, "flat"),
            "square": partial(self._call, "hessian"),
            "products": partial(self._call, "products_with"),
            "curvature": partial(self._call, "curvature"),
        }

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self.of(arguments[-1]), name)(*arguments)


def find_factors(
    target: Target, columns: Tensors, least: int = 1, drawn: str | None = None
) -> Factors | None:
    """Return the linear predictors of a log-likelihood; ``None`` if it is not one of few of them.

    Args:
        target: Log posterior, without a preconditioner.
        columns: Some rows.
        least: Least number of predictors.
        drawn: Column of data that are drawn.
    """
    if has_sparse(columns) or target.row_terms > 1:
        return None

    def value(u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        params = target.space.constrain(u)
        return tf.convert_to_tensor(target.log_lik(dict(params), cast(columns, target.dtype)))

    try:
        graph = trace(value, tf.TensorSpec([target.size], target.dtype), of_any_length(columns))
    except Exception as error:  # the user's functions ask for the number of rows
        pass_on(error)
        return None
    if any(tensor.dtype == tf.resource for tensor in graph.captured_inputs):
        return None
    of_columns = [_DATA | _DRAWN if name == drawn else _DATA for name in sorted(columns)]
    return _cut(graph, [_PARAMETERS, *of_columns], least)


def _cut(graph: Any, bits: Sequence[int], least: int) -> Factors | None:
    """Return the products in a graph in which the data meet the parameters.

    Args:
        graph: Graph of the log-likelihood.
        bits: Of its first inputs; the others are captured.
        least: Least number of predictors.
    """
    known = dict.fromkeys((leaf.name for leaf in graph.inputs), 0)
    known.update((leaf.name, bit) for leaf, bit in zip(graph.inputs, bits, strict=False))
    products: dict[str, _Product] = {}
    others: dict[str, int] = {}
    for op in graph.graph.get_operations():
        if op.type == "Placeholder":
            continue
        depends = 0
        for tensor in op.inputs:
            depends |= known[tensor.name]
        known.update((tensor.name, depends) for tensor in op.outputs)
        if depends & (_PARAMETERS | _DATA) != _PARAMETERS | _DATA:
            continue
        if op.type.endswith(("Call", "If", "While", "Case")):
            return None  # the derivatives of what they call are lost when the graph is imported
        for place, tensor in enumerate(op.inputs):
            if known[tensor.name] == _PARAMETERS and tensor.dtype.is_floating:
                product = _product(op, place, known)
                if product is not None:
                    products[product.result] = product
                else:
                    size = tensor.shape.num_elements()
                    others[tensor.name] = _MOST + 1 if size is None else size
    (output,) = graph.outputs
    fits = known[output.name] & _DATA and output.shape.rank in (0, 1)
    predictors = sum(product.columns for product in products.values())
    if not fits or not least <= predictors <= _MOST or sum(others.values()) > _MOST:
        return None
    return Factors(graph, tuple(products.values()), tuple(others))


def _product(op: Any, place: int, known: dict[str, int]) -> _Product | None:
    """Return the factors of a product, if they are rows of data and a matrix of parameters."""
    if op.type == "GatherV2":
        return _lookup(op, place, known)
    flags = {"MatMul": ("transpose_a", "transpose_b"), "BatchMatMulV2": ("adj_x", "adj_y")}
    if op.type not in flags or place != 1 or known[op.inputs[0].name] != _DATA:
        return None
    left, right = map(op.get_attr, flags[op.type])
    data, matrix = op.inputs
    if left or matrix.shape.rank != 2 or not matrix.shape.is_fully_defined():
        return None
    if data.shape.rank != 2 or data.shape[0] is not None:
        return None
    shape = tuple(matrix.shape)[:: -1 if right else 1]
    return _Product(data.name, matrix.name, op.outputs[0].name, right, False, False, shape)


def _lookup(op: Any, place: int, known: dict[str, int]) -> _Product | None:
    """Return the factors of a product, if parameters are looked up by the levels of rows."""
    matrix, places, axis = op.inputs
    rank, along = matrix.shape.rank, tf.get_static_value(axis)
    if place or known[places.name] != _DATA or op.get_attr("batch_dims") or along is None:
        return None
    if rank not in (1, 2) or not matrix.shape.is_fully_defined():
        return None
    if places.shape.rank != 1 or places.shape[0] is not None:
        return None
    last = rank == 2 and int(along) % rank == 1
    shape = (*matrix.shape, 1)[:2][:: -1 if last else 1]
    return _Product(places.name, matrix.name, op.outputs[0].name, last, True, rank == 1, shape)


def _gradients(value: tf.Tensor, points: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return derivatives in a graph; tapes do not record imported operations."""
    found = tf.gradients(value, list(points), unconnected_gradients="zero")
    return [tf.convert_to_tensor(part) for part in found]


def _rows(values: tf.Tensor, u: tf.Tensor) -> tf.Tensor:
    """Return the derivative of a vector, row by row."""
    if tf.gradients(values, u)[0] is None:  # a linear function's derivative
        return tf.zeros([values.shape[0], u.shape[0]], u.dtype)
    return vectorized_map(
        lambda k: _gradients(tf.gather(values, k), [u])[0], tf.range(values.shape[0])
    )


def _to_columns(data: list[Columns], rows: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return Xᵀ times numbers of the rows, by predictor, in one vector."""
    parts = [x.onto(r[:, tf.newaxis])[:, 0] for x, r in zip(data, rows, strict=True)]
    return tf.concat(parts, 0)
