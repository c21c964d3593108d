"""Stochastic gradient Fisher scoring: the update, its exact law, and the biases that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import solve_discrete_lyapunov

import sgmcmc
from sgmcmc.dynamics import SGFS
from sgmcmc.model.geometry import Space
from tests.ladder import (
    Array,
    LinearProblem,
    Noise,
    check,
    compare,
    flat,
    gaussian,
    logistic,
)

FORMS = [
    pytest.param(
        {"B": B, "diagonal": diagonal}, id=f"{'diagonal' if diagonal else 'full'}-{B}"
    )
    for diagonal in (False, True)
    for B in ("information", 7.0)
]


def parts(
    information: Array, form: dict[str, Any], epsilon: float, ratio: float
) -> Any:
    """Return 2 A⁻¹ and 4B/ε, of F and V/F."""
    if form["diagonal"]:
        information = np.diag(np.diag(information))
    B = (
        information
        if form["B"] == "information"
        else form["B"] * np.eye(len(information))
    )
    injected = 4 * B / epsilon
    return 2 * np.linalg.inv((1 + ratio) * information + injected), injected


def covariance(problem: LinearProblem, form: Any, epsilon: float, n: int) -> Array:
    """Return the stationary covariance of θ' = θ + 2A⁻¹(ĝ + η) for rows drawn without replacement.

    The minibatch of a gradient kicks once, so that V is new in each step.
    """
    N, h = problem.size, problem.h
    F = N * np.atleast_2d(np.cov(h.T))
    ratio = N / n - 1
    gain, injected = parts(F, form, epsilon, ratio)
    A = np.eye(len(F)) - gain @ problem.precision
    return solve_discrete_lyapunov(A, gain @ (ratio * F + injected) @ gain.T)


@pytest.mark.some(2)
@pytest.mark.parametrize("form", FORMS)
def test_the_chain_is_the_transcription(form: dict[str, Any]) -> None:
    """On the whole dataset, of a log-likelihood that is not linear; F is frozen after a while."""
    problem, epsilon, seed = logistic(3, 12), 0.3, 5
    samples = sgmcmc.sample(
        problem.log_lik, problem.dataset, problem.split(problem.start), problem.log_prior,
        dynamics=SGFS(**form, until=5), gradient="full", minibatches="uniform",
        preconditioner="none", stepsize=epsilon, n_chains=None, n_iters=8, burn_in=0,
        dtype=tf.float64, seed=seed, verbose=False, jit_compile=False,
    )  # fmt: skip
    noise = Noise.remade(seed, 8, 1, 3).noise
    theta, F, expected = problem.start, np.zeros((3, 3)), []
    for k, normals in enumerate(noise):
        if k or form["B"] != "information":
            gain, injected = parts(F, form, epsilon, 0.0)
            kick = problem.gradient(theta) + np.linalg.cholesky(injected) @ normals[0]
            theta = theta + gain @ kick
        expected.append(theta)
        if k < 5:
            found = 12 * np.cov(problem.gradients(theta).T)
            F = F + (found - F) / (k + 1)
    np.testing.assert_allclose(flat(samples, 1), expected, rtol=1e-10)


@pytest.mark.parametrize(("diagonal", "waits"), [(False, 3), (True, 1)])
def test_the_chain_waits_for_an_information_that_is_regular(
    diagonal: bool, waits: int
) -> None:
    """Of d = 5 coordinates it takes d + 1 rows beyond the means: three minibatches of three."""
    d, n = 5, 3
    rng = np.random.default_rng(4)
    dynamics = SGFS(diagonal=diagonal, until=None).for_rows(100, n, 1.0 - n / 100)
    dynamics = dynamics.bind(Space({"theta": (d,)}))
    start, step = tf.constant(rng.normal(size=d)), tf.constant(0.1, tf.float64)
    state = dynamics.init(start, start, step, tf.zeros((0, d), tf.float64))
    for k in range(1, 6):
        state = dynamics.learn(state, tf.constant(rng.normal(size=(n, d))))
        normals = tf.constant(rng.normal(size=(1, d)))
        state = dynamics.step(state, tf.constant(rng.normal(size=d)), step, normals)
        assert (state.position.numpy() == start.numpy()).all() == (k < waits)
        assert np.isfinite(state.position.numpy()).all()


def test_the_information_is_that_of_the_rows() -> None:
    """N times their covariance, whatever n is; the mean over minibatches."""
    rng, N, n = np.random.default_rng(1), 50, 6
    rows = rng.normal(size=(2, n, 2))
    dynamics = SGFS(until=2).for_rows(N, n, 1 - n / N).bind(Space({"t": (2,)}))
    zeros = tf.zeros(2, tf.float64)
    state = dynamics.init(zeros, zeros, zeros, zeros)
    for part in (*rows, rows[0]):  # the third is not learned
        state = dynamics.learn(state, tf.constant(N / n * part))
    expected = N * np.mean([np.cov(part.T) for part in rows], 0)
    np.testing.assert_allclose(state.information.mean, expected, rtol=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("form", FORMS[:2])
def test_the_law_is_exact_if_the_information_is_the_curvature(
    form: Any, epsilon: float
) -> None:
    """Whatever ε and n are, with a flat prior."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(3, 3))
    F = root @ root.T + np.eye(3)
    for ratio in (0.0, 3.0, 100.0):
        gain, injected = parts(F, form, epsilon, ratio)
        A = np.eye(3) - gain @ F
        found = solve_discrete_lyapunov(A, gain @ (ratio * F + injected) @ gain.T)
        np.testing.assert_allclose(found, np.linalg.inv(F), rtol=1e-9)


def test_the_bias_where_the_information_is_not_the_curvature() -> None:
    """With curvature H = (1 + p) F the variance is s/(s − p) times that of the posterior."""
    for p, ratio, epsilon in ((0.5, 0.0, 0.01), (0.5, 3.0, 1.0), (-0.3, 0.0, 1.0)):
        gain, injected = parts(np.eye(1), {"B": 1.0, "diagonal": False}, epsilon, ratio)
        A = np.eye(1) - (1 + p) * gain
        variance = solve_discrete_lyapunov(A, gain @ (ratio + injected) @ gain.T)
        s = ratio + 4 / epsilon
        assert variance.item() * (1 + p) == pytest.approx(s / (s - p), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "n"),
    [
        ({"B": "information", "diagonal": False}, 30),
        ({"B": "information", "diagonal": True}, 30),
        ({"B": 7.0, "diagonal": False}, 30),
    ],
)
def test_the_exact_law(form: dict[str, Any], n: int) -> None:
    """Of all rows, whose F is known; the prior makes it differ from the posterior, and is seen."""
    problem, epsilon = gaussian(3, 30), 1.5
    samples = _run(problem, SGFS(**form), epsilon, n, "full")
    expected = covariance(problem, form, epsilon, n)
    assert np.abs(np.diag(expected) / np.diag(problem.covariance) - 1).max() > 0.05
    check(compare(flat(samples, 2), problem.mean, expected), 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_law_with_minibatches(form: dict[str, Any]) -> None:
    """F is that of 4000 minibatches: within 1 %, and the covariance by less."""
    problem, epsilon, n = gaussian(3, 50), 1.5, 15
    draws = flat(_run(problem, SGFS(**form), epsilon, n, "minibatch", burn_in=4000), 2)
    expected = covariance(problem, form, epsilon, n)
    variances = draws.var(1)
    error = variances.std(0, ddof=1) / np.sqrt(len(draws))
    assert (
        np.abs(variances.mean(0) - np.diag(expected))
        < 4.5 * error + 0.01 * variances.mean(0)
    ).all()


def _run(
    problem: LinearProblem,
    dynamics: SGFS,
    epsilon: float,
    n: int,
    gradient: str,
    burn_in=400,
) -> Any:
    size = {} if gradient == "full" else {"minibatch_size": n}
    return sgmcmc.sample(
        problem.log_lik, problem.dataset, problem.split(problem.start), problem.log_prior,
        dynamics=dynamics, gradient=gradient, minibatches="uniform", preconditioner="none",
        stepsize=epsilon, n_chains=40, n_iters=4000, burn_in=burn_in, seed=1, verbose=False, **size,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dynamics", "parts", "said"),
    [
        (SGFS(B="identity"), {}, "`B` must be"),
        (SGFS(B=-1.0), {}, "`B` must be positive"),
        (SGFS(diagonal=2), {}, "`diagonal`"),  # type: ignore[arg-type]
        (SGFS(until=0), {}, "`until`"),
        (SGFS(), {"burn_in": 0}, "SGFS learns its information in the burn-in"),
        (SGFS(), {"gradient": "svrg"}, "those of SVRG are differences"),
        (
            SGFS(),
            {"minibatches": sgmcmc.minibatches.Weighted(range(1, 21))},
            "`minibatches`: SGFS",
        ),
        (SGFS(), {"minibatch_size": 1}, "a minibatch of one row"),
        (SGFS(), {"updates": "in_turn"}, "`updates`"),
    ],
)
def test_what_is_refused(dynamics: SGFS, parts: dict[str, Any], said: str) -> None:
    problem = gaussian(3, 20)
    given = {
        "gradient": "minibatch", "minibatches": "uniform", "minibatch_size": 5, "burn_in": 5,
    } | parts  # fmt: skip
    with pytest.raises((ValueError, TypeError), match=said):
        sgmcmc.sample(
            problem.log_lik, problem.dataset, problem.split(problem.start), problem.log_prior,
            dynamics=dynamics, preconditioner="none", stepsize=0.1, n_iters=5, verbose=False,
            **given,
        )  # fmt: skip


def test_the_matrix_must_fit() -> None:
    with pytest.raises(ValueError, match="there are 2000 coordinates, more than 1000"):
        SGFS().bind(Space({"theta": (2000,)}))
    SGFS(diagonal=True).bind(Space({"theta": (2000,)}))
