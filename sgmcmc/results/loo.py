"""Leave-one-out cross-validation by Pareto-smoothed importance sampling, of all rows or of some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sgmcmc import checks, libraries
from sgmcmc.data.transfer import read_machines
from sgmcmc.results.evaluation import (
    Evaluation,
    Terms,
    arrays_of,
    dtype_of,
    reduced,
)


@dataclass(frozen=True)
class Loo:
    """Leave-one-out cross-validation.

    Attributes:
        elpd: Expected log predictive density of all rows, left out one at a time.
        se: Its standard error: that of a sum over rows and that of the rows left out of it.
        subsampling_se: Part of ``se`` that comes from using only some rows.
        p_loo: Effective number of parameters.
        pareto_k: Shape of the tail of the importance weights of the sampled rows; above 0.7 a
            row is too influential for the estimate.
        rows: Numbers of the rows that were used.
        terms: Log predictive density of each of these rows, left out.
        near: Approximate log density of each of all rows; ``None`` if all were used.
        weights: Number of times that each of all rows counts; ``None`` for 1. ``elpd``, ``se`` and
            ``p_loo`` are those of rows repeated so often, of which each is left out alone.
    """

    elpd: float
    se: float
    subsampling_se: float
    p_loo: float
    pareto_k: np.ndarray = field(repr=False)
    rows: np.ndarray = field(repr=False)
    terms: np.ndarray = field(repr=False)
    near: np.ndarray | None = field(repr=False)
    weights: np.ndarray | None = field(repr=False, default=None)

    def compare(self, other: Loo) -> Difference:
        """Return the difference of this model's and another's ``elpd``, with its standard errors.

        The standard error is that of the differences of single rows, which is smaller than those of
        the two estimates suggest: most rows are hard or easy for both models.

        Args:
            other: Cross-validation of the other model, with the same rows and ``seed``.

        Returns:
            :class:`Difference`, with ``elpd``, ``se`` and ``subsampling_se``.

        Raises:
            ValueError: The other model has other rows.

        Example:
            >>> import numpy as np, sgmcmc
            >>> x = np.random.default_rng(1).normal(size=300)
            >>> data = {"x": x, "y": x + np.random.default_rng(2).normal(size=300)}
            >>> fits = [sgmcmc.glm(f"y ~ {t}", data, seed=1, verbose=False) for t in ("x", "1")]
            >>> found = fits[0].loo().compare(fits[1].loo())
            >>> found.elpd > 4 * found.se
            True
        """
        weights = _or_ones(self)
        same_rows = self.size == other.size and np.array_equal(self.rows, other.rows)
        if not (same_rows and np.array_equal(weights, _or_ones(other))):
            raise ValueError(
                "`other` must be of the same rows: of the same data, with one `seed`."
            )
        approximation = None
        if self.near is not None and other.near is not None:
            approximation = self.near - other.near
        differences = self.terms - other.terms
        return Difference(
            *_extrapolated(differences, self.rows, weights, approximation)
        )

    @property
    def size(self) -> int:
        """Number of all rows."""
        if self.weights is not None:
            return len(self.weights)
        return len(self.rows) if self.near is None else len(self.near)


class Difference(NamedTuple):
    """A difference of expected log predictive densities.

    Attributes:
        elpd: Difference, of all rows.
        se: Its standard error.
        subsampling_se: Part of ``se`` that comes from using only some rows.
    """

    elpd: float
    se: float
    subsampling_se: float


def need_posterior(settings: Mapping[str, Any]) -> None:
    """Raise an error if draws are of a power of the posterior."""
    temperature = settings.get("temperature", 1.0)
    if temperature != 1.0:
        raise ValueError(
            f"`samples` was drawn with temperature={temperature:g}: importance weights of rows "
            "left out are for draws of the posterior, temperature=1."
        )


def loo(terms: Terms, rows: Any, seed: Any, executor: Any) -> Loo:
    """Return the estimate for the terms at draws; see ``Samples.loo``."""
    data, of_rows = terms.data, terms.of_rows
    size = checks.whole_number("rows", rows, 2)
    chosen = chosen_rows(terms.size, size, checks.whole_number("seed", seed, 0))
    arrays = _thinned(terms, size)
    dtype = dtype_of(terms.draws)
    evaluation = Evaluation("log_lik", of_rows, arrays, data, dtype)
    terms.need_sum(evaluation)
    last_draw = {name: array[-1:, -1:] for name, array in arrays.items()}

    def mean_log_density() -> np.ndarray:
        with read_machines(executor) as machines:
            distributed = data.on(machines)
            # The posterior mean, as the one draw of one chain.
            mean = {}
            for name, array in arrays.items():
                exact = array.mean(axis=(0, 1), keepdims=True, dtype=np.float64)
                mean[name] = exact.astype(array.dtype)
            for point in (mean, last_draw):
                at_point = Evaluation("log_lik", of_rows, point, distributed, dtype)
                log_density = terms.of_units(reduced(at_point))
                if np.isfinite(log_density).all():
                    break
        return log_density

    if terms.units is None:
        values = evaluation.at(data.rows(chosen))
    else:
        packs, index = np.unique(terms.units.pack[chosen], return_inverse=True)
        slots = terms.units.place[chosen]
        values = evaluation.at(data.rows(packs))[:, index.reshape(-1), slots]
    return leave_one_out(values, chosen, terms.size, mean_log_density)


def _thinned(terms: Terms, size: int) -> dict[str, np.ndarray]:
    """Return draws that all count once, as many as fit in memory with a number of terms."""
    arrays, weights = arrays_of(terms.draws), terms.draws.weights
    chains, count = next(iter(arrays.values())).shape[:2]
    if weights is not None:
        # Systematic resampling.
        cumulative = np.cumsum(weights) / weights.sum()
        resampled = np.searchsorted(cumulative, (np.arange(count) + 0.5) / count)
        arrays = {name: array[:, resampled] for name, array in arrays.items()}
    largest = 2**24  # numbers that are held in memory
    step = -(-chains * count * min(size, terms.size) // largest)
    return {name: array[:, ::step] for name, array in arrays.items()}


def chosen_rows(N: int, limit: int, seed: int) -> np.ndarray:
    """Return the numbers of some rows, drawn without replacement, in order."""
    if N <= limit:
        return np.arange(N)
    return np.sort(np.random.default_rng(seed).choice(N, limit, replace=False))


def leave_one_out(
    terms: np.ndarray,
    rows: np.ndarray,
    N: int,
    approximate: Callable[[], np.ndarray],
    weights: np.ndarray | None = None,
) -> Loo:
    """Return the estimate from some rows.

    Args:
        terms: log p(x_i | θ) of these rows, (draws, rows).
        rows: Numbers of these rows, whose weights are not zero.
        N: Number of all rows.
        approximate: Function that returns approximate log densities of all N rows; called only if
            not all of them were used.
        weights: Weight of each of the N rows; ``None`` for 1.
    """
    smoothed, k = (np.asarray(array).T for array in libraries.psislw()(-terms.T))
    densities = _log_mean(terms + smoothed, 0.0)
    in_sample = _log_mean(terms, np.log(len(terms)))
    row_weights = np.ones(N) if weights is None else weights
    counted = np.count_nonzero(row_weights)
    excess = row_weights[rows] * (in_sample - densities)
    p_loo = float(excess.mean() * counted)
    approximation = None if len(rows) == counted else approximate()
    elpd, se, missed = _extrapolated(densities, rows, row_weights, approximation)
    return Loo(elpd, se, missed, p_loo, k, rows, densities, approximation, weights)


def _or_ones(loo: Loo) -> np.ndarray:
    return np.ones(loo.size) if loo.weights is None else loo.weights


def _extrapolated(
    values: np.ndarray,
    rows: np.ndarray,
    weights: np.ndarray,
    approximation: np.ndarray | None,
) -> tuple[float, float, float]:
    """Return the sum over all rows, its standard error, and the part of unseen rows in that.

    Args:
        values: Value of each row that was used.
        rows: Numbers of these rows.
        weights: Weight of each of all rows.
        approximation: Approximate values of all rows; ``None`` if all that count were used.
    """
    w = weights[rows]
    repeated = float(w.sum())
    deviations = values - np.average(values, weights=w)
    freedom = max(repeated - 1.0, 0.5 * repeated)
    spread = np.sqrt(weights.sum() * float(w @ deviations**2) / freedom)
    if approximation is None:
        return float(w @ values), float(spread), 0.0
    counted = np.flatnonzero(weights)
    N = len(counted)
    total = float(weights[counted] @ approximation[counted])
    differences = w * (values - approximation[rows])
    without_replacement = (1 - len(rows) / N) / len(rows)
    missed = float(N * np.std(differences, ddof=1) * np.sqrt(without_replacement))
    extrapolated = total + N * float(differences.mean())
    return extrapolated, float(np.hypot(spread, missed)), missed


def _log_mean(values: np.ndarray, log_count: float) -> np.ndarray:
    """Return log Σ exp over draws, less a constant, of each row."""
    top = values.max(0)
    return top + np.log(np.exp(values - top).sum(0)) - log_count
