"""Leave-one-out cross-validation from some rows: against the exact one, and against ArviZ's."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from sgmcmc import Samples
from sgmcmc.results.loo import _extrapolated
from tests.results.test_predictions import exact_normal, normal


def test_all_rows_and_some_agree_with_the_exact_ones() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_t(5, size=2000)
    samples, exact = exact_normal(x, 1.0, rng)
    given: dict[str, Any] = {"dataset": {"x": x}, "log_lik": normal(1.0)}
    every = samples.loo(**given, rows=2000)
    assert every.subsampling_se == 0 and len(every.rows) == 2000
    assert abs(every.elpd - exact.sum()) < 0.8
    assert abs(every.p_loo - exact_terms(samples, x, exact)) < 0.8
    gaps = []
    for seed in range(20):
        some = samples.loo(**given, rows=200, seed=seed)
        assert len(some.pareto_k) == len(np.unique(some.rows)) == 200
        gaps.append((some.elpd - every.elpd) / some.subsampling_se)
        assert some.se > some.subsampling_se > 0
    # Each standard error comes from 200 rows with heavy tails. The root mean square of 20 standard
    # normal variables has a standard error of 0.16.
    assert np.abs(gaps).max() < 6 and 0.5 < np.sqrt(np.mean(np.square(gaps))) < 1.6


def test_the_error_of_unseen_rows_is_that_of_drawing_without_replacement() -> None:
    """The mean of its squares, over all samples of rows, is the variance of the estimates."""
    rng = np.random.default_rng(5)
    N, n = 9, 4
    of_all, exact = rng.normal(size=N), rng.normal(size=N)
    found = [
        _extrapolated(exact[list(rows)], np.array(rows), np.ones(N), of_all)
        for rows in combinations(range(N), n)
    ]
    elpd, _, missed = np.array(found).T
    assert elpd.mean() == pytest.approx(exact.sum(), rel=1e-12)
    assert np.mean(missed**2) == pytest.approx(elpd.var(), rel=1e-12)


def exact_terms(samples: Samples, x: np.ndarray, exact: np.ndarray) -> float:
    """Return the effective number of parameters."""
    theta = samples["theta"].reshape(-1)
    mean, variance = theta.mean(), theta.var() + 1.0
    full = -0.5 * np.log(2 * np.pi * variance) - 0.5 * (x - mean) ** 2 / variance
    return float((full - exact).sum())


def test_draws_of_a_file_and_odd_log_likelihoods_are_refused() -> None:
    samples = Samples({"theta": np.zeros(10)})
    with pytest.raises(
        ValueError, match="`dataset` must be given|`log_lik` must be given"
    ):
        samples.loo()

    def no_sum(params: Any, dataset: Any) -> Any:
        return (
            dataset["x"].mean() if hasattr(dataset["x"], "mean") else dataset["x"] * 1e9
        )

    with pytest.raises(ValueError, match="`rows` must be"):
        samples.loo({"x": np.zeros(5)}, log_lik=normal(1.0), rows=1)
