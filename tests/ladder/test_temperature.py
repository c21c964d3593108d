"""Chains at a temperature: p(θ|x)^(1/T) of the parameters as users see them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from tests.ladder import (
    BY_NAME,
    DISTINCT,
    EXACT,
    FIELD,
    GEODESIC,
    LINEAR,
    Case,
    Law,
    LinearProblem,
    bound,
    check,
    compare,
    every,
    firsts,
    flat,
    gaussian,
)

T = 2.5
MOVING = firsts((*DISTINCT, *GEODESIC, *FIELD, *EXACT), lambda case: case.dynamics)


def divided(problem: LinearProblem) -> LinearProblem:
    """Return the problem with a log posterior that is divided by T by hand."""
    return replace(
        problem,
        log_lik=lambda params, dataset: problem.log_lik(params, dataset) / T,
        log_prior=lambda params: problem.log_prior(params) / T,
        h=problem.h / T,
        K=problem.K / T,
        prior_precision=problem.prior_precision / T,
    )


@every(
    tuple(case for case in MOVING if not case.of_points),
    slow=lambda case: case.name != "underdamped",
)
def test_a_chain_at_a_temperature_is_that_of_the_log_posterior_over_it(
    case: Case,
) -> None:
    problem = gaussian(3, 20)
    step = 0.05 / np.linalg.eigvalsh(problem.precision)[-1]
    given: dict[str, Any] = {"n_iters": 6, "dtype": tf.float64, "jit_compile": False}
    if case in EXACT:
        given["n_chains"] = 2
    at, by_hand = (
        case.run(each, step, 8, **keywords, **given)
        for each, keywords in ((problem, {"temperature": T}), (divided(problem), {}))
    )
    np.testing.assert_allclose(flat(dict(at), 1), flat(dict(by_hand), 1), rtol=1e-9)
    assert at.settings["temperature"] == T


@pytest.mark.slow
@every(LINEAR)
def test_the_exact_law_at_a_temperature(case: Case) -> None:
    problem, n, chains = gaussian(3, 50), 15, 40
    step = 0.5 * T / np.linalg.eigvalsh(problem.precision)[-1]
    law = Law(divided(problem), case, n, step)
    draws = case.run(
        problem, step, n, n_chains=chains, burn_in=400, n_iters=5000, temperature=T
    )
    check(compare(flat(draws, 2), *law.moments("θ")), 0.02)


def test_the_jacobian_of_a_bijector_has_no_temperature() -> None:
    """Gamma(a, b) to the power 1/T is Gamma((a − 1)/T + 1, b/T), whatever coordinates move."""
    x = np.random.default_rng(1).gamma(3.0, size=20)

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return 3.0 * tf.math.log(params["rate"]) - params["rate"] * dataset["x"]

    shape, rate = 3.0 * x.size / T + 1, x.sum() / T
    samples = sgmcmc.hmc(
        log_lik, {"x": x}, {"rate": 1.0}, bijectors={"rate": tfp.bijectors.Exp()},
        temperature=T, n_chains=4, n_iters=4000, n_leapfrog=4, stepsize=0.5,
        preconditioner=[1 / shape], burn_in=50, seed=1, verbose=False,
    )  # fmt: skip
    drawn = samples["rate"]
    table = sgmcmc.summary(samples)
    exact = shape / rate
    assert abs(drawn.mean() - exact) < 4.5 * table["mcse_mean"].item()
    assert abs(drawn.std() - np.sqrt(shape) / rate) < 4.5 * table["mcse_sd"].item()
    # Were the Jacobian at the temperature, the shape would be 3N/T + 1/T.
    assert abs((shape - 1 + 1 / T) / rate - exact) > 9 * table["mcse_mean"].item()


@pytest.mark.slow
def test_points_of_the_simplex_and_gamma_parameters_at_a_temperature() -> None:
    """All rows in each step, from which SCIR draws its own law exactly."""
    counts, alpha = np.array([6.0, 3.0, 1.0]), np.array([0.9, 2.0, 0.7])
    x = np.repeat(np.eye(3), counts.astype(int), axis=0)

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        of_points = tf.linalg.matvec(dataset["x"], tf.math.log(params["omega"]))
        return (
            of_points - 0.5 * tf.math.log(params["variance"]) - 0.3 / params["variance"]
        )

    draws = sgmcmc.scir(
        log_lik, {"x": x}, {"omega": np.full(3, 1 / 3), "variance": 1.0}, 2.0,
        alpha={"omega": alpha}, gamma={"variance": (4.0, 1.5, -1)}, temperature=T,
        minibatch_size=10, n_chains=8, n_iters=1500, burn_in=20, seed=2, verbose=False,
    )  # fmt: skip
    tempered = (counts + alpha - 1) / T + 1
    mean = draws["omega"].mean((0, 1))
    error = draws["omega"].mean(1).std(0, ddof=1) / np.sqrt(8)
    assert (np.abs(mean - tempered / tempered.sum()) < bound(4, 8) * error).all()
    # Inverse gamma, density v^(−a − 1) e^(−b/v), to the power 1/T: a' + 1 = (a + 1)/T.
    a, b = 4.0 + 5.0, 1.5 + 3.0
    shape = (a + 1) / T - 1
    precision = 1 / draws["variance"]
    error = precision.mean(1).std(ddof=1) / np.sqrt(8)
    assert abs(precision.mean() - shape / (b / T)) < bound(4, 8) * error


def test_predictions_are_of_the_model_and_loo_is_refused() -> None:
    case, problem = BY_NAME["sgld"], gaussian(1, 20)
    log_lik = lambda params, dataset: -0.5 * (dataset["x"][:, 0] - params["theta"]) ** 2  # noqa: E731
    samples = case.run(
        replace(problem, log_lik=log_lik),
        1e-3,
        5,
        n_iters=3,
        temperature=T,
        jit_compile=False,
    )
    expected = -0.5 * (problem.dataset["x"][:, 0] - samples["theta"][:, None]) ** 2
    np.testing.assert_allclose(samples.log_lik()[0], expected, rtol=1e-5)
    with pytest.raises(ValueError, match="drawn with temperature=2.5"):
        samples.loo()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (-1.0, "`temperature` must be positive"),
        (0.0, "positive"),
        ("hot", "`temperature`"),
    ],
)
def test_wrong_temperatures_are_refused(value: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        BY_NAME["sgld"].run(gaussian(1, 20), 1e-3, 5, temperature=value)


def test_what_has_no_temperature_is_refused() -> None:
    x = np.eye(3)

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return tf.linalg.matvec(dataset["x"], tf.math.log(params["omega"]))

    with pytest.raises(ValueError, match="at 0.5 the prior of 'omega' is improper"):
        sgmcmc.scir(
            log_lik,
            {"x": x},
            {"omega": np.full(3, 1 / 3)},
            0.1,
            alpha=0.1,
            temperature=0.5,
        )
    groups = sgmcmc.Groups(
        "g", {"z": 0.0}, lambda effects, params: -0.5 * effects["z"] ** 2
    )
    with pytest.raises(
        ValueError, match="`temperature` is for models without `groups`"
    ):
        sgmcmc.sample(
            lambda params, dataset: params["m"] + params["z"],
            {"y": x[0], "g": [0, 0, 1]}, {"m": 0.0}, groups=groups, temperature=2.0,
        )  # fmt: skip
