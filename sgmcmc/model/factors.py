"""Linear predictors in the graph of a log-likelihood.

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
from enum import IntFlag
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.data.passes import Function, cast, of_any_length
from sgmcmc.data.sparse import has_sparse
from sgmcmc.graphs.rewriting import imported
from sgmcmc.graphs.tracing import trace, vectorized_map
from sgmcmc.interrupts import pass_on
from sgmcmc.model.designs import (
    Columns,
    DenseColumns,
    IndicatorColumns,
    PairWeights,
    bilinear_forms,
    cross_product,
    times_weights,
)
from sgmcmc.model.target import Target


@dataclass(frozen=True)
class _Settings:
    max_predictors: int = 6  # of a row, and numbers φ: H has a block for each pair


_SETTINGS = _Settings()


class _Depends(IntFlag):
    """Inputs that a tensor depends on; data that are drawn are no X of a product."""

    PARAMETERS = 1
    DATA = 2
    DRAWN = 4


class _Product(NamedTuple):
    """A product η = X A in the graph, by the names of its tensors.

    Attributes:
        data: X, or the number of each row's level.
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
        return self.shape[1]

    def design(self, data: tf.Tensor) -> Columns:
        if self.levels:
            return IndicatorColumns(data, self.shape[0])
        return DenseColumns(data, self.shape[0])

    def factor(self, matrix: tf.Tensor) -> tf.Tensor:
        if self.transposed:
            matrix = tf.transpose(matrix)
        return tf.reshape(matrix, self.shape)

    def joined(self, etas: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return η, as the graph has it, of its columns, (n, 1) each."""
        predictors = tf.concat(list(etas), 1)
        if self.flat:
            return predictors[:, 0]
        if self.levels and self.transposed:
            return tf.transpose(predictors)
        return predictors


class PredictorDerivatives(NamedTuple):
    """Derivatives of the terms with respect to predictors and φ.

    Attributes:
        terms: Terms of the log-likelihood, (n,).
        data: X of each predictor, (n, d).
        slopes: ∂ℓ/∂η by predictor, (n,).
        phi_slopes: ∂ℓ/∂φ by number, summed over the rows.
        eta_curvatures: ∂²ℓ/∂η∂η' by pair of predictors: of the same row, and perhaps of others.
        cross_curvatures: ∂²ℓ/∂φ∂η by number and predictor, (n,).
        phi_curvatures: ∂²ℓ/∂φ∂φ' by pair of numbers, summed over the rows.
    """

    terms: tf.Tensor
    data: list[Columns]
    slopes: list[tf.Tensor]
    phi_slopes: list[tf.Tensor]
    eta_curvatures: list[list[tf.Tensor | PairWeights]]
    cross_curvatures: list[list[tf.Tensor]]
    phi_curvatures: list[list[tf.Tensor]]

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
    def derivatives(self, u: tf.Tensor, columns: Tensors) -> PredictorDerivatives:
        """Return derivatives of the terms of some rows."""

    def flat(self, u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        """Return v, (m,)."""
        return tf.concat(self.values(u, columns), 0)

    def jacobian(self, u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        """Return ∂v/∂u, (m, d)."""
        return tf.concat(
            [_jacobian_rows(vector, u) for vector in self.values(u, columns)], 0
        )

    def bend(self, u: tf.Tensor, slope: tf.Tensor, columns: Tensors) -> tf.Tensor:
        """Return Σ_k s_k ∂²v_k/∂u² for a vector s, (d, d)."""
        vectors = self.values(u, columns)
        slopes = tf.split(slope, [vector.shape[0] for vector in vectors])
        value = sum(
            tf.reduce_sum(s * vector) for s, vector in zip(slopes, vectors, strict=True)
        )
        return _jacobian_rows(_gradients(value, [u])[0], u)

    def hessian(self, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        """Return gradient and Hessian of the log-likelihood with respect to v, (m,) and (m, m)."""
        derivatives = self.derivatives(u, columns)
        blocks: list[list[tf.Tensor]] = [[] for _ in derivatives.data]
        for a, left in enumerate(derivatives.data):
            for b, right in enumerate(derivatives.data):
                if b < a:
                    blocks[a].append(tf.transpose(blocks[b][a]))
                else:
                    blocks[a].append(
                        cross_product(left, derivatives.eta_curvatures[a][b], right)
                    )
        hessian = tf.concat([tf.concat(row, 1) for row in blocks], 0)
        slope = _transposed_products(derivatives.data, derivatives.slopes)
        if derivatives.phi_slopes:
            cross_rows = [
                _transposed_products(derivatives.data, rows)
                for rows in derivatives.cross_curvatures
            ]
            cross = tf.stack(cross_rows)
            corner = tf.stack([tf.stack(row) for row in derivatives.phi_curvatures])
            last_rows = tf.concat([cross, corner], 1)
            first_rows = tf.concat([hessian, tf.transpose(cross)], 1)
            hessian = tf.concat([first_rows, last_rows], 0)
            slope = tf.concat([slope, tf.stack(derivatives.phi_slopes)], 0)
        return [slope, hessian]

    def products_with(
        self, u: tf.Tensor, vectors: tf.Tensor, columns: Tensors
    ) -> list[tf.Tensor]:
        """Return the gradient with respect to v, and the Hessian times several vectors, (m, k)."""
        derivatives = self.derivatives(u, columns)
        blocks, phi_vectors = self._split_rows(vectors, derivatives)
        along = [
            x.times(block) for x, block in zip(derivatives.data, blocks, strict=True)
        ]
        products = []
        for a, x in enumerate(derivatives.data):
            rows = sum(
                times_weights(w, z)
                for w, z in zip(derivatives.eta_curvatures[a], along, strict=True)
            )
            for cross, phi_vector in zip(
                derivatives.cross_curvatures, phi_vectors, strict=True
            ):
                rows += cross[a][:, tf.newaxis] * phi_vector
            products.append(x.transposed_times(rows))
        for cross, curvatures in zip(
            derivatives.cross_curvatures, derivatives.phi_curvatures, strict=True
        ):
            product = sum(
                tf.linalg.matvec(z, c, transpose_a=True)
                for z, c in zip(along, cross, strict=True)
            )
            product += sum(
                r * phi_vector
                for r, phi_vector in zip(curvatures, phi_vectors, strict=True)
            )
            products.append(product[tf.newaxis])
        slope = _transposed_products(derivatives.data, derivatives.slopes)
        if derivatives.phi_slopes:
            slope = tf.concat([slope, tf.stack(derivatives.phi_slopes)], 0)
        return [slope, tf.concat(products, 0)]

    def _split_rows(
        self, matrix: tf.Tensor, derivatives: PredictorDerivatives
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return rows of v by predictor, (d, k) each, and by number φ, (k,) each."""
        *rows, phi_rows = tf.split(
            matrix, [*derivatives.sizes, len(derivatives.phi_slopes)], 0
        )
        return rows, [phi_rows[k] for k in range(len(derivatives.phi_slopes))]


@dataclass(frozen=True)
class Factors(Predictors):
    """Linear predictors as they are in the graph of a log-likelihood.

    Attributes:
        graph: Graph of the log-likelihood as a function of the flat position and the columns.
        products: Products of data and parameters.
        numbers: Names of the tensors φ.
    """

    graph: Any
    products: tuple[_Product, ...]
    numbers: tuple[str, ...]

    def values(self, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        """Return the parts of v."""
        matrices, numbers = self._matrices_and_numbers(u, columns)
        return [
            tf.reshape(tensor, [-1])
            for tensor in (*map(tf.transpose, matrices), *numbers)
        ]

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
        derivatives = self.derivatives(u, columns, by_row=True)
        count = len(derivatives.data)
        rows, phi_rows = self._split_rows(square, derivatives)
        blocks = [
            tf.split(row_block, [*derivatives.sizes, len(derivatives.phi_slopes)], 1)
            for row_block in rows
        ]
        bends, corners = self._split_rows(bend[:, tf.newaxis], derivatives)
        total = tf.zeros_like(derivatives.slopes[0])
        for a, left in enumerate(derivatives.data):
            for b, right in enumerate(derivatives.data):
                total += derivatives.eta_curvatures[a][b] * bilinear_forms(
                    left, blocks[a][b], right
                )
            ends = left.times(blocks[a][count])
            for r, cross in enumerate(derivatives.cross_curvatures):
                total += 2 * cross[a] * ends[:, r]
            total += derivatives.slopes[a] * left.times(bends[a])[:, 0]
        first = sum(derivatives.sizes)
        for r, curvatures in enumerate(derivatives.phi_curvatures):
            for c, entry in enumerate(curvatures):
                total += entry * phi_rows[r][first + c]
            total += derivatives.phi_slopes[r] * corners[r][0]
        return [-total]

    @property
    def width(self) -> int:
        """Size of the data of a row."""
        return sum(
            1 if product.levels else product.shape[0] for product in self.products
        )

    def derivatives(
        self, u: tf.Tensor, columns: Tensors, by_row: bool = False
    ) -> PredictorDerivatives:
        """Return derivatives of the terms of some rows.

        The log-likelihood is linear in the weights of its terms, so that the derivative of a sum
        with respect to them is what it is made of, row by row.

        Args:
            u: Position, flat.
            columns: Some rows.
            by_row: Whether sums over rows are wanted row by row, too.
        """
        matrices, numbers = self._matrices_and_numbers(u, columns)
        data = self.designs(u, columns)
        flat = [a[:, j : j + 1] for a in matrices for j in range(a.shape[1])]
        etas = [x.times(a) for x, a in zip(data, flat, strict=True)]
        scalars: list[tf.Tensor] = []
        for number in numbers:
            scalars += tf.unstack(tf.reshape(number, [-1]))
        points = [*etas, *scalars]
        count = len(etas)
        terms = self._terms_at(u, columns, numbers, points)
        weights = tf.ones_like(terms)
        slopes = _gradients(tf.reduce_sum(weights * terms), points)
        curvatures = [_gradients(tf.reduce_sum(slope), points) for slope in slopes]
        phi_slopes = slopes[count:]
        phi_curvatures = [row[count:] for row in curvatures[count:]]
        if by_row:
            phi_slopes = [_gradients(slope, [weights])[0] for slope in phi_slopes]
            phi_curvatures = [
                [_gradients(slope, [weights])[0] for slope in row]
                for row in phi_curvatures
            ]
        by_row_curvatures = [
            [column[:, 0] for column in row[:count]] for row in curvatures
        ]
        slopes = [slope[:, 0] for slope in slopes[:count]]
        return PredictorDerivatives(
            terms,
            data,
            slopes,
            phi_slopes,
            by_row_curvatures[:count],
            by_row_curvatures[count:],
            phi_curvatures,
        )

    def _matrices_and_numbers(
        self, u: tf.Tensor, columns: Tensors
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        tensors = self._import(
            u, columns, {}, [*(p.matrix for p in self.products), *self.numbers]
        )
        count = len(self.products)
        matrices = [
            p.factor(tensor) for p, tensor in zip(self.products, tensors, strict=False)
        ]
        return matrices, tensors[count:]

    def designs(self, u: tf.Tensor, columns: Tensors) -> list[Columns]:
        """Return X of each predictor, one object if they have the same levels of the same rows."""
        names = list(dict.fromkeys(product.data for product in self.products))
        tensors = dict(zip(names, self._import(u, columns, {}, names), strict=True))
        designs = {
            (p.data, p.levels, p.shape[0]): p.design(tensors[p.data])
            for p in self.products
        }
        return [
            designs[p.data, p.levels, p.shape[0]]
            for p in self.products
            for _ in range(p.columns)
        ]

    def _terms_at(
        self,
        u: tf.Tensor,
        columns: Tensors,
        numbers: list[tf.Tensor],
        points: Sequence[tf.Tensor],
    ) -> tf.Tensor:
        """Return the log-likelihood's terms for some predictors and numbers φ."""
        replaced, remaining = {}, list(points)
        for product in self.products:
            used = remaining[: product.columns]
            remaining = remaining[product.columns :]
            replaced[product.result] = product.joined(used)
        for name, number in zip(self.numbers, numbers, strict=True):
            size = number.shape.num_elements()
            used = remaining[:size]
            remaining = remaining[size:]
            replaced[name] = tf.reshape(tf.stack(used), number.shape)
        return self._import(u, columns, replaced, [self.graph.outputs[0].name])[0]

    def _import(
        self, u: tf.Tensor, columns: Tensors, replaced: Tensors, names: list[str]
    ) -> list[tf.Tensor]:
        """Return tensors of the graph, with some tensors replaced."""
        return imported(
            self.graph, [u, *tf.nest.flatten(columns)], replaced, names, "factors"
        )


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
        predictors: Predictors | None = self._graphs["factors"]
        return predictors

    def by_row(self, columns: Tensors) -> bool:
        """Return whether there is a curvature of each row."""
        predictors = self.of(columns)
        return (
            isinstance(predictors, Factors)
            and predictors.graph.outputs[0].shape.rank == 1
        )

    @property
    def functions(self) -> dict[str, Function]:
        """The functions of :class:`Factors`, by name."""
        return {
            "jacobian": partial(self._call_method, "jacobian"),
            "bend": partial(self._call_method, "bend"),
            "values": partial(self._call_method, "flat"),
            "square": partial(self._call_method, "hessian"),
            "products": partial(self._call_method, "products_with"),
            "curvature": partial(self._call_method, "curvature"),
        }

    def _call_method(self, name: str, *arguments: Any) -> Any:
        return getattr(self.of(arguments[-1]), name)(*arguments)


def find_factors(
    target: Target, columns: Tensors, min_predictors: int = 1, drawn: str | None = None
) -> Factors | None:
    """Return the linear predictors of a log-likelihood; ``None`` if it is not one of few of them.

    Args:
        target: Log posterior, without a preconditioner.
        columns: Some rows.
        min_predictors: Least number of predictors.
        drawn: Column of data that are drawn.
    """
    if has_sparse(columns) or target.row_terms > 1:
        return None

    def value(u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        params = target.space.constrain(u)
        return tf.convert_to_tensor(
            target.log_lik(dict(params), cast(columns, target.dtype))
        )

    try:
        graph = trace(
            value, tf.TensorSpec([target.size], target.dtype), of_any_length(columns)
        )
    except Exception as error:  # the user's functions ask for the number of rows
        pass_on(error)
        return None
    if any(tensor.dtype == tf.resource for tensor in graph.captured_inputs):
        return None
    depends = [_Depends.PARAMETERS]
    for name in sorted(columns):
        is_drawn = name == drawn
        depends.append(_Depends.DATA | _Depends.DRAWN if is_drawn else _Depends.DATA)
    return _cut_graph(graph, depends, min_predictors)


def _cut_graph(graph: Any, bits: Sequence[int], min_predictors: int) -> Factors | None:
    """Return the products in a graph in which the data meet the parameters.

    Args:
        graph: Graph of the log-likelihood.
        bits: Of its first inputs; the others are captured.
        min_predictors: Least number of predictors.
    """
    dependence = dict.fromkeys((leaf.name for leaf in graph.inputs), 0)
    dependence.update(
        (leaf.name, bit) for leaf, bit in zip(graph.inputs, bits, strict=False)
    )
    products: dict[str, _Product] = {}
    numbers: dict[str, int] = {}
    both = _Depends.PARAMETERS | _Depends.DATA
    most = _SETTINGS.max_predictors
    for op in graph.graph.get_operations():
        if op.type == "Placeholder":
            continue
        bits_of_op = 0
        for tensor in op.inputs:
            bits_of_op |= dependence[tensor.name]
        dependence.update((tensor.name, bits_of_op) for tensor in op.outputs)
        if bits_of_op & both != both:
            continue
        if op.type.endswith(("Call", "If", "While", "Case")):
            return None  # the derivatives of what they call are lost when the graph is imported
        for position, tensor in enumerate(op.inputs):
            if (
                dependence[tensor.name] == _Depends.PARAMETERS
                and tensor.dtype.is_floating
            ):
                product = _product(op, position, dependence)
                if product is not None:
                    products[product.result] = product
                else:
                    size = tensor.shape.num_elements()
                    numbers[tensor.name] = most + 1 if size is None else size
    (output,) = graph.outputs
    fits = dependence[output.name] & _Depends.DATA and output.shape.rank in (0, 1)
    predictors = sum(product.columns for product in products.values())
    if not fits or not min_predictors <= predictors <= most:
        return None
    if sum(numbers.values()) > most:
        return None
    return Factors(graph, tuple(products.values()), tuple(numbers))


def _product(op: Any, position: int, dependence: dict[str, int]) -> _Product | None:
    """Return the factors of a product, if they are rows of data and a matrix of parameters."""
    if op.type == "GatherV2":
        return _lookup_product(op, position, dependence)
    flags = {
        "MatMul": ("transpose_a", "transpose_b"),
        "BatchMatMulV2": ("adj_x", "adj_y"),
    }
    if (
        op.type not in flags
        or position != 1
        or dependence[op.inputs[0].name] != _Depends.DATA
    ):
        return None
    left, right = map(op.get_attr, flags[op.type])
    data, matrix = op.inputs
    if left or matrix.shape.rank != 2 or not matrix.shape.is_fully_defined():
        return None
    if data.shape.rank != 2 or data.shape[0] is not None:
        return None
    shape = tuple(matrix.shape)[:: -1 if right else 1]
    return _Product(
        data.name, matrix.name, op.outputs[0].name, right, False, False, shape
    )


def _lookup_product(
    op: Any, position: int, dependence: dict[str, int]
) -> _Product | None:
    """Return the factors of a product, if parameters are looked up by the levels of rows."""
    matrix, levels, axis = op.inputs
    rank = matrix.shape.rank
    axis_value = tf.get_static_value(axis)
    if position or dependence[levels.name] != _Depends.DATA:
        return None
    if op.get_attr("batch_dims") or axis_value is None:
        return None
    if rank not in (1, 2) or not matrix.shape.is_fully_defined():
        return None
    if levels.shape.rank != 1 or levels.shape[0] is not None:
        return None
    is_last_axis = rank == 2 and int(axis_value) % rank == 1
    shape = (*matrix.shape, 1)[:2][:: -1 if is_last_axis else 1]
    return _Product(
        levels.name,
        matrix.name,
        op.outputs[0].name,
        is_last_axis,
        True,
        rank == 1,
        shape,
    )


def _gradients(value: tf.Tensor, points: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return derivatives in a graph; tapes do not record imported operations."""
    gradients = tf.gradients(value, list(points), unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def _jacobian_rows(vector: tf.Tensor, u: tf.Tensor) -> tf.Tensor:
    if tf.gradients(vector, u)[0] is None:  # a linear function's derivative
        return tf.zeros([vector.shape[0], u.shape[0]], u.dtype)

    def row(k: tf.Tensor) -> tf.Tensor:
        return _gradients(tf.gather(vector, k), [u])[0]

    return vectorized_map(row, tf.range(vector.shape[0]))


def _transposed_products(data: list[Columns], rows: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return Xᵀ times numbers of the rows, by predictor, in one vector."""
    products = [
        x.transposed_times(r[:, tf.newaxis])[:, 0]
        for x, r in zip(data, rows, strict=True)
    ]
    return tf.concat(products, 0)
