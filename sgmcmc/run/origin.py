"""What draws remember of the sampler that made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sgmcmc.data.dataset import Data
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

    def report(self, samples: Samples) -> Report | None:
        """Return the report on these draws."""
        return report_on_constants(self.sampler, samples)


def origin_of(samples: Samples) -> SamplerOrigin:
    """Return the sampler that has just made these draws."""
    assert isinstance(samples.origin, SamplerOrigin)
    return samples.origin
