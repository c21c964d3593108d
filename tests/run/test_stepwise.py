"""Step by step: the same chains as the one-call functions, saved and restored bit for bit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc import DivergenceError, get_params, init_sess, sgmcmc_step
from sgmcmc.engine.kernel import BLOCK_BYTES
from tests import seams
from tests.conftest import METHODS, log_lik, observations, short_call, short_setup
from tests.ladder import BY_NAME


def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(params["theta"] ** 2)


def walk(sampler: sgmcmc.StepwiseSampler, steps: list[int]) -> list[np.ndarray]:
    """Return the states after so many steps each."""
    sess, states = init_sess(sampler, verbose=False), []
    for n_steps in steps:
        sgmcmc_step(sampler, sess, n_steps)
        states.append(get_params(sampler, sess)["theta"])
    return states


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks a few iterations long, so that steps cross them."""
    monkeypatch.setattr(seams.BLOCK_BYTES, BLOCK_BYTES // 2**15)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", METHODS)
def test_steps_give_the_draws_of_one_call(method: str, short_blocks: None) -> None:
    draws = short_call(method, n_iters=40)["theta"]
    one_by_one = walk(short_setup(method), [1] * 40)
    np.testing.assert_allclose(one_by_one, draws, rtol=1e-5, atol=1e-6)
    in_strides = walk(short_setup(method), [3, 1, 20, 16])
    np.testing.assert_allclose(in_strides, draws[[2, 3, 23, 39]], rtol=1e-5, atol=1e-6)


def test_schedules_and_chains_step_by_step(short_blocks: None) -> None:
    keywords = {"stepsize": sgmcmc.polynomial_decay(1e-2, 5.0, 0.5), "n_chains": 3}
    draws = short_call(**keywords, n_iters=30)["theta"]
    states = walk(short_setup("sgld", **keywords), [7, 7, 16])
    assert states[0].shape == (3,)
    np.testing.assert_allclose(np.transpose(states), draws[:, [6, 13, 29]], rtol=1e-5)


def test_constrained_parameters_are_seen_constrained() -> None:
    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return tf.reduce_sum(
            tf.math.log(params["rate"]) - params["rate"] * dataset["x"]
        )

    given = {
        "log_lik": log_lik,
        "dataset": {"x": np.abs(observations())},
        "params": {"rate": 1.0},
        "bijectors": {"rate": tfp.bijectors.Exp()},
    }
    draws = short_call(**given)["rate"]
    sampler = short_setup("sgld", **given)
    sess = init_sess(sampler)
    np.testing.assert_allclose(get_params(sampler, sess)["rate"], 1.0)
    sgmcmc_step(sampler, sess, 20)
    np.testing.assert_allclose(sampler.params["rate"], draws[-1], rtol=1e-5)


def test_attributes() -> None:
    dataset = {"x": observations()}
    sampler = short_setup(
        "sghmccv", dataset=dataset, log_prior=log_prior, alpha=0.1, L=3
    )
    assert (sampler.N, sampler.n, sampler.stepsize) == (20, 5, 1e-3)
    assert (sampler.alpha, sampler.L, sampler.opt_stepsize) == (0.1, 3, 1e-3)
    assert sampler.data is dataset
    assert sampler.log_lik is log_lik and sampler.log_prior is log_prior
    assert sampler.params_opt is None and sampler.log_post_opt_grad is None
    sess = init_sess(sampler, verbose=False)
    mode = sampler.params_opt["theta"]
    assert mode == get_params(sampler, sess)["theta"] == sampler.params["theta"].numpy()
    expected = (observations() - mode).sum() - mode
    np.testing.assert_allclose(sampler.log_post_opt_grad["theta"], expected, rtol=1e-4)
    assert short_setup("sgnht", a=0.02).a == 0.02
    assert "sghmccv_setup: N = 20, n = 5" in repr(sampler)


def test_present_state_goes_into_the_users_own_functions() -> None:
    sampler = short_setup("sgld", log_prior=log_prior)
    sess = init_sess(sampler)
    testset = {"x": observations()[:8]}
    compiled = tf.function(lambda: sampler.log_lik(sampler.params, testset))
    for _ in range(3):
        sgmcmc_step(sampler, sess)
        theta = float(sampler.params["theta"])
        expected = -0.5 * ((testset["x"] - theta) ** 2).sum()
        np.testing.assert_allclose(
            sampler.log_lik(sampler.params, testset), expected, rtol=1e-5
        )
        np.testing.assert_allclose(compiled(), expected, rtol=1e-5)
        np.testing.assert_allclose(
            sampler.est_log_post(testset), 20 / 8 * expected - 0.5 * theta**2, rtol=1e-5
        )


@pytest.mark.parametrize("jit_compile", [True, False])
def test_present_state_is_the_users_own_copy(jit_compile: bool) -> None:
    sampler, other = (short_setup("sgld", jit_compile=jit_compile) for _ in range(2))
    sess, untouched = init_sess(sampler), init_sess(other)
    read = []
    for _ in range(5):
        sgmcmc_step(sampler, sess)
        sgmcmc_step(other, untouched)
        read.append(
            (sampler.params["theta"].read_value(), get_params(sampler, sess)["theta"])
        )
        sampler.params["theta"].assign_add(1.0)
        assert get_params(sampler, sess) == get_params(other, untouched)
    assert len({float(theta) for theta, _ in read}) == 5
    for theta, expected in read:
        assert theta.numpy() == expected


def test_chains_are_seen_side_by_side_and_constrained() -> None:
    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return tf.reduce_sum(
            tf.math.log(params["rate"]) - params["rate"] * dataset["x"]
        )

    sampler = short_setup(
        "sgld",
        log_lik=log_lik,
        dataset={"x": np.abs(observations())},
        params={"rate": 1.0},
        bijectors={"rate": tfp.bijectors.Exp()},
        n_chains=3,
    )
    sess = init_sess(sampler)
    compiled = tf.function(lambda: tf.identity(sampler.params["rate"]))
    for n_steps in (1, 1, 5):
        sgmcmc_step(sampler, sess, n_steps)
        np.testing.assert_allclose(
            compiled(), get_params(sampler, sess)["rate"], rtol=1e-6
        )


def test_without_the_short_way_the_public_call_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = walk(short_setup("sgld"), [1, 10])
    monkeypatch.setattr(seams.COMPILER_KNOWN, [])
    assert walk(short_setup("sgld"), [1, 10]) == expected


@pytest.mark.some(1)
@pytest.mark.parametrize("method", METHODS[::-1])
def test_restored_session_goes_on_bit_for_bit(
    method: str, tmp_path: Path, short_blocks: None
) -> None:
    path = tmp_path / "session"
    sampler = short_setup(method)
    sess = init_sess(sampler, verbose=False)
    sgmcmc_step(sampler, sess, 13)
    sess.save(path)
    sgmcmc_step(sampler, sess, 20)
    # Without a seed the session's is taken over.
    other = short_setup(method, seed=None)
    again = init_sess(other, restore=path)
    assert again.iteration == 13
    sgmcmc_step(other, again, 20)
    assert get_params(other, again)["theta"] == get_params(sampler, sess)["theta"]
    assert other.params["theta"].numpy() == sampler.params["theta"].numpy()
    if BY_NAME[method].centered:
        assert other.params_opt["theta"] == sampler.params_opt["theta"]


def test_two_sessions_of_one_sampler() -> None:
    sampler = short_setup("sgld")
    first, second = init_sess(sampler), init_sess(sampler)
    sgmcmc_step(sampler, first, 5)
    assert get_params(sampler, second)["theta"] == 0.0
    sgmcmc_step(sampler, second, 5)
    assert get_params(sampler, first) == get_params(sampler, second)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 2}, "`seed` was 1 and is 2"),
        ({"stepsize": 2e-3}, "`stepsize` was 0.001 and is 0.002"),
        ({"dataset": {"x": observations() + 1}}, "`dataset['x']` holds other values"),
        ({"params": {"theta": 0.5}}, "`params['theta']` was [0.0] and is [0.5]"),
        ({"log_prior": log_prior}, "log_prior"),
        (
            {"log_lik": lambda p, d: 2 * log_lik(p, d)},
            "at the starting values log_lik was",
        ),
    ],
)
def test_session_of_another_sampler_is_refused(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    sampler = short_setup("sgld")
    init_sess(sampler).save(tmp_path / "session")
    with pytest.raises(ValueError, match="`restore`") as caught:
        init_sess(short_setup("sgld", **change), restore=tmp_path / "session")
    assert said in str(caught.value)


def test_what_is_no_session_is_refused(tmp_path: Path) -> None:
    sampler = short_setup("sgld")
    (tmp_path / "other").write_text("no")
    with pytest.raises(ValueError, match="`restore`"):
        init_sess(sampler, restore=tmp_path / "other")
    with pytest.raises(FileNotFoundError):
        init_sess(sampler, restore=tmp_path / "absent")
    with pytest.raises(TypeError, match="`sampler`"):
        init_sess("sgld")
    with pytest.raises(TypeError, match="`sess`"):
        sgmcmc_step(sampler, None)
    with pytest.raises(ValueError, match="`sess` belongs to another"):
        sgmcmc_step(sampler, init_sess(short_setup("sgld")))
    with pytest.raises(ValueError, match="`n_steps`"):
        sgmcmc_step(sampler, init_sess(sampler), 0)


@pytest.mark.parametrize(
    "keyword",
    [{"thin": 2}, {"burn_in": 5}, {"store": "x"}, {"store_gradients": True}],
    ids=lambda keyword: next(iter(keyword)),
)
def test_keywords_of_a_run_are_refused(keyword: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(keyword))}`: sgld_setup"):
        short_setup("sgld", **keyword)


def test_divergence_step_by_step() -> None:
    sampler = short_setup("sgld", stepsize=10.0)
    sess = init_sess(sampler)
    with pytest.raises(DivergenceError, match="theta") as caught:
        sgmcmc_step(sampler, sess, 1000)
    assert caught.value.samples is None
    assert np.isfinite(sampler.params["theta"].numpy())


def test_a_step_is_cheap() -> None:
    """Far above what it costs when the machine is quiet, far below a retracing at every step."""
    sampler = short_setup("sgld", jit_compile=None)
    sess = init_sess(sampler)
    sgmcmc_step(sampler, sess, 10)
    start = time.perf_counter()
    for _ in range(200):
        sgmcmc_step(sampler, sess)
    assert (time.perf_counter() - start) / 200 < 0.01
