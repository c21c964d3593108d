"""Where draws come from: the sampler, for what is asked of it afterwards."""

from __future__ import annotations

from typing import Any, Protocol

from sgmcmc.data.dataset import Data
from sgmcmc.results.report import Report
from sgmcmc.target.target import Target


class Origin(Protocol):
    """The sampler that made some draws.

    Attributes:
        target: what was sampled, in the coordinates of the chain.
        data: the dataset.
    """

    @property
    def target(self) -> Target:
        """What was sampled, in the coordinates of the chain."""

    @property
    def data(self) -> Data:
        """The dataset."""

    def report(self, samples: Any) -> Report | None:
        """Return the report on these draws."""
