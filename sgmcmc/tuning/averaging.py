"""A stepsize driven to the acceptance rate that is wanted."""

from __future__ import annotations

import math


class DualAveraging:
    """Drives the mean acceptance rate to the one that is wanted.

    log ε_t = μ − √t/(γ(t + t₀)) Σ (wanted − seen), with μ = log 10ε₁, γ = 0.05, t₀ = 10; in the end
    the average of log ε_t with weights t^(−0.75) counts.

    Args:
        stepsize: ε₁.
        wanted: the acceptance rate.

    Source:
        Hoffman & Gelman, Journal of Machine Learning Research 15, 2014, section 3.2.
    """

    def __init__(self, stepsize: float, wanted: float) -> None:
        self._centre, self._wanted = math.log(10 * stepsize), wanted
        self._sum, self._count, self._mean = 0.0, 0, 0.0
        self.stepsize = stepsize

    def see(self, acceptance: float) -> None:
        """Take an acceptance rate into account."""
        self._count += 1
        t = self._count
        self._sum += self._wanted - acceptance
        log = self._centre - math.sqrt(t) / (0.05 * (t + 10)) * self._sum
        weight = t**-0.75
        self._mean = weight * log + (1 - weight) * self._mean
        self.stepsize = math.exp(log)

    @property
    def settled(self) -> float:
        """The stepsize to go on with."""
        return math.exp(self._mean) if self._count else self.stepsize
