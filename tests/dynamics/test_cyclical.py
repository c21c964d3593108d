"""Cyclical stepsizes: the formula, the draws that count, and two modes from one start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc


def test_the_formula_and_the_draws_that_count() -> None:
    schedule = sgmcmc.cyclical(0.3, cycle=10, exploration=0.25)
    for k in range(1, 31):
        r = ((k - 1) % 10) / 10
        assert schedule(k) == pytest.approx(0.15 * (np.cos(np.pi * r) + 1), rel=1e-14)
    iterations = [7 + 3 * (i + 1) for i in range(20)]
    expected = [((k - 1) % 10) / 10 >= 0.25 for k in iterations]
    assert schedule.counts(20, burn_in=7, thin=3).tolist() == expected


@pytest.mark.parametrize(
    "given", [(0.0, 5), (0.1, 0), (0.1, 2.5), (0.1, 5, 1.0), (0.1, 5, "x")]
)
def test_what_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError), match="`(h|cycle|exploration)`"):
        sgmcmc.cyclical(*given)


@pytest.mark.slow
def test_both_modes_are_found_from_one_start() -> None:
    """Two narrow modes at ±2, between which SGLD at the stepsize of a mode does not cross."""

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        modes = tf.stack([-0.5 * ((params["t"] - m) / 0.3) ** 2 for m in (-2.0, 2.0)])
        return tf.reduce_logsumexp(modes) + 0.0 * dataset["x"]

    def run(stepsize: Any) -> np.ndarray:
        return sgmcmc.sgld(
            log_lik, {"x": np.zeros(1)}, {"t": -2.0}, stepsize, minibatch_size=1, n_iters=20_000,
            seed=1, verbose=False,
        )["t"]  # fmt: skip

    schedule = sgmcmc.cyclical(0.34, cycle=500)
    draws = run(schedule)[schedule.counts(20_000)]
    assert 0.1 < (draws > 0).mean() < 0.9
    assert (run(0.02) < 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "expected"), [(0.5, 0.5), (0.3, 0.5)])
def test_modes_that_are_alike_have_the_right_proportions(
    weight: float, expected: float
) -> None:
    """By symmetry; of modes with probabilities 0.3 and 0.7 each is visited as often as the other.

    Replica exchange has these right: ``tests/ladder/test_exchange.py``.
    """

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        heights = tf.math.log(tf.constant([weight, 1 - weight]))
        gaps = (params["t"] - tf.constant([-2.0, 2.0])) / 0.3
        return tf.reduce_logsumexp(heights - 0.5 * gaps**2) + 0.0 * dataset["x"]

    samples = sgmcmc.sgld(
        log_lik, {"x": np.zeros(1)}, {"t": -2.0}, sgmcmc.cyclical(0.34, cycle=500),
        minibatch_size=1, n_chains=16, burn_in=10_000, n_iters=40_000, seed=1, verbose=False,
    )  # fmt: skip
    part = (samples["t"][:, samples.weights > 0] > 0).mean(1)
    error = part.std(ddof=1) / 4
    assert abs(part.mean() - expected) < 4 * error
    assert error < 0.03
