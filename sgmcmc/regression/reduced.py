"""Gaussian regressions whose likelihood is a function of sums: draws without a chain over rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.groups.spec import MOST_INTEGRATED
from sgmcmc.groups.structure import Structure, of_large
from sgmcmc.reduce.elliptical import (
    BLOCK,
    EllipticalChains,
    InvertedChains,
    at_mode,
    fitted,
    mode_and_width,
)
from sgmcmc.reduce.gaussian import GaussianSums
from sgmcmc.reduce.interpolated import interpolated
from sgmcmc.reduce.marginal import MarginalDensity, SharedBasis
from sgmcmc.regression.building import RegressionData
from sgmcmc.regression.conditional_effects import ConditionalEffects
from sgmcmc.regression.direct import (
    DirectCall,
    DirectDraws,
    leave_sampler_open,
)
from sgmcmc.regression.priors import has_distributions, normal_priors
from sgmcmc.regression.scales import RegressionScales
from sgmcmc.regression.sums import columns_of, sums_of
from sgmcmc.results.report import Fact
from sgmcmc.results.samples import Samples


@dataclass(frozen=True)
class _Settings:
    columns: int = 2000  # of X'X, dense, at most
    work: float = 2e11  # multiplications for the sums, at most
    projections: float = 2.0**27  # numbers of all groups, at most
    # Effects in a dense matrix, at most: 2600 densities, the pilots among them, take 18 s with 400.
    crossed: int = 400
    # The same if a hundred densities are enough, for polynomials, and from how many on they pay.
    crossed_of_polynomials: int = 2000
    polynomials_from: int = 100
    work_at_scales: float = 5e6  # for the density at one position, at most
    least: float = 1e-7  # noise, in SDs of the response, that may be rounding
    noise: float = 0.1  # noise in its place, where columns can be as many as rows
    few_rows: float = 0.5  # rows more than effects, over effects: fewer do not tell σ
    near: float = 0.5  # of log σ: farther away, the basis is made again
    together: float = -0.9  # correlation of two variances that data do not tell apart


_SETTINGS = _Settings()


def is_reducible(data: RegressionData, keywords: Mapping[str, Any]) -> bool:
    """Return whether the posterior of a regression can be drawn from sums.

    Args:
        data: Model and data.
        keywords: User's keywords of :func:`sgmcmc.sample`.
    """
    model, p, n = data.model, len(data.model.terms), len(data.frame)
    if model.family.name != "gaussian" or not leave_sampler_open(keywords):
        return False
    if has_distributions(model):
        return False
    if p > _SETTINGS.columns:
        return False
    if float(n) * (p + 1) ** 2 > _SETTINGS.work:
        return False
    if not model.effects:
        return True
    fewest = min(len(effects.terms) for effects in model.effects)
    return fewest <= MOST_INTEGRATED and float(p) ** 3 <= _SETTINGS.work_at_scales


class SumsDraws(DirectDraws):
    """Draws of a Gaussian regression from its sums.

    Args:
        density: Posterior of the scales.
        start: Position near its mode.
        chains: Number of chains.
        seed: Seed, or the entropy drawn in its place.
        dtype: Floating point type of draws.
    """

    def __init__(
        self,
        density: MarginalDensity,
        start: np.ndarray,
        chains: int,
        seed: int,
        dtype: np.dtype,
    ) -> None:
        super().__init__(chains, seed, dtype)
        assert isinstance(density.scales, RegressionScales)
        self.scales, self._density = density.scales, density
        if density.sums.groups is not None:
            self._conditional: MarginalDensity | SharedBasis = density
            approximation = fitted(density, at_mode(density, start), seed)
            self.sampler = EllipticalChains(density, approximation, seed, chains)
            return
        noise = abs(density.sums.root[-1, -1]) / np.sqrt(density.sums.total)
        mode = float(np.log(noise if noise > _SETTINGS.least else _SETTINGS.noise))
        shared = SharedBasis(density, float(np.exp(mode)))
        before, (mode, _width) = mode, mode_and_width(shared, mode)
        if abs(mode - before) > _SETTINGS.near:
            shared = SharedBasis(density, float(np.exp(mode)))
        self._conditional = shared
        self.sampler = InvertedChains(shared, mode, seed, chains)

    def at(
        self, positions: np.ndarray, number: int
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the parameters of a block, and the log posterior."""
        flat = positions.reshape(-1, positions.shape[-1])
        normals = self._normals(Purpose.LATENTS, number, len(self._density.mean))
        b, log_posterior = self._conditional.draw(flat, normals)
        shape = positions.shape[:2]
        draws = {"b": b.reshape(*shape, -1)} if b.size else {}
        draws |= self.scales.draws(positions)
        selected = self._density.sums.selected
        if selected is not None and len(self.scales.model.effects) == 1:
            groups, q = selected.projections.shape[:2]
            normals = self._normals(Purpose.START_LATENTS, number, groups * q)
            normals = normals.reshape(-1, groups, q)
            effects = self._density.draw_effects(flat, b, normals)
            name = of_large(self.scales.model.effects[0].effects_name)
            draws[name] = effects.reshape(*shape, groups, q)
        log_unit = np.log(self.scales.model.unit)
        log_posterior = log_posterior - self._density.sums.total * log_unit
        return draws, log_posterior.reshape(shape)

    def _normals(self, purpose: Purpose, number: int, size: int) -> np.ndarray:
        """Return standard normals of a block, (chains · BLOCK, size)."""
        rngs = [
            generator(self._seed, chain, RunPhase.CHAIN, purpose, number)
            for chain in range(self._chains)
        ]
        normals = [rng.standard_normal((BLOCK, size)) for rng in rngs]
        return np.concatenate(normals)


class SumsCall(DirectCall):
    """A call for draws of a Gaussian regression from its sums.

    Args:
        data: Model and data.
        keywords: User's keywords of :func:`sgmcmc.sample`.
    """

    source = "sums"

    def __init__(self, data: RegressionData, keywords: Mapping[str, Any]) -> None:
        super().__init__(data, keywords)
        self._effects: dict[str, dict[str, np.ndarray]] = {}  # of the last draws

    @property
    def method(self) -> str:
        """Name of the sampler."""
        return "independent" if self.factors is None else "elliptical_slice"

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.data.model.terms) + self.draws.scales.size

    @cached_property
    def sums(self) -> GaussianSums | None:
        """Sums of the data, ``None`` if there are too many."""
        large = () if self.factors is None else self.factors.structure.large.tolist()
        sums = sums_of(self.data, self.factors, large)
        self.clock.done("sums")
        return sums

    @property
    def is_less_work(self) -> bool:
        """Whether sums are less work than a chain over the rows."""
        factors, model = self.factors, self.data.model
        if factors is None:
            return True
        columns = columns_of(model, factors.dense, factors.levels.dense)
        columns += len(model.terms) + 1
        size = columns_of(model, factors.order[:1], [factors.levels.eliminated])
        if float(size) * columns > _SETTINGS.projections:
            return False
        crossed = columns_of(model, factors.crossed, factors.levels.crossed)
        if crossed > _SETTINGS.crossed_of_polynomials or self.sums is None:
            return False
        groups = self.sums.groups
        assert groups is not None
        work = groups.projections.size * float(columns)
        if self.sums.crossed is not None and crossed <= _SETTINGS.crossed:
            work += self.sums.crossed.work
        if work > _SETTINGS.work_at_scales:
            return False
        return crossed <= _SETTINGS.crossed or self.by_polynomials is not None

    @cached_property
    def by_polynomials(self) -> tuple[MarginalDensity, np.ndarray] | None:
        """The posterior of scales by polynomials, and its mode, for many crossed effects."""
        factors, model = self.factors, self.data.model
        if factors is None:
            return None
        eliminated = (factors.order[0], *factors.crossed)
        crossed = columns_of(model, factors.crossed, factors.levels.crossed)
        of_one = all(len(model.effects[number].terms) == 1 for number in eliminated)
        if crossed < _SETTINGS.polynomials_from or not of_one:
            return None
        density = self._density(self.sums, self._few_rows)
        assert isinstance(density.scales, RegressionScales)
        return interpolated(density, density.scales.start)

    @property
    def _few_rows(self) -> bool:
        """Whether there are few rows more than effects."""
        assert self.sums is not None
        groups = self.sums.groups
        if groups is None:
            return False
        ranks = (groups.roots != 0.0).any(2).sum(1)
        effects = float(ranks @ groups.counts)
        return self.sums.total - effects < _SETTINGS.few_rows * effects

    def _density(self, sums: GaussianSums | None, of_rows: bool) -> MarginalDensity:
        """Return the posterior of the scales; see :class:`RegressionScales`."""
        assert sums is not None
        mean, sd = normal_priors(self.data.model)
        order = (0,) if self.factors is None else self.factors.order
        scales = RegressionScales(self.data.model, of_rows, order)
        return MarginalDensity(sums, mean, sd, scales)

    @cached_property
    def draws(self) -> SumsDraws:
        """Draws, none to begin with."""
        chains, dtype = self.goal.n_chains, self.data.dtype
        density = self._density(self.sums, self._few_rows)
        assert isinstance(density.scales, RegressionScales)
        density, start = self.by_polynomials or (density, density.scales.start)
        draws = SumsDraws(density, start, chains, self.seed, dtype)
        self.clock.done("scales")
        return draws

    @cached_property
    def _of_all_groups(self) -> MarginalDensity:
        """The posterior of the scales, with the sums of each group of the first factor."""
        factors = self.factors
        assert factors is not None
        sums = sums_of(self.data, factors, range(factors.levels.eliminated))
        return self._density(sums, of_rows=False)

    def effects_given(
        self, structure: Structure, draws: Mapping[str, np.ndarray], seed: int
    ) -> ConditionalEffects:
        """Return the distribution of the effects of groups given draws."""
        return ConditionalEffects(
            structure, self.with_effects(draws), seed, self._of_all_groups
        )

    def with_effects(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return draws with the effects that are coordinates of a chain over the rows.

        These are of all factors but the first, and of large groups of the first. A draw has the
        same effects whatever other draws it comes with.
        """
        factors = self.factors
        if factors is None or not factors.structure.coordinates:
            return dict(draws)
        key = blake2b(np.ascontiguousarray(draws["sigma"]).tobytes()).hexdigest()
        if key not in self._effects:
            self._effects = {key: self._effects_of(draws)}
        return {**draws, **self._effects[key]}

    def _effects_of(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        factors, model = self.factors, self.data.model
        assert factors is not None
        shape = draws["sigma"].shape
        density = self._of_all_groups
        assert isinstance(density.scales, RegressionScales)
        positions = density.scales.positions(draws)
        b = np.asarray(draws.get("b", np.zeros((*shape, 0))), np.float64)
        b = b.reshape(len(positions), -1)
        structure = factors.structure
        size = sum(columns_of(model, [k], [count]) for k, count in factors.others)
        assert structure.integrated is not None
        large, q = len(structure.large), structure.integrated.size
        # Standard normals whose key is a draw itself.
        sigma = np.ascontiguousarray(draws["sigma"]).ravel()
        normals = np.empty((len(sigma), size + large * q))
        for row, value in zip(normals, sigma, strict=True):
            text = f"{self.seed}".encode() + value.tobytes()
            key = np.frombuffer(blake2b(text, digest_size=16).digest(), np.uint64)
            rng = np.random.Generator(np.random.Philox(key=key))
            rng.standard_normal(out=row)
        others = density.draw_others(positions, b, normals[:, :size])
        effects, start = {}, 0
        for number, count in factors.others:
            stop = start + columns_of(model, [number], [count])
            of_levels = others[:, start:stop].reshape(*shape, count, -1)
            effects[model.effects[number].effects_name] = of_levels
            start = stop
        if large:
            of_large_groups = normals[:, size:].reshape(-1, large, q)
            given = np.concatenate([others, b], 1)
            of_large = density.of_groups(structure.large)
            drawn = of_large.draw_effects(positions, given, of_large_groups)
            (name,) = structure.names_of_large
            effects[name] = drawn.reshape(*shape, large, q)
        return {
            name: values.astype(self.data.dtype) for name, values in effects.items()
        }

    def model_facts(self) -> dict[str, Any]:
        """Return the facts about the model."""
        p, rows = len(self.data.model.terms), len(self.data.frame)
        products = (p + 1) * (p + 2) // 2 + 1
        scales = self.draws.scales.names
        if self.factors is None:
            return {
                Fact.REDUCTION: f"{rows} rows as {products} sums",
                "in closed form": "coefficients given 'sigma'",
                "sampled": "'sigma', by its distribution function",
            }
        assert self.sums is not None and self.sums.groups is not None
        groups, crossed = self.sums.groups, self.sums.crossed
        columns, q = len(self.sums.root), groups.roots.shape[1]
        by_group = q * (q + 1) // 2 + q * columns
        of_all = columns * (columns + 1) // 2 + 1
        sums = (
            f"{int(groups.counts.sum())} groups of {by_group} sums, and {of_all} of all"
        )
        if crossed is not None:
            by_pair = crossed.projections.nnz
            sums += f"; {crossed.size} crossed effects of {by_pair} sums"
        facts = {
            Fact.REDUCTION: f"{rows} rows as {sums}",
            "in closed form": "coefficients and effects given the scales",
            "sampled": ", ".join(map(repr, scales)) + ", by elliptical slices",
            "densities of scales computed": self.draws.sampler.evaluations,
        }
        if self.by_polynomials is not None:
            facts["crossed effects"] = "integrated out by polynomials of the scales"
        return facts

    def group_facts(self, samples: Samples) -> tuple[dict[str, Any], list[str]]:
        """Return the facts about groups, and warnings."""
        if self.factors is None:
            return {}, []
        labels = self.factors.structure.labels
        facts: dict[str, Any] = {
            f"levels of {by!r}": len(shown) for by, shown in labels.items()
        }
        facts |= {"integrated out": ", ".join(labels), "integral": "in closed form"}
        return facts, self._variance_warnings(samples)

    def _variance_warnings(self, samples: Samples) -> list[str]:
        """Return a warning for each SD of effects that data do not tell apart from the noise."""
        if self.factors is None:
            return []
        noise = np.asarray(samples["sigma"], np.float64).ravel() ** 2
        messages = []
        for effects in self.data.model.effects:
            labels = self.factors.structure.labels[effects.entry]
            if len(labels) == len(self.data.frame):
                continue  # groups of one row each have a warning of their own
            sds = np.asarray(samples[effects.sds_name], np.float64)
            for index, name in enumerate(effects.rows[: len(effects.terms)]):
                correlation = np.corrcoef(noise, sds[..., index].ravel() ** 2)[0, 1]
                if correlation < _SETTINGS.together:
                    messages.append(
                        f"The data hardly tell {name!r} from 'sigma': the correlation of their "
                        f"squares is {correlation:.2f}. Their sum is known better than each."
                    )
        return messages
