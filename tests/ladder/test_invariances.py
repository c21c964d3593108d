"""Rung 6: what must not change the draws does not change them, and each draw is where it should.

The comparisons are to 1e-5 over a short chain, in the default float32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc import Samples
from tests.ladder import (
    EXACT,
    FIELD,
    IN_TURN,
    LADDER,
    LEARNING,
    PLANE,
    Array,
    Case,
    every,
    flat,
    gaussian,
    logistic,
)

ITERATIONS, ROWS, SMALL = 40, 30, 6
STEPSIZE = 0.01
PROBLEM = logistic(3, ROWS)
MOST = (*LADDER, *IN_TURN, *EXACT, *FIELD, *PLANE, *LEARNING)
WALK = every(
    MOST,
    slow=lambda case: case.name not in ("sgld", "sghmccv"),
)
"""One row of each estimator by default, all dynamics among the slow: they are called alike."""
FEW = every(
    (*LADDER, *IN_TURN, *EXACT),
    slow=lambda case: case.name not in ("sgld", "sghmccv"),
)
"""What is the same code for all."""


def run(case: Case, **keywords: Any) -> Samples:
    """Run a short chain with mode-finding where there is any."""
    keywords = {
        "n_iters": ITERATIONS,
        "n_iters_opt": 30,
        "jit_compile": False,
        **keywords,
    }
    return case.run(PROBLEM, STEPSIZE, SMALL, **keywords)


@cache
def plain(case: Case) -> Samples:
    """Return the chain that the others are compared with."""
    return run(case)


def same(samples: Samples, expected: Samples, pick: slice = slice(None)) -> None:
    """Assert that the draws are those of another chain, up to rounding."""
    assert list(samples) == list(expected)
    for name in expected:
        np.testing.assert_allclose(
            samples[name], expected[name][pick], rtol=1e-5, atol=1e-5
        )


@pytest.mark.slow
@WALK
@pytest.mark.parametrize(("burn_in", "thin"), [(7, 4), (39, 1)])
def test_burn_in_and_thin_are_dropping_and_slicing(
    case: Case, burn_in: int, thin: int
) -> None:
    """Draw i is the state after iteration burn_in + (i + 1) thin."""
    samples = run(case, burn_in=burn_in, thin=thin, n_iters=ITERATIONS - burn_in)
    kept = slice(burn_in + thin - 1, None, thin)
    assert len(samples["beta"]) == (ITERATIONS - burn_in) // thin
    same(samples, plain(case), kept)


@pytest.mark.some(1)
@WALK
def test_what_is_stored_does_not_change_the_draws(case: Case) -> None:
    functions = {
        "square": lambda params: params["beta"] ** 2,
        "sum": lambda params: tf.reduce_sum(params["beta"]) + params["bias"],
    }
    rich = run(
        case, store_gradients=True, test_functions=functions, burn_in=5, n_iters=35
    )
    same(rich, plain(case), slice(5, None))
    beta, bias = rich["beta"], rich["bias"]
    np.testing.assert_allclose(rich.test_functions["square"], beta**2, rtol=1e-5)
    np.testing.assert_allclose(
        rich.test_functions["sum"], beta.sum(1) + bias, rtol=1e-5, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.some(1)
@FEW
def test_what_is_left_out_does_not_change_the_draws(case: Case) -> None:
    functions = {"bias": lambda params: params["bias"]}
    some = run(case, store_params=["beta"], test_functions=functions, thin=2)
    assert list(some) == ["beta"]
    expected = plain(case)
    np.testing.assert_allclose(
        some["beta"], expected["beta"][1::2], rtol=1e-5, atol=1e-5
    )
    values = some.test_functions["bias"]
    np.testing.assert_allclose(values, expected["bias"][1::2], rtol=1e-5, atol=1e-5)


@pytest.mark.some(1)
@FEW
def test_same_seed_same_bits_shown_or_not(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = run(case, verbose=True)
    capsys.readouterr()
    for name, values in plain(case).items():
        np.testing.assert_array_equal(shown[name], values)


@pytest.mark.slow
@pytest.mark.some(1)
@FEW
def test_another_seed_gives_another_chain(case: Case) -> None:
    other = run(case, seed=2)
    for name, values in plain(case).items():
        assert (other[name] != values).all()


@pytest.mark.some(1)
@WALK
def test_a_chain_does_not_depend_on_how_many_there_are(case: Case) -> None:
    two, three = run(case, n_chains=2), run(case, n_chains=3)
    for name, values in plain(case).items():
        np.testing.assert_allclose(two[name][0], values, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(three[name][:2], two[name], rtol=1e-5, atol=1e-5)
        assert (three[name][2] != three[name][1]).all()


@pytest.mark.slow
@pytest.mark.some(1)
@FEW
def test_starts_given_one_by_one(case: Case) -> None:
    """Equal starts in a list are the same as one start for all."""
    start = PROBLEM.split(PROBLEM.start)
    keywords: dict[str, Any] = {"opt_stepsize": 1e-3, "n_iters_opt": 30}
    listed = case.function(
        PROBLEM.log_lik,
        PROBLEM.dataset,
        [start, start],
        STEPSIZE,
        log_prior=PROBLEM.log_prior,
        minibatch_size=SMALL,
        n_iters=ITERATIONS,
        n_chains=2,
        seed=1,
        verbose=False,
        jit_compile=False,
        **case.tuning,
        **case.estimator.arguments(keywords),
    )
    for name, values in plain(case).items():
        np.testing.assert_allclose(listed[name][0], values, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@every(LADDER)
def test_compiled_or_not(case: Case) -> None:
    # Exact dynamics draw within the graph, where XLA has random numbers of its own.
    for compiled in (None, True):
        same(run(case, jit_compile=compiled), plain(case))


@pytest.mark.slow
@every(MOST)
@pytest.mark.parametrize(("burn_in", "thin"), [(9, 1), (9, 4)])
def test_gradients_are_those_at_their_own_draws(
    case: Case, burn_in: int, thin: int
) -> None:
    """With n = N the stored gradient is the exact one at that very draw, in float64."""
    samples = case.run(
        PROBLEM,
        STEPSIZE,
        ROWS,
        burn_in=burn_in,
        thin=thin,
        n_iters=ITERATIONS,
        n_iters_opt=30,
        n_chains=2,
        store_gradients=True,
        dtype=tf.float64,
        jit_compile=False,
    )
    draws, gradients = flat(samples, 2), flat(samples.gradients, 2)
    assert draws.shape == gradients.shape == (2, ITERATIONS // thin, 3)
    np.testing.assert_allclose(
        gradients, _exact_gradients(draws), rtol=1e-10, atol=1e-10
    )


def _exact_gradients(draws: Array) -> Array:
    points = draws.reshape(-1, draws.shape[-1])
    return np.array([PROBLEM.gradient(point) for point in points]).reshape(draws.shape)


@pytest.mark.slow
@WALK
def test_the_control_variate_is_centered_where_the_samples_say(case: Case) -> None:
    """The mode of each chain comes with the exact gradient there."""
    if not case.centered:
        assert plain(case).mode is None
        return
    samples = run(case, n_chains=2, dtype=tf.float64)
    modes, gradients = flat(samples.mode, 1), flat(samples.mode_gradient, 1)
    np.testing.assert_allclose(
        gradients, _exact_gradients(modes), rtol=1e-10, atol=1e-10
    )


@pytest.mark.slow
@every(tuple(case for case in LADDER if not case.centered))
def test_thinning_across_blocks(case: Case) -> None:
    """A chain longer than any block, whose draws straddle the blocks' ends, in float64."""
    problem, n_iters, burn_in, thin = gaussian(1, 20), 10_000, 997, 7
    keywords: dict[str, Any] = {"dtype": tf.float64, "store_gradients": True}
    whole = case.run(problem, 1e-3, 10, n_iters=burn_in + n_iters, **keywords)
    part = case.run(
        problem, 1e-3, 10, n_iters=n_iters, burn_in=burn_in, thin=thin, **keywords
    )
    kept = slice(burn_in + thin - 1, None, thin)
    assert len(part["theta"]) == n_iters // thin
    np.testing.assert_allclose(
        part["theta"], whole["theta"][kept][: n_iters // thin], rtol=1e-6
    )
    np.testing.assert_allclose(
        part.gradients["theta"],
        whole.gradients["theta"][kept][: n_iters // thin],
        rtol=1e-6,
    )
