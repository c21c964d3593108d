"""Replica exchange: the update, detailed balance under noise, and two modes from one start."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import sgmcmc
from sgmcmc.dynamics import HMC, SGLD, ReplicaExchange, Underdamped
from sgmcmc.model.geometry import Space
from tests.ladder import BY_NAME, Array, bound, gaussian

TEMPERATURES = (1.0, 3.0, 7.0)


class Known:
    """Estimates at other positions, of a log posterior whose rows are −w_i |θ − c_i|²/2."""

    centres, weights = (
        np.linspace(-1, 1, 5)[:, None],
        np.array([0.4, 1.0, 2.0, 0.7, 1.1]),
    )

    def gradient(self, position: Any) -> tf.Tensor:
        """Return the gradient of the rows and of a standard normal prior."""
        theta = np.asarray(position)
        return tf.constant(
            (self.weights[:, None] * (self.centres - theta)).sum(0) - theta
        )

    def log_post(self, position: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the weighted rows, and the log prior."""
        theta = np.asarray(position)
        rows = -0.5 * self.weights * ((self.centres - theta) ** 2).sum(1)
        return tf.constant(rows), tf.constant(-0.5 * (theta**2).sum())


@pytest.mark.parametrize("correction", [0.0, 1.0])
def test_the_dynamics_are_the_transcription(correction: float) -> None:
    d, K, every, epsilon, unseen = 2, 3, 2, 0.3, 0.6
    dynamics = ReplicaExchange(TEMPERATURES, every=every, correction=correction)
    dynamics = dynamics.for_rows(10, 5, unseen).bind(Space({"theta": (d,)}))
    known, rng = Known(), np.random.default_rng(1)
    start, noise = rng.normal(size=d), rng.normal(size=(41, K + 1, d))
    step = tf.constant(epsilon, tf.float64)
    first = known.gradient(start)
    state = dynamics.init(tf.constant(start), first, step, tf.zeros((0, d), tf.float64))
    gradient = first
    theta, swaps = np.tile(start, (K, 1)), 0
    for k, normals in enumerate(noise):
        if k and k % every == 0:  # neighbors (0, 1) and (1, 2) take turns
            pair = (k // every) % 2
            a, b = (known.log_post(theta[pair + j]) for j in (0, 1))
            rows = np.asarray(b[0] - a[0])
            delta = 1 / TEMPERATURES[pair] - 1 / TEMPERATURES[pair + 1]
            s2 = unseen * 5 * rows.var(ddof=1)
            r = (
                delta * (rows.sum() + float(b[1] - a[1]))
                - correction * delta**2 * s2 / 2
            )
            if np.log(stats.norm.cdf(normals[K][pair])) < r:
                theta[[pair, pair + 1]], swaps = theta[[pair + 1, pair]], swaps + 1
        for j, T in enumerate(TEMPERATURES):
            slope = known.gradient(theta[j]).numpy()
            theta[j] = (
                theta[j] + epsilon / 2 * slope + np.sqrt(T * epsilon) * normals[j]
            )
        state = dynamics.step(state, gradient, step, tf.constant(normals))
        gradient = known.gradient(state.position)
        state = dynamics.finish_step(dynamics.visit(state, known), gradient, step)
        np.testing.assert_allclose(state.position, theta[0], rtol=1e-12)
    assert 1 <= swaps < 20
    assert float(tf.reduce_sum(state.exchanged)) == swaps


def test_the_variance_is_that_of_drawing_without_replacement() -> None:
    """Its mean over all minibatches is the variance of the estimated difference."""
    N, n, delta = 7, 3, 1.0 - 1.0 / 3.0
    rng = np.random.default_rng(3)
    here, there = rng.normal(size=N), rng.normal(size=N)
    dynamics = ReplicaExchange((1.0, 3.0), correction=1.0).for_rows(N, n, 1 - n / N)
    dynamics = dynamics.bind(Space({"t": ()}))
    nothing = tf.zeros([], tf.float64)

    def ratio(rows: Any, correction: float) -> float:
        found = [
            (tf.constant(N / n * terms[list(rows)]), nothing) for terms in (here, there)
        ]
        return float(replace(dynamics, correction=correction)._log_ratios(found)[0])

    minibatches = list(combinations(range(N), n))
    plain = np.array([ratio(rows, 0.0) for rows in minibatches])
    less = plain - np.array([ratio(rows, 1.0) for rows in minibatches])
    assert plain.mean() == pytest.approx(delta * (there - here).sum(), rel=1e-12)
    assert less.mean() == pytest.approx(0.5 * plain.var(), rel=1e-12)


def exchanged(noise: float, correction: float, size: int) -> tuple[Array, float]:
    """Return the colder of two replicas after a proposal, and how many were accepted.

    They are exact draws of N(0, 1) at temperatures 1 and 4; the estimate of the difference of
    their log posteriors, from 40 rows, has this variance.
    """
    rng, n = np.random.default_rng(2), 40
    cold, hot = rng.normal(size=size), 2 * rng.normal(size=size)
    dynamics = ReplicaExchange((1.0, 4.0), correction=correction).bind(Space({"t": ()}))
    gap = (cold**2 - hot**2) / 2
    total = gap + np.sqrt(noise) * rng.normal(size=size)
    rows = np.random.default_rng(3).normal(size=n)
    rows = np.sqrt(noise / n) * (rows - rows.mean()) / rows.std(ddof=1)
    none = (tf.zeros(n, tf.float64), tf.constant(0.0, tf.float64))

    def ratio(total: tf.Tensor) -> tf.Tensor:
        there = tf.constant(rows) + total / n, tf.constant(0.0, tf.float64)
        return dynamics._log_ratios([none, there])[0]

    ratios = tf.vectorized_map(ratio, tf.constant(total)).numpy()
    accepted = np.log(rng.random(size)) < ratios
    return np.where(accepted, hot, cold), float(accepted.mean())


def test_the_corrected_rate_leaves_both_distributions_as_they_are() -> None:
    size = 200_000
    for noise in (0.0, 4.0):
        squares = exchanged(noise, 1.0, size)[0] ** 2
        assert abs(squares.mean() - 1) < bound(2) * np.sqrt(2 / size)
    naive, rate = exchanged(4.0, 0.0, size)
    assert (
        naive**2
    ).mean() > 1.1  # without the correction the cold replica is too warm
    assert rate > exchanged(4.0, 1.0, size)[1] > 0.1


def two_modes(params: Any, dataset: Any) -> tf.Tensor:
    """Return the log density of 0.3 N(−2, 0.3²) + 0.7 N(2, 0.3²)."""
    places = tf.constant([-2.0, 2.0])
    each = tf.math.log([0.3, 0.7]) - 0.5 * ((params["t"] - places) / 0.3) ** 2
    return tf.reduce_logsumexp(each) + 0.0 * dataset["x"]


def _run(dynamics: Any, **given: Any) -> sgmcmc.Samples:
    arguments = {
        "dynamics": dynamics, "gradient": "minibatch", "minibatches": "uniform", "seed": 1,
        "minibatch_size": 1, "preconditioner": "none", "stepsize": 0.005, "n_chains": 8,
        "n_iters": 15_000, "burn_in": 1000, "verbose": False,
    }  # fmt: skip
    return sgmcmc.sample(
        two_modes, {"x": np.zeros(1)}, {"t": -2.0}, **{**arguments, **given}
    )


def proportion(theta: Array) -> tuple[float, float]:
    """Return the part of the draws above zero, and its standard error over the chains."""
    each = (theta > 0).mean(1)
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))


@pytest.mark.slow
@pytest.mark.parametrize("inner", [SGLD(), Underdamped()])
def test_both_modes_in_proportion_from_one_start(inner: Any) -> None:
    samples = _run(ReplicaExchange((1.0, 4.0, 16.0, 64.0), inner, every=5))
    part, error = proportion(samples["t"])
    assert abs(part - 0.7) < bound(1, 8) * error
    assert error < 0.03
    above = samples["t"][samples["t"] > 0]
    assert abs(above.std() / 0.3 - 1) < 0.03
    rates = {
        k: v
        for k, v in samples.report["Chain"].items()
        if k.startswith("exchange rate")
    }
    assert len(rates) == 3
    assert all(0.3 < rate < 0.9 for rate in rates.values())


@pytest.mark.slow
def test_without_it_the_chain_stays_where_it_began() -> None:
    assert proportion(_run("sgld", n_iters=2000)["t"])[0] == 0.0


@pytest.mark.slow
def test_the_mixture_of_two_means_from_minibatches() -> None:
    """N = 1000 and n = 100: the two labelings, alike by symmetry, which SGLD never exchanges."""
    rng = np.random.default_rng(1)
    x = np.array([[-1.0, 0.0], [1.0, 0.0]])[rng.integers(0, 2, 1000)] + rng.normal(
        size=(1000, 2)
    )

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        gaps = [tf.reduce_sum((dataset["x"] - params[name]) ** 2, 1) for name in "ab"]
        return tf.reduce_logsumexp(-0.5 * tf.stack(gaps), 0)

    def log_prior(params: Any) -> tf.Tensor:
        return -0.05 * sum(tf.reduce_sum(params[name] ** 2) for name in "ab")

    def run(dynamics: Any) -> Array:
        samples = sgmcmc.sample(
            log_lik, {"x": x}, {"a": [-1.0, 0.0], "b": [1.0, 0.0]}, log_prior, dynamics=dynamics,
            gradient="minibatch", minibatches="uniform", minibatch_size=100,
            preconditioner="none", stepsize=4e-4, n_chains=8, n_iters=40_000, burn_in=2000,
            seed=1, verbose=False,
        )  # fmt: skip
        return samples["a"][..., 0] - samples["b"][..., 0]

    temperatures = (1.0, *np.geomspace(1, 100, 8)[1:])
    part, error = proportion(run(ReplicaExchange(temperatures, every=5)))
    assert abs(part - 0.5) < bound(1, 8) * error
    assert error < 0.03
    assert proportion(run("sgld"))[0] == 0.0


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (ReplicaExchange(()), "`temperatures` must be a list of two or more"),
        (ReplicaExchange((2.0, 3.0)), "`temperatures` must be"),
        (ReplicaExchange((1.0, 3.0, 2.0)), "`temperatures` must be"),
        (ReplicaExchange((1.0, -3.0)), "`temperatures` must be"),
        (ReplicaExchange("hot"), "`temperatures` must be"),
        (ReplicaExchange((1.0, 2.0), every=0), "`every`"),
        (
            ReplicaExchange((1.0, 2.0), correction=-1.0),
            "`correction` must not be negative",
        ),
        (
            ReplicaExchange((1.0, 2.0), "sgld"),
            "`dynamics` of ReplicaExchange must be an object",
        ),
        (
            ReplicaExchange((1.0, 2.0), HMC()),
            "`dynamics`: HMC cannot be that of replicas",
        ),
    ],
)
def test_wrong_constants_are_refused(part: ReplicaExchange, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        part.bind(Space({"theta": (2,)}))


def test_what_does_not_go_with_replicas_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"write sgmcmc.dynamics.*ReplicaExchange\(temperatures"
    ):
        _run("replica_exchange")
    with pytest.raises(ValueError, match="`updates`"):
        BY_NAME["replica-exchange"].run(gaussian(3, 20), 1e-3, 5, updates="in_turn")
    with pytest.raises(ValueError, match="`gibbs`: ReplicaExchange compares"):
        _run(
            ReplicaExchange((1.0, 2.0)), gibbs=lambda params, minibatch, seed: minibatch
        )
