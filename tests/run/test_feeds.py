"""Iterations on minibatches that an R user passes, against the update equations."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator

feeds = pytest.importorskip("sgmcmc_r.feeds", reason="not in the source distribution")
ascended, step_on = feeds.ascended, feeds.step_on

N, EPS, SEED = 40, 1e-3, 3
X = np.random.default_rng(1).normal(1.0, 1.0, (N, 2))
MINIBATCH = {"x": X[:5]}


def log_lik(params, dataset):
    return -0.5 * tf.reduce_sum((dataset["x"] - params["a"] * params["b"]) ** 2)


def log_prior(params):
    return -0.5 * (params["a"] ** 2 + tf.reduce_sum(params["b"] ** 2))


def gradient(a, b, x):
    """Return the minibatch estimate of the gradient with respect to a and b."""
    residuals = x - a * b
    scale = N / len(x)
    return -a + scale * np.sum(residuals * b), -b + scale * a * np.sum(
        residuals, axis=0
    )


def set_up(method="sgld", **further):
    arguments = {"a": 0.5, "b": np.array([1.0, -1.0])}
    return getattr(sgmcmc, f"{method}_setup")(
        log_lik, {"x": X}, arguments, EPS, log_prior=log_prior, minibatch_size=5, seed=SEED,
        dtype=tf.float64, jit_compile=False, **further,
    )  # fmt: skip


def noise(number, vectors=1):
    rng = generator(SEED, 0, RunPhase.CHAIN, Purpose.BY_HAND, number)
    return rng.standard_normal((vectors, 3))


@pytest.mark.parametrize("updates", ["joint", "in_turn"])
def test_sgld_moves_by_its_equation(updates):
    sampler = set_up(updates=updates)
    sess = sgmcmc.init_sess(sampler)
    a, b = 0.5, np.array([1.0, -1.0])
    for number in range(3):
        step_on(sampler, sess, MINIBATCH)
        eta = np.sqrt(EPS) * noise(number)[0]
        slope_a, slope_b = gradient(a, b, X[:5])
        a = a + EPS / 2 * slope_a + eta[0]
        if updates == "in_turn":
            slope_b = gradient(a, b, X[:5])[1]
        b = b + EPS / 2 * slope_b + eta[1:]
        state = sgmcmc.get_params(sampler, sess)
        np.testing.assert_allclose(state["a"], a, rtol=1e-12)
        np.testing.assert_allclose(state["b"], b, rtol=1e-12)
    assert sess.iteration == 0
    np.testing.assert_allclose(sampler.params["b"].numpy(), b, rtol=1e-12)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["sghmc", "sgld", "sgnht"])
def test_one_parameter_moves_alone(method):
    sampler = set_up(method)
    sess = sgmcmc.init_sess(sampler)
    step_on(sampler, sess, MINIBATCH, "b")
    state = sgmcmc.get_params(sampler, sess)
    assert state["a"] == 0.5
    assert np.all(state["b"] != [1.0, -1.0])


def test_the_chain_goes_on_from_there():
    sampler = set_up()
    sess = sgmcmc.init_sess(sampler)
    step_on(sampler, sess, MINIBATCH)
    here = sgmcmc.get_params(sampler, sess)["b"]
    sgmcmc.sgmcmc_step(sampler, sess)
    there = sgmcmc.get_params(sampler, sess)["b"]
    assert sess.iteration == 1
    # Five standard deviations of the noise, and the drift.
    assert np.all(np.abs(there - here) < 5 * np.sqrt(EPS) + EPS * 200)
    assert np.all(there != here)


def test_a_restored_session_draws_no_number_twice(tmp_path):
    sampler = set_up()
    sess = sgmcmc.init_sess(sampler)
    step_on(sampler, sess, MINIBATCH)
    sess.save(tmp_path / "session")
    step_on(sampler, sess, MINIBATCH)
    after = sgmcmc.get_params(sampler, sess)["b"]
    again = set_up()
    restored = sgmcmc.init_sess(again, restore=tmp_path / "session")
    step_on(again, restored, MINIBATCH)
    np.testing.assert_array_equal(sgmcmc.get_params(again, restored)["b"], after)


def test_ascent_is_plain():
    sampler = set_up("sgldcv", opt_stepsize=1e-2, n_iters_opt=1, verbose=False)
    start = np.array([0.5, 1.0, -1.0])
    slope_a, slope_b = gradient(0.5, start[1:], X[:5])
    expected = start + 1e-2 * np.array([slope_a, *slope_b])
    np.testing.assert_allclose(
        ascended(sampler, start, MINIBATCH, 1), expected, rtol=1e-12
    )


def test_the_estimate_elsewhere():
    sampler = set_up()
    there = {"a": 1.0, "b": np.array([2.0, 3.0])}
    value = sampler.est_log_post(MINIBATCH, there)
    by_hand = -0.5 * (1 + 13) - N / 5 * 0.5 * np.sum((X[:5] - there["b"]) ** 2)
    np.testing.assert_allclose(value, by_hand, rtol=1e-12)


def test_what_needs_more_than_columns_is_refused():
    def gibbs(params, minibatch, seed):
        return minibatch

    sampler = set_up(gibbs=gibbs)
    sess = sgmcmc.init_sess(sampler)
    with pytest.raises(ValueError, match="more of a minibatch than its columns"):
        step_on(sampler, sess, MINIBATCH)


def test_divergence_is_told():
    sampler = set_up()
    sess = sgmcmc.init_sess(sampler)
    with pytest.raises(sgmcmc.DivergenceError):
        step_on(sampler, sess, {"x": np.full((5, 2), np.inf)})


def test_the_noise_is_learned_by_hand_too():
    """The empirical Fisher information is a mean over minibatches, whoever hands them over."""
    x = np.random.default_rng(2).normal(size=(N, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    sampler = sgmcmc.sggmc_setup(
        lambda params, dataset: tf.linalg.matvec(dataset["x"], params["v"]),
        {"x": x}, {"v": [0.0, 0.0, 1.0]}, 1e-4, minibatch_size=5, seed=SEED,
        manifolds={"v": sgmcmc.manifolds.Sphere()}, noise_variance="fisher",
        jit_compile=False,
    )  # fmt: skip
    sess = sgmcmc.init_sess(sampler)
    counts = []
    for _ in range(2):
        for _ in range(3):
            step_on(sampler, sess, {"x": x[:5]})
        state = sess._runners[0].carry.state
        counts.append(
            [float(leaf) for leaf in tf.nest.flatten(state) if leaf.shape.rank == 0]
        )
    assert counts[0] != counts[1]
