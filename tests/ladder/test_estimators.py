"""Rung 4: the gradient estimators over all minibatches, and how minibatches are drawn."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, combinations_with_replacement, product
from math import comb, factorial, prod
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from sgmcmc.data.dataset import Minibatch
from sgmcmc.data.reading import read_dataset
from sgmcmc.gradients import WholeData
from sgmcmc.minibatches.uniform import draw_rows
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from tests.ladder import (
    CENTERED,
    LADDER,
    Array,
    Case,
    Estimator,
    Problem,
    bound,
    every,
    firsts,
    flat,
    logistic,
)

LEVEL = 1e-4
"""Each chi-square test fails by chance for one seed in ten thousand."""
ESTIMATORS = tuple(
    case.estimator for case in firsts(LADDER, lambda case: case.estimator)
)
EACH = pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=[each.name for each in ESTIMATORS]
)


class Estimates:
    """An estimator on a tiny dataset, evaluated at one position on chosen minibatches."""

    def __init__(self, problem: Problem, n: int, estimator: Estimator) -> None:
        space = Space(problem.shapes)
        self.target = Target(problem.log_lik, problem.log_prior, space, tf.float64)
        self.columns = {k: tf.constant(v) for k, v in problem.dataset.items()}
        self.weight = problem.size / n
        center = problem.start + 0.7
        whole = WholeData(self.target, read_dataset(problem.dataset, tf.float64), n)
        constants = {"opt_stepsize": 1.0, "n_iters_opt": 0}
        given = estimator.arguments(constants)
        self.gradient = estimator.gradient(**given).bind(whole)
        self.state: Any = self.gradient.init(whole, center)
        if estimator.centered:
            full = self.state.full_gradient
            np.testing.assert_allclose(full, problem.gradient(center), rtol=1e-12)

    def at(self, position: Array, rows: tuple[int, ...]) -> Array:
        """Return the estimate from the minibatch of these rows."""
        columns = {
            name: tf.gather(values, rows) for name, values in self.columns.items()
        }
        minibatch = Minibatch(columns, self.weight)
        return self.gradient.estimate(
            self.target, self.state, tf.constant(position), minibatch, minibatch
        )[0].numpy()


def noisy_terms(problem: Problem, estimator: Estimator) -> Array:
    """Return the part of each observation's gradient that the minibatch samples."""
    here, there = (problem.gradients(problem.start + gap) for gap in (0.0, 0.7))
    return estimator.noisy(here, there)


@EACH
@pytest.mark.parametrize(("N", "n"), [(5, 2), (6, 3), (5, 5)])
@pytest.mark.parametrize("d", [1, 3])
def test_all_minibatches_without_replacement(
    d: int, N: int, n: int, estimator: Estimator
) -> None:
    problem = logistic(d, N)
    estimates = Estimates(problem, n, estimator)
    values = np.array(
        [estimates.at(problem.start, s) for s in combinations(range(N), n)]
    )
    exact = problem.gradient(problem.start)
    np.testing.assert_allclose(values.mean(0), exact, rtol=1e-12, atol=1e-12)
    spread = np.atleast_2d(np.cov(noisy_terms(problem, estimator).T))
    observed = (values - exact).T @ (values - exact) / len(values)
    np.testing.assert_allclose(
        observed, N * (N - n) / n * spread, rtol=1e-12, atol=1e-12
    )


@EACH
@pytest.mark.parametrize(("N", "n"), [(5, 2), (4, 3)])
def test_all_minibatches_with_replacement(N: int, n: int, estimator: Estimator) -> None:
    problem = logistic(3, N)
    estimates = Estimates(problem, n, estimator)
    values = np.array(
        [estimates.at(problem.start, s) for s in product(range(N), repeat=n)]
    )
    exact = problem.gradient(problem.start)
    np.testing.assert_allclose(values.mean(0), exact, rtol=1e-12, atol=1e-12)
    spread = np.cov(noisy_terms(problem, estimator).T, ddof=0)
    observed = (values - exact).T @ (values - exact) / len(values)
    np.testing.assert_allclose(observed, N**2 / n * spread, rtol=1e-12, atol=1e-12)


def test_at_its_center_the_control_variate_has_no_noise() -> None:
    problem = logistic(3, 6)
    estimates = Estimates(problem, 2, CENTERED)
    center = problem.start + 0.7
    for rows in combinations(range(6), 2):
        np.testing.assert_allclose(
            estimates.at(center, rows), problem.gradient(center), rtol=1e-12
        )


# --------------------------------------------------------------------- how rows are drawn

PATHS = {
    "one row": (7, 1),
    "mended": (6, 2),
    "mended, half": (6, 3),
    "mended, more": (9, 4),
    "complement of mended": (7, 5),
    "complement of one": (6, 5),
}


def drawn(N: int, n: int, count: int, *, replace: bool = False, seed: int = 1) -> Array:
    rows = draw_rows(np.random.default_rng([seed, N, n]), N, n, count, replace)
    return np.sort(rows, axis=1)  # their order has no meaning


@pytest.mark.parametrize(
    ("N", "n", "count"),
    [
        *((N, n, 2000) for N, n in PATHS.values()),
        (5, 5, 10),
        (2, 2, 5),
        (1, 1, 5),
        (1000, 100, 50),
        (1000, 900, 50),
        (10_001, 2000, 20),
        (10_001, 7000, 20),
        (10**6, 500, 20),
    ],
)
def test_rows_are_distinct_and_in_range(N: int, n: int, count: int) -> None:
    rows = drawn(N, n, count)
    assert rows.shape == (count, n)
    assert rows.min() >= 0 and rows.max() < N
    assert (np.diff(rows, axis=1) > 0).all()


@pytest.mark.parametrize(("N", "n"), PATHS.values(), ids=PATHS)
def test_every_subset_is_equally_likely(N: int, n: int) -> None:
    count = 1000 * comb(N, n)
    seen = Counter(map(tuple, drawn(N, n, count).tolist()))
    frequencies = [seen[subset] for subset in combinations(range(N), n)]
    assert sum(frequencies) == count
    assert stats.chisquare(frequencies).pvalue > LEVEL


@pytest.mark.parametrize(("N", "n"), [(5, 3), (3, 5), (6, 1)])
def test_every_sequence_is_equally_likely_with_replacement(N: int, n: int) -> None:
    count = 300 * N**n
    seen = Counter(map(tuple, drawn(N, n, count, replace=True).tolist()))
    multisets = list(combinations_with_replacement(range(N), n))
    ways = [factorial(n) / prod(map(factorial, Counter(m).values())) for m in multisets]
    assert (
        stats.chisquare([seen[m] for m in multisets], 300 * np.array(ways)).pvalue
        > LEVEL
    )


@pytest.mark.parametrize(
    ("N", "n", "count"),
    [(10_001, 2000, 300), (10_001, 7000, 300), (10_001, 500, 1000), (400, 150, 3000)],
    ids=["shuffle", "complement of shuffle", "mended", "mended, many repeats"],
)
def test_every_row_is_drawn_equally_often(N: int, n: int, count: int) -> None:
    """The frequencies scatter as they must: too little is as wrong as too much.

    Rows compete for places in a minibatch, so the statistic has N − 1 degrees of freedom after
    the factor (N − 1)/N.
    """
    share = n / N
    often = np.bincount(drawn(N, n, count).ravel(), minlength=N)
    statistic = (
        ((often - count * share) ** 2).sum()
        / (count * share * (1 - share))
        * (N - 1)
        / N
    )
    p = stats.chi2.cdf(statistic, N - 1)
    assert LEVEL / 2 < p < 1 - LEVEL / 2


@pytest.mark.parametrize(
    ("N", "n"),
    [(10_001, 2000), (10_001, 7000), (400, 150), (400, 300)],
    ids=["shuffle", "complement of shuffle", "mended", "complement"],
)
def test_neighbouring_rows_come_together_as_often_as_they_must(N: int, n: int) -> None:
    """Standard error from independent minibatches."""
    rows = drawn(N, n, 600, seed=2)
    pairs = (np.diff(rows, axis=1) == 1).sum(1)
    error = pairs.std(ddof=1) / np.sqrt(len(pairs))
    assert (
        abs(pairs.mean() - (N - 1) * n * (n - 1) / (N * (N - 1)))
        < bound(1, 600) * error
    )


@pytest.mark.parametrize("replace", [False, True], ids=["without", "with replacement"])
@pytest.mark.parametrize(("N", "n"), [(20, 5), (20, 15), (20, 1)])
def test_variance_of_the_gradients_drawn(N: int, n: int, replace: bool) -> None:
    """N(N−n)/n S, or N²/n S₀; the standard error of a variance is about 0.5 % of it."""
    terms = logistic(3, N).gradients(np.zeros(3))
    count = 80_000
    gradients = N / n * terms[drawn(N, n, count, replace=replace, seed=3)].sum(1)
    centered = gradients - terms.sum(0)
    factor = N**2 / n if replace else N * (N - n) / n
    expected = factor * np.cov(terms.T, ddof=0 if replace else 1)
    products = centered[:, :, None] * centered[:, None, :]
    errors = products.std(0, ddof=1) / np.sqrt(count)
    assert (errors < 0.02 * np.abs(np.diag(expected)).max()).all()
    assert np.abs((products.mean(0) - expected) / errors).max() < bound(6)
    errors = centered.std(0, ddof=1) / np.sqrt(count)
    assert np.abs(centered.mean(0) / errors).max() < bound(3)


def test_minibatches_of_one_call_are_independent() -> None:
    """Two minibatches one after the other form every pair of subsets equally often."""
    subsets = {s: k for k, s in enumerate(combinations(range(6), 2))}
    codes = np.array(
        [subsets[tuple(r)] for r in drawn(6, 2, 225 * 400, seed=4).tolist()]
    )
    pairs = np.bincount(15 * codes[:-1] + codes[1:], minlength=225)
    # 15² cells less the constraint that both margins are those of the same sequence.
    expected = np.outer(*[np.bincount(codes, minlength=15)] * 2).ravel() / len(codes)
    statistic = ((pairs - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, 14**2) > LEVEL


# ---------------------------------------------------------------- minibatches inside a chain


@every(LADDER)
@pytest.mark.parametrize("replace", [False, True], ids=["without", "with replacement"])
@pytest.mark.some(1)
def test_each_gradient_in_a_chain_is_of_one_fresh_minibatch_at_that_very_draw(
    case: Case, replace: bool
) -> None:
    """Of the few minibatches that there are, the one behind each stored gradient is found.

    All must be seen as often as they should, and one after the other independently.
    """
    N, n, chains, draws = 5, 2, 4, 2500
    problem = logistic(3, N)
    samples = case.run(
        problem,
        0.01,
        n,
        n_iters=draws,
        n_chains=chains,
        store_gradients=True,
        dtype=tf.float64,
        replace=replace,
    )
    positions, gradients = flat(samples, 2), flat(samples.gradients, 2)
    codes = _minibatch_of_each(problem, case, positions, gradients, n, replace)
    choices = combinations_with_replacement if replace else combinations
    ways = np.array([1 + (len(set(rows)) > 1) for rows in choices(range(N), n)], float)
    ways /= ways.sum()
    seen = np.bincount(codes.ravel(), minlength=len(ways))
    assert stats.chisquare(seen, ways * codes.size).pvalue > LEVEL / 2
    pairs = np.bincount(
        (len(ways) * codes[:, :-1] + codes[:, 1:]).ravel(), minlength=len(ways) ** 2
    )
    expected = np.outer(ways, ways).ravel() * pairs.sum()
    # Successive pairs overlap: more constraints than cells shows; the chi-square of pairs less
    # that of singles has the law that independence gives (Good, 1953).
    statistic = ((pairs - expected) ** 2 / expected).sum() - stats.chisquare(
        seen, ways * codes.size
    ).statistic
    assert stats.chi2.sf(statistic, len(ways) * (len(ways) - 1)) > LEVEL / 2


def _minibatch_of_each(
    problem: Problem,
    case: Case,
    positions: Array,
    gradients: Array,
    n: int,
    replace: bool,
) -> Array:
    """Return the number of the minibatch behind each gradient; fail if there is none."""
    N = problem.size
    choices = combinations_with_replacement if replace else combinations
    logits = positions @ problem.dataset["x"].T
    x, y = problem.dataset["x"], problem.dataset["y"]
    terms = (y - 1 / (1 + np.exp(-logits)))[..., None] * x
    center = problem.gradients(problem.start)
    terms = case.estimator.noisy(terms, center)
    constant = -positions + case.estimator.known(center)
    candidates = np.stack(
        [
            constant + N / n * terms[..., list(rows), :].sum(-2)
            for rows in choices(range(N), n)
        ]
    )
    distances = np.abs(candidates - gradients).max(-1)
    # Of two that are nearly the same, early in a chain with control variates, either will do.
    assert distances.min(0).max() < 1e-10
    return distances.argmin(0)
