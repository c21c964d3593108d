"""Regressions of few rows and parameters: draws by elliptical slices of their density.

Effects of one factor are integrated out; those of others have Hamiltonian moves of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from sgmcmc.groups.structure import Structure
from sgmcmc.plan.reports.warnings import quadrature_warnings
from sgmcmc.reduce.elliptical import (
    EllipticalChains,
    StudentApproximation,
    at_mode,
    fitted,
)
from sgmcmc.reduce.hamiltonian import HamiltonianMoves
from sgmcmc.reduce.rows import distinct_rows
from sgmcmc.regression.building import RegressionData, observed_rows
from sgmcmc.regression.compiled_density import CompiledDensity
from sgmcmc.regression.conditional_effects import ProposedEffects
from sgmcmc.regression.density import (
    FurtherEffects,
    GroupedRows,
    RegressionDensity,
    RegressionPrior,
    RowTerms,
)
from sgmcmc.regression.direct import DirectCall, DirectDraws, leave_sampler_open
from sgmcmc.regression.formula import place_name, weight_name
from sgmcmc.regression.laplace import LaplaceCoordinates
from sgmcmc.regression.model import WEIGHTS
from sgmcmc.regression.priors import has_distributions
from sgmcmc.regression.sums import columns_of, dense_design, indicators
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.diagnostics import diagnose
from sgmcmc.results.report import Fact
from sgmcmc.results.samples import Samples


@dataclass(frozen=True)
class _Settings:
    coordinates: int = 16  # at most: a t is fitted to some hundred draws
    rows: int = 100_000  # of which distinct ones are looked for, at most
    distinct: int = 2000  # of these, at most: with more, chains are quicker
    terms: int = (
        6000  # of rows at all nodes, at most, with groups, as the mode is searched
    )
    most_terms: int = 20_000  # the same as draws are made: with more a chain is quicker
    further: int = 250  # effects of all factors but the first, at most
    ahead: int = 3  # points of a slice in one call: about one in two is inside
    effective: float = 20.0  # draws of the first block: with fewer, a chain is better
    # Nodes in each direction to try, by the number of directions
    nodes: tuple[tuple[int, ...], ...] = ((3, 5, 9, 15, 25, 41, 61), (3, 5, 9, 15, 21))
    error: float = 0.001  # of the log density by a quadrature, SD over positions
    compared: int = 16  # positions at which quadratures are compared
    # The same over draws, beside modes that are searched: means are off by as many SDs at most, of
    # which those of 400 draws have an error of 0.05
    largest_error: float = 0.02
    draws_compared: int = 64


_SETTINGS = _Settings()


@dataclass(frozen=True)
class _SampledDensity:
    """A log density in the coordinates of a sampler.

    Attributes:
        density: Density.
        coordinates: Coordinates of effects of further factors; ``None`` without them.
    """

    density: RegressionDensity
    coordinates: LaplaceCoordinates | None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the log density, (c,)."""
        values = self.compute(self.positions(x))
        if self.coordinates is None:
            return values
        return values + self.coordinates.log_jacobian(x)

    @cached_property
    def compute(self) -> Callable[[np.ndarray], np.ndarray]:
        """The density, compiled if that pays."""
        has_rule = self.density.rule is not None
        return CompiledDensity(self.density) if has_rule else self.density

    def positions(self, x: np.ndarray) -> np.ndarray:
        """Return positions of the density, (c, d)."""
        return x if self.coordinates is None else self.coordinates.positions(x)

    def moves(self) -> HamiltonianMoves | None:
        """Return moves of all coordinates but the scales; ``None`` if all are moved together."""
        if self.coordinates is None:
            return None
        return HamiltonianMoves(self._slope, self.coordinates.size)

    def _slope(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert self.coordinates is not None
        assert isinstance(self.compute, CompiledDensity)
        values, gradients = self.compute.with_gradient(self.positions(x))
        return values, self.coordinates.along(x, gradients)

    @property
    def ahead(self) -> int:
        """Points of a slice in one call."""
        slow = isinstance(self.compute, CompiledDensity) and not self.compute.is_quick
        return 1 if slow else _SETTINGS.ahead

    @property
    def has_moves(self) -> bool:
        """Whether all coordinates can be moved: XLA compiles the gradient, if they need one."""
        if self.coordinates is None:
            return True
        return isinstance(self.compute, CompiledDensity) and self.compute.has_gradient

    def with_nodes(self, nodes: int) -> _SampledDensity:
        """Return the same with other nodes of the quadrature."""
        return replace(self, density=replace(self.density, nodes=nodes))


@dataclass(frozen=True)
class _Quadrature:
    """A quadrature, compared with others at some positions.

    Attributes:
        target: Density with as many nodes as are needed.
        error: Standard deviation of its change with more nodes.
    """

    target: _SampledDensity
    error: float


def is_small(data: RegressionData, keywords: Mapping[str, Any]) -> bool:
    """Return whether a regression has so few rows and parameters that it may be drawn directly.

    Args:
        data: Model and data.
        keywords: User's keywords of :func:`sgmcmc.sample`.
    """
    model = data.model
    if not leave_sampler_open(keywords):
        return False
    if model.family.several or model.family.has_cutpoints:
        return False
    if has_distributions(model):
        return False
    size = len(model.terms) + len(model.family.aux)
    size += sum(len(effects.rows) for effects in model.effects)
    if size > _SETTINGS.coordinates:
        return False
    rows = len(data.frame)
    if model.effects:
        fewest = min(len(effects.terms) for effects in model.effects)
        if fewest > len(_SETTINGS.nodes):
            return False
        return rows * _first_nodes(fewest) ** fewest <= _SETTINGS.terms
    most = _SETTINGS.distinct if data.weights is not None else _SETTINGS.rows
    return rows <= most


def _first_nodes(q: int) -> int:
    """Return the nodes in each of q directions with which the mode is searched."""
    return _SETTINGS.nodes[q - 1][1]


class FewRowsDraws(DirectDraws):
    """Draws from the density of a regression.

    Args:
        target: Density, in the coordinates of the sampler.
        sampler: Sampler of positions.
        chains: Number of chains.
        seed: Seed, or the entropy drawn in its place.
        dtype: Floating point type of draws.
    """

    def __init__(
        self,
        target: _SampledDensity,
        sampler: EllipticalChains,
        chains: int,
        seed: int,
        dtype: np.dtype,
    ) -> None:
        super().__init__(chains, seed, dtype)
        self.sampler: EllipticalChains = sampler
        self._target = target

    @property
    def density(self) -> RegressionDensity:
        """Density."""
        return self._target.density

    def at(
        self, positions: np.ndarray, number: int
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the parameters of a block, and the log posterior."""
        shape = positions.shape[:2]
        flat = self._target.positions(positions.reshape(-1, positions.shape[-1]))
        draws = {
            name: values.reshape(*shape, *values.shape[1:])
            for name, values in self.density.params(flat).items()
        }
        return draws, self.density(flat).reshape(shape)


class FewRowsCall(DirectCall):
    """A call for draws of a regression of few rows.

    Its density is computed at several positions at once. Setting up and compiling a chain takes
    most of its time with few rows. Here the graph of the density is compiled if there are groups,
    and that of its gradient if there are further factors.

    Args:
        data: Model and data, of which :func:`is_small` is true.
        keywords: User's keywords of :func:`sgmcmc.sample`.
    """

    source = "rows"

    @property
    def method(self) -> str:
        """Name of the sampler."""
        return "elliptical_slice"

    @property
    def size(self) -> int:
        """Number of parameters."""
        further = self._start.further
        return len(self._start.prior.start) + (0 if further is None else further.size)

    @property
    def is_less_work(self) -> bool:
        """Whether draws are less work than those of a chain over the rows."""
        if self.factors is not None:
            if len(self.factors.structure.large):
                return False  # a chain has their effects as coordinates
            model, levels_of = self.data.model, dict(self.factors.others)
            q = len(model.effects[self.factors.order[0]].terms)
            if q > len(_SETTINGS.nodes):
                return False
            if len(self.data.frame) * _first_nodes(q) ** q > _SETTINGS.terms:
                return False
            if (
                columns_of(model, [*levels_of], [*levels_of.values()])
                > _SETTINGS.further
            ):
                return False
        elif len(self._start.x) > _SETTINGS.distinct:
            return False
        try:
            target, error = self._compared.target, self._compared.error
        except np.linalg.LinAlgError:  # no mode of effects given scales
            return False
        if not (error <= _SETTINGS.error and target.has_moves):
            return False
        if target.density.terms_of_a_position > _SETTINGS.most_terms:
            return False
        self.draws.add_block()
        draws, _ = self.draws.first(self.draws.length)
        if diagnose(draws).smallest < _SETTINGS.effective:
            return False
        return self._error_at(draws) <= _SETTINGS.largest_error

    def _error_at(self, draws: Mapping[str, np.ndarray]) -> float:
        """Return the error of the log density by the quadrature, SD over draws.

        It is beside more nodes around modes that are searched.
        """
        density = self._compared.target.density
        if density.groups is None:
            return 0.0
        positions = density.positions(draws)
        some = np.linspace(0, len(positions) - 1, _SETTINGS.draws_compared).astype(int)
        positions = positions[np.unique(some)]
        nodes = _SETTINGS.nodes[len(density.groups.z) - 1]
        finer = [number for number in nodes if number > density.nodes] or nodes[-1:]
        exact = replace(density, rule=None, nodes=finer[0])
        return float(np.std(exact(positions) - density(positions)))

    @cached_property
    def _start(self) -> RegressionDensity:
        """The density, before the nodes of its quadrature are chosen."""
        model = self.data.model
        x, columns, z = _rows(self.data)
        groups, further, nodes = None, None, 1
        if self.factors is not None:
            first = self.factors.order[0]
            order = np.argsort(self.factors.codes[first], kind="stable")
            x = x[order]
            columns = {name: values[order] for name, values in columns.items()}
            codes = [of_factor[order] for of_factor in self.factors.codes]
            z = [of_factor[order] for of_factor in z]
            groups = GroupedRows(model.effects[first], z[first].T, codes[first])
            nodes = _first_nodes(len(groups.z))
            if self.factors.others:
                blocks = [
                    indicators(z[k], codes[k], levels)
                    for k, levels in self.factors.others
                ]
                further = FurtherEffects(
                    tuple((model.effects[k], n) for k, n in self.factors.others),
                    scipy.sparse.hstack(blocks).tocsr(),
                )
        elif WEIGHTS not in columns:
            distinct = distinct_rows({"X": x, **columns}, WEIGHTS)
            if distinct is not None:
                columns = dict(distinct)
                x = columns.pop("X")
        terms, prior = RowTerms(model, columns), RegressionPrior(model)
        return RegressionDensity(prior, terms, model, x, groups, further, nodes)

    @cached_property
    def _coordinates(self) -> LaplaceCoordinates | None:
        has_further = self._start.further is not None
        return LaplaceCoordinates.of(self._start) if has_further else None

    @cached_property
    def _approximation(self) -> StudentApproximation:
        if self._coordinates is None:
            return at_mode(self._start, self._start.prior.start)
        return self._coordinates.scales

    @cached_property
    def _compared(self) -> _Quadrature:
        target = _SampledDensity(self._start, self._coordinates)
        t = self._approximation
        z = np.random.default_rng(0).standard_normal((_SETTINGS.compared, self.size))
        x = np.concatenate([t.positions(z[:, : len(t.mean)]), z[:, len(t.mean) :]], 1)
        center = np.append(t.mean, np.zeros(self.size - len(t.mean)))
        (position,) = target.positions(center[np.newaxis])
        sds = np.sqrt((t.root**2).sum(1))
        if self._coordinates is not None:
            sds = target.positions(x).std(0)
        target = replace(target, density=self._start.around(position, sds))
        if target.density.groups is None:
            return _Quadrature(target, 0.0)
        candidates = [
            target.with_nodes(nodes)
            for nodes in _SETTINGS.nodes[len(target.density.groups.z) - 1]
        ]
        positions = target.positions(x)
        values = candidates[0].density(positions)
        for candidate, finer in itertools.pairwise(candidates):
            before, values = values, finer.density(positions)
            error = float(np.std(values - before))
            coarse = _Quadrature(candidate, error)
            if error <= _SETTINGS.error:
                break
        return coarse

    @cached_property
    def draws(self) -> FewRowsDraws:
        """Draws, none to begin with."""
        target, seed, chains = self._compared.target, self.seed, self.goal.n_chains
        self.clock.done("mode")
        ahead, moves = target.ahead, target.moves()
        approximation = fitted(target, self._approximation, seed, ahead, moves)
        sampler = EllipticalChains(
            target, approximation, seed, chains, ahead=ahead, moves=moves
        )
        self.clock.done("pilot")
        return FewRowsDraws(target, sampler, chains, seed, self.data.dtype)

    def effects_given(
        self, structure: Structure, draws: Mapping[str, np.ndarray], seed: int
    ) -> ProposedEffects:
        """Return the distribution of the effects of groups given draws."""
        return ProposedEffects(structure, draws, seed, self._start)

    @property
    def _integrated(self) -> str:
        """Name of the factor whose effects are integrated out."""
        assert self.factors is not None
        return self.data.model.effects[self.factors.order[0]].entry

    def model_facts(self) -> dict[str, Any]:
        """Return the facts about the model."""
        names, rows = self._start.prior.layout.names, len(self.data.frame)
        facts: dict[str, Any] = {}
        if self.factors is not None:
            by, levels = self._integrated, self.factors.levels.eliminated
            facts[Fact.REDUCTION] = (
                f"{rows} rows as {levels} groups of {by!r}, integrated out"
            )
        elif len(self._start.x) < rows:
            distinct = len(self._start.x)
            facts[Fact.REDUCTION] = (
                f"{rows} rows as {distinct} distinct ones, with their numbers"
            )
        shown, moves = ", ".join(map(repr, names)), self.draws.sampler.moves
        if moves is None:
            facts["sampled"] = f"{shown}, by elliptical slices"
        else:
            scales = ", ".join(repr(name) for name in names if name != "b")
            facts["sampled"] = (
                f"{scales} by elliptical slices; coefficients and effects given these by "
                "Hamiltonian moves"
            )
            facts["gradients computed"] = moves.gradients
        return {**facts, "densities computed": self.draws.sampler.evaluations}

    def group_facts(self, samples: Samples) -> tuple[dict[str, Any], list[str]]:
        """Return the facts about groups, and warnings."""
        if self.factors is None:
            return {}, []
        structure, nodes = self.factors.structure, self._compared.target.density.nodes
        error = self._error_at(by_chain(samples.settings, samples))
        facts = {
            **{
                f"levels of {by!r}": len(shown)
                for by, shown in structure.labels.items()
            },
            "integrated out": self._integrated,
            "nodes in each direction": nodes,
            "quadrature error of the log posterior, SD over draws": error,
        }
        return facts, quadrature_warnings(structure, nodes, error)


def _rows(
    data: RegressionData,
) -> tuple[np.ndarray, dict[str, np.ndarray], list[np.ndarray]]:
    """Return design, columns of the log-likelihood and factors of effects of all rows.

    They are (rows, p), (rows,) each, and (rows, q) for each factor.
    """
    model = data.model
    of_effects = [f"Z_{effects.name}" for effects in model.effects]
    of_predictors = {"X", *of_effects}
    for number in range(len(model.design.coded)):
        of_predictors |= {place_name(number), weight_name(number)}
    chunks: list[dict[str, np.ndarray]] = []
    designs: list[np.ndarray] = []
    factors: list[list[np.ndarray]] = [[] for _ in of_effects]
    for rows, design_rows, columns in observed_rows(
        model, data.y, data.frame, data.weights
    ):
        count = rows.stop - rows.start
        designs.append(dense_design(model, design_rows, slice(None)))
        for of_factor, name in zip(factors, of_effects, strict=True):
            of_factor.append(np.asarray(columns[name], np.float64))
        chunks.append(
            {
                name: np.broadcast_to(values, count)
                for name, values in columns.items()
                if name not in of_predictors
            }
        )
    joined = {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}
    return np.concatenate(designs), joined, [np.concatenate(z) for z in factors]
