"""Rung 5: the noise in the draws is standard normal and independent of all other noise.

The noise is recovered from the draws of the public functions, by solving the update equation for
it, so that a wrong coefficient anywhere shows here too. Correlations are compared with 1/√m, the
standard error under independence; a test's comparisons together fail for one seed in ten thousand.

By default the noise of one chain is looked at: that the chains of other samplers are made of the
numbers of the same streams, ``test_steps.py`` shows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.ladder import (
    FALSE_ALARM,
    LADDER,
    Array,
    Case,
    Inputs,
    Problem,
    Recorded,
    bound,
    every,
    flat,
    gaussian,
    regression,
)

CHAINS, DRAWS = 6, 6000
LAGS = (1, 2, 3, 7)


def correlations(noise: Array) -> dict[str, tuple[Array, int]]:
    """Return correlations that should be zero, each kind with the m behind it.

    Args:
        noise: (chains, draws, d).
    """
    chains, length, d = noise.shape
    z = (noise - noise.mean((0, 1))) / noise.std((0, 1))
    within = np.einsum("cti,ctj->ij", z, z) / (chains * length)
    found = {"coordinates": (within[np.triu_indices(d, 1)], chains * length)}
    for lag in LAGS:
        m = chains * (length - lag)
        found[f"lag {lag}"] = np.einsum("cti,ctj->ij", z[:, lag:], z[:, :-lag]) / m, m
    across = np.einsum("cti,etj->ceij", z, z) / length
    found["chains"] = across[np.triu_indices(chains, 1)], length
    return found


def check_independence(noise: Array) -> None:
    """Assert that noise is independent over coordinates, draws and chains, and its size too."""
    for what, values in {
        "noise": noise,
        "size": np.abs(noise - noise.mean((0, 1))),
    }.items():
        found = correlations(values)
        comparisons = 2 * sum(r.size for r, _ in found.values())
        for where, (r, m) in found.items():
            assert np.abs(r).max(initial=0) < bound(comparisons) / np.sqrt(m), (
                what,
                where,
            )


def check_standard_normal(noise: Array) -> None:
    """Assert mean 0 and variance 1 of each coordinate, and the normal law of all."""
    m, limit = noise[..., 0].size, bound(2 * noise.shape[-1])
    assert np.abs(noise.mean((0, 1))).max() < limit / np.sqrt(m)
    assert np.abs((noise**2).mean((0, 1)) - 1).max() < limit * np.sqrt(2 / m)
    assert stats.kstest(noise.ravel(), "norm").pvalue > FALSE_ALARM


def check_no_repeats(noise: Array) -> None:
    """Assert that no stretch of numbers occurs twice, in blocks or chains however far apart."""
    numbers = np.round(noise.ravel(), 9)
    repeats = numbers.size - np.unique(numbers).size
    assert repeats < 0.001 * numbers.size


@pytest.mark.slow
@every(LADDER)
def test_the_noise_of_a_chain_with_minibatches(case: Case) -> None:
    """Two parameters of the same shape; SGHMC with L = 1, whose noise can be solved for."""
    assert case.transcription is not None
    problem = gaussian(4, 40)
    stepsize = {"first": 2e-3, "second": 1e-3}
    tuning = {**case.tuning, **case.transcription.one_step()}
    samples = case.run(
        problem,
        stepsize,
        20,
        n_iters=DRAWS,
        n_chains=CHAINS,
        store_gradients=True,
        dtype=tf.float64,
        **tuning,
    )
    draws, g = flat(samples, 2), flat(samples.gradients, 2)
    recorded = Recorded(problem, problem.spread(stepsize), tuning, draws, g)
    noise = case.transcription.recovered(recorded)
    check_standard_normal(noise)
    check_independence(noise)
    check_no_repeats(noise)


def flat_problem() -> Problem:
    """Return a posterior that is flat, so that the chain is its noise and nothing else."""

    def log_lik(params: dict[str, tf.Tensor], data: dict[str, tf.Tensor]) -> tf.Tensor:
        return 0.0 * tf.reduce_sum(flat(params)) * tf.reduce_sum(data["x"])

    return replace(gaussian(4, 5), log_lik=log_lik, log_prior=None, start=np.zeros(4))


@every(
    tuple(case for case in LADDER if case.transcription and case.transcription.forgets),
    slow=lambda case: case.name != "sghmc",
)
def test_the_increments_of_a_chain_on_a_flat_posterior(case: Case) -> None:
    """With several steps an increment mixes the refreshed ν and the noise of all steps.

    Its variance is right only if all of these are independent and of their right sizes.
    """
    assert case.transcription is not None
    problem, stepsize = flat_problem(), 1e-2
    samples = case.run(
        problem, stepsize, 5, n_iters=DRAWS, n_chains=CHAINS, dtype=tf.float64
    )
    weights = [
        case.transcription.chain(
            Inputs(
                np.zeros(1),
                np.zeros_like,
                np.array([stepsize]),
                case.tuning,
                one[None, :, None],
                np.zeros(1),
                [slice(0, 1)],
            )
        )[-1, 0]
        for one in np.eye(case.transcription.vectors(case.tuning))
    ]
    noise = np.diff(flat(samples, 2), axis=1) / np.linalg.norm(weights)
    check_standard_normal(noise)
    check_independence(noise)
    check_no_repeats(noise)


@pytest.mark.slow
@pytest.mark.some(1)
@every(LADDER)
def test_minibatches_differ_between_draws_and_chains(case: Case) -> None:
    """What the minibatch adds to a gradient is recovered: (N/n) Σ of its noisy terms.

    On a linear problem these are c_i − K_i θ. The sum is scaled by their mean and spread over all
    observations, which are known at any θ.
    """
    problem, n = (regression if case.centered else gaussian)(1, 1000), 10
    samples = case.run(
        problem,
        1e-6,
        n,
        n_iters=DRAWS,
        n_chains=CHAINS,
        store_gradients=True,
        dtype=tf.float64,
    )
    theta, g = flat(samples, 2), flat(samples.gradients, 2)
    at_start = problem.gradients(problem.start)
    slopes = problem.K[:, :, 0]
    # At the start and one off it: two points tell a straight line.
    first = case.estimator.noisy(at_start, at_start)
    second = case.estimator.noisy(at_start - slopes, at_start)
    change, gap = second - first, theta - problem.start
    known = case.estimator.known(at_start)
    prior = problem.prior_precision[0, 0] * (problem.prior_mean - theta)
    mean = first.sum() + change.sum() * gap
    variance = first.var() + 2 * gap * np.mean(first * (change - change.mean()))
    variance = variance + gap**2 * change.var()
    sums = (g - prior - known - mean) / np.sqrt(variance)
    error = sums.std() / np.sqrt(sums.size)
    assert abs(sums.mean()) < bound(1) * error
    check_independence(sums)
    check_no_repeats(sums)


def test_seeds_give_independent_noise() -> None:
    problem = flat_problem()
    case = LADDER[0]
    noise = [
        np.diff(
            flat(
                case.run(problem, 1.0, 5, n_iters=DRAWS, dtype=tf.float64, seed=seed), 1
            ),
            axis=0,
        )
        for seed in range(4)
    ]
    check_independence(np.array(noise))


def test_dependent_noise_is_found() -> None:
    """The power of the rung: each kind of dependence is seen."""
    rng = np.random.default_rng(1)
    good = rng.normal(size=(CHAINS, DRAWS, 4))
    check_independence(good)
    bad = {name: good.copy() for name in ("coordinates", "draws", "chains", "sizes")}
    bad["coordinates"][..., 2:] = good[..., :2]
    bad["draws"][:, 1:] = 0.97 * good[:, 1:] + 0.24 * good[:, :-1]
    bad["chains"][1] = good[0]
    bad["sizes"][..., 1] = good[..., 0] * np.sign(good[..., 1])
    for noise in bad.values():
        with pytest.raises(AssertionError):
            check_independence(noise)
    with pytest.raises(AssertionError):
        check_standard_normal(1.02 * good)
    with pytest.raises(AssertionError):
        check_no_repeats(np.concatenate([good[:, :4000], good[:, :2000]], 1))
