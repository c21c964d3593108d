"""The log posterior over the whole dataset, for optimizers: in float64, with a Hessian."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data, Minibatch, Tensors
from sgmcmc.data.passes import LARGE, Function, Pass, added, cast, of_any_length
from sgmcmc.data.sparse import has_sparse, over
from sgmcmc.graphs.tracing import (
    graphs_of,
    has_own_gradients,
    jacobian,
    trace,
    vectorized_map,
)
from sgmcmc.interrupts import pass_on
from sgmcmc.model.target import Target

if TYPE_CHECKING:
    from sgmcmc.model.factors import Factored, Predictors

# Rows from which on linear predictors are searched, which takes longer than Hessians of few.
_FACTORED_FROM = 10_000
# Largest size of intermediate results of a piece: n × d for Hessians by differentiation.
_PIECE_NUMBERS = 2**23


@dataclass(frozen=True)
class _Settings:
    # Numbers of a row, instead of d, in products with Hessians; the least of linear predictors.
    row_numbers: int = 32
    # Rows on which products with a Hessian of factors are compared with differences of gradients.
    checked_rows: int = 200
    # Posterior SDs over which other differences of gradients are computed.
    difference_sds: float = 0.1


_SETTINGS = _Settings()

# Length of these differences, by dtype; half the digits may be lost.
_STEP = {tf.float32: 1e-2, tf.float64: 1e-5}

Strata = Sequence[tuple[np.ndarray, float]]
"""Row numbers, and the number of rows that each of them represents."""


class Objective:
    """The log posterior and its derivatives at a flat position, added up over the dataset.

    If the user's functions allow it everything is computed in float64; if they hold float32
    constants, in the dtype of the chain, and added up in float64. Graphs of a large dataset are
    traced once for any number of rows, unless the user's functions ask how many there are.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        rows: Row numbers of the part of it that represents all; ``None`` for the whole.
        double: Whether to try float64.
        size: Number of rows for which graphs are made; ``None`` for that of the dataset.

    Attributes:
        evaluations: Number of passes over the data so far, Hessians counted like gradients.
        chain_target: Log posterior in the dtype of the chain.
    """

    def __init__(
        self,
        target: Target,
        data: Data,
        rows: np.ndarray | None = None,
        double: bool = True,
        size: int | None = None,
    ) -> None:
        self._strata: Strata | None = (
            None if rows is None else [(rows, data.size / len(rows))]
        )
        self._chunks: list[Tensors] = []
        self.evaluations = 0
        self.target, graphs = _in_double(target, data) if double else (target, None)
        graphs = kept_graphs(target, data) if graphs is None else graphs
        self.size = target.size
        self._factored = _factored(self.target, size or data.size, graphs)
        functions = {**of_likelihood(self.target), **of_prior(self.target)}
        if self._factored is not None:
            functions.update(self._factored.functions)
        self._pass = Pass(data, functions, True, target.row_terms, graphs)
        self.chain_target = target
        self._rough = list[Objective]()
        self._exact: Objective | None = None
        self._verdicts: dict[str, bool] = {}

    @property
    def data(self) -> Data:
        """Dataset."""
        return self._pass.data

    @property
    def rough(self) -> Objective:
        """The same over all rows in the dtype of the chain, added up in float64."""
        if self.chain_target is self.target:
            return self.over(None)
        if not self._rough:
            self._rough.append(
                Objective(self.chain_target, self._pass.data, double=False)
            )
            self._rough[0]._verdicts = self._verdicts
            self._rough[0]._exact = self
        return self._rough[0]

    def over(self, strata: Strata | None) -> Objective:
        """Return the same over rows that represent all, or over all, with the same graphs."""
        objective = copy.copy(self)
        objective._strata = strata
        objective._chunks = []
        objective.evaluations = 0
        return objective

    @property
    def graphs(self) -> dict[Any, Any]:
        """Graphs of the target that are kept, by name and shapes."""
        return self._pass.graphs

    @property
    def weight(self) -> float:
        """Average number of rows that one of those used represents."""
        if self._strata is None:
            return 1.0
        return self._pass.data.size / sum(len(rows) for rows, _ in self._strata)

    def _sum(self, name: str, u: np.ndarray, *more: np.ndarray) -> list[np.ndarray]:
        """Return the sums over the data of a function of position and columns."""
        self.evaluations += 1
        values = [v.astype(self.target.dtype.as_numpy_dtype) for v in (u, *more)]
        if self._strata is None:
            return self._pass.sums(name, *values, max_terms=self._rows_of(name))
        if not self._chunks:
            self._chunks = [self._pass.data.rows(rows) for rows, _ in self._strata]
        return added(
            [
                weight * _double(tensor)
                for tensor in self._pass.run(name, *values, columns)
            ]
            for columns, (_, weight) in zip(self._chunks, self._strata, strict=True)
        )

    def _rows_of(self, name: str) -> int:
        """Return the number of rows for which a function's intermediate results are not large."""
        row_numbers = self.size if name == "hessian" else _SETTINGS.row_numbers
        predictors = self._predictors
        if predictors is not None and name in ("square", "products", "curvature"):
            width = 0 if name == "products" else predictors.width
            row_numbers = max(_SETTINGS.row_numbers, width, predictors.rows)
        return _PIECE_NUMBERS // (1 + row_numbers)

    @property
    def width(self) -> int | None:
        """Size of the data of a row, indicators of levels counted as one number.

        ``None`` if the log-likelihood is not one of a few linear predictors.
        """
        return None if self._predictors is None else self._predictors.width

    @property
    def rows(self) -> int:
        """Number of the user's rows in one of the dataset, of linear predictors."""
        return 1 if self._predictors is None else self._predictors.rows

    @property
    def _predictors(self) -> Predictors | None:
        return None if self._factored is None else self._factored.of(self._one)

    def _prior(self, name: str, points: np.ndarray) -> list[np.ndarray]:
        if self._exact is not None:  # which has its graph, and costs no more
            return self._exact._prior(name, points)
        point = points.astype(self.target.dtype.as_numpy_dtype)
        return [_double(tensor) for tensor in self._pass.run(name, point)]

    def value_and_gradient(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log posterior and its gradient."""
        value, gradient = self._sum("gradient", u)
        prior, slope = self._prior("prior", u)
        return float(value) + float(prior), gradient + slope

    def likelihood_gradient(self, u: np.ndarray) -> np.ndarray:
        """Return the gradient of the log-likelihood, (d,)."""
        return self._sum("gradient", u)[1]

    def prior_gradient(self, u: np.ndarray) -> np.ndarray:
        """Return the gradient of log-prior and log-Jacobian, (d,)."""
        return self._prior("prior", u)[1]

    def has_factors(self, u: np.ndarray) -> bool:
        """Return whether the log-likelihood is one of a few linear predictors.

        The graph says so; that its rows are separate is seen at a position.
        """
        factored = self._factored
        if factored is None:
            return False
        if "factors" not in self._verdicts:
            first = self._pass.data.rows(
                np.arange(min(_SETTINGS.checked_rows, self._pass.data.size))
            )
            self._verdicts["factors"] = factored.of(
                first
            ) is not None and self._factors_agree(u, first)
        return self._verdicts["factors"] and factored.of(self._one) is not None

    def _factors_agree(self, u: np.ndarray, columns: Tensors) -> bool:
        """Return whether a product of factors is the derivative of the gradient of some rows."""
        step = _STEP[self.target.dtype]
        dtype = self.target.dtype.as_numpy_dtype
        vector = step * np.random.default_rng(self.size).choice([-1.0, 1.0], self.size)
        if (
            self.rows > 1
        ):  # nodes of groups are near their modes only, and these move with u
            position_and_vector = np.stack([u, vector]).astype(dtype)
            change = _double(self._pass.run("product", position_and_vector, columns)[0])
        else:
            forward, backward = (
                _double(self._pass.run("gradient", point.astype(dtype), columns)[1])
                for point in (u + vector, u - vector)
            )
            change = (forward - backward) / 2
        slope, square = map(_double, self._pass.run("square", u.astype(dtype), columns))
        products = square @ self._along_predictors(u, vector[:, np.newaxis])
        product = self._pull_back(u, slope, products, vector[:, np.newaxis])[:, 0]
        size = np.linalg.norm(change) + np.linalg.norm(product)
        return bool(np.linalg.norm(change - product) <= 10 * step * size)

    def _at_shapes(self, name: str, u: np.ndarray, *more: np.ndarray) -> np.ndarray:
        """Return the result of a function of the position and of the data's shapes."""
        if self._exact is not None:
            return self._exact._at_shapes(name, u, *more)
        dtype = self.target.dtype.as_numpy_dtype
        values = [v.astype(dtype) for v in (u, *more)]
        return _double(self._pass.run(name, *values, self._one))

    @functools.cached_property
    def _one(self) -> Tensors:
        return self._pass.data.rows(np.arange(1))

    def _along_predictors(self, u: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return derivatives of v along vectors, (m, k), in the dtype of the target."""
        return (self._at_shapes("jacobian", u) @ vectors).astype(
            self.target.dtype.as_numpy_dtype
        )

    def _pull_back(
        self,
        u: np.ndarray,
        slope: np.ndarray,
        products: np.ndarray,
        vectors: np.ndarray,
    ) -> np.ndarray:
        """Return products with the Hessian in u, (d, k), of those with that in v."""
        return (
            self._at_shapes("jacobian", u).T @ products
            + self._at_shapes("bend", u, slope) @ vectors
        )

    def times_hessians(self, u: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the Hessian of the log-likelihood times the columns of a matrix, (d, k).

        These are about as long as the posterior is wide: without linear predictors the products are
        differences of gradients a tenth of that away.
        """
        if not self.has_factors(u):
            center = self.likelihood_gradient(u)
            gradients = [
                self.likelihood_gradient(u + _SETTINGS.difference_sds * vector)
                for vector in vectors.T
            ]
            return np.stack(
                [
                    (gradient - center) / _SETTINGS.difference_sds
                    for gradient in gradients
                ],
                1,
            )
        slope, products = self._sum("products", u, self._along_predictors(u, vectors))
        return self._pull_back(u, slope, products, vectors)

    def leverages(self, u: np.ndarray, root: np.ndarray) -> np.ndarray | None:
        """Return the trace of Cᵀ(−∇² log p(x_i | θ))C for all rows, (N,).

        ``None`` if it is not to be had exactly in one pass.

        Args:
            u: Position.
            root: C, (d, d).
        """
        if not self.has_factors(u) or self._factored is None:
            return None
        if not self._factored.by_row(self._one):
            return None
        bend = np.zeros(len(self._at_shapes("jacobian", u)))
        probe = np.random.default_rng(0).standard_normal(len(bend))
        if self._at_shapes("bend", u, probe).any():
            for column in root.T:
                forward, middle, backward = (
                    self._at_shapes("values", u + k * column) for k in (1, 0, -1)
                )
                bend += forward - 2 * middle + backward
        dtype = self.target.dtype.as_numpy_dtype
        predictor_moves = self._at_shapes("jacobian", u) @ root
        square = (predictor_moves @ predictor_moves.T).astype(dtype)
        chunk_rows = self._rows_of("curvature")
        (leverages,) = self._pass.joined(
            "curvature",
            u.astype(dtype),
            square,
            bend.astype(dtype),
            max_terms=chunk_rows,
        )
        return leverages.astype(np.float64)

    def times_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of the log posterior times a vector, (d,)."""
        (likelihood,) = self._sum("product", np.stack([u, vector]))
        return self.times_prior_hessian(u, vector) - likelihood

    def times_prior_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of log-prior and log-Jacobian times a vector, (d,)."""
        return -self._prior("prior product", np.stack([u, vector]))[0]

    def likelihood_hessian(self, u: np.ndarray) -> np.ndarray:
        """Return the Hessian of the log-likelihood, (d, d)."""
        if self.has_factors(u):
            slope, square = self._sum("square", u)
            jacobian = self._at_shapes("jacobian", u)
            hessian = jacobian.T @ square @ jacobian + self._at_shapes("bend", u, slope)
        else:
            (hessian,) = self._sum("hessian", u)
        return (hessian + hessian.T) / 2

    def prior_hessian(self, u: np.ndarray) -> np.ndarray:
        """Return the Hessian of log-prior and log-Jacobian, (d, d), by differentiation."""
        (hessian,) = self._prior("prior hessian", u)
        return (hessian + hessian.T) / 2

    def information(self, u: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of the log posterior, (d, d)."""
        return -(self.likelihood_hessian(u) + self.prior_hessian(u))

    def prior_gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradient of log-prior and log-Jacobian at several positions, (k, d)."""
        return self._prior("prior gradients", points)[0]

    def prior_values(self, points: np.ndarray) -> np.ndarray:
        """Return log-prior and log-Jacobian at several positions, (k,)."""
        return self._prior("prior values", points)[0]


def is_of_predictors(target: Target, data: Data, u: np.ndarray) -> bool:
    """Return whether Hessians cost a few gradients, whatever the number of coordinates."""
    return data.size >= _FACTORED_FROM and Objective(target, data).has_factors(u)


def _factored(target: Target, size: int, graphs: dict[Any, Any]) -> Factored | None:
    """Return the functions of linear predictors for a dataset that is large enough for them."""
    if size < _FACTORED_FROM:
        return None
    from sgmcmc.model.factors import Factored  # small datasets are sampled without it

    return Factored(target, graphs)


def kept_graphs(target: Target, data: Data) -> dict[Any, Any]:
    """Return the dict of a target's graphs, for this call and others, by name and shapes."""
    try:
        model = _model(target, data)
    except Exception as error:  # the user's functions ask for the number of rows
        pass_on(error)
        return {}
    return graphs_of(model)


def _model(target: Target, data: Data, shared: bool = True) -> Any:
    """Return the graph of the log posterior, of any number of rows of a large dataset.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        shared: Whether the graph identifies the model; else it is of one row.
    """
    row = data.rows(np.arange(1))
    columns: Any = row
    if shared and not has_sparse(row):
        columns = of_any_length(row)
        if data.size < LARGE:
            columns = {
                name: tf.TensorSpec([data.size, *spec.shape[1:]], spec.dtype)
                for name, spec in columns.items()
            }

    def value(u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        return target.log_post(u, Minibatch(cast(columns, target.dtype)))

    def derivatives(u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        both = tf.stack([u, u])
        product = _product(target, both, columns)
        prior = along(target.prior_gradient, *tf.unstack(both))
        return [value(u, columns), *_gradient(target, u, columns), *product, prior]

    point = tf.TensorSpec([target.size], target.dtype)
    model = trace(value, point, columns)
    return (
        trace(derivatives, point, columns)
        if shared and has_own_gradients(model)
        else model
    )


def _in_double(target: Target, data: Data) -> tuple[Target, dict[Any, Any] | None]:
    double = Target(target.log_lik, target.log_prior, target.space, tf.float64)
    try:
        return double, graphs_of(_model(double, data))
    except Exception as error:
        pass_on(error)
    try:
        _model(double, data, shared=False)
    except Exception as error:
        pass_on(error)
        return target, None
    return double, {}


def _double(tensor: tf.Tensor) -> np.ndarray:
    return tensor.numpy().astype(np.float64)


def of_likelihood(target: Target) -> dict[str, Function]:
    """Return functions of a flat position and of columns, by name.

    - ``gradient``: log-likelihood and its gradient, (d,).
    - ``product``: Hessian at the first of two rows times the second, (d,).
    - ``hessian``: Hessian, (d, d).
    - ``bends``: mean curvature of each term along several directions, (n,), in float64. The
      positions are the center, then points on one side of it, then those on the other.
    """
    return {
        name: partial(function, target)
        for name, function in (
            ("gradient", _gradient),
            ("product", _product),
            ("hessian", _hessian),
            ("bends", _bends),
        )
    }


def of_prior(target: Target) -> dict[str, Function]:
    """Return functions of flat positions, by name: log-prior and log-Jacobian alone.

    - ``prior``: value and gradient.
    - ``prior product``, ``prior hessian``: as those of the log-likelihood.
    - ``prior values``, ``prior gradients``: at several positions, (k,) and (k, d).
    """

    def value(u: tf.Tensor) -> tf.Tensor:
        return target.prior_value(
            target.space.constrain(u), target.space.coordinates(u)
        )

    gradients = target.concatenated().prior_gradient
    return {
        "prior": lambda u: [value(u), target.prior_gradient(u)],
        "prior product": lambda both: [along(target.prior_gradient, *tf.unstack(both))],
        "prior hessian": lambda u: [jacobian(target.prior_gradient, u)],
        "prior values": lambda points: [vectorized_map(value, points)],
        "prior gradients": lambda points: [vectorized_map(gradients, points)],
    }


def slope_over(target: Target, columns: Tensors) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return the gradient of the log-likelihood of some rows, a function of the position."""
    return partial(
        target.gradient,
        minibatch=Minibatch(cast(columns, target.dtype)),
        with_prior=False,
    )


def _gradient(target: Target, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    columns = cast(columns, target.dtype)
    value = target.log_lik(dict(target.space.constrain(u)), dict(columns))
    value = tf.reduce_sum(tf.cast(value, tf.float64))
    return [value, target.gradient(u, Minibatch(columns), with_prior=False)]


def _product(target: Target, both: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    return [along(slope_over(target, columns), *tf.unstack(both))]


def _hessian(target: Target, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    return [
        jacobian(slope_over(target, columns), u, vectorized=not has_sparse(columns))
    ]


def _bends(target: Target, points: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
    def of_point(u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        return target.terms(target.space.constrain(u), columns)

    values = tf.cast(over(of_point, points, columns), tf.float64)
    forward, backward = tf.split(values[1:], 2)
    return [tf.reduce_mean(2 * values[0] - forward - backward, 0)]


def along(
    gradient: Callable[[tf.Tensor], tf.Tensor], u: tf.Tensor, vector: tf.Tensor
) -> tf.Tensor:
    """Return the derivative of a gradient at a position along a vector."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(u)
        slope = tf.reduce_sum(gradient(u) * vector)
    return tape.gradient(slope, u, unconnected_gradients=tf.UnconnectedGradients.ZERO)
