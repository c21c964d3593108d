"""Gradient estimators and points of the simplex where parameters move one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.gradients import SAGA, SVRG
from tests import seams
from tests.ladder import Array, bound, flat, logistic
from tests.ladder.test_in_turn import ROWS, SEED, SMALL, minibatches

LENGTH, ITERATIONS, STEPSIZE = 5, 23, 0.03
PROBLEM = logistic(3, ROWS)
SCALE = ROWS / SMALL


def normals(iterations: int, d: int, length: int | None = None) -> Array:
    """Return the normals of a chain's iterations, in blocks of this length."""
    length = length or iterations
    drawn = [
        generator(SEED, 0, RunPhase.CHAIN, Purpose.NOISE, block).standard_normal(
            (length, d)
        )
        for block in range(-(-iterations // length))
    ]
    return np.concatenate(drawn)[:iterations]


class SVRGByHand:
    """SVRG in NumPy, centered again every seven iterations."""

    def __init__(self) -> None:
        self.center = PROBLEM.start

    def begin(self, i: int, theta: Array) -> Array | None:
        if i == 0 or i % 7:
            return None
        self.center = theta.copy()
        return PROBLEM.gradient(theta)

    def __call__(self, theta: Array, rows: Array) -> Array:
        change = (PROBLEM.gradients(theta) - PROBLEM.gradients(self.center))[rows].sum(
            0
        )
        prior = PROBLEM.prior_gradient(theta) - PROBLEM.prior_gradient(self.center)
        return PROBLEM.gradient(self.center) + prior + SCALE * change

    def learn(self, theta: Array, rows: Array) -> None:
        """Learn nothing."""


class SAGAByHand:
    """SAGA in NumPy: every estimate from a minibatch is made with the table before it."""

    def __init__(self) -> None:
        self.table = PROBLEM.gradients(PROBLEM.start)

    def begin(self, i: int, theta: Array) -> None:
        return None

    def __call__(self, theta: Array, rows: Array) -> Array:
        change = (PROBLEM.gradients(theta) - self.table)[rows].sum(0)
        return PROBLEM.prior_gradient(theta) + self.table.sum(0) + SCALE * change

    def learn(self, theta: Array, rows: Array) -> None:
        self.table[rows] = PROBLEM.gradients(theta)[rows]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("method", ["svrg", "saga"])
def test_step_by_step(
    method: str, jit_compile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over blocks of five and refreshes every seven iterations."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, LENGTH)
    hand: Any = SVRGByHand() if method == "svrg" else SAGAByHand()
    rows, theta, found = minibatches(ITERATIONS, 1, LENGTH), PROBLEM.start.copy(), []
    for i, eta in enumerate(normals(ITERATIONS, 3, LENGTH)):
        g = hand.begin(i, theta)
        for place in PROBLEM.blocks():
            # After a refresh the first parameter has the exact gradient.
            slope = hand(theta, rows[i]) if g is None else g
            if place.stop == 3:
                hand.learn(theta, rows[i])
            theta[place] += STEPSIZE / 2 * slope[place] + np.sqrt(STEPSIZE) * eta[place]
            g = None
        found.append(theta.copy())
    samples = sgmcmc.sample(
        PROBLEM.log_lik, PROBLEM.dataset, PROBLEM.split(PROBLEM.start), PROBLEM.log_prior,
        dynamics="sgld", gradient=SVRG(every=7) if method == "svrg" else SAGA(),
        minibatches="uniform", minibatch_size=SMALL, preconditioner="none", stepsize=STEPSIZE,
        n_iters=ITERATIONS, burn_in=0, n_chains=None, seed=SEED, dtype=tf.float64, verbose=False,
        jit_compile=jit_compile, updates="in_turn",
    )  # fmt: skip
    np.testing.assert_allclose(
        flat(samples, 1), np.array(found), rtol=1e-10, atol=1e-10
    )


# ------------------------------------------------------------------------ points of the simplex


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log-likelihood of categories, and of normals about a mean."""
    counts = tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))
    return counts - 0.5 * tf.reduce_sum((dataset["x"] - params["mean"]) ** 2)


COUNTS = np.array([6, 4, 2])
DATA = {"z": np.repeat(np.eye(3), COUNTS, axis=0), "x": np.linspace(-1.0, 2.0, 12)}


def points(method: str, **keywords: Any) -> sgmcmc.Samples:
    """Return draws of a point of the simplex and a mean."""
    start = {"omega": np.full(3, 1 / 3), "mean": 0.5}
    given = {
        "minibatch_size": 12,
        "seed": SEED,
        "verbose": False,
        "updates": "in_turn",
        "jit_compile": False,
        **keywords,
    }
    return getattr(sgmcmc, method)(
        log_lik,
        DATA,
        start,
        {"omega": 0.1, "mean": 0.02},
        alpha={"omega": 0.5},
        **given,
    )


def test_sgrld_step_by_step() -> None:
    """θ' = | θ + (h/2) [alpha − θ + c − ωΣc] + √(hθ) η |, and then the mean by SGLD."""
    samples = points("sgrld", n_iters=6, dtype=tf.float64)
    theta, mean = np.full(3, 1 / 3), 0.5
    theta *= (0.5 + COUNTS).sum()
    for i, eta in enumerate(normals(6, 4)):
        drift = 0.5 - theta + COUNTS - theta / theta.sum() * 12
        theta = np.abs(theta + 0.05 * drift + np.sqrt(0.1 * theta) * eta[:3])
        mean += 0.01 * (DATA["x"] - mean).sum() + np.sqrt(0.02) * eta[3]
        np.testing.assert_allclose(samples["omega"][i], theta / theta.sum(), rtol=1e-10)
        np.testing.assert_allclose(samples["mean"][i], mean, rtol=1e-10)


@pytest.mark.slow
def test_scir_has_the_posterior() -> None:
    """Exactly for the point of the simplex, on the whole dataset; the two are independent."""
    samples = points("scir", n_chains=40, n_iters=2000, burn_in=100)
    expected = (0.5 + COUNTS) / 13.5
    variance = expected * (1 - expected) / 14.5
    for found, value in (
        (samples["omega"].mean(1), expected),
        (((samples["omega"] - expected) ** 2).mean(1), variance),
        (samples["mean"].mean(1), np.array(DATA["x"].mean())),
    ):
        error = found.std(0, ddof=1) / np.sqrt(40)
        assert (np.abs(found.mean(0) - value) < bound(7, 40) * error).all()
        assert (error < 0.1 * np.sqrt(variance).max()).all()
    omega, mean = samples["omega"][..., 0], samples["mean"]
    together = ((omega - omega.mean()) * (mean - mean.mean())).mean(1)
    assert abs(together.mean()) < bound(1, 40) * together.std(ddof=1) / np.sqrt(40)


def test_latent_variables_are_drawn_anew_for_each_parameter() -> None:
    """Gradients of two parameters that enter alike then have noise that is independent."""
    iterations, epsilon = 1000, 1e-8

    def gibbs(params: Any, minibatch: Any, seed: tf.Tensor) -> Any:
        return {
            **minibatch,
            "q": tf.random.stateless_normal([4], seed, dtype=tf.float64),
        }

    def model(params: Any, dataset: Any) -> tf.Tensor:
        gap = dataset["x"] + dataset["q"] - params["a"] - params["b"]
        return -0.5 * tf.reduce_sum(gap**2)

    samples = sgmcmc.sgld(
        model, {"x": np.zeros(4)}, {"a": 0.0, "b": 0.0}, epsilon, None, 4, n_iters=iterations,
        seed=SEED, verbose=False, dtype=tf.float64, gibbs=gibbs, updates="in_turn",
        jit_compile=False,
    )  # fmt: skip
    draws = flat(samples, 1)
    moves = np.diff(np.vstack([np.zeros(2), draws]), axis=0)
    slopes = (moves - np.sqrt(epsilon) * normals(iterations, 2)) / (epsilon / 2)
    correlations = np.corrcoef(slopes[:-1].T, slopes[1:].T)
    np.testing.assert_allclose(slopes.var(0), 4.0, rtol=0.3)
    others = correlations[np.triu_indices(4, 1)]
    assert np.abs(others).max() < bound(6) / np.sqrt(iterations)
