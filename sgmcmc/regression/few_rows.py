"""Regressions of few rows and parameters: draws by elliptical slices, without derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sgmcmc.groups.structure import Structure
from sgmcmc.plan.reports.warnings import quadrature_warnings
from sgmcmc.reduce.elliptical import (
    EllipticalChains,
    StudentApproximation,
    at_mode,
    fitted,
)
from sgmcmc.reduce.rows import distinct_rows
from sgmcmc.regression.building import RegressionData, observed_rows
from sgmcmc.regression.conditional_effects import ProposedEffects
from sgmcmc.regression.density import (
    GroupedRows,
    RegressionDensity,
    RegressionPrior,
    RowTerms,
)
from sgmcmc.regression.direct import DirectCall, DirectDraws, leave_sampler_open
from sgmcmc.regression.formula import place_name, weight_name
from sgmcmc.regression.model import WEIGHTS
from sgmcmc.regression.priors import has_distributions
from sgmcmc.regression.sums import dense_design
from sgmcmc.results.diagnostics import diagnose
from sgmcmc.results.report import Fact
from sgmcmc.results.samples import Samples


@dataclass(frozen=True)
class _Settings:
    coordinates: int = 16  # at most: a t is fitted to some hundred draws
    rows: int = 100_000  # of which distinct ones are looked for, at most
    distinct: int = 2000  # of these, at most: with more, chains are quicker
    terms: int = 6000  # of rows at all nodes, at most, with groups
    ahead: int = 3  # points of a slice in one call: about one in two is inside
    effective: float = 20.0  # draws of the first block: with fewer, a chain is better
    # Nodes in each direction to try, by the number of directions
    nodes: tuple[tuple[int, ...], ...] = ((3, 5, 9, 15, 25, 41, 61), (3, 5, 9, 15, 21))
    error: float = 0.003  # of the log density by a quadrature, SD over positions
    compared: int = 16  # positions at which quadratures are compared


_SETTINGS = _Settings()


@dataclass(frozen=True)
class _Errors:
    """Quadratures compared at some positions.

    Attributes:
        density: Density with as many nodes as are needed.
        error: Standard deviation of its change with more nodes.
    """

    density: RegressionDensity
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
    if model.family.several or model.family.has_cutpoints or len(model.effects) > 1:
        return False
    if has_distributions(model):
        return False
    size = len(model.terms) + len(model.family.aux)
    size += sum(len(effects.rows) for effects in model.effects)
    of_effects = [len(effects.terms) for effects in model.effects]
    if size > _SETTINGS.coordinates or max(of_effects, default=0) > len(
        _SETTINGS.nodes
    ):
        return False
    rows = len(data.frame)
    if of_effects:
        (q,) = of_effects
        return rows * _first_nodes(q) ** q <= _SETTINGS.terms
    most = _SETTINGS.distinct if data.weights is not None else _SETTINGS.rows
    return rows <= most


def _first_nodes(q: int) -> int:
    """Return the nodes in each of q directions with which the mode is searched."""
    return _SETTINGS.nodes[q - 1][1]


class FewRowsDraws(DirectDraws):
    """Draws from the density of a regression.

    Args:
        density: Density.
        sampler: Sampler of positions.
        chains: Number of chains.
        seed: Seed, or the entropy drawn in its place.
        dtype: Floating point type of draws.
    """

    def __init__(
        self,
        density: RegressionDensity,
        sampler: EllipticalChains,
        chains: int,
        seed: int,
        dtype: np.dtype,
    ) -> None:
        super().__init__(chains, seed, dtype)
        self.sampler, self.density = sampler, density

    def at(
        self, positions: np.ndarray, number: int
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the parameters of a block, and the log posterior."""
        shape = positions.shape[:2]
        flat = positions.reshape(-1, positions.shape[-1])
        draws = {
            name: values.reshape(*shape, *values.shape[1:])
            for name, values in self.density.params(flat).items()
        }
        return draws, self.density(flat).reshape(shape)


class FewRowsCall(DirectCall):
    """A call for draws of a regression of few rows.

    Its density is computed at several positions at once, without derivatives, so that nothing is
    compiled: with few rows that takes most of the time of a chain.

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
        return len(self._start.prior.start)

    @property
    def is_less_work(self) -> bool:
        """Whether draws are less work than those of a chain over the rows."""
        if self.structure is not None:
            if len(self.structure.large):
                return False  # a chain has their effects as coordinates
        elif len(self._start.x) > _SETTINGS.distinct:
            return False
        if self._compared.error > _SETTINGS.error:
            return False
        self.draws.add_block()
        draws, _ = self.draws.first(self.draws.length)
        return diagnose(draws).smallest >= _SETTINGS.effective

    @cached_property
    def _start(self) -> RegressionDensity:
        """The density, before the nodes of its quadrature are chosen."""
        model = self.data.model
        x, columns, z = _rows(self.data)
        groups, nodes = None, 1
        if self.factors is not None:
            codes = self.factors.codes[0]
            order = np.argsort(codes, kind="stable")
            x = x[order]
            columns = {name: values[order] for name, values in columns.items()}
            groups = GroupedRows(z[order].T, codes[order])
            nodes = _first_nodes(z.shape[1])
        elif WEIGHTS not in columns:
            distinct = distinct_rows({"X": x, **columns}, WEIGHTS)
            if distinct is not None:
                columns = dict(distinct)
                x = columns.pop("X")
        terms = RowTerms(model, columns)
        return RegressionDensity(RegressionPrior(model), terms, model, x, groups, nodes)

    @cached_property
    def _approximation(self) -> StudentApproximation:
        return at_mode(self._start, self._start.prior.start)

    @cached_property
    def _compared(self) -> _Errors:
        mean, root = self._approximation.mean, self._approximation.root
        density = self._start.around(mean, np.sqrt((root**2).sum(1)))
        if density.groups is None:
            return _Errors(density, 0.0)
        z = np.random.default_rng(0).standard_normal((_SETTINGS.compared, self.size))
        positions = self._approximation.positions(z)
        candidates = [
            replace(density, nodes=nodes)
            for nodes in _SETTINGS.nodes[len(density.groups.z) - 1]
        ]
        values = candidates[0](positions)
        for candidate, finer in itertools.pairwise(candidates):
            before, values = values, finer(positions)
            error = float(np.std(values - before))
            coarse = _Errors(candidate, error)
            if error <= _SETTINGS.error:
                break
        return coarse

    @cached_property
    def draws(self) -> FewRowsDraws:
        """Draws, none to begin with."""
        density, seed, chains = self._compared.density, self.seed, self.goal.n_chains
        self.clock.done("mode")
        ahead = _SETTINGS.ahead
        approximation = fitted(density, self._approximation, seed, ahead)
        sampler = EllipticalChains(density, approximation, seed, chains, ahead=ahead)
        self.clock.done("pilot")
        return FewRowsDraws(density, sampler, chains, seed, self.data.dtype)

    def effects_given(
        self, structure: Structure, draws: Mapping[str, np.ndarray], seed: int
    ) -> ProposedEffects:
        """Return the distribution of the effects of groups given draws."""
        return ProposedEffects(structure, draws, seed, self._start)

    def model_facts(self) -> dict[str, Any]:
        """Return the facts about the model."""
        names, rows = self._start.prior.layout.names, len(self.data.frame)
        facts: dict[str, Any] = {}
        if self.factors is not None:
            (by,) = self.factors.structure.labels
            levels = self.factors.levels.eliminated
            facts[Fact.REDUCTION] = (
                f"{rows} rows as {levels} groups of {by!r}, integrated out"
            )
        elif len(self._start.x) < rows:
            distinct = len(self._start.x)
            facts[Fact.REDUCTION] = (
                f"{rows} rows as {distinct} distinct ones, with their numbers"
            )
        return {
            **facts,
            "sampled": ", ".join(map(repr, names)) + ", by elliptical slices",
            "densities computed": self.draws.sampler.evaluations,
        }

    def group_facts(self, samples: Samples) -> tuple[dict[str, Any], list[str]]:
        """Return the facts about groups, and warnings."""
        if self.factors is None:
            return {}, []
        structure, nodes = self.factors.structure, self.draws.density.nodes
        ((by, labels),) = structure.labels.items()
        facts = {
            f"levels of {by!r}": len(labels),
            "integrated out": by,
            "nodes in each direction": nodes,
            "quadrature error of the log posterior, SD over draws": self._compared.error,
        }
        return facts, quadrature_warnings(structure, nodes, self._compared.error)


def _rows(
    data: RegressionData,
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Return design, columns of the log-likelihood and factors of effects of all rows.

    They are (rows, p), (rows,) each, and (rows, q), with q = 0 if there are no effects.
    """
    model = data.model
    of_effects = [f"Z_{effects.name}" for effects in model.effects]
    of_predictors = {"X", *of_effects}
    for number in range(len(model.design.coded)):
        of_predictors |= {place_name(number), weight_name(number)}
    chunks: list[dict[str, np.ndarray]] = []
    designs, factors = [], []
    for rows, design_rows, columns in observed_rows(
        model, data.y, data.frame, data.weights
    ):
        count = rows.stop - rows.start
        designs.append(dense_design(model, design_rows, slice(None)))
        z = [columns[name] for name in of_effects]
        factors.append(np.concatenate([np.zeros((count, 0)), *z], 1))
        chunks.append(
            {
                name: np.broadcast_to(values, count)
                for name, values in columns.items()
                if name not in of_predictors
            }
        )
    joined = {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}
    return np.concatenate(designs), joined, np.concatenate(factors)
