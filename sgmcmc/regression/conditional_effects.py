"""Effects of groups of a Gaussian regression given its parameters, in closed form from sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sgmcmc.groups.effects import EffectSampler, keys_of
from sgmcmc.groups.spec import Groups
from sgmcmc.reduce.marginal import MarginalDensity
from sgmcmc.regression.scales import RegressionScales


@dataclass(frozen=True)
class _Settings:
    numbers: int = 2**22  # of the precisions of effects that are factored at a time


_SETTINGS = _Settings()


@dataclass(frozen=True)
class ConditionalEffects(EffectSampler):
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
        per_group = len(self._positions) * factor.size**2
        length = max(1, _SETTINGS.numbers // per_group)
        parts = []
        for first in range(0, len(numbers), length):
            part = numbers[first : first + length]
            normals = self._normals(factor, [levels[number] for number in part])
            density = self.density.of_groups(part)
            drawn = density.draw_effects(self._positions, self._others, normals)
            parts.append(drawn.astype(self._dtype))
        return self._named(factor, np.concatenate(parts, 1))

    def _of_new(self, factor: Groups, levels: Sequence[Any]) -> dict[str, np.ndarray]:
        entries = [effects.entry for effects in self._scales.model.effects]
        number = self._scales.order.index(entries.index(factor.by))
        root = self._scales.roots(self._positions)[number]
        normals = self._normals(factor, levels)
        drawn = np.einsum("cij,cgj->cgi", root, normals)
        return self._named(factor, drawn.astype(self._dtype))

    @property
    def _dtype(self) -> np.dtype:
        return np.asarray(self.draws["sigma"]).dtype

    def _normals(self, factor: Groups, levels: Sequence[Any]) -> np.ndarray:
        """Return standard normals of groups, each by its own key, (draws, groups, q)."""
        normals = np.empty((len(levels), len(self._positions), factor.size))
        keys = keys_of(factor.by, levels, self.seed)
        for numbers, key in zip(normals, keys, strict=True):
            np.random.Generator(np.random.Philox(key=key)).standard_normal(out=numbers)
        return normals.transpose(1, 0, 2)

    def _named(self, factor: Groups, drawn: np.ndarray) -> dict[str, np.ndarray]:
        """Return draws, (draws, groups, q), by the name of the factor's effects."""
        ((name, shape),) = factor.shapes.items()
        chains, count = np.shape(self.draws["sigma"])[:2]
        return {name: drawn.reshape(chains, count, drawn.shape[1], *shape)}
