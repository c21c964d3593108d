"""Leave-one-out cross-validation by Pareto-smoothed importance sampling, of all rows or of some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sgmcmc import libraries


@dataclass(frozen=True)
class Loo:
    """Leave-one-out cross-validation.

    Attributes:
        elpd: Expected log predictive density of all rows, left out one at a time.
        se: Its standard error: that of a sum over rows and that of the rows left out of it.
        subsampling_se: Part of ``se`` that comes from using only some rows.
        p_loo: Effective number of parameters.
        pareto_k: Shape of the tail of the importance weights of the rows looked at; above 0.7 a
            row is too influential for the estimate.
        rows: Numbers of the rows that were used.
    """

    elpd: float
    se: float
    subsampling_se: float
    p_loo: float
    pareto_k: np.ndarray = field(repr=False)
    rows: np.ndarray = field(repr=False)


def chosen_rows(N: int, most: int, seed: int) -> np.ndarray:
    """Return the numbers of at most so many rows, drawn without replacement, in order."""
    if N <= most:
        return np.arange(N)
    return np.sort(np.random.default_rng(seed).choice(N, most, replace=False))


def leave_one_out(
    terms: np.ndarray, rows: np.ndarray, N: int, near: Callable[[], np.ndarray]
) -> Loo:
    """Return the estimate from some rows.

    Args:
        terms: log p(x_i | θ) of these rows, (draws, rows).
        rows: Numbers of these rows.
        N: Number of all rows.
        near: Function that returns an approximation of the log density of each of the N rows;
            called only if not all of them were used.
    """
    smoothed, k = (np.asarray(found).T for found in libraries.psislw()(-terms.T))
    each = _log_mean(terms + smoothed, 0.0)
    in_sample = _log_mean(terms, np.log(len(terms)))
    spread = float(np.std(each, ddof=1)) * np.sqrt(N)
    p_loo = float((in_sample - each).mean() * N)
    if len(rows) == N:
        return Loo(float(each.sum()), spread, 0.0, p_loo, k, rows)
    of_all = near()
    gap = each - of_all[rows]
    missed = float(N * np.std(gap, ddof=1) * np.sqrt((1 - len(rows) / N) / len(rows)))
    elpd = float(of_all.sum() + N * gap.mean())
    return Loo(elpd, float(np.hypot(spread, missed)), missed, p_loo, k, rows)


def _log_mean(values: np.ndarray, log_count: float) -> np.ndarray:
    """Return log Σ exp over draws, less a constant, of each row."""
    top = values.max(0)
    return top + np.log(np.exp(values - top).sum(0)) - log_count
