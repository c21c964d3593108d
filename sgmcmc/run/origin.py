"""What draws remember of the sampler that made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.data.dataset import Data
from sgmcmc.groups.effects import draw_effects, for_rows, own_rows
from sgmcmc.groups.model import Structure
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples
from sgmcmc.run.reports.reporting import report_on_constants
from sgmcmc.run.sampler import Sampler
from sgmcmc.target.target import Target

_QUICK_SIZE, _QUICK_WORK = 200, 3e8
"""Coordinates, and N times their square, up to which a Hessian costs about a second."""

GoOn = Callable[[int, bool], Samples]
"""Runs chains on for so many more iterations, with progress or without, and returns all draws."""


@dataclass(frozen=True)
class SamplerOrigin:
    """The sampler that made some draws.

    Args:
        sampler: the sampler.
        facts: what the dynamics of each chain have to tell of their moves, by name.
        go_on: runs the chains on from where they ended; ``None`` where they diverged.
    """

    sampler: Sampler
    facts: tuple[Mapping[str, float], ...] = ()
    go_on: GoOn | None = None

    @property
    def target(self) -> Target:
        """What was sampled, in the coordinates of the chain."""
        return self.sampler.target

    @property
    def data(self) -> Data:
        """The dataset."""
        return self.sampler.data

    @property
    def judges_quickly(self) -> bool:
        """Whether ``report`` takes about a second, or less."""
        d = self.sampler.target.size
        return d <= _QUICK_SIZE and self.data.size * d**2 <= _QUICK_WORK

    def effects(
        self, draws: Mapping[str, np.ndarray], by: str, groups: Any, seed: int
    ) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups given draws of the parameters, by name."""
        structure, request = self._groups, self.sampler.request
        return draw_effects(structure, request.log_lik, draws, self.data, by, groups, seed).effects

    def rows(
        self, f: Any, draws: dict[str, np.ndarray], dataset: Mapping[str, Any] | None
    ) -> tuple[Any, dict[str, np.ndarray], Any]:
        """Return function, draws and dataset for what is asked of rows, effects included."""
        structure = self.sampler.request.groups
        if structure is None:
            return f, draws, dataset
        if dataset is None:
            if structure.packs is None:
                raise ValueError("`dataset` must be given: all effects are coordinates here.")
            dataset = own_rows(structure, self.data)
        return for_rows(structure, self.sampler.request.log_lik, f, draws, self.data, dataset)

    @property
    def groups(self) -> Structure | None:
        """The groups of the model, if it has any."""
        return self.sampler.request.groups

    @property
    def _groups(self) -> Structure:
        structure = self.groups
        if structure is None:
            raise ValueError("`samples` is of a model without `groups`: it has no effects to draw.")
        return structure

    def report(self, samples: Samples) -> Report | None:
        """Return the report on these draws."""
        return report_on_constants(self.sampler, samples)


def origin_of(samples: Samples) -> SamplerOrigin:
    """Return the sampler that has just made these draws."""
    assert isinstance(samples.origin, SamplerOrigin)
    return samples.origin
