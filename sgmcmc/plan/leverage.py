"""Leverage, by which rows are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgmcmc.data.dataset import Data
from sgmcmc.data.passes import Pass
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.minibatches import Weighted
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.model.target import Target
from sgmcmc.plan.objective import Objective, kept_graphs, of_likelihood

PROBES = 48  # directions in which leverage is measured
STRATA = 5
STRATUM_ROWS = 10_000  # drawn of each stratum


@dataclass(frozen=True)
class _Settings:
    few_probes: int = 16  # directions in which leverage of many terms is measured
    # Smallest number of terms of the log-likelihood for which there are fewer directions.
    many_terms: float = 1e7
    # Fraction of the probability that is spread evenly, so that every row is drawn now and then.
    uniform_share: float = 0.1
    # Distance of probes to each side, in posterior SDs; smaller ones have rounding errors.
    step: float = 1.5


_SETTINGS = _Settings()

_PIECE_NUMBERS = 2**22


def leverage(
    target: Target,
    data: Data,
    whitening: Preconditioner,
    seed: int,
    probes: int | None = None,
    objective: Objective | None = None,
) -> np.ndarray:
    """Return the whitened curvature of each observation's term at the mode, (N,), in float64.

    h_i is the trace of Cᵀ(−∇² log p(x_i | θ̂))C with CCᵀ = M. It is computed for log-likelihoods of
    linear predictors, and estimated for others by the mean over random directions z of
    −[ℓ_i(θ̂ + sCz) − 2ℓ_i(θ̂) + ℓ_i(θ̂ − sCz)]/s². In one pass over the data.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        whitening: θ̂ and C.
        seed: Seed of the directions.
        probes: Number of directions; by default 48, or 16 of very many terms.
        objective: Log posterior over the dataset in the dtype of the chain, if there is one.
    """
    root = whitening.root
    objective = objective or Objective(target, data, double=False)
    exact = objective.leverages(
        whitening.origin, root if whitening.dense else np.diag(root)
    )
    if exact is not None:
        return np.maximum(exact, 0.0)
    if probes is None:
        many = data.size * target.row_terms > _SETTINGS.many_terms
        probes = _SETTINGS.few_probes if many else PROBES
    rng = generator(seed, 0, RunPhase.MODE, Purpose.PROBES)
    signs = rng.choice([-1.0, 1.0], (probes, target.size))
    offsets = _SETTINGS.step * (signs @ root.T if whitening.dense else signs * root)
    points = (
        np.concatenate([[np.zeros(target.size)], offsets, -offsets]) + whitening.origin
    )
    graphs = kept_graphs(target, data)
    passes = Pass(
        data, of_likelihood(target), row_terms=target.row_terms, graphs=graphs
    )
    points = points.astype(target.dtype.as_numpy_dtype)
    (second_differences,) = passes.joined(
        "bends", points, max_terms=_PIECE_NUMBERS // len(points)
    )
    bad = np.flatnonzero(~np.isfinite(second_differences))
    if bad.size:
        params = target.space.params(whitening.origin, target.dtype)
        where = ", ".join(
            f"{name} = {np.array2string(value, precision=4, threshold=6)}"
            for name, value in params.items()
        )
        raise ValueError(
            f"`log_lik`: the term of row {bad[0]} is not finite at the mode of the posterior, or "
            f"near it ({where}); rows like that: {bad.size}. A row whose density is zero there "
            "makes the log posterior -inf. Look at that row for a mistake, or use a density that "
            "is positive everywhere."
        )
    return np.maximum(second_differences, 0.0) / _SETTINGS.step**2


def strata_by_leverage(
    leverages: np.ndarray, rng: np.random.Generator
) -> list[tuple[np.ndarray, float]]:
    """Return rows that represent all, with the number that each represents.

    The rows are sorted by leverage and cut into strata that have the same part of its sum, or more
    if that would be few rows; of each stratum as many are drawn. So those that hardly any other
    is like are all there.

    Args:
        leverages: Leverages of all rows, (N,).
        rng: Generator of the rows.
    """
    order = np.argsort(-leverages, kind="stable")
    strata = []
    sums = np.cumsum(leverages[order])
    begin = 0
    for remaining in range(STRATA, 0, -1):
        before = sums[begin - 1] if begin else 0.0
        share = before + (sums[-1] - before) / remaining
        end = max(int(np.searchsorted(sums, share)) + 1, begin + STRATUM_ROWS)
        end = (
            min(end, len(order) - (remaining - 1) * STRATUM_ROWS)
            if remaining > 1
            else len(order)
        )
        chosen = rng.choice(end - begin, STRATUM_ROWS, replace=False)
        strata.append((np.sort(order[begin + chosen]), (end - begin) / STRATUM_ROWS))
        begin = end
    return strata


def leverage_minibatches(leverages: np.ndarray) -> Weighted:
    """Return minibatches whose rows are drawn mostly in proportion to leverage."""
    N = len(leverages)
    total = leverages.sum()
    share = leverages / total if total > 0 else np.full(N, 1 / N)
    return Weighted((1 - _SETTINGS.uniform_share) * share + _SETTINGS.uniform_share / N)
