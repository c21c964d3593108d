"""Rung 2: the exact stationary mean and covariance of the discretised chains.

On these models the chains are linear, so the law of (θ, ĝ) at stationarity, discretization error
and minibatch noise included, is known to rounding. Stepsizes and minibatches are such that both
change the law by tens of per cent. Every mean and covariance entry is compared, in standard
errors taken over independent chains, with a bound that all of them together exceed by chance for
one seed in ten thousand; the standard error of a variance is at most 2 % of it.

That chains have their laws follows from the transcriptions, which they are held to to rounding
(``test_steps.py``), and from the Lyapunov equations of the transcriptions here. Draws of the
chains themselves are among the slow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from tests.ladder import (
    BY_NAME,
    DISTINCT,
    LINEAR,
    Array,
    Case,
    Inputs,
    Law,
    LinearProblem,
    check,
    compare,
    every,
    flat,
    gaussian,
    regression,
)

CHAINS, DRAWS, BURN_IN = 40, 5000, 400
PRECISION = 0.02
SIZES = {1: (20, 6), 3: (50, 15), 10: (60, 30)}
"""(N, n) for each dimension."""


def walk(default: Callable[[Case, Any], bool], values: Any) -> pytest.MarkDecorator:
    """Return the mark for every row with every value; those that are not default are slow."""
    rows = [
        pytest.param(
            case, value, marks=() if default(case, value) else pytest.mark.slow
        )
        for case in LINEAR
        for value in values
    ]
    names = [
        f"{case.name}-{getattr(v, '__name__', v)}" for case in LINEAR for v in values
    ]
    return pytest.mark.parametrize(("case", "value"), rows, ids=names)


def stepsize(problem: LinearProblem, share: float) -> Any:
    """Return a stepsize of which the stiffest direction sees ``share``.

    With several parameters each has its own.
    """
    size = share / np.linalg.eigvalsh(problem.precision)[-1]
    factors = np.linspace(1.0, 0.5, len(problem.shapes))
    sizes = dict(zip(problem.shapes, size * factors, strict=True))
    return sizes if len(sizes) > 1 else size


def draw(
    case: Case, problem: LinearProblem, n: int, step: Any, **keywords: Any
) -> Array:
    """Return draws of (θ, ĝ) at stationarity, (chains, draws, 2d)."""
    keywords = {"n_chains": CHAINS, "burn_in": BURN_IN, "n_iters": DRAWS, **keywords}
    samples = case.run(problem, step, n, store_gradients=True, **keywords)
    assert samples.gradients is not None
    return np.concatenate([flat(samples, 2), flat(samples.gradients, 2)], -1)


def compare_with_law(
    case: Case,
    problem: LinearProblem,
    n: int,
    step: Any,
    draws: Array | None = None,
    *,
    replace: bool = False,
    **tuning: Any,
) -> None:
    """Assert that the chain's (θ, ĝ) has its exact mean and covariance."""
    constants = {**case.tuning, **tuning}
    law = Law(problem, case, n, step, tuning=constants, replace=replace)
    assert law.settles(BURN_IN, problem.start)
    if draws is None:
        draws = draw(case, problem, n, step, replace=replace, **tuning)
    check(compare(draws, *law.moments("θg")), PRECISION)


@functools.cache
def sghmc_in_three_dimensions() -> tuple[LinearProblem, Any, Array]:
    """Return the chains of SGHMC that are compared with their own law and with wrong ones."""
    problem = gaussian(3, SIZES[3][0])
    step = stepsize(problem, 0.5)
    return problem, step, draw(BY_NAME["sghmc"], problem, SIZES[3][1], step)


@pytest.mark.slow
@walk(lambda case, d: True, SIZES)
def test_gaussian_model(case: Case, value: int) -> None:
    N, n = SIZES[value]
    problem = gaussian(value, N)
    shared = case.name == "sghmc" and value == 3
    draws = sghmc_in_three_dimensions()[-1] if shared else None
    compare_with_law(case, problem, n, stepsize(problem, 0.5), draws)


@pytest.mark.slow
@walk(lambda case, d: d == 3 and case.centered and case in DISTINCT, [1, 3])
@pytest.mark.some(1)
def test_regression_whose_noise_grows_with_the_distance(case: Case, value: int) -> None:
    problem = regression(value, 60)
    compare_with_law(case, problem, 30, stepsize(problem, 0.4))


@pytest.mark.slow
@walk(lambda case, make: True, [gaussian, regression])
def test_minibatches_with_replacement(
    case: Case, value: Callable[..., LinearProblem]
) -> None:
    problem = value(3, 40)
    compare_with_law(case, problem, 30, stepsize(problem, 0.4), replace=True)


@pytest.mark.slow
@every(LINEAR)
def test_whole_dataset(case: Case) -> None:
    problem = gaussian(3, 30)
    step = stepsize(problem, 1.0)
    law = Law(problem, case, 30, step)
    draws = draw(case, problem, 30, step)[..., :3]
    check(compare(draws, *law.moments("θ")), PRECISION)


@pytest.mark.slow
@every(tuple(case for case in LINEAR if case.friction and not case.centered))
@pytest.mark.parametrize(
    ("friction", "steps"),
    [({"beta": 0.9, "bias": 0.2}, 1), ({"beta": 0.05, "bias": 0.7}, 5)],
    ids=["L=1", "L=5"],
)
def test_friction_for_each_parameter(
    case: Case, friction: dict[str, float], steps: int
) -> None:
    """With as many steps as are said, where an iteration has several."""
    assert case.friction is not None and case.transcription is not None
    tuning: dict[str, Any] = {case.friction: friction}
    if case.transcription.steps is not None:
        tuning[case.transcription.steps] = steps
    problem = gaussian(3, 50)
    compare_with_law(case, problem, 20, stepsize(problem, 0.5), **tuning)


# ------------------------------------------------------------- the theory against itself


@every((*LINEAR, BY_NAME["sghmc-corrected"], BY_NAME["sghmc-euler-corrected"]))
@pytest.mark.parametrize("d", [1, 3])
def test_the_law_solves_the_lyapunov_equation_of_the_transcription(
    case: Case, d: int
) -> None:
    """The moments agree with those of the NumPy transcription taken as a linear map.

    The map is found by feeding unit vectors; its state is (θ, ν, u), u the minibatch noise in the
    gradient that the chain carries.
    """
    problem, n = gaussian(d, 30), 10
    step = stepsize(problem, 0.5)
    inputs, outputs = _linear_map(case, problem, step)
    A, B = outputs[:, : 3 * d], outputs[:, 3 * d :]
    here, there = (problem.h - problem.K @ at for at in (problem.mean, problem.start))
    terms = case.estimator.noisy(here, there)
    noise = problem.size * (problem.size - n) / n * np.atleast_2d(np.cov(terms.T))
    kicks = case.tuning.get("L", 1)
    Q = np.eye(inputs - 3 * d)
    first = inputs - 3 * d - kicks * d
    Q[first:, first:] = np.kron(np.eye(kicks), noise)
    stationary = solve_discrete_lyapunov(A, B @ Q @ B.T)
    mean, covariance = Law(problem, case, n, step).moments("θ")
    np.testing.assert_allclose(covariance, stationary[:d, :d], rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-10)


def _linear_map(case: Case, problem: LinearProblem, step: Any) -> tuple[int, Array]:
    """Return how (θ − mean, ν, u, normals, minibatch noises) goes to the next (θ − mean, ν, u)."""
    assert case.transcription is not None
    d, H, epsilon = problem.dimension, problem.precision, problem.spread(step)
    vectors, kicks = case.transcription.vectors(case.tuning), case.tuning.get("L", 1)
    inputs = d * (3 + vectors + kicks)
    columns = []
    for unit in np.eye(inputs).reshape(inputs, -1, d):
        theta, noises = unit[0], iter([unit[2], *unit[3 + vectors :]])
        given = Inputs(
            theta,
            lambda position, noises=noises: next(noises) - H @ position,
            epsilon,
            case.tuning,
            unit[None, 3 : 3 + vectors],
            unit[1] / np.sqrt(epsilon),
            problem.blocks(),
        )
        *_, last = case.transcription.states(given)
        columns.append(np.concatenate([last.theta, last.nu, unit[-1]]))
    return inputs, np.array(columns).T


@pytest.mark.slow
@every(
    tuple(case for case in LINEAR if not case.centered),
    slow=lambda case: case.transcription is not BY_NAME["sgld"].transcription,
)
def test_the_regression_law_by_simulation_in_numpy(case: Case) -> None:
    """The law with multiplicative noise, against the transcription run on real minibatches."""
    assert case.transcription is not None
    problem, n = regression(1, 12), 6
    step = stepsize(problem, 0.4)
    rng = np.random.default_rng(5)

    def gradient(position: Array) -> Array:
        rows = rng.permutation(12)[:n]
        terms = problem.gradients(position)[rows].sum(0)
        return problem.prior_gradient(position) + 12 / n * terms

    shape = (64_000, case.transcription.vectors(case.tuning), 1)
    chain = case.transcription.chain(
        Inputs(
            problem.start,
            gradient,
            problem.spread(step),
            case.tuning,
            rng.normal(size=shape),
            np.zeros(1),
            problem.blocks(),
        )
    )
    draws = chain[: 64 * 1000].reshape(
        64, 1000, 1
    )  # batches long enough to be independent
    check(compare(draws, *Law(problem, case, n, step).moments("θ")), 0.03)


# ------------------------------------------------------------- the power of the rung


WRONG_LAWS: dict[str, dict[str, Any]] = {
    "friction off by a fifth": {"tuning": {"alpha": 0.32, "L": 3}},
    "one step too many": {"tuning": {"alpha": 0.4, "L": 4}},
    "refreshed with half the variance": {"refresh_variance": 0.5},
    "refreshed with a tenth less": {"refresh_variance": 0.9},
    "minibatches with replacement": {"replace": True},
    "no correction for the finite population": {"replace": True, "ddof": 1},
    "minibatch of three more": {"n": 18},
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG_LAWS.values(), ids=WRONG_LAWS)
def test_wrong_laws_are_rejected(wrong: dict[str, Any]) -> None:
    problem, step, draws = sghmc_in_three_dimensions()
    arguments = {"n": SIZES[3][1], "stepsize": step, **wrong}
    law = Law(problem, BY_NAME["sghmc"], **arguments)
    assert not compare(draws[..., :3], *law.moments("θ")).accepts


def test_the_published_update_has_too_little_variance() -> None:
    """About L/(L + 1) of the posterior's however small ε is."""
    case, problem = BY_NAME["sghmc-euler"], gaussian(3, 50)
    step = 0.01 / np.linalg.eigvalsh(problem.precision)[-1]
    for L in (1, 3, 8):
        law = Law(problem, case, 50, step, tuning={"alpha": 0.01, "L": L})
        ratio = np.diag(law.moments("θ")[1]) / np.diag(problem.covariance)
        np.testing.assert_allclose(ratio, L / (L + 1), rtol=0.05)


@pytest.mark.slow
def test_the_published_update_is_told_from_the_posterior() -> None:
    case, problem = BY_NAME["sghmc-euler"], gaussian(3, 50)
    step = 0.2 / np.linalg.eigvalsh(problem.precision)[-1]
    draws = draw(case, problem, 50, step)[..., :3]
    assert not compare(draws, problem.mean, problem.covariance).accepts


def test_the_symmetric_splitting_tends_to_the_posterior() -> None:
    case, problem = BY_NAME["sghmc"], gaussian(3, 50)
    errors = []
    for share in (0.1, 0.05):
        law = Law(problem, case, 50, stepsize(problem, share))
        errors.append(np.abs(law.moments("θ")[1] / problem.covariance - 1).max())
    assert errors[0] < 0.05
    assert errors[1] < 0.6 * errors[0]


def test_without_refreshment_the_splitting_has_the_posteriors_covariance() -> None:
    """On the whole dataset, whatever the stepsize and the friction."""
    problem = gaussian(3, 50)
    for share, friction in ((0.1, 0.05), (1.0, 0.6), (2.0, 2.0)):
        step = share / np.linalg.eigvalsh(problem.precision)[-1]
        law = Law(
            problem, BY_NAME["underdamped"], 50, step, tuning={"friction": friction}
        )
        np.testing.assert_allclose(law.moments("θ")[1], problem.covariance, rtol=1e-9)
