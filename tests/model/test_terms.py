"""A log-likelihood that returns its terms, one for each observation, in place of their sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from tests.conftest import METHODS, log_lik, short_call, short_setup
from tests.ladder import POINTS, Case, every

Tensors = dict[str, tf.Tensor]


def terms(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the terms of the tiny model's log-likelihood."""
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


@pytest.mark.some(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rows", [1, 5, 20])
def test_terms_give_the_draws_of_their_sum(method: str, rows: int) -> None:
    """To the rounding of float64 over twenty iterations; n = 1 is one term, not a sum."""
    given: dict[str, Any] = {
        "method": method,
        "minibatch_size": rows,
        "dtype": tf.float64,
        "store_gradients": True,
    }
    summed, each = (short_call(**given, log_lik=f) for f in (log_lik, terms))
    np.testing.assert_allclose(each["theta"], summed["theta"], rtol=1e-11, atol=1e-13)
    gradients = each.gradients["theta"], summed.gradients["theta"]
    np.testing.assert_allclose(*gradients, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(each.log_post.values, summed.log_post.values, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.some(1)
@every(POINTS)
def test_terms_of_counts(case: Case) -> None:
    def one(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]), 1)

    draws = [
        case.function(
            f,
            {"z": np.repeat(np.eye(3), [5, 3, 2], axis=0)},
            {"omega": np.full(3, 1 / 3)},
            0.1,
            alpha=0.5,
            minibatch_size=4,
            n_iters=20,
            dtype=tf.float64,
            seed=1,
            verbose=False,
        )["omega"]
        for f in (one, lambda params, dataset: tf.reduce_sum(one(params, dataset)))
    ]
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-10)


@pytest.mark.parametrize("gradient", ["saga", "svrg"])
@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "uniform"])
@pytest.mark.some(1)
def test_terms_where_single_ones_are_needed(gradient: str, weighted: bool) -> None:
    """There they spare the package calling with one row at a time, and give the same draws."""
    p = np.linspace(1.0, 3.0, 20)
    draws = [
        sgmcmc.sample(
            f,
            {"x": np.linspace(-1.0, 2.0, 20)},
            {"theta": 0.0},
            dynamics="sgld",
            gradient=gradient,
            minibatches=sgmcmc.minibatches.Weighted(p) if weighted else "uniform",
            minibatch_size=5,
            preconditioner="none",
            stepsize=1e-3,
            n_chains=None,
            n_iters=20,
            burn_in=0,
            dtype=tf.float64,
            seed=1,
            verbose=False,
            jit_compile=False,
        )["theta"]
        for f in (log_lik, terms)
    ]
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_terms_with_latent_variables_and_control_variates() -> None:
    """The full gradient is a mean over equal passes: up to rounding."""

    def gibbs(params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
        return {**minibatch, "x": 2.0 * minibatch["x"]}

    given: dict[str, Any] = {"method": "sgldcv", "gibbs": gibbs, "dtype": tf.float64}
    summed, each = (short_call(**given, log_lik=f)["theta"] for f in (log_lik, terms))
    np.testing.assert_allclose(each, summed, rtol=1e-10, atol=1e-12)


def test_the_log_posterior_step_by_step_sums_terms() -> None:
    minibatch = {"x": np.array([0.5, 1.0, -2.0])}
    values = []
    for f in (log_lik, terms):
        sampler = short_setup(log_lik=f)
        sgmcmc.init_sess(sampler)
        values.append(float(sampler.est_log_post(minibatch)))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)
