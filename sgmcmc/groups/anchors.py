"""Quadrature with fixed nodes: around the modes that groups have at the posterior's mode.

The posterior of the global parameters is narrow against the density of a group's effects once there
are some hundred groups. So no chain searches for the modes of groups: the nodes follow the
parameters from their mode θ̂, as linear functions of them. How far off that is, and how many nodes
it needs, is measured: against modes that are searched for, with more nodes.

The error of the gradient at θ̂ itself is removed: it is the difference to a finer quadrature, once,
over all groups. What is left is the error of the curvature, which matters no more with a million
groups than with a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import ArrayColumn, Column, Data, Tensors
from sgmcmc.data.passes import Pass, Shard, cast, chunks, map_over, shards
from sgmcmc.graphs.tracing import trace
from sgmcmc.groups.marginal import Marginal, Rule
from sgmcmc.groups.normal import flat_numbers
from sgmcmc.groups.packs import CENTER, DRIFT, MODE, ROOT, SLOPE, START
from sgmcmc.interrupts import pass_on

Point = Mapping[str, np.ndarray]
"""Parameters by name."""

LogPrior = Callable[[Tensors], tf.Tensor]

# Columns that the chain's packs have and the user's have not.
_NODE_COLUMNS = (MODE, ROOT, CENTER, DRIFT, SLOPE, START)
# Nodes in each direction of the gradient at θ̂, by the number of directions.
_FINE_NODES = {1: 17, 2: 11, 3: 7}
# Least number of nodes of the reference for errors; twice the number of nodes, if that is more.
_REFERENCE_NODES = {1: 31, 2: 15, 3: 9}


@dataclass(frozen=True)
class _Settings:
    max_numbers: int = 2**20  # of packs whose modes are searched at once
    # Packs on which errors are measured:
    min_packs: int = 20
    max_packs: int = 500
    max_terms: int = 2**20  # of their log-likelihood


_SETTINGS = _Settings()


class ModeSearch:
    """The search for the modes of all groups, at one position after the other.

    A search begins at the modes of the last position.

    Args:
        marginal: Log-likelihood of packs.
        data: Packs.
    """

    def __init__(self, marginal: Marginal, data: Data) -> None:
        self._marginal = marginal
        self._pass = Pass(free(data), {"normal": self._normal})

    def at(self, params: Point) -> Data:
        """Return packs with the mode and information of each group at some parameters."""
        marginal = self._marginal
        q, slots = marginal.groups.size, marginal.most
        data = self._pass.data
        if START not in data.columns:
            dtype = next(
                np.asarray(a).dtype
                for a in params.values()
                if np.asarray(a).dtype.kind == "f"
            )
            start = np.empty((data.size, slots, q), dtype)
            start[...] = marginal.groups.start
            data = _with(data, {START: start})
        numbers_per_pack = data.row_bytes // 4 + 4 * slots * (q + 1) ** 2
        packs_at_once = max(1, _SETTINGS.max_numbers // numbers_per_pack)
        modes, roots = self._pass.on(data).joined(
            "normal", dict(params), max_terms=packs_at_once
        )
        self._pass = self._pass.on(
            _with(data, {START: np.where(np.isfinite(modes), modes, 0.0)})
        )
        return _with(free(data), {MODE: modes, ROOT: roots})

    def _normal(self, params: Tensors, columns: Tensors) -> list[tf.Tensor]:
        normal = self._marginal.normal(params, columns)
        q = self._marginal.groups.size
        slots = self._marginal.most
        root = tf.stack([tf.stack(row, -1) for row in normal.root], 1)
        return [
            tf.reshape(normal.mode, [-1, slots, q]),
            tf.reshape(root, [-1, slots, q, q]),
        ]


def following(
    search: ModeSearch, center: Point, displaced: Sequence[tuple[Point, Point]]
) -> Data:
    """Return packs whose nodes follow the parameters from a center.

    Modes and information are linear functions of θ − θ̂: those that fit what is found to both sides
    of the center in several directions, with least squares, since θ may have more numbers than
    there are directions.

    Args:
        search: Search for modes.
        center: Parameters θ̂.
        displaced: Parameters on one side and on the other, for each direction.
    """
    changes, steps = [], []
    for pair in displaced:
        normals = []
        for point in pair:
            data = search.at(point)
            modes, roots = (
                np.asarray(data.columns[name].tensor(0, data.size), np.float64)
                for name in (MODE, ROOT)
            )
            normals.append(flat_numbers(modes, roots))
        changes.append((normals[0] - normals[1]) / 2)
        steps.append((_flat_params(pair[0]) - _flat_params(pair[1])) / 2)
    fixed = search.at(center)
    derivatives = np.tensordot(
        np.stack(changes, -1), np.linalg.pinv(np.stack(steps)).T, 1
    )
    derivatives = np.where(np.isfinite(derivatives), derivatives, 0.0)
    dtype = fixed.columns[MODE].dtype
    return _with(
        fixed, {CENTER: _tiled_params(center, fixed), DRIFT: derivatives.astype(dtype)}
    )


def _flat_params(point: Point) -> np.ndarray:
    return np.concatenate(
        [np.asarray(point[n], np.float64).reshape(-1) for n in sorted(point)]
    )


def _tiled_params(point: Point, data: Data) -> np.ndarray:
    """Return parameters as a column of packs, each with the same row."""
    flat = _flat_params(point).astype(data.columns[MODE].dtype)
    return np.tile(flat, (data.size, 1))


def free(data: Data) -> Data:
    """Return packs whose groups' modes are searched for."""
    columns = {name: c for name, c in data.columns.items() if name not in _NODE_COLUMNS}
    return data if len(columns) == len(data.columns) else _with_columns(data, columns)


def _with(data: Data, arrays: Mapping[str, np.ndarray]) -> Data:
    return _with_columns(
        data, {**data.columns, **{n: ArrayColumn(a) for n, a in arrays.items()}}
    )


def _with_columns(data: Data, columns: Mapping[str, Column]) -> Data:
    copied = Data(columns, data.size, data.read_from)
    copied.machines = data.machines
    return copied


@dataclass(frozen=True)
class CorrectedLogPrior:
    """A log-prior with the error of a quadrature's gradient at θ̂ added: c·(θ − θ̂).

    Attributes:
        log_prior: Log-prior; ``None`` for a flat one.
        center: Parameters θ̂.
        slope: c, by parameter.
    """

    log_prior: LogPrior | None
    center: Point
    slope: Point

    def __call__(self, params: Tensors) -> tf.Tensor:
        """Return the log-prior and the correction."""
        dtype = next(iter(params.values())).dtype
        total = (
            tf.zeros([], dtype)
            if self.log_prior is None
            else self.log_prior(dict(params))
        )
        for name, value in self.slope.items():
            step = params[name] - tf.constant(self.center[name], dtype)
            total += tf.reduce_sum(tf.constant(value, dtype) * step)
        return total


class _Quadratures:
    """Sums over packs by any number of nodes, and their gradients; a graph serves all of them.

    Args:
        marginal: Log-likelihood of packs.
        dtype: Dtype to compute in.
    """

    def __init__(self, marginal: Marginal, dtype: tf.DType) -> None:
        self.marginal, self.dtype = marginal, dtype
        self._graphs: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A worker traces its own graphs.
        return {**self.__dict__, "_graphs": {}}

    def value(self, params: Point, columns: Tensors, nodes: int) -> float:
        return float(self._evaluate(self._value, params, columns, nodes))

    def slope(self, params: Point, columns: Tensors, nodes: int) -> Point:
        gradients = self._evaluate(self._slope, params, columns, nodes)
        return {
            name: gradient.numpy().astype(np.float64)
            for name, gradient in gradients.items()
        }

    def _evaluate(
        self, function: Any, params: Point, columns: Tensors, nodes: int
    ) -> Any:
        point = {name: tf.constant(value, self.dtype) for name, value in params.items()}
        rule = self.marginal.rule(self.dtype, nodes)
        key = function.__name__, len(next(iter(columns.values()))), tuple(columns)
        if key not in self._graphs:
            any_rule = Rule(
                *(tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in rule)
            )
            self._graphs[key] = trace(function, point, columns, any_rule)
        return self._graphs[key](point, columns, rule)

    def _value(self, params: Tensors, columns: Tensors, rule: Rule) -> tf.Tensor:
        columns = cast(columns, self.dtype)
        return tf.reduce_sum(self.marginal.of_packs(params, columns, rule))

    def _slope(self, params: Tensors, columns: Tensors, rule: Rule) -> Tensors:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(params)
            value = self._value(params, columns, rule)
        gradients = tape.gradient(value, params, unconnected_gradients="zero")
        # That of effects that are looked up is of their rows.
        return {
            name: tf.convert_to_tensor(gradient) for name, gradient in gradients.items()
        }


class _GradientError:
    """The error of the gradient at a center over packs whose nodes are fixed there.

    Args:
        quadratures: Sums over packs.
        data: Packs.
        nodes: Nodes in each direction.
    """

    def __init__(self, quadratures: _Quadratures, data: Data, nodes: int) -> None:
        self._quadratures = quadratures
        self._data = data
        self._nodes = nodes
        self.fine = max(_FINE_NODES[quadratures.marginal.groups.size], nodes)

    def at(self, center: Point) -> Point:
        """Return the sum over all packs, by parameter."""
        terms = self._quadratures.marginal.with_nodes(self.fine).row_terms
        calls = [(center, shard) for shard in shards(self._data, row_terms=terms)]
        return _sum(list(map_over(self._data, self, "of_shard", calls)))

    def of_shard(self, center: Point, shard: Shard) -> Point:
        slope, errors = self._quadratures.slope, []
        for *_, columns in chunks(self._data, shard):
            fine, coarse = (slope(center, columns, k) for k in (self.fine, self._nodes))
            errors.append({name: fine[name] - coarse[name] for name in coarse})
        return _sum(errors)


def _sum(points: Sequence[Point]) -> Point:
    return {name: np.sum([point[name] for point in points], 0) for name in points[0]}


class QuadratureError:
    """The error of quadratures at some parameters, over some packs.

    Args:
        marginal: Log-likelihood of packs.
        data: Packs.
        params: Several parameters, (k, *shape) each.
        center: Parameters where the error of the gradient is removed; ``None`` if it is not.
    """

    def __init__(
        self, marginal: Marginal, data: Data, params: Point, center: Point | None = None
    ) -> None:
        finer = max(_REFERENCE_NODES[marginal.groups.size], 2 * marginal.nodes + 1)
        terms = marginal.with_nodes(finer).row_terms
        affordable = max(_SETTINGS.min_packs, _SETTINGS.max_terms // terms)
        size = min(data.size, _SETTINGS.max_packs, affordable)
        rows = np.linspace(0, data.size - 1, size).astype(int)
        columns: dict[str, Column] = {
            name: ArrayColumn(array.numpy()) for name, array in data.rows(rows).items()
        }
        self._data = Data(columns, size)
        self._center = center
        self._scale = data.size / size
        count = len(next(iter(params.values())))
        points = [
            {name: array[k] for name, array in params.items()} for k in range(count)
        ]
        search = ModeSearch(marginal, self._data)
        searched = [search.at(point).whole for point in points]
        # In closed form it does not matter where nodes are; one node of a rule must be at the mode.
        fixed = (
            self._data.whole if MODE in columns and not marginal.groups.normal else None
        )
        self._evaluations = [
            (point, packs if fixed is None else fixed)
            for point, packs in zip(points, searched, strict=True)
        ]
        self._quadratures = _in_double(marginal, points[0], searched[0])
        self._exact = self._values(zip(points, searched, strict=True), finer)

    @property
    def dtype(self) -> tf.DType:
        """The dtype that sums over packs are computed in."""
        return self._quadratures.dtype

    def error(self, nodes: int) -> float:
        """Return the SD of the error of the log posterior over the parameters.

        An error that is the same everywhere leaves the posterior as it is.
        """
        error = self._values(self._evaluations, nodes) - self._exact
        if self._center is not None:
            slope = _GradientError(self._quadratures, self._data, nodes).at(
                self._center
            )
            error += [
                sum(np.sum(c * (point[n] - self._center[n])) for n, c in slope.items())
                for point, _ in self._evaluations
            ]
        return float(np.std(error)) * self._scale

    def _values(
        self, evaluations: Iterable[tuple[Point, Tensors]], nodes: int
    ) -> np.ndarray:
        return np.array(
            [self._quadratures.value(*evaluation, nodes) for evaluation in evaluations]
        )


def precise_dtype(marginal: Marginal, data: Data, point: Point) -> tf.DType:
    """Return float64 if the user's functions support it, their own dtype otherwise."""
    return _in_double(marginal, point, data.slice(0, 1)).dtype


def _in_double(marginal: Marginal, point: Point, packs: Tensors) -> _Quadratures:
    """Return sums in float64, if the user's functions support it."""
    double = _Quadratures(marginal, tf.float64)
    try:
        double.value(point, packs, marginal.nodes)
    except Exception as error:
        pass_on(error)
        kinds = [np.asarray(array).dtype for array in point.values()]
        return _Quadratures(
            marginal, tf.as_dtype(next(kind for kind in kinds if kind.kind == "f"))
        )
    return double


@dataclass(frozen=True)
class FixedNodes:
    """Fixed positions of the nodes of groups, for a chain that does not search for modes.

    Attributes:
        nodes: Nodes in each direction; 1 in closed form.
        center: Parameters θ̂ at which they are fixed.
        sides: Parameters on one side of θ̂ and on the other, in several directions, by which nodes
            follow the parameters; empty if they are fixed.
        slope: Error of the gradient at θ̂, by parameter, which the packs correct if they follow
            the parameters, otherwise the log-prior; empty if it is not.
    """

    nodes: int
    center: Point
    sides: Sequence[tuple[Point, Point]] = ()
    slope: Point = field(default_factory=dict)

    @property
    def near_center_only(self) -> bool:
        """Whether they do around θ̂ alone; a closed form is exact wherever its nodes are."""
        return self.nodes > 1

    def packs(self, marginal: Marginal, data: Data) -> Data:
        """Return packs with fixed nodes."""
        search = ModeSearch(marginal, data)
        return (
            following(search, self.center, self.sides)
            if self.sides
            else search.at(self.center)
        )

    def correct(
        self, data: Data, log_prior: LogPrior | None
    ) -> tuple[Data, LogPrior | None]:
        """Return packs and log-prior that correct the error of the gradient.

        Numbers in packs are none of the graphs', so that these serve other calls. Beyond some
        coordinates they would take more memory than the rows.
        """
        if isinstance(log_prior, CorrectedLogPrior):
            log_prior = log_prior.log_prior
        if not self.slope:
            return data, log_prior
        if not self.sides:
            return data, CorrectedLogPrior(log_prior, self.center, self.slope)
        per_pack = {name: value / data.size for name, value in self.slope.items()}
        return _with(data, {SLOPE: _tiled_params(per_pack, data)}), log_prior

    def corrected(self, marginal: Marginal, data: Data, dtype: tf.DType) -> FixedNodes:
        """Return the same with the error of the gradient, over all packs.

        Args:
            marginal, data: Likelihood, and packs with fixed nodes.
            dtype: Dtype to compute in.
        """
        gradient_error = _GradientError(_Quadratures(marginal, dtype), data, self.nodes)
        return replace(self, slope=gradient_error.at(self.center))
