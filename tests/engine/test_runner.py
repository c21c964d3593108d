"""A chain on its way: stepsizes that are scaled between blocks, snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.runner import Runner
from tests import seams
from tests.conftest import EACH_ESTIMATOR, METHODS, short_setup
from tests.ladder import BY_NAME


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks ten iterations long."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, 10)


def walk(
    method: str, stepsize: Any, change: Callable[[Runner], None], **given: Any
) -> np.ndarray:
    """Return a chain's positions after each of thirty iterations, changed once after ten."""
    tuning = BY_NAME[method].tuning
    sampler = short_setup(
        method, stepsize=stepsize, dtype=tf.float64, **tuning, **given
    )
    sess = sgmcmc.init_sess(sampler, verbose=False)
    positions = []
    for iteration in range(30):
        if iteration == 10:
            for runner in sess._runners:
                change(runner)
        sgmcmc.sgmcmc_step(sampler, sess)
        positions.append(sgmcmc.get_params(sampler, sess)["theta"])
    return np.array(positions)


def schedule(after: float) -> Callable[[int], float]:
    """Return a schedule that changes after ten iterations."""
    return lambda iteration: 1e-3 if iteration <= 10 else after


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("method", "factor"),
    [
        *[(method, 0.25) for method in METHODS],
        *[(method, 3.0) for method in EACH_ESTIMATOR],
    ],
)
def test_scaled_stepsizes_are_those_of_a_schedule(method: str, factor: float) -> None:
    """In float64, to rounding: a chain whose stepsizes are multiplied between two blocks."""
    scaled = walk(method, 1e-3, lambda runner: runner.scale_stepsizes(factor))
    expected = walk(method, schedule(factor * 1e-3), lambda runner: None)
    np.testing.assert_allclose(scaled, expected, rtol=1e-11, atol=1e-13)
    unscaled = walk(method, 1e-3, lambda runner: None)
    np.testing.assert_array_equal(scaled[:10], unscaled[:10])
    assert (scaled[10:] != unscaled[10:]).all()


def test_factors_are_of_what_the_phase_began_with() -> None:
    """They do not multiply up; a schedule and stepsizes by coordinate are scaled as well."""

    def change(runner: Runner) -> None:
        for factor in (7.0, 0.5, 2.0):
            runner.scale_stepsizes(factor)

    expected = walk("sgld", schedule(2e-3), lambda runner: None)
    np.testing.assert_allclose(
        walk("sgld", 1e-3, change), expected, rtol=1e-11, atol=1e-13
    )
    by_schedule = walk("sgld", lambda iteration: 1e-3, change)
    np.testing.assert_allclose(by_schedule, expected, rtol=1e-11, atol=1e-13)
    by_array = walk("sgld", np.array(1e-3), change)
    np.testing.assert_allclose(by_array, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.slow
def test_a_factor_is_kept_in_a_snapshot() -> None:
    """A runner that is restored goes on with it, bit for bit."""
    sampler = short_setup("sghmc")
    first, second = (sgmcmc.init_sess(sampler) for _ in range(2))
    sgmcmc.sgmcmc_step(sampler, first, 10)
    first._runners[0].scale_stepsizes(0.5)
    second._runners[0].restore(first._runners[0].snapshot())
    for sess in (first, second):
        sgmcmc.sgmcmc_step(sampler, sess, 15)
    assert sgmcmc.get_params(sampler, first) == sgmcmc.get_params(sampler, second)


def test_stepsizes_are_columns_of_a_table() -> None:
    """One, one for each parameter, or one for each coordinate if an entry is an array."""
    array = np.array([[0.1, 0.2]])
    assert Stepsizes("s", (0.1,)).at(1, 2).tolist() == [[0.1]] * 2
    assert Stepsizes("s", (0.1, 0.2), ("a", "b"), (2, 1)).at(1, 1).tolist() == [
        [0.1, 0.2]
    ]
    mixed = Stepsizes("s", (array, lambda m: 1.0 / m), ("a", "b"), (2, 3))
    assert mixed.columns == 5 and not mixed.constant
    assert mixed.at(1, 2).tolist() == [[0.1, 0.2, 1, 1, 1], [0.1, 0.2, 0.5, 0.5, 0.5]]
