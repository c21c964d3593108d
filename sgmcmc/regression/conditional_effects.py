"""Effects of groups of a regression given its parameters, group by group, in NumPy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sgmcmc.groups.effects import EffectSampler, keys_of
from sgmcmc.groups.marginal import DEGREES, PROPOSALS
from sgmcmc.groups.spec import Groups
from sgmcmc.reduce.marginal import MarginalDensity
from sgmcmc.regression.density import Proposals, RegressionDensity
from sgmcmc.regression.scales import RegressionScales


@dataclass(frozen=True)
class _Settings:
    # Numbers of the precisions of effects, or terms of rows, that are computed at a time
    numbers: int = 2**22


_SETTINGS = _Settings()


@dataclass(frozen=True)
class _RegressionEffects(EffectSampler):
    @property
    @abstractmethod
    def _count(self) -> int:
        """Number of draws of all chains."""

    @abstractmethod
    def _root(self, factor: Groups) -> np.ndarray:
        """Return L, LL' the covariance of the effects of a group, (draws, q, q)."""

    def _of_new(self, factor: Groups, levels: Sequence[Any]) -> dict[str, np.ndarray]:
        normals = self._normals(factor, levels)
        drawn = np.einsum("cij,cgj->cgi", self._root(factor), normals)
        return self._named(factor, drawn)

    def _generators(
        self, factor: Groups, levels: Sequence[Any]
    ) -> Iterator[np.random.Generator]:
        """Yield a source of random numbers for each group, by its own key."""
        for key in keys_of(factor.by, levels, self.seed):
            yield np.random.Generator(np.random.Philox(key=key))

    def _normals(self, factor: Groups, levels: Sequence[Any]) -> np.ndarray:
        """Return standard normals of groups, (draws, groups, q)."""
        normals = np.empty((len(levels), self._count, factor.size))
        rngs = self._generators(factor, levels)
        for numbers, rng in zip(normals, rngs, strict=True):
            rng.standard_normal(out=numbers)
        return normals.transpose(1, 0, 2)

    def _named(self, factor: Groups, drawn: np.ndarray) -> dict[str, np.ndarray]:
        """Return draws, (draws, groups, q), by the name of the factor's effects."""
        ((name, shape),) = factor.shapes.items()
        of_parameters = next(iter(self.draws.values()))
        chains, count = of_parameters.shape[:2]
        drawn = drawn.astype(of_parameters.dtype)
        return {name: drawn.reshape(chains, count, drawn.shape[1], *shape)}


@dataclass(frozen=True)
class ConditionalEffects(_RegressionEffects):
    """Effects given draws: normal, with moments that are functions of the sums of each group.

    Attributes:
        density: Posterior of the scales, with the sums of all groups of the first factor selected.
    """

    density: MarginalDensity

    @property
    def _scales(self) -> RegressionScales:
        scales = self.density.scales
        assert isinstance(scales, RegressionScales)
        return scales

    @cached_property
    def _positions(self) -> np.ndarray:
        return self._scales.positions(self.draws)

    @property
    def _count(self) -> int:
        return len(self._positions)

    def _root(self, factor: Groups) -> np.ndarray:
        entries = [effects.entry for effects in self._scales.model.effects]
        number = self._scales.order.index(entries.index(factor.by))
        return self._scales.roots(self._positions)[number]

    @cached_property
    def _others(self) -> np.ndarray:
        """Effects of all factors but the first, then coefficients, (draws, effects + p)."""
        effects = self._scales.model.effects
        names = [effects[number].effects_name for number in self._scales.order[1:]]
        names += ["b"] if "b" in self.draws else []
        columns = [np.zeros((len(self._positions), 0))]
        for name in names:
            values = np.asarray(self.draws[name], np.float64)
            columns.append(values.reshape(len(self._positions), -1))
        return np.concatenate(columns, 1)

    def _of_integrated(self, by: str, numbers: np.ndarray) -> dict[str, np.ndarray]:
        factor = self.structure.factor(by)
        levels = self.structure.factors[by].values
        per_group = self._count * factor.size**2
        length = max(1, _SETTINGS.numbers // per_group)
        parts = []
        for first in range(0, len(numbers), length):
            part = numbers[first : first + length]
            normals = self._normals(factor, [levels[number] for number in part])
            density = self.density.of_groups(part)
            parts.append(density.draw_effects(self._positions, self._others, normals))
        return self._named(factor, np.concatenate(parts, 1))


@dataclass(frozen=True)
class ProposedEffects(_RegressionEffects):
    """Effects given draws, by an independence sampler as in `groups.marginal.Marginal.draw`.

    Attributes:
        density: Posterior of the parameters, with the rows of all groups.
    """

    density: RegressionDensity

    @cached_property
    def _params(self) -> dict[str, np.ndarray]:
        shapes = dict(self.density.prior.layout.shapes)
        if self.density.further is not None:
            shapes |= self.density.further.layout.shapes
        return {
            name: np.asarray(self.draws[name], np.float64).reshape(-1, *shape)
            for name, shape in shapes.items()
        }

    @property
    def _count(self) -> int:
        return len(next(iter(self._params.values())))

    def _root(self, factor: Groups) -> np.ndarray:
        of_factors = self.density.model.effects
        (effects,) = (each for each in of_factors if each.entry == factor.by)
        return self.density.root(effects, self._params)

    def _of_integrated(self, by: str, numbers: np.ndarray) -> dict[str, np.ndarray]:
        factor, count = self.structure.factor(by), self._count
        levels = [self.structure.factors[by].values[number] for number in numbers]
        shape = len(levels), count, PROPOSALS + 1
        normals, squares = np.empty((*shape, factor.size)), np.empty(shape)
        bars = np.empty((len(levels), count, PROPOSALS))
        for k, rng in enumerate(self._generators(factor, levels)):
            rng.standard_normal(out=normals[k])
            squares[k] = rng.chisquare(DEGREES, shape[1:])
            rng.standard_exponential(out=bars[k])
        density = self.density.of_groups(numbers)
        length = _SETTINGS.numbers // ((PROPOSALS + 1) * len(density.x))
        length = max(1, length)
        parts = []
        for first in range(0, count, length):
            part = slice(first, first + length)
            random = Proposals(
                normals[:, part].transpose(1, 2, 0, 3),
                squares[:, part].transpose(1, 2, 0),
                -bars[:, part].transpose(1, 2, 0),
            )
            params = {name: values[part] for name, values in self._params.items()}
            parts.append(density.draw_effects(params, random))
        return self._named(factor, np.concatenate(parts))
