"""Stepsizes and constants: one for each parameter, and schedules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import sgmcmc
from tests.conftest import PLAIN, any_shape
from tests.ladder import DISTINCT, Case, every

Run = Callable[..., sgmcmc.Samples]

PAIR = {"still": [0.0, 0.0], "moving": [0.0, 0.0, 0.0]}


@pytest.mark.some(1)
@pytest.mark.parametrize("method", PLAIN)
def test_stepsize_of_each_parameter(method: str, run: Run) -> None:
    stepsize = {"moving": 1e-2, "still": 1e-14}
    samples = run(method, params=PAIR, stepsize=stepsize, log_lik=any_shape)
    assert np.abs(samples["still"]).max() < 1e-4
    assert np.abs(samples["moving"]).min(axis=0).max() > 1e-3


def test_opt_stepsize_of_each_parameter(run: Run) -> None:
    start = {"still": [1.0, 1.0], "moving": [1.0, 1.0]}
    samples = run(
        "sgldcv",
        params=start,
        log_lik=any_shape,
        opt_stepsize={"still": 1e-14, "moving": 1e-2},
        n_iters_opt=100,
    )
    np.testing.assert_allclose(samples.mode["still"], 1.0, atol=1e-6)
    assert np.abs(samples.mode["moving"]).max() < 0.1


@pytest.mark.some(1)
@every(tuple(case for case in DISTINCT if case.friction and not case.centered))
def test_constant_of_each_parameter(case: Case, run: Run) -> None:
    method, argument = case.name, str(case.friction)
    same = run(method, params=PAIR, log_lik=any_shape, **{argument: 0.1})
    as_dict = {"moving": 0.1, "still": 0.1}
    dict_same = run(method, params=PAIR, log_lik=any_shape, **{argument: as_dict})
    other = run(
        method, params=PAIR, log_lik=any_shape, **{argument: as_dict | {"moving": 0.5}}
    )
    np.testing.assert_allclose(
        dict_same["moving"], same["moving"], rtol=1e-5, atol=1e-8
    )
    # The parameters do not meet in this posterior, so only the one with another constant moves
    # in another way.
    np.testing.assert_allclose(other["still"], same["still"], rtol=1e-5, atol=1e-8)
    assert np.abs(other["moving"] - same["moving"]).max() > 1e-4


def test_a_schedule_sees_every_iteration_once_from_one(run: Run) -> None:
    seen: set[int] = set()

    def schedule(iteration: int) -> float:
        seen.add(iteration)
        return 1e-3

    samples = run(stepsize=schedule, burn_in=4, n_iters=6)
    assert min(seen) == 1 and set(range(1, 11)) <= seen
    np.testing.assert_array_equal(samples["theta"], run(burn_in=4, n_iters=6)["theta"])


def test_a_schedule_moves_the_chain_as_it_says(run: Run) -> None:
    """With a flat posterior the increments are sqrt(stepsize) times the normals."""
    flat = {"log_lik": lambda params, dataset: 0.0 * params["theta"], "n_iters": 50}
    plain = np.diff(run(stepsize=1.0, **flat)["theta"])
    decay = sgmcmc.polynomial_decay(1.0, tau=2.0, kappa=0.6)
    decayed = np.diff(run(stepsize=decay, **flat)["theta"])
    expected = (1.0 + np.arange(2, 51) / 2.0) ** -0.6
    np.testing.assert_allclose((decayed / plain) ** 2, expected, rtol=1e-3)


def test_a_schedule_for_one_parameter(run: Run) -> None:
    stepsize = {"still": lambda m: 1e-14, "moving": 1e-2}
    samples = run(params=PAIR, stepsize=stepsize, log_lik=any_shape)
    assert np.abs(samples["still"]).max() < 1e-4 < np.abs(samples["moving"]).max()


def test_a_schedule_that_fails_later_names_the_iteration(run: Run) -> None:
    with pytest.raises(ValueError, match="`stepsize`.*iteration 9.*-1"):
        run(stepsize=lambda m: 1e-3 if m < 9 else -1.0)
