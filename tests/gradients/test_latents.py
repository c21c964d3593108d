"""Latent variables: exact posteriors with them, values kept between visits, fresh seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import init_sess, sgmcmc_step
from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.gradients import WholeData
from sgmcmc.gradients.latents import Latents
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from tests import seams
from tests.ladder import DISTINCT, Array, Case, bound, every

Tensors = dict[str, tf.Tensor]
MEANS = np.array([-1.0, 1.5])


def observations() -> Array:
    rng = np.random.default_rng(8)
    return rng.normal(MEANS[rng.integers(0, 2, 30)], 1.0)


def densities(x: Any) -> Any:
    return -0.5 * (x[:, None] - MEANS) ** 2


def gibbs(params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
    """Draw the component of each observation."""
    logits = tf.math.log(params["omega"]) + densities(minibatch["x"])
    z = tf.random.stateless_categorical(logits, 1, seed, dtype=tf.int32)
    return {**minibatch, "z": tf.squeeze(z, 1)}


def metropolis(params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
    """Propose the other component of each observation, which needs the present one."""
    other = 1 - minibatch["z"]
    logits = tf.math.log(params["omega"]) + densities(minibatch["x"])
    at = [tf.gather(logits, z, batch_dims=1) for z in (minibatch["z"], other)]
    u = tf.random.stateless_uniform(tf.shape(other), seed, dtype=logits.dtype)
    return {
        **minibatch,
        "z": tf.where(tf.math.log(u) < at[1] - at[0], other, minibatch["z"]),
    }


def complete_log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
    chosen = tf.one_hot(dataset["z"], 2, dtype=params["omega"].dtype)
    return tf.reduce_sum(chosen * tf.math.log(params["omega"]))


def exact_moments(alpha: float) -> tuple[float, float]:
    """Return mean and variance of ω₁ given the observations, on a grid."""
    grid = (np.arange(20_000) + 0.5) / 20_000
    f = np.exp(densities(observations()))
    log_density = np.log(grid[:, None] * f[:, 0] + (1 - grid[:, None]) * f[:, 1]).sum(1)
    log_density += (alpha - 1) * (np.log(grid) + np.log1p(-grid))
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = (weights * grid).sum()
    return mean, (weights * (grid - mean) ** 2).sum()


@pytest.mark.slow
@pytest.mark.parametrize("draw", [gibbs, metropolis])
def test_posterior_with_latent_variables(draw: Any) -> None:
    """With n = N a draw of z and a move of SCIR leave the posterior of ω as it is, at any h."""
    chains = 20
    keeps = {"latents": {"z": np.zeros(30, np.int32)}} if draw is metropolis else {}
    chain = sgmcmc.scir(
        complete_log_lik,
        {"x": observations()},
        {"omega": [0.5, 0.5]},
        1.0,
        alpha=0.7,
        minibatch_size=30,
        burn_in=100,
        n_iters=2000,
        n_chains=chains,
        verbose=False,
        seed=4,
        dtype=tf.float64,
        gibbs=draw,
        **keeps,
    )
    omega = chain["omega"][..., 0]
    mean, variance = exact_moments(0.7)
    for values, expected in ((omega, mean), ((omega - mean) ** 2, variance)):
        estimates = values.mean(1)
        error = estimates.std(ddof=1) / np.sqrt(chains)
        assert abs(estimates.mean() - expected) < bound(2, chains) * error


def linear(case: Case, **given: Any) -> sgmcmc.Samples:
    """Run a method whose gradient is what ``gibbs`` drew."""
    arguments: dict[str, Any] = {
        "log_lik": lambda params, dataset: (
            tf.reduce_sum(dataset["u"]) * params["theta"]
        ),
        "dataset": {"x": np.zeros(12)},
        "params": {"theta": 0.0},
        "stepsize": 1e-3,
        "minibatch_size": 3,
        "n_iters": 200,
        "verbose": False,
        "seed": 3,
        "dtype": tf.float64,
        "store_gradients": True,
        "jit_compile": False,
        "gibbs": lambda params, minibatch, seed: {
            "u": tf.random.stateless_uniform([3], seed, dtype=tf.float64)
        },
    }
    arguments |= case.estimator.arguments({"opt_stepsize": 1e-3, "n_iters_opt": 3})
    if case.of_points:
        base = arguments["log_lik"]
        arguments["params"] = {"theta": 0.0, "omega": [0.5, 0.5]}
        arguments["log_lik"] = lambda p, d: (
            base(p, d) + tf.reduce_sum(tf.math.log(p["omega"]))
        )
        arguments["alpha"] = {"omega": 1.0}
    return case.function(**{**arguments, **given})


@pytest.mark.some(1)
@every(tuple(case for case in DISTINCT if not case.centered))
def test_seeds_are_fresh(case: Case) -> None:
    """Every iteration of every chain draws its own latent variables; the gradient tells which."""
    chains = linear(case, n_chains=2).gradients["theta"] / 12  # means of three uniforms
    assert len(np.unique(chains)) == 400
    error = np.sqrt(1 / 36 / 400)
    assert abs(chains.mean() - 0.5) < bound(3) * error
    for one, other in (
        (chains[0], chains[1]),
        (chains[:, 1:].ravel(), chains[:, :-1].ravel()),
    ):
        correlation = np.corrcoef(one, other)[0, 1]
        assert abs(correlation) < bound(3) / np.sqrt(len(one))


@pytest.mark.slow
@every(DISTINCT, slow=lambda case: case.name not in ("sgld", "sghmccv", "scir"))
@pytest.mark.some(1)
def test_a_gibbs_that_draws_nothing_changes_nothing(case: Case) -> None:
    """Up to rounding, for the full gradient is the mean of equal passes."""
    model: dict[str, Any] = {
        "dataset": {"x": observations()},
        "minibatch_size": 5,
        "log_lik": lambda params, dataset: (
            -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
            + (
                tf.reduce_sum(
                    dataset["x"] * 0.0 + tf.reduce_sum(tf.math.log(params["omega"]))
                )
                if "omega" in params
                else 0.0
            )
        ),
    }
    plain = linear(case, **model, gibbs=None)
    drawn = linear(case, **model, gibbs=lambda params, minibatch, seed: minibatch)
    np.testing.assert_allclose(drawn["theta"], plain["theta"], rtol=1e-6, atol=1e-8)


def test_control_variates_have_the_right_mean() -> None:
    """E ĝ(θ) = ∇log p(θ) up to the error of G, where latents drawn at θ alone would be biased."""
    x = observations()

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        means = tf.stack([params["theta"], 1.5 + 0.0 * params["theta"]])
        chosen = tf.one_hot(dataset["z"], 2, dtype=tf.float64)
        return -0.5 * tf.reduce_sum(chosen * (dataset["x"][:, None] - means) ** 2)

    def draw(params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
        means = tf.stack([params["theta"], tf.constant(1.5, tf.float64)])
        logits = -0.5 * (minibatch["x"][:, None] - means) ** 2
        z = tf.random.stateless_categorical(logits, 1, seed, dtype=tf.int32)
        return {**minibatch, "z": tf.squeeze(z, 1)}

    def marginal(theta: float) -> float:
        """Return the gradient of the log posterior of theta with z summed out."""
        f = np.exp(-0.5 * (x[:, None] - np.array([theta, 1.5])) ** 2)
        return float((f[:, 0] / f.sum(1) * (x - theta)).sum())

    chain = sgmcmc.sgldcv(
        log_lik,
        {"x": x},
        {"theta": -1.0},
        1e-12,
        1e-3,
        minibatch_size=10,
        n_iters=20_000,
        n_iters_opt=0,
        verbose=False,
        seed=5,
        dtype=tf.float64,
        gibbs=draw,
        store_gradients=True,
    )
    gradients = chain.gradients["theta"] - chain.mode_gradient["theta"]
    error = gradients.std() / np.sqrt(len(gradients))
    assert abs(gradients.mean()) < bound(1) * error  # the chain stays at its center
    passes = chain.mode_gradient["theta"]
    # The variance of the gradient given z, over a hundred passes.
    f = np.exp(-0.5 * (x[:, None] - np.array([-1.0, 1.5])) ** 2)
    p = f[:, 0] / f.sum(1)
    spread = np.sqrt((p * (1 - p) * (x + 1.0) ** 2).sum() / 100)
    assert abs(passes - marginal(-1.0)) < bound(1) * spread


def count_visits(params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
    return {**minibatch, "visits": minibatch["visits"] + 1}


@pytest.mark.some(2)
@pytest.mark.parametrize("rows", [4, 12], ids=["minibatch", "whole"])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_values_are_kept_between_visits(rows: int, jit_compile: bool) -> None:
    """Each step visits the rows of its minibatch and no others."""
    sampler = sgmcmc.sgld_setup(
        lambda params, dataset: params["theta"] * tf.reduce_sum(dataset["x"] * 0.0),
        {"x": np.zeros(12)},
        {"theta": 0.0},
        1e-3,
        minibatch_size=rows,
        seed=3,
        jit_compile=jit_compile,
        gibbs=count_visits,
        latents={"visits": np.zeros(12, np.int64)},
    )
    sess = init_sess(sampler)
    sgmcmc_step(sampler, sess, 29)
    visits = sess._runners[0].carry.latents.here["visits"].numpy()
    assert visits.dtype == np.int64
    assert visits.sum() == 30 * rows  # the start visits a minibatch too
    if rows == 12:
        assert (visits == 30).all()


def test_rows_written_back_are_those_handed_over() -> None:
    latents = Latents(
        lambda params, minibatch, seed: {
            **minibatch,
            "z": 10.0 * minibatch["x"] + minibatch["z"],
        },
        {"z": np.arange(5.0)},
    )
    rows = tf.constant([3, 1])
    completed, kept = latents.draw(
        {},
        {"x": tf.constant([1.0, 2.0], tf.float64)},
        rows,
        latents.start(),
        tf.constant([0, 0]),
    )
    np.testing.assert_array_equal(completed["z"], [13.0, 21.0])
    np.testing.assert_array_equal(kept["z"], [0.0, 21.0, 2.0, 13.0, 4.0])


def test_full_gradient_passes_over_kept_values() -> None:
    """Where values are kept every pass goes on from the one before, in pieces too."""
    target = Target(
        lambda params, dataset: params["theta"] * tf.reduce_sum(dataset["visits"]),
        None,
        Space({"theta": ()}),
        tf.float64,
    )
    data = Data({"x": ArrayColumn(np.zeros(12))}, 12)
    latents = Latents(count_visits, {"visits": np.zeros(12)})
    gradient = WholeData(target, data, 3, latents).gradient(np.zeros(1))
    assert gradient[0] == 12 * np.mean(np.arange(51, 101))  # the first half is dropped


@pytest.mark.some(1)
@every(tuple(case for case in DISTINCT if not (case.centered or case.of_points)))
def test_the_log_posterior_shown_is_that_of_its_iteration(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several blocks of 70 iterations, the last cut short; n = N and a latent that is known."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, 70)
    x = observations()

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return -0.5 * tf.reduce_sum((dataset["z"] - params["theta"]) ** 2)

    samples = case.function(
        log_lik,
        {"x": x},
        {"theta": 0.0},
        1e-3,
        gibbs=lambda params, minibatch, seed: {**minibatch, "z": 2.0 * minibatch["x"]},
        minibatch_size=len(x),
        n_iters=150,
        verbose=False,
        seed=1,
        dtype=tf.float64,
        jit_compile=False,
    )
    iterations, values = samples.log_post
    assert iterations.tolist() == list(range(1, 151))
    theta = samples["theta"][iterations - 1]
    np.testing.assert_allclose(
        values, -0.5 * ((2.0 * x - theta[:, None]) ** 2).sum(1), rtol=1e-10
    )
