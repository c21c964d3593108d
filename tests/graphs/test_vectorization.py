"""What TensorFlow cannot vectorize runs in a loop, with the same results and one warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.graphs.tracing import begin_call, in_loops, jacobian, trace, vectorized_map
from tests.conftest import short_call

Tensors = dict[str, tf.Tensor]

RNG = np.random.default_rng(4)
X = RNG.normal(1.0, 1.0, 60).astype(np.float32)
PATHS = (0.3 * RNG.normal(size=(40, 6)).cumsum(1)).astype(np.float32)


def branched(u: tf.Tensor) -> tf.Tensor:
    """Return the gradient of a function with a branch in it."""
    with tf.GradientTape() as tape:
        tape.watch(u)
        value = tf.cond(u[0] > 50.0, lambda: u[0] * u[1], lambda: tf.reduce_sum(u**3))
    return tape.gradient(value, u)


def test_derivatives_of_a_branch() -> None:
    u = tf.constant([1.0, 2.0])
    begin_call()
    with pytest.warns(UserWarning, match=r"cannot vectorize.*tf\.cond"):
        found = trace(lambda u: jacobian(branched, u), u)(u)
    np.testing.assert_allclose(found, [[6.0, 0.0], [0.0, 12.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = trace(lambda u: 2.0 * jacobian(branched, u), u)(u)
        with in_loops():
            alone = trace(lambda u: 3.0 * jacobian(branched, u), u)(u)
    np.testing.assert_allclose([again / 2, alone / 3], [found] * 2)


def test_a_map_is_the_same_in_a_loop() -> None:
    points = {"a": np.ones((3, 2), np.float32), "b": np.arange(3.0)}

    def function(point: Any) -> dict[str, tf.Tensor]:
        return {"sum": point["a"] * tf.cast(point["b"], tf.float32), "b": point["b"]}

    found = vectorized_map(function, points)
    with in_loops():
        alone = vectorized_map(function, points)
    for name in found:
        np.testing.assert_array_equal(found[name], alone[name])


def test_errors_of_the_function_are_its_own() -> None:
    def fails(point: tf.Tensor) -> tf.Tensor:
        raise ArithmeticError("of its own")

    with pytest.raises(ArithmeticError, match="of its own"):
        vectorized_map(fails, tf.zeros([3, 2]))


def conditional(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return tf.cond(
        params["m"] > 50.0,
        lambda: -tf.reduce_sum(dataset["x"] ** 2) * params["m"],
        lambda: -0.5 * tf.reduce_sum((dataset["x"] - params["m"]) ** 2),
    )


def prior(params: Tensors) -> tf.Tensor:
    return -0.5 * params["m"] ** 2


def hidden_markov(params: Tensors, dataset: Tensors) -> tf.Tensor:
    tfd, zero = tfp.distributions, tf.zeros_like(params["m"])
    flip = tf.constant([[0.7, 0.3], [0.3, 0.7]], params["m"].dtype)
    model = tfd.HiddenMarkovModel(
        tfd.Categorical(logits=tf.stack([zero, zero])),
        tfd.Categorical(probs=flip),
        tfd.Normal(tf.stack([zero, params["m"]]), tf.ones_like(params["m"])),
        num_steps=6,
    )
    return model.log_prob(dataset["x"])


def scanned(params: Tensors, dataset: Tensors) -> tf.Tensor:
    steps = tf.scan(
        lambda before, now: params["m"] * before + now,
        tf.transpose(dataset["x"]),
        initializer=tf.zeros_like(dataset["x"][:, 0]),
    )
    return -0.5 * tf.reduce_sum(steps**2, 0)


@pytest.mark.slow
def test_a_branch_in_a_likelihood() -> None:
    """The mode, draws, report, predictions and terms of single rows."""
    with pytest.warns(UserWarning, match="cannot vectorize") as caught:
        samples = sgmcmc.sample(
            conditional, {"x": X}, {"m": 0.0}, prior, ess=100, seed=1, verbose=False
        )
    assert sum("cannot vectorize" in str(w.message) for w in caught) == 1
    assert samples["m"].mean() == pytest.approx(X.sum() / 61, abs=0.1)
    assert samples["m"].std() == pytest.approx(61**-0.5, rel=0.3)
    assert "Mode" in samples.report
    assert samples.log_lik({"x": X[:5]}).shape[-1] == 5  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("log_lik", [hidden_markov, scanned])
@pytest.mark.parametrize("method", ["sgld", "sghmccv", "sample", "nuts"])
def test_loops_in_a_likelihood(method: str, log_lik: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method in ("sample", "nuts"):
            samples = getattr(sgmcmc, method)(
                log_lik, {"x": PATHS}, {"m": 0.5}, prior, ess=100, seed=1, verbose=False
            )
        else:
            samples = short_call(
                method, log_lik=log_lik, dataset={"x": PATHS}, params={"m": 0.5},
                log_prior=prior, minibatch_size=10, n_iters=20,
            )  # fmt: skip
        assert samples.report is not None
        assert samples.log_lik({"x": PATHS[:5]}).shape[-1] == 5  # type: ignore[union-attr]


def test_derivatives_of_loops_are_loops_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To try to vectorize those of a Kalman filter of 50 steps took 24 s, in vain."""
    vectorized, made = [], tf.GradientTape.jacobian

    def seen(tape: tf.GradientTape, *given: Any, **options: Any) -> Any:
        vectorized.append(options["experimental_use_pfor"])
        return made(tape, *given, **options)

    monkeypatch.setattr(tf.GradientTape, "jacobian", seen)

    def curvature(log_lik: Any, u: tf.Tensor) -> tf.Tensor:
        def slope(u: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(u)
                value = tf.reduce_sum(log_lik({"m": u[0]}, {"x": tf.ones([3, 6])}))
            return tape.gradient(value, u)

        return jacobian(slope, u)

    found = tf.function(lambda u: curvature(scanned, u), autograph=False)(
        tf.constant([0.5])
    )
    steps = np.array([np.polyval(np.ones(k), 0.5) for k in range(1, 7)])
    slopes = np.array([np.polyval(np.polyder(np.ones(k)), 0.5) for k in range(1, 7)])
    bends = np.array([np.polyval(np.polyder(np.ones(k), 2), 0.5) for k in range(1, 7)])
    assert float(found[0, 0]) == pytest.approx(
        -3 * (slopes**2 + steps * bends).sum(), rel=1e-5
    )
    assert vectorized == [False]
    plain = tf.function(
        lambda u: curvature(lambda p, _: p["m"] ** 3, u), autograph=False
    )
    assert float(plain(tf.constant([0.5]))[0, 0]) == pytest.approx(3.0)
    assert vectorized == [False, True]
