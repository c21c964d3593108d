"""SGHMC whose injected noise is reduced by that of the gradient: β̂ of the thesis' 4.3.2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import solve_discrete_lyapunov

import sgmcmc
from sgmcmc.dynamics import SGHMC
from sgmcmc.model.geometry import Space
from tests.ladder import BY_NAME, Array, Law, check, compare, flat, gaussian

N, n = 50, 15
PROBLEM = gaussian(3, N)


def variance_of_the_splitting(
    alpha: float, epsilon: float, noise: float, told: float
) -> float:
    """Return the exact variance without refreshments, at curvature 1."""
    c = np.exp(-alpha)
    drift, kick = np.array([[1, 0.5], [0, 1]]), np.array([[1, 0], [-epsilon, 1]])
    injected = kick @ drift @ [0, 1]
    left = epsilon * (1 - c**2) - (epsilon * (1 + c) / 2) ** 2 * told
    kicks = np.diag([0, epsilon**2 * noise]) + left * np.outer(injected, injected)
    return float(
        solve_discrete_lyapunov(kick @ drift @ np.diag([1, c]) @ drift, kicks)[0, 0]
    )


@pytest.mark.parametrize("alpha", [0.02, 0.3, 1.0])
def test_the_correction_takes_the_noise_out(alpha: float) -> None:
    """With noise that half the friction takes up: the rest is of the order of ε."""
    errors = []
    for epsilon in (1e-4, 1e-5):
        noise = 2 * np.tanh(alpha / 2) / epsilon
        errors.append(abs(variance_of_the_splitting(alpha, epsilon, noise, noise) - 1))
        assert variance_of_the_splitting(alpha, epsilon, noise, 0.0) > 1.4
    assert errors[0] < 0.01
    assert errors[1] < 0.2 * errors[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sghmc-corrected", "sghmc-euler-corrected"])
def test_the_exact_law(name: str) -> None:
    case = BY_NAME[name]
    step = 0.1 / np.linalg.eigvalsh(PROBLEM.precision)[-1]
    tuning = {**case.tuning, "alpha": 0.5, "noise_variance": 0.4 / step}
    law = Law(PROBLEM, case, n, step, tuning=tuning)
    assert law.settles(400, PROBLEM.start)
    draws = case.run(PROBLEM, step, n, n_chains=40, burn_in=400, n_iters=5000, **tuning)
    check(compare(flat(draws, 2), *law.moments("θ")), 0.02)


def test_the_estimate_is_the_empirical_fisher_information() -> None:
    """The mean over minibatches of n times the covariance of the rows' parts in ĝ, and 1 − ρ."""
    rng, epsilon = np.random.default_rng(1), tf.constant(0.01, tf.float64)
    rows, zeta = rng.normal(size=(2, 7, 3)), rng.normal(size=(1, 3))
    c = np.exp(-0.4)
    for word, shape in (
        ("fisher", lambda v: v),
        ("diagonal", lambda v: np.diag(np.diag(v))),
    ):
        dynamics = SGHMC(0.4, noise_variance=word).bind(Space({"t": (3,)}))
        zeros = tf.zeros(3, tf.float64)
        state = dynamics.init(zeros, zeros, epsilon, tf.zeros((0, 3)))
        for part in rows:
            state = dynamics.learn(state, tf.constant(part))
        moved = dynamics.step(state, zeros, epsilon, tf.constant(zeta))
        found = shape(7 * np.mean([np.cov(part.T) for part in rows], 0))
        left = 0.01 * (1 - c**2) * np.eye(3) - (0.01 * (1 + c) / 2) ** 2 * found
        values, vectors = np.linalg.eigh(left)
        injected = vectors @ (np.sqrt(values) * (vectors.T @ zeta[0]))
        np.testing.assert_allclose(moved.momentum, injected, rtol=1e-10)
        # Its size is what the error would tell.
        share = np.linalg.eigvalsh(
            (0.01 * (1 + c) / 2) ** 2 * found / (0.01 * (1 - c**2))
        )[-1]
        assert float(moved.share) == pytest.approx(share, rel=1e-10)


@pytest.mark.slow
def test_the_estimated_correction_has_the_law_of_the_true_matrix() -> None:
    """V is that of 2000 minibatches; without it variances are up to 1.2 times as large."""
    step = 0.1 / np.linalg.eigvalsh(PROBLEM.precision)[-1]
    given: dict[str, Any] = {"n_chains": 40, "n_iters": 5000, "alpha": 0.5, "L": 20}
    learned, plain = (
        _variances(step, noise_variance=v, **given) for v in ("fisher", 0.0)
    )
    target = np.diag(PROBLEM.covariance)
    assert (np.abs(learned.mean(0) / target - 1) < 0.06).all()
    assert (plain.mean(0) / target).max() > 1.15


def _variances(step: float, **given: Any) -> Array:
    samples = BY_NAME["sghmc"].run(PROBLEM, step, n, burn_in=2000, **given)
    return flat(samples, 2).var(1)


def test_a_friction_that_is_too_small_is_refused_with_the_number() -> None:
    step = 0.01
    with pytest.raises(
        ValueError, match=r"β̂ = εV/2 is 0.5, more than the friction takes up, 0.01"
    ):
        BY_NAME["sghmc"].run(PROBLEM, step, n, noise_variance=100.0, alpha=0.01)
    with pytest.raises(
        ValueError, match=r"`noise_variance` must be .* 'fisher' or 'diagonal'"
    ):
        BY_NAME["sghmc"].run(PROBLEM, step, n, noise_variance="much")
    for word in ("fisher", "diagonal"):
        with pytest.raises(
            sgmcmc.DivergenceError, match=r"estimated, is [\d.e+]+ times what the fri"
        ):
            BY_NAME["sghmc"].run(
                PROBLEM,
                0.02,
                2,
                noise_variance=word,
                alpha=1e-4,
                n_iters=20,
                jit_compile=False,
            )
