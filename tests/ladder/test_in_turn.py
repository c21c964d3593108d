"""Updates in turn, on the rungs of the ladder: transcriptions, exact laws, invariances.

The named parameters move one after the other, each with the gradient at the state that the others
have reached, all of a pass on one minibatch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.minibatches import Uniform
from tests import seams
from tests.ladder import (
    BY_NAME,
    IN_TURN,
    LADDER,
    LINEAR,
    THERMOSTATS,
    Array,
    Case,
    Law,
    Noise,
    Problem,
    bound,
    check,
    compare,
    every,
    flat,
    gaussian,
    logistic,
    regression,
)
from tests.ladder.in_turn import Block, RecursionInTurn, Walker, chain

ROWS, SMALL, SEED = 12, 4, 5
NAMES = {case.name.removesuffix("-in-turn"): case for case in IN_TURN}


def stepsizes(problem: Problem, largest: float) -> dict[str, float]:
    """Return a stepsize for each parameter."""
    sizes = largest * np.linspace(1.0, 0.4, len(problem.shapes))
    return dict(zip(problem.shapes, sizes.tolist(), strict=True))


def blocks_of(case: Case, problem: Problem, stepsize: Any) -> list[Block]:
    """Return the parameters with their constants."""
    return Block.each(problem.blocks(), problem.spread(stepsize), case.tuning)


def minibatches(iterations: int, steps: int, length: int) -> Array:
    """Return the rows that the passes of a chain see, in order, made again from their streams.

    Args:
        iterations: of the chain.
        steps: passes in an iteration.
        length: iterations in a block.
    """
    draws = Uniform().bind(ROWS, SMALL)

    def drawn(purpose: Purpose, block: int, count: int) -> Array:
        return draws.draw(generator(SEED, 0, RunPhase.CHAIN, purpose, block), count)

    found = [drawn(Purpose.START_MINIBATCH, 0, 1)]
    for block in range(-(-iterations // length)):
        found.append(drawn(Purpose.MINIBATCH, block, length * steps - 1))
        found.append(drawn(Purpose.START_MINIBATCH, block + 1, 1))
    return np.concatenate(found)


def transcribed(
    case: Case,
    problem: Problem,
    stepsize: Any,
    rows: Array | None,
    noise: Array,
    start: Array,
) -> list[Walker]:
    """Return the chain as it should be."""
    blocks, estimator = blocks_of(case, problem, stepsize), case.estimator
    at_center = problem.gradients(problem.start)
    known = estimator.known(at_center)

    def gradient(theta: Array, number: int) -> Array:
        terms = estimator.noisy(problem.gradients(theta), at_center)
        scale = 1.0
        if rows is not None:
            terms, scale = terms[rows[number]], problem.size / SMALL
        return problem.prior_gradient(theta) + known + scale * terms.sum(0)

    return list(chain(case, gradient, problem.start, blocks, noise, start))


@every(
    LADDER,
    slow=lambda case: case.name not in ("sgld", "sghmccv", "sgnht", "underdamped"),
)
@pytest.mark.parametrize("d", [3, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "n",
    [
        pytest.param(ROWS, id="whole dataset", marks=pytest.mark.slow),
        pytest.param(SMALL, id="minibatches"),
    ],
)
def test_a_public_call(
    case: Case, d: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of three iterations: a pass begins with the minibatch the one before ended with."""
    length, iterations = 3, 8
    monkeypatch.setattr(seams.LONGEST_BLOCK, length)
    problem = logistic(d, ROWS)
    stepsize, passes = stepsizes(problem, 0.05), case.tuning.get("L", 1)
    samples = NAMES[case.name].run(
        problem, stepsize, n, n_iters=iterations, seed=SEED, dtype=tf.float64,
        jit_compile=None if case.name == "sgld" else False,
    )  # fmt: skip
    vectors = 1 + (passes if "L" in case.tuning else 0)
    blocks = range(-(-iterations // length))
    normals = [
        generator(SEED, 0, RunPhase.CHAIN, Purpose.NOISE, block).standard_normal(
            (length, vectors, d)
        )
        for block in blocks
    ]
    rows = None if n == ROWS else minibatches(iterations, passes, length)
    start = Noise.remade(SEED, 1, 1, d).start
    noise = np.concatenate(normals)[:iterations]
    expected = transcribed(case, problem, stepsize, rows, noise, start)
    draws = np.array([at.theta for at in expected])
    np.testing.assert_allclose(flat(samples, 1), draws, rtol=1e-11, atol=1e-12)


# ------------------------------------------------------------------------- exact laws


def problem_of(case: Case) -> Any:
    """Return a problem with few minibatches; that of control variates has noise with a slope."""
    return (regression if case.centered else gaussian)(3, 8)


@pytest.mark.slow
@every(LINEAR)
@pytest.mark.parametrize("replace", [False, True])
def test_the_stationary_law(case: Case, replace: bool) -> None:
    """Of (θ, ĝ), with stepsizes and noise that change it by tens of per cent."""
    problem, n = problem_of(case), 3
    stepsize = stepsizes(problem, 0.4 / np.linalg.eigvalsh(problem.precision)[-1])
    law = RecursionInTurn(problem, case, n, blocks_of(case, problem, stepsize), replace)
    mean, covariance = law.moments()
    assert np.abs(covariance[:3, :3] / problem.covariance - 1).max() > 0.1
    samples = NAMES[case.name].run(
        problem, stepsize, n, n_chains=40, burn_in=400, n_iters=5000, store_gradients=True,
        replace=replace,
    )  # fmt: skip
    draws = np.concatenate([flat(samples, 2), flat(samples.gradients, 2)], -1)
    check(compare(draws, mean, covariance), 0.03)


@pytest.mark.slow
def test_joint_updates_are_told_from_it() -> None:
    case, problem, n = BY_NAME["sgld"], regression(3, 8), 3
    stepsize = stepsizes(problem, 2.0 / np.linalg.eigvalsh(problem.precision)[-1])
    law = RecursionInTurn(problem, case, n, blocks_of(case, problem, stepsize))
    samples = case.run(
        problem,
        stepsize,
        n,
        n_chains=40,
        burn_in=400,
        n_iters=5000,
        store_gradients=True,
    )
    draws = np.concatenate([flat(samples, 2), flat(samples.gradients, 2)], -1)
    assert not compare(draws, *law.moments()).accepts
    check(compare(draws, *Law(problem, case, n, stepsize).moments("θg")), 0.1)


def test_the_splitting_without_refreshment_has_the_posteriors_covariance() -> None:
    """On the whole dataset, whatever the stepsize, as with joint updates."""
    case, problem = BY_NAME["underdamped"], gaussian(3, 8)
    for share in (0.1, 1.0, 2.0):
        stepsize = stepsizes(problem, share / np.linalg.eigvalsh(problem.precision)[-1])
        law = RecursionInTurn(problem, case, 8, blocks_of(case, problem, stepsize))
        mean, covariance = law.moments()
        np.testing.assert_allclose(covariance[:3, :3], problem.covariance, rtol=1e-9)
        np.testing.assert_allclose(mean[:3], problem.mean, rtol=1e-9)


@pytest.mark.slow
def test_in_turn_holds_where_joint_updates_do_not() -> None:
    """Two parameters of one number each, of correlation 0.9, at a stepsize of 1.2/λ each."""
    H = np.array([[1.0, 0.9], [0.9, 1.0]])
    zero = {"x": np.zeros(2)}

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        theta = tf.stack([params["a"], params["b"]])
        value = -0.25 * tf.tensordot(
            theta, tf.linalg.matvec(tf.constant(H, theta.dtype), theta), 1
        )
        return value + 0.0 * dataset["x"]

    def run(updates: str) -> sgmcmc.Samples:
        return sgmcmc.sgld(
            log_lik, zero, {"a": 0.0, "b": 0.0}, 2.4, None, 2, n_iters=20_000, seed=1,
            verbose=False, updates=updates,
        )  # fmt: skip

    with pytest.raises(sgmcmc.DivergenceError):
        run("joint")
    draws = flat(run("in_turn"), 1)
    assert np.isfinite(draws).all() and draws.std() < 10


@pytest.mark.slow
@every(THERMOSTATS)
def test_each_thermostat_has_its_own_momentum(case: Case) -> None:
    """At stationarity E[ν·ν]/p = ε of each parameter, and ν is the step of its draws."""
    problem = gaussian(3, 20)
    stepsize = stepsizes(problem, 0.05 / np.linalg.eigvalsh(problem.precision)[-1])
    samples = NAMES[case.name].run(
        problem, stepsize, 10, n_chains=40, burn_in=500, n_iters=4000, dtype=tf.float64
    )
    for name, epsilon in stepsize.items():
        steps = np.diff(samples[name].reshape(40, 4000, -1), axis=1)
        means = (steps**2).mean((1, 2)) / epsilon
        error = means.std(ddof=1) / np.sqrt(40)
        assert error < 0.02
        assert abs(means.mean() - 1) < bound(2, 40) * error


# ----------------------------------------------------------------- invariances and refusals


@every(
    (*LADDER, BY_NAME["scir"], BY_NAME["sgrld"]),
    slow=lambda case: case.name.endswith("cv"),
)
@pytest.mark.some(1)
def test_a_single_parameter_has_nobody_to_take_turns_with(case: Case) -> None:
    """The draws are those of joint updates, bit for bit."""

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))

    def run(updates: str) -> Array:
        if case.of_points:
            samples = case.function(
                log_lik, {"z": np.eye(3)[[0, 0, 1, 2, 1, 0]]}, {"omega": np.full(3, 1 / 3)}, 0.1,
                minibatch_size=2, alpha=0.5, n_iters=50, seed=1, verbose=False, updates=updates,
                jit_compile=False,
            )  # fmt: skip
            return samples["omega"]
        return case.run(
            gaussian(1, 20), 0.01, 5, n_iters=50, updates=updates, jit_compile=False
        )["theta"]

    np.testing.assert_array_equal(run("in_turn"), run("joint"))


def test_the_order_is_that_of_params() -> None:
    """The first parameter moves with the gradient that the chain carries, the others after it."""
    problem = logistic(3, ROWS)
    beta, bias = (problem.split(problem.start)[name] for name in ("beta", "bias"))

    def after(params: dict[str, Any]) -> sgmcmc.Samples:
        return sgmcmc.sgld(
            lambda p, d: problem.log_lik({n: p[n] for n in ("beta", "bias")}, d), problem.dataset,
            params, 0.05, None, ROWS, n_iters=1, seed=1, verbose=False, updates="in_turn",
            dtype=tf.float64, jit_compile=False,
        )  # fmt: skip

    for params in ({"beta": beta, "bias": bias}, {"bias": bias, "beta": beta}):
        draw, position = after(params), problem.start.copy()
        noise = problem.split(np.zeros(3)), Noise.remade(1, 1, 1, 3).noise[0, 0]
        ends = np.cumsum([0, *(np.size(value) for value in params.values())])
        normals = {
            name: noise[1][a:b]
            for name, a, b in zip(params, ends, ends[1:], strict=False)
        }
        for name in params:
            place = slice(0, 2) if name == "beta" else slice(2, 3)
            g = problem.gradients(position).sum(0)[place]
            position[place] += 0.025 * g + np.sqrt(0.05) * normals[name]
        np.testing.assert_allclose(draw["beta"][0], position[:2], rtol=1e-11)
        np.testing.assert_allclose(draw["bias"][0], position[2], rtol=1e-11)
