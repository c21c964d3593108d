"""Effective sample sizes and R-hat of draws, through ArviZ, and their weighted quantiles."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from sgmcmc import libraries
from sgmcmc.results.arrays import coordinate_name
from sgmcmc.results.report import Fact

RHAT = 1.01  # the largest R-hat of chains that agree


@dataclass(frozen=True)
class _DiagnosticSettings:
    coordinates: int = 1000  # of a parameter above which not all are used
    # Coordinates of a parameter: chance may explain the largest R-hat of more
    many: int = 100
    chance: float = 0.01  # probability of a larger R-hat by chance
    batches: int = 20  # of each chain, whose means show which coordinates are slow
    # Coordinates checked first, by values and by distances from the mean
    slowest: int = 3
    # Effective draws for which 1.01 is meant (Vehtari et al. 2021)
    reliable: float = 400.0


_SETTINGS = _DiagnosticSettings()


@dataclass(frozen=True)
class Diagnostics:
    """Effective sample sizes and R-hat of draws.

    Attributes:
        draws: Number of draws of each chain.
        bulk: Effective sample sizes for means, of all coordinates.
        tail: Effective sample sizes for the 5 % and 95 % quantiles.
        rhat: R-hat of all coordinates; NaN for a single chain.
        names: Labels of the coordinates.
        limits: Largest R-hat of each coordinate if chains agree: 1.01, or for one that exceeds it,
            of very many or with few effective draws, the value that the largest of them exceeds
            with a probability of 0.01.
        complete: Whether no coordinate was left out because others fall short.
    """

    draws: int
    bulk: list[float]
    tail: list[float]
    rhat: list[float]
    names: list[str]
    limits: list[float]
    complete: bool = True

    @property
    def facts(self) -> dict[str, list[float]]:
        """Rows of a report, by name."""
        return {Fact.BULK: self.bulk, Fact.TAIL: self.tail, Fact.RHAT: self.rhat}

    @property
    def scarcest(self) -> str:
        """Label of the coordinate with the smallest effective sample size."""
        return self.names[int(np.nanargmin(np.fmin(self.bulk, self.tail)))]

    @property
    def smallest(self) -> float:
        """The smallest effective sample size."""
        return float(np.nanmin([*self.bulk, *self.tail]))

    def enough(self, ess: float) -> bool:
        """Return whether every coordinate has this effective sample size, and chains agree."""
        return self.smallest >= ess and self.agree

    @property
    def agree(self) -> bool:
        """Whether no R-hat is above its limit; not if there is a single chain."""
        if np.isnan(self.rhat).all():
            return False
        return float(np.nanmax(np.divide(self.rhat, self.limits))) <= 1.0

    def warnings(self, ess: float) -> list[str]:
        """Return sentences on diagnostics that fall short."""
        messages = []
        if self.smallest < ess:
            messages.append(
                f"The smallest effective sample size is {self.smallest:.0f} ({self.scarcest}), "
                f"not {ess:g}."
            )
        if not np.isnan(self.rhat).all() and not self.agree:
            worst = int(np.nanargmax(np.divide(self.rhat, self.limits)))
            messages.append(
                "The chains do not agree: the largest R-hat is "
                f"{self.rhat[worst]:.3f} ({self.names[worst]})."
            )
        return messages


def until_enough(draws: Mapping[str, Any], ess: float) -> Diagnostics:
    """Return the diagnostics of the slowest coordinates if those fall short, else of all.

    Args:
        draws: Same as in :func:`diagnose`.
        ess: Effective sample size that every coordinate should have.
    """
    slow = {name: _slowest(a) for name, a in draws.items()}
    if any(
        len(coordinates) < len(_used(draws[name])) for name, coordinates in slow.items()
    ):
        diagnostics = diagnose(draws, slow)
        if diagnostics.smallest < ess:
            return replace(diagnostics, complete=False)
    return diagnose(draws)


def _used(array: Any) -> range:
    """Return the coordinates that are used of an array, evenly over it if there are very many."""
    size = int(np.prod(np.shape(array)[2:]))
    return range(0, size, max(1, size // _SETTINGS.coordinates))


def _slowest(array: Any) -> list[int]:
    """Return the coordinates of an array whose means over batches of draws vary most."""
    chains, count = np.shape(array)[:2]
    batches, coordinates = _SETTINGS.batches, _used(array)
    length = count // batches
    if length < 2:
        return list(coordinates)
    flat = np.reshape(array, (chains, count, -1))
    slowness = np.zeros((2, len(coordinates)))
    for k, coordinate in enumerate(coordinates):
        values = np.asarray(flat[:, : batches * length, coordinate], np.float64)
        for row, x in enumerate((values, np.abs(values - values.mean()))):
            spread = x.var()
            means = x.reshape(chains * batches, length).mean(1)
            slowness[row, k] = means.var() / spread if spread > 0 else 0.0
    slowest = np.argsort(-slowness, axis=1, kind="stable")[:, : _SETTINGS.slowest]
    return sorted({coordinates[k] for k in slowest.ravel().tolist()})


def diagnose(
    draws: Mapping[str, Any], coordinates: Mapping[str, Sequence[int]] | None = None
) -> Diagnostics:
    """Return the diagnostics of draws with a leading chain axis.

    Args:
        draws: Arrays of shape (chains, draws, *shape), by parameter. Of very many coordinates some
            are used, evenly over each array.
        coordinates: Coordinates of each parameter to use; ``None`` for these.

    Returns:
        Diagnostics, with effective sample sizes of zero if no chain has moved at all.
    """
    chains, count = next(iter(draws.values())).shape[:2]
    az = libraries.arviz()
    rows: list[tuple[float, ...]] = []
    limits: list[float] = []
    names: list[str] = []
    varies = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, a in draws.items():
            # One by one: what is made of them on the way takes many times their memory.
            flat = np.reshape(a, (chains, count, -1))
            for coordinate in _used(a) if coordinates is None else coordinates[name]:
                names.append(coordinate_name(name, a.shape[2:], coordinate))
                x = np.asarray(flat[:, :, coordinate], np.float64)
                varies |= bool((x != x.flat[0]).any())
                rhat = az.rhat(x) if chains > 1 else np.nan
                bulk, tail = az.ess(x), az.ess(x, method="tail", prob=(0.05, 0.95))
                rows.append((bulk, tail, rhat))
                limits.append(_limit(x, flat.shape[2]) if rhat > RHAT else RHAT)
    bulk, tail, rhat = np.asarray(rows, float).T.tolist()
    if not varies:  # of constants ArviZ says that each draw counts
        bulk = tail = [0.0] * len(names)
    return Diagnostics(count, bulk, tail, rhat, names, limits)


def _limit(x: np.ndarray, coordinates: int) -> float:
    """Return the largest R-hat to expect of a coordinate if chains agree.

    With m half-chains, R-hat² − 1 is about (F − 1) m/ESS, (m − 1)F having a chi-square distribution
    with m − 1 degrees of freedom; so it is twice, of the ranks and of the folded ranks.

    Args:
        x: Draws, (chains, draws).
        coordinates: Number of coordinates of the parameter, of which this may be the worst.
    """
    # By each chain for itself: that of all together is small if they do not agree, which is the
    # question here.
    az = libraries.arviz()
    ess = min(
        sum(float(az.ess(chain)) for chain in values)
        for values in (x, np.abs(x - np.median(x)))
    )
    if coordinates <= _SETTINGS.many and ess >= _SETTINGS.reliable:
        return RHAT
    if not ess > 0:
        return RHAT
    halves = 2 * len(x)
    freedom = halves - 1
    chance = _SETTINGS.chance / (2 * coordinates)
    quantile = scipy.stats.chi2.isf(chance, freedom) / freedom
    return max(RHAT, float(np.sqrt(1.0 + (quantile - 1.0) * halves / ess)))


def weighted_quantiles(
    values: np.ndarray, probabilities: Sequence[float], weights: np.ndarray
) -> np.ndarray:
    """Return quantiles along the first axis; with equal weights those of ``np.quantile``.

    Args:
        values: Values, (draws, ...).
        probabilities: Probabilities of the quantiles.
        weights: Weight of each draw.
    """
    values, weights = values[weights > 0], weights[weights > 0]
    flat = np.reshape(values, (len(values), -1))
    quantiles = np.empty((len(probabilities), flat.shape[1]))
    order = np.argsort(flat, axis=0)
    for column in range(flat.shape[1]):
        ordered = flat[order[:, column], column]
        ordered_weights = weights[order[:, column]]
        halves = 0.5 * (ordered_weights + ordered_weights[0])
        midpoints = np.cumsum(ordered_weights) - halves
        ranks = midpoints / midpoints[-1] if midpoints[-1] > 0 else midpoints
        quantiles[:, column] = np.interp(probabilities, ranks, ordered)
    return quantiles.reshape(len(probabilities), *values.shape[1:])
