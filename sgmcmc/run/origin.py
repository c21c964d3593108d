"""What draws remember of the sampler that made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sgmcmc.data.dataset import Data
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples
from sgmcmc.run.sampler import Sampler
from sgmcmc.target.target import Target


@dataclass(frozen=True)
class SamplerOrigin:
    """The sampler that made some draws.

    Args:
        sampler: the sampler.
        facts: what the dynamics of each chain have to tell of their moves, by name.
    """

    sampler: Sampler
    facts: tuple[Mapping[str, float], ...] = ()

    @property
    def target(self) -> Target:
        """What was sampled, in the coordinates of the chain."""
        return self.sampler.target

    @property
    def data(self) -> Data:
        """The dataset."""
        return self.sampler.data

    def report(self, samples: Samples) -> Report | None:
        """Return the report on these draws."""
        return None
