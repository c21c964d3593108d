"""Rung 1: each update equation against its NumPy transcription, in float64, to 1e-12.

First the dynamics alone, handed random numbers and an arbitrary gradient that changes at every
call; then the public functions, end to end, on the noise of their own streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.dynamics import SGHMC, SGLD, SGNHT, Dynamics
from sgmcmc.model.geometry import Space
from sgmcmc.model.layout import Layout
from tests.ladder import (
    FIELD,
    LADDER,
    LINEAR,
    PLANE,
    SHAPES,
    Array,
    Case,
    Inputs,
    Noise,
    Problem,
    Shapes,
    every,
    firsts,
    flat,
    gaussian,
    logistic,
)

SEVERAL: Shapes = {"beta": (2, 2), "bias": (), "scale": (3,)}
SIZE = 8
STEPSIZES: dict[str, float | Array] = {
    "one stepsize": 0.07,
    "a stepsize for each": np.linspace(0.01, 0.3, SIZE),
    "a stepsize for each parameter": np.repeat([0.02, 0.3, 0.1], [4, 1, 3]),
}
VECTOR = np.linspace(0.05, 0.9, SIZE)
PER_PARAMETER = {"beta": 0.3, "bias": 0.02, "scale": 0.7}
FIRSTS = firsts(LADDER, lambda case: case.estimator)
VARIANTS = (
    "sghmc-euler", "sghmccv", "sghmccv-euler", "sgnhtcv", "underdampedcv", "sghmc-corrected",
    "sghmc-euler-corrected", "psgld-adaptive", "barker",
)  # fmt: skip
"""Of the public calls those that add nothing to the calls of others and to their own equation."""
BY_HAND = (*firsts(LADDER, lambda case: case.transcription), *FIELD, *PLANE)


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
    estimate, positions = tf.constant(gradient(start)), []
    state = dynamics.init(tf.constant(start), estimate, epsilon, opening)
    refresh, each = dynamics.refresh_normals, dynamics.step_normals
    for normals in noise:
        state = dynamics.refresh(state, epsilon, tf.constant(normals[:refresh]))
        for step in range(dynamics.steps):
            first = refresh + step * each
            numbers = tf.constant(normals[first : first + each])
            state = dynamics.step(state, estimate, epsilon, numbers)
            estimate = tf.constant(gradient(state.position.numpy()))
            state = dynamics.finish_step(state, estimate, epsilon)
        positions.append(state.position.numpy())
    return np.array(positions), state


def check_dynamics(
    case: Case,
    tuning: dict[str, Any],
    stepsize: float | Array,
    shapes: Shapes = SEVERAL,
) -> None:
    """Compare a dynamics with the transcription over six iterations."""
    assert case.transcription is not None
    space = Space(shapes)
    given = {
        name: 0.5 if isinstance(v, np.ndarray) else v for name, v in tuning.items()
    }
    dynamics = case.dynamics(**given).bind(space)
    # A vector that differs within a parameter is more than a user can ask for.
    vectors = {name: v for name, v in tuning.items() if isinstance(v, np.ndarray)}
    dynamics = replace(dynamics, **vectors)
    numbers = {name: spread(space.layout, value) for name, value in tuning.items()}
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(6, case.transcription.vectors(tuning), SIZE))
    start, start_noise = rng.normal(size=(2, SIZE))
    assert dynamics.normals == noise.shape[1]
    positions, _ = drive(
        dynamics, arbitrary_gradient(1), start, stepsize, noise, start_noise
    )
    epsilon = np.broadcast_to(stepsize, SIZE)
    blocks = list(space.layout.slices.values())
    expected = case.transcription.chain(
        Inputs(
            start, arbitrary_gradient(1), epsilon, numbers, noise, start_noise, blocks
        )
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-12, atol=1e-12)


def spread(layout: Layout, value: Any) -> Any:
    """Return a constant that may be given by parameter as one for each coordinate."""
    if not isinstance(value, dict):
        return value
    return np.concatenate(
        [np.full(layout.sizes[name], value[name]) for name in layout.names]
    )


def by_hand() -> Iterator[Any]:
    """Yield each row with some friction, for each parameter or coordinate too, and some steps."""
    frictions: dict[str, Any] = {
        "0.01": 0.01,
        "0.6": 0.6,
        "by parameter": PER_PARAMETER,
    }
    for case in BY_HAND:
        assert case.transcription is not None
        values = frictions if case.friction else {"": None}
        if case.friction and not case.has_thermostats:
            values = {**values, "by coordinate": VECTOR}
        for name, value in values.items():
            for steps in (1, 3, 5) if case.transcription.steps else (None,):
                tuning = {
                    **case.tuning,
                    case.friction: value,
                    case.transcription.steps: steps,
                }
                tuning.pop(None, None)
                yield pytest.param(
                    case, tuning, id=f"{case.name} {name} {steps or ''}".strip()
                )


@pytest.mark.parametrize(("case", "tuning"), list(by_hand()))
@pytest.mark.parametrize("stepsize", STEPSIZES.values(), ids=STEPSIZES)
def test_the_dynamics_alone(
    case: Case, tuning: dict[str, Any], stepsize: float | Array
) -> None:
    check_dynamics(case, tuning, stepsize)


@every(BY_HAND)
def test_the_dynamics_alone_with_one_parameter(case: Case) -> None:
    check_dynamics(
        case, dict(case.tuning), STEPSIZES["one stepsize"], {"theta": (2, 4)}
    )


@pytest.mark.parametrize("a", [0.2, PER_PARAMETER], ids=["0.2", "each its own"])
def test_how_sgnht_starts(a: Any) -> None:
    """ν ~ N(0, ε) and ξ = a."""
    start, normals = np.random.default_rng(1).normal(size=(2, SIZE))
    epsilon, layout = np.linspace(0.01, 0.3, SIZE), Layout(SEVERAL)
    state = (
        SGNHT(a)
        .bind(Space(SEVERAL))
        .init(
            tf.constant(start),
            tf.zeros(SIZE),
            tf.constant(epsilon),
            tf.constant(normals[None]),
        )
    )
    np.testing.assert_array_equal(state.position, start)
    np.testing.assert_allclose(state.momentum, np.sqrt(epsilon) * normals, rtol=1e-15)
    expected = np.broadcast_to(spread(layout, a), SIZE)[[0, 4, 5]]
    np.testing.assert_array_equal(state.thermostat, expected)


def test_how_an_iteration_of_sghmc_starts() -> None:
    """ν ~ N(0, ε), whatever it was before."""
    epsilon, normals = (
        np.linspace(0.01, 0.3, SIZE),
        np.random.default_rng(1).normal(size=(1, SIZE)),
    )
    for integrator in ("symmetric", "euler"):
        dynamics = SGHMC(0.1, 3, integrator)
        zeros = tf.zeros(SIZE, tf.float64)
        state = dynamics.init(zeros, zeros, tf.constant(epsilon), tf.zeros((0, SIZE)))
        state = state._replace(momentum=tf.fill([SIZE], tf.constant(7.0, tf.float64)))
        state = dynamics.refresh(state, tf.constant(epsilon), tf.constant(normals))
        np.testing.assert_allclose(
            state.momentum, np.sqrt(epsilon) * normals[0], rtol=1e-15
        )


def test_the_published_update_is_sgld_when_friction_is_one() -> None:
    """With α = 1 and L = 1 the momentum is forgotten: SGLD at stepsize 2ε."""
    rng = np.random.default_rng(4)
    noise, start = rng.normal(size=(5, 2, SIZE)), rng.normal(size=SIZE)
    euler, _ = drive(
        SGHMC(1.0, 1, "euler"), arbitrary_gradient(2), start, 0.05, noise, start
    )
    sgld, _ = drive(SGLD(), arbitrary_gradient(2), start, 0.1, noise[:, 1:], start)
    np.testing.assert_allclose(euler, sgld, rtol=1e-12)


# ------------------------------------------------------------------------------- end to end


def expected_chain(
    case: Case,
    problem: Problem,
    stepsize: Array,
    tuning: dict[str, Any],
    seed: int,
    n_iters: int,
) -> Array:
    """Return the transcription's chain on the whole dataset and the noise of a seed."""
    assert case.transcription is not None
    vectors = case.transcription.vectors(tuning)
    noise = Noise.remade(seed, n_iters, vectors, problem.dimension)
    numbers = {
        k: problem.spread(v) if isinstance(v, dict) else v for k, v in tuning.items()
    }
    return case.transcription.chain(
        Inputs(
            problem.start,
            problem.gradient,
            stepsize,
            numbers,
            noise.noise,
            noise.start,
            problem.blocks(),
        )
    )


@every((*LADDER, *FIELD), slow=lambda case: case.name in VARIANTS)
@pytest.mark.parametrize(
    "d", [pytest.param(d, marks=() if d == 3 else pytest.mark.slow) for d in SHAPES]
)
def test_a_public_call_on_the_whole_dataset(case: Case, d: int) -> None:
    """With n = N the only randomness is the noise, which is made again from its stream.

    Compiled as it is by default for one row of each estimator.
    """
    problem, iterations, seed = logistic(d, 12), 8, 5
    stepsize: Any = dict(zip(problem.shapes, (0.02, 0.05), strict=False))
    tuning = dict(case.tuning)
    if d == 3 and case.friction is not None:
        tuning[case.friction] = {"beta": 0.5, "bias": 0.1}
    samples = case.run(
        problem, stepsize, 12, n_iters=iterations, seed=seed, dtype=tf.float64,
        jit_compile=None if case in FIRSTS else False, **tuning,
    )  # fmt: skip
    expected = expected_chain(
        case, problem, problem.spread(stepsize), tuning, seed, iterations
    )
    np.testing.assert_allclose(flat(samples, 1), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("case", "several"),
    [
        *[
            pytest.param(case, True, id=f"{case.name}-several parameters")
            for case in LADDER
        ],
        *[
            pytest.param(case, False, id=f"{case.name}-one parameter")
            for case in LADDER
        ],
    ],
)
def test_an_array_of_stepsizes(case: Case, several: bool) -> None:
    """One for each coordinate: a dict of arrays, or a bare array for a single parameter."""
    problem, iterations, seed = logistic(10, 12), 8, 6
    if not several:
        problem = replace(problem, shapes={"theta": (2, 5)})
    sizes = np.linspace(0.005, 0.05, 10)
    by_name = problem.split(sizes)
    stepsize: Any = by_name if several else by_name["theta"].tolist()
    samples = case.run(
        problem, stepsize, 12, n_iters=iterations, seed=seed, dtype=tf.float64,
        jit_compile=False,
    )  # fmt: skip
    expected = expected_chain(case, problem, sizes, dict(case.tuning), seed, iterations)
    np.testing.assert_allclose(flat(samples, 1), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
@pytest.mark.some(1)
@every(LINEAR)
def test_two_starts_approach_each_other_as_the_equation_says(case: Case) -> None:
    """Where minibatch noise is additive, two chains on the same noise differ without any noise.

    So the deterministic part of the update is seen exactly, whatever the random numbers are.
    """
    assert case.transcription is not None
    problem = gaussian(3, 20)
    gap = np.array([0.3, -1.0, 0.5])
    keywords = {
        "n_iters": 10, "dtype": tf.float64, "seed": 2, "n_chains": None, "jit_compile": False
    }  # fmt: skip
    other = replace(problem, start=problem.start + gap)
    draws = [flat(case.run(p, 0.01, 5, **keywords), 1) for p in (problem, other)]
    expected = case.transcription.chain(
        Inputs(
            gap,
            lambda position: -problem.precision @ position,
            problem.spread(0.01),
            case.tuning,
            np.zeros((10, case.transcription.vectors(case.tuning), 3)),
            np.zeros(3),
            problem.blocks(),
        )
    )
    np.testing.assert_allclose(draws[1] - draws[0], expected, rtol=1e-9, atol=1e-12)
