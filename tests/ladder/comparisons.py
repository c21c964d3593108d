"""The statistical comparisons: each fails by chance for about one seed in ten thousand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from tests.ladder.problems import Array

FALSE_ALARM = 1e-4
"""How often a statistical test fails by chance, all its comparisons taken together."""


def bound(comparisons: int, chains: int | None = None) -> float:
    """Return how many standard errors a statistic may lie off.

    All comparisons of a test together then fail for one seed in ten thousand. Student's t where
    the standard error is estimated from independent chains, else the normal.
    """
    tail = FALSE_ALARM / (2 * comparisons)
    return float(
        stats.norm.isf(tail) if chains is None else stats.t.isf(tail, chains - 1)
    )


@dataclass(frozen=True)
class Comparison:
    """Estimated moments against a law.

    Attributes:
        z: deviations in standard errors.
        limit: how large the largest may be.
        precision: the largest standard error of a variance, as a part of that variance.
    """

    z: Array
    limit: float
    precision: float

    @property
    def worst(self) -> float:
        """The largest deviation, in standard errors."""
        return float(np.abs(self.z).max())

    @property
    def accepts(self) -> bool:
        """Whether the draws are compatible with the law."""
        return self.worst < self.limit


def compare(draws: Array, mean: Array, covariance: Array) -> Comparison:
    """Compare draws with a mean and a covariance, every entry of both.

    The standard error is that of the average of independent chains' own estimates, so no
    autocorrelation has to be estimated.

    Args:
        draws: (chains, draws, d).
        mean: (d,).
        covariance: (d, d).
    """
    chains, length, d = draws.shape
    centered = draws.astype(float) - mean
    second = np.einsum("cti,ctj->cij", centered, centered) / length
    upper = np.triu_indices(d)
    estimates = np.concatenate([centered.mean(1), second[:, upper[0], upper[1]]], 1)
    expected = np.concatenate([np.zeros(d), covariance[upper]])
    errors = estimates.std(0, ddof=1) / np.sqrt(chains)
    variances = second[:, range(d), range(d)].std(0, ddof=1) / np.sqrt(chains)
    return Comparison(
        (estimates.mean(0) - expected) / errors,
        bound(len(expected), chains),
        float((variances / np.diag(covariance)).max()),
    )


def check(comparison: Comparison, precision: float) -> None:
    """Assert that draws agree with a law, and that they are enough to tell."""
    assert comparison.precision < precision, "the run is too short to tell"
    assert comparison.worst < comparison.limit
