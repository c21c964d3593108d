"""Rung 1: each update equation against its NumPy transcription, in float64, to 1e-12.

First the dynamics alone, handed random numbers and an arbitrary gradient that changes at every
call; then the public functions, end to end, on the noise of their own streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ladder import (
    LINEAR,
    SHAPES,
    TABLE,
    Array,
    Case,
    Shapes,
    every,
    flat,
    gaussian,
    logistic,
    reference_chain,
    remade_noise,
    vectors_per_iteration,
)

from sgmcmc.dynamics import SGHMC, SGLD, SGNHT, Dynamics
from sgmcmc.target.layout import Layout

SEVERAL: Shapes = {"beta": (2, 2), "bias": (), "scale": (3,)}
SIZE = 8
STEPSIZES: dict[str, float | Array] = {
    "one stepsize": 0.07,
    "a stepsize for each": np.linspace(0.01, 0.3, SIZE),
}
VECTOR = np.linspace(0.05, 0.9, SIZE)
PER_PARAMETER = np.repeat([0.3, 0.02, 0.7], [4, 1, 3])


def arbitrary_gradient(seed: int) -> Callable[[Array], Array]:
    """Return a gradient that is not linear and differs at every call, as minibatches do."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(SIZE, SIZE))
    return lambda theta: np.sin(matrix @ theta) - theta + rng.normal(size=SIZE)


def drive(
    dynamics: Dynamics,
    gradient: Callable[[Array], Array],
    start: Array,
    stepsize: float | Array,
    noise: Array,
    start_noise: Array,
) -> tuple[Array, Any]:
    """Run a dynamics by hand; return its positions after each iteration and its last state."""
    epsilon = tf.constant(stepsize, tf.float64)
    opening = tf.constant(start_noise[None, :][: dynamics.start_normals])
    state = dynamics.init(tf.constant(start), tf.zeros_like(start), epsilon, opening)
    estimate, positions = tf.constant(gradient(start)), []
    refresh, each = dynamics.refresh_normals, dynamics.step_normals
    for normals in noise:
        state = dynamics.refresh(state, epsilon, tf.constant(normals[:refresh]))
        for step in range(dynamics.steps):
            first = refresh + step * each
            numbers = tf.constant(normals[first : first + each])
            state = dynamics.move(state, estimate, epsilon, numbers)
            estimate = tf.constant(gradient(state.position.numpy()))
            state = dynamics.close(state, estimate, epsilon)
        positions.append(state.position.numpy())
    return np.array(positions), state


def check_dynamics(
    dynamics: Dynamics,
    kind: str,
    tuning: Mapping[str, Any],
    stepsize: float | Array,
    shapes: Shapes = SEVERAL,
) -> None:
    """Compare a dynamics with the transcription over six iterations."""
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(6, vectors_per_iteration(kind, tuning), SIZE))
    start, start_noise = rng.normal(size=(2, SIZE))
    assert dynamics.normals == noise.shape[1]
    positions, _ = drive(dynamics, arbitrary_gradient(1), start, stepsize, noise, start_noise)
    epsilon = np.broadcast_to(stepsize, SIZE)
    expected = reference_chain(
        kind,
        start,
        arbitrary_gradient(1),
        epsilon,
        tuning,
        noise,
        start_noise,
        list(Layout(shapes).slices.values()),
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stepsize", STEPSIZES.values(), ids=STEPSIZES)
def test_sgld(stepsize: float | Array) -> None:
    check_dynamics(SGLD(), "sgld", {}, stepsize)


@pytest.mark.parametrize("stepsize", STEPSIZES.values(), ids=STEPSIZES)
@pytest.mark.parametrize("alpha", [0.01, 0.6, VECTOR], ids=["0.01", "0.6", "each its own"])
@pytest.mark.parametrize("L", [1, 3, 5])
@pytest.mark.parametrize("kind", ["sghmc", "euler"])
def test_sghmc(kind: str, L: int, alpha: float | Array, stepsize: float | Array) -> None:
    dynamics = SGHMC(alpha, L, kind == "euler")
    check_dynamics(dynamics, kind, {"alpha": alpha, "L": L}, stepsize)


@pytest.mark.parametrize("stepsize", [0.07, np.repeat([0.02, 0.3, 0.1], [4, 1, 3])])
@pytest.mark.parametrize("a", [0.01, 0.6, PER_PARAMETER], ids=["0.01", "0.6", "each its own"])
def test_sgnht_with_a_thermostat_for_each_parameter(
    a: float | Array, stepsize: float | Array
) -> None:
    check_dynamics(SGNHT(a, Layout(SEVERAL)), "sgnht", {"a": a}, stepsize)


def test_sgnht_with_one_thermostat() -> None:
    shapes = {"theta": (2, 4)}
    check_dynamics(
        SGNHT(0.2, Layout(shapes)), "sgnht", {"a": 0.2}, STEPSIZES["one stepsize"], shapes
    )


@pytest.mark.parametrize("a", [0.2, PER_PARAMETER], ids=["0.2", "each its own"])
def test_how_sgnht_starts(a: float | Array) -> None:
    """ν ~ N(0, ε) and ξ = a."""
    start, normals = np.random.default_rng(1).normal(size=(2, SIZE))
    epsilon = np.linspace(0.01, 0.3, SIZE)
    state = SGNHT(a, Layout(SEVERAL)).init(
        tf.constant(start), tf.zeros(SIZE), tf.constant(epsilon), tf.constant(normals[None])
    )
    np.testing.assert_array_equal(state.position, start)
    np.testing.assert_allclose(state.momentum, np.sqrt(epsilon) * normals, rtol=1e-15)
    np.testing.assert_array_equal(state.thermostat, np.broadcast_to(a, SIZE)[[0, 4, 5]])


def test_how_an_iteration_of_sghmc_starts() -> None:
    """ν ~ N(0, ε), whatever it was before."""
    epsilon, normals = np.linspace(0.01, 0.3, SIZE), np.random.default_rng(1).normal(size=(1, SIZE))
    for euler in (False, True):
        dynamics = SGHMC(0.1, 3, euler)
        zeros = tf.zeros(SIZE, tf.float64)
        state = dynamics.init(zeros, zeros, tf.constant(epsilon), tf.zeros((0, SIZE)))
        state = state._replace(momentum=tf.fill([SIZE], tf.constant(7.0, tf.float64)))
        state = dynamics.refresh(state, tf.constant(epsilon), tf.constant(normals))
        np.testing.assert_allclose(state.momentum, np.sqrt(epsilon) * normals[0], rtol=1e-15)


def test_the_published_update_is_sgld_when_friction_is_one() -> None:
    """With α = 1 and L = 1 the momentum is forgotten: SGLD at stepsize 2ε."""
    rng = np.random.default_rng(4)
    noise, start = rng.normal(size=(5, 2, SIZE)), rng.normal(size=SIZE)
    euler, _ = drive(SGHMC(1.0, 1, True), arbitrary_gradient(2), start, 0.05, noise, start)
    sgld, _ = drive(SGLD(), arbitrary_gradient(2), start, 0.1, noise[:, 1:], start)
    np.testing.assert_allclose(euler, sgld, rtol=1e-12)


# ------------------------------------------------------------------------------- end to end


@every(TABLE)
@pytest.mark.parametrize(
    "d", [pytest.param(d, marks=() if d == 3 else pytest.mark.slow) for d in SHAPES]
)
def test_a_public_call_on_the_whole_dataset(case: Case, d: int) -> None:
    """With n = N the only randomness is the noise, which is made again from its stream."""
    problem, iterations, seed = logistic(d, 12), 8, 5
    stepsize: Any = dict(zip(problem.shapes, (0.02, 0.05), strict=False))
    tuning = dict(case.tuning)
    if d == 3 and case.kind != "sgld":
        name = "a" if case.kind == "sgnht" else "alpha"
        tuning[name] = {"beta": 0.5, "bias": 0.1}
    samples = case.run(
        problem, stepsize, 12, n_iters=iterations, seed=seed, dtype=tf.float64, **tuning
    )
    numbers = {k: problem.spread(v) if isinstance(v, dict) else v for k, v in tuning.items()}
    noise, start_noise = remade_noise(
        seed, (iterations, vectors_per_iteration(case.kind, tuning), d)
    )
    expected = reference_chain(
        case.kind,
        problem.start,
        problem.gradient,
        problem.spread(stepsize),
        numbers,
        noise,
        start_noise,
        problem.blocks(),
    )
    np.testing.assert_allclose(flat(samples, 1), expected, rtol=1e-11, atol=1e-12)


@every(LINEAR)
def test_two_starts_approach_each_other_as_the_equation_says(case: Case) -> None:
    """Where minibatch noise is additive, two chains on the same noise differ without any noise.

    So the deterministic part of the update is seen exactly, whatever the random numbers are.
    """
    problem = gaussian(3, 20)
    gap = np.array([0.3, -1.0, 0.5])
    keywords = {"n_iters": 10, "dtype": tf.float64, "seed": 2, "n_chains": None}
    other = replace(problem, start=problem.start + gap)
    draws = [flat(case.run(p, 0.01, 5, **keywords), 1) for p in (problem, other)]
    expected = reference_chain(
        case.kind,
        gap,
        lambda position: -problem.precision @ position,
        problem.spread(0.01),
        case.tuning,
        np.zeros((10, vectors_per_iteration(case.kind, case.tuning), 3)),
        np.zeros(3),
        problem.blocks(),
    )
    np.testing.assert_allclose(draws[1] - draws[0], expected, rtol=1e-9, atol=1e-12)
