"""What a set of draws in R keeps of Python: the sampler that made it."""

from __future__ import annotations

import zlib

import numpy as np

from sgmcmc import Samples
from sgmcmc.results.report import Report


class Live:
    """The sampler of some draws, and the reports on them that have been made.

    Args:
        samples: the draws as Python has them, which are not kept.

    Attributes:
        origin: the sampler, as ``Samples`` have it.
        settings: how the draws were made.
        store: the folder that they are in, if they are in one.
    """

    def __init__(self, samples: Samples) -> None:
        self.origin = samples.origin
        self.settings = dict(samples.settings)
        sampler = getattr(samples.origin, "sampler", None)
        store = None if sampler is None else sampler.options.store
        self.store = None if store is None else str(store)
        known = made_before(samples)
        self._reports: dict[int, Report | None] = (
            {} if known is None else {_sum(samples): known}
        )

    def __repr__(self) -> str:
        return "the sampler that made these draws"

    def judged(self, samples: Samples) -> Samples:
        """Return draws with the report on them: made once, unless that takes more than a second."""
        key = _sum(samples)
        if key in self._reports:
            known = self._reports[key]
            return samples if known is None else samples.with_report(known)
        return _Remembering.of(samples, self._reports, key)


class _Remembering(Samples):
    """Draws that enter the report on them into a table as soon as it is made."""

    reports: dict[int, Report | None]
    key: int

    @classmethod
    def of(
        cls, samples: Samples, reports: dict[int, Report | None], key: int
    ) -> _Remembering:
        found = object.__new__(cls)
        found.__dict__.update(samples.__dict__, reports=reports, key=key)
        return found

    @property
    def report(self) -> Report | None:
        """The report on the draws."""
        found = super().report
        self.reports[self.key] = found
        return found


def made_before(samples: Samples) -> Report | None:
    """Return the report on draws if nothing has to be done for it."""
    return samples.made_by(None).report  # type: ignore[arg-type]


def _sum(samples: Samples) -> int:
    found = 0
    for array in samples.values():
        found = zlib.crc32(np.ascontiguousarray(array).data, found)
    return found
