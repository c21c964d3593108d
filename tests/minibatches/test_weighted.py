"""Weighted minibatches: how rows are drawn, the estimates they make, and the laws of their chains.

Each statistical test fails by chance for one seed in ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import sgmcmc
from sgmcmc.data import native
from sgmcmc.engine.kernel import LONGEST_BLOCK
from sgmcmc.gradients import SAGA, SVRG, ControlVariate, Gradient, MinibatchGradient
from sgmcmc.gradients.control_variate import CenteredState
from sgmcmc.gradients.saga import SAGAState
from sgmcmc.minibatches import Weighted, streams
from sgmcmc.run.builder import chosen_stream
from tests import seams
from tests.linear_chains import (
    FALSE_ALARM,
    GRADIENT,
    PROBABILITIES,
    THETA,
    Array,
    Choice,
    Line,
    Moves,
    choices,
    compare_line,
    flat,
    line,
    logistic,
    moved,
    over_all,
    plain_law,
    remade,
    strata,
    variance,
    weights_of,
    whole,
)

# --------------------------------------------------------------------------------- the draws

RNG = np.random.default_rng(9)
SHAPES_OF_P: dict[str, Array] = {
    "one row": np.array([3.0]),
    "two rows": np.array([1.0, 3.0]),
    "two rows, far apart": np.array([1e-12, 1.0]),
    "and the other way": np.array([1.0, 1e-12]),
    "equal": np.ones(1000),
    "uneven": RNG.gamma(0.5, size=1000) + 1e-3,
    "far apart": 10.0 ** RNG.uniform(-12, 0, 1000),
    "rising": np.sort(10.0 ** RNG.uniform(-12, 0, 1000)),
    "falling": np.sort(10.0 ** RNG.uniform(-12, 0, 1000))[::-1],
    "one for nearly all": np.r_[np.full(500, 1e-9), 1.0, np.full(500, 1e-9)],
    "many rows": RNG.exponential(size=100_000),
    "thirds": np.full(3, 1 / 3),
    "tenths": np.full(10, 0.1),
}
each_p = pytest.mark.parametrize("shape", list(SHAPES_OF_P))


def upper(p: Array) -> Array:
    """Return the distribution function, infinite at the end."""
    values = np.cumsum(p / p.sum())
    values[-1] = np.inf
    return values


@each_p
@pytest.mark.parametrize("n", [1, 2, 7, 500])
def test_rows_invert_the_distribution_function(shape: str, n: int) -> None:
    """The rows are those that bisection finds for the same uniform numbers."""
    p, count = SHAPES_OF_P[shape], 50
    rows = Weighted(p).bind(len(p), n).draw(np.random.default_rng(3), count)
    uniforms = (np.random.default_rng(3).random((count, n)) + np.arange(n)) * (1.0 / n)
    assert rows.shape == (count, n) and rows.dtype == np.int32
    np.testing.assert_array_equal(rows, np.searchsorted(upper(p), uniforms, "right"))


class Constant:
    """A generator of one and the same number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self.value)


@each_p
@pytest.mark.parametrize("value", [0.0, 5e-324, 0.5, np.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("n", [1, 2, 3, 500])
def test_rounding_at_the_ends_of_strata(shape: str, value: float, n: int) -> None:
    """The smallest and the largest uniform number there is give rows of the dataset, those that
    bisection finds."""
    p = SHAPES_OF_P[shape]
    generator: Any = Constant(value)
    rows = Weighted(p).bind(len(p), n).draw(generator, 2)
    at = (value + np.arange(n)) * (1.0 / n)
    np.testing.assert_array_equal(
        rows, np.tile(np.searchsorted(upper(p), at, "right"), (2, 1))
    )
    assert rows.min() >= 0 and rows.max() < len(p)


@each_p
@pytest.mark.parametrize("n", [1, 3, 20])
def test_each_row_comes_from_its_own_stratum(shape: str, n: int) -> None:
    """The k-th row lies in the k-th n-th of the probability, so rows rise and those that are drawn
    twice are neighbours."""
    p = SHAPES_OF_P[shape]
    rows = Weighted(p).bind(len(p), n).draw(np.random.default_rng(4), 300)
    above = upper(p)
    below = np.r_[0.0, above[:-1]]
    k = np.arange(n)
    assert (below[rows] < (k + 1) / n).all() and (above[rows] > k / n).all()
    assert (np.diff(rows, axis=1) >= 0).all()


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_frequencies(n: int) -> None:
    """In each stratum rows come as often as their share of it says, one minibatch after another
    independently."""
    count, N = 200_000, len(PROBABILITIES)
    rows = Weighted(PROBABILITIES).bind(N, n).draw(np.random.default_rng(5), count)
    statistic, freedom = 0.0, 0
    for k, chance in enumerate(strata(PROBABILITIES, n)):
        found, possible = np.bincount(rows[:, k], minlength=N), chance > 1e-12
        assert not found[~possible].any()
        expected = count * chance[possible]
        statistic += ((found[possible] - expected) ** 2 / expected).sum()
        freedom += possible.sum() - 1
    assert freedom == 0 or stats.chi2.sf(statistic, freedom) > FALSE_ALARM / 2
    first = rows[:, 0] == rows[0, 0]
    together, share = (first[1:] & first[:-1]).sum(), first.mean()
    error = np.sqrt(count * share**2 * (1 - share**2)) + 1e-9
    assert abs(together - count * share**2) < 6 * error


@pytest.mark.parametrize("factor", [2.0**-700, 0.25, 4.0, 2.0**900])
def test_p_need_not_sum_to_one(factor: float) -> None:
    """Multiples of the same numbers are the same probabilities, however large or small."""
    p = RNG.gamma(2.0, size=100)
    one, other = Weighted(p), Weighted(factor * p)
    np.testing.assert_array_equal(one.p, other.p)
    assert one.to_json() == other.to_json()
    draws = [w.bind(100, 7).draw(np.random.default_rng(1), 100) for w in (one, other)]
    np.testing.assert_array_equal(*draws)
    np.testing.assert_allclose(one.bind(100, 7).weights, p.sum() / (7 * p), rtol=1e-13)


@pytest.mark.parametrize(
    "given",
    [
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        np.array([1, 2, 3], np.int8),
        tf.constant([1.0, 2.0, 3.0]),
    ],
)
def test_p_may_be_any_vector_of_numbers(given: Any) -> None:
    """Lists, tuples, integers and tensors are taken, and what was given can change afterwards."""
    weighted = Weighted(given)
    np.testing.assert_allclose(weighted.p, np.array([1, 2, 3]) / 6, rtol=1e-7)
    if isinstance(given, np.ndarray):
        given[0] = 100
        np.testing.assert_allclose(weighted.p[0], 1 / 6)
    with pytest.raises(ValueError, match="read-only"):
        weighted.p[0] = 0.5


WRONG: dict[str, tuple[Any, str]] = {
    "zero": ([1.0, 0.0], r"`p` must hold positive, finite numbers; p\[1\] is 0"),
    "negative": ([-1.0, 2.0], r"`p` must hold positive, finite numbers; p\[0\] is -1"),
    "nan": ([1.0, np.nan], r"`p` must hold positive, finite numbers; p\[1\] is nan"),
    "infinite": (
        [1.0, np.inf],
        r"`p` must hold positive, finite numbers; p\[1\] is inf",
    ),
    "a matrix": (np.ones((2, 2)), r"`p` must be a vector.*\(2, 2\)"),
    "a number": (1.0, r"`p` must be a vector"),
    "nothing": ([], r"`p` must be a vector"),
    "none": (None, r"`p` must hold a probability"),
    "a string": ("uniform", r"`p` must hold a probability"),
    "strings": (["1", "2"], r"`p` must hold a probability"),
    "ragged": ([[1.0], [1.0, 2.0]], r"`p` must hold a probability"),
    "complex": ([1j, 2.0], r"`p` must hold a probability"),
    "a dict": ({"p": [1.0]}, r"`p` must hold a probability"),
    "never drawn": ([1.0, 1e-20, 1.0], r"`p`: p\[1\] is 5e-21 of the sum"),
    "never drawn at the end": ([1.0, 1e-20], r"`p`: p\[1\] is 1e-20 of the sum"),
    "denormal": ([1.0, 5e-324], r"`p`: p\[1\]"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_what_is_no_p_is_refused(case: str) -> None:
    """Numbers that are no probabilities, and what is no numbers, are refused by name."""
    given, message = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=message):
        Weighted(given)


def test_p_of_another_length_is_refused() -> None:
    """Probabilities for more or fewer rows than the dataset has are refused with both numbers."""
    with pytest.raises(
        ValueError, match=r"`minibatches`: `p` holds 5 probabilities.* 6 obs"
    ):
        logistic(1, 6).chain(minibatches=Weighted(np.ones(5)), minibatch_size=2)


@pytest.mark.slow
def test_other_probabilities_are_another_run_to_a_store(tmp_path: Any) -> None:
    """A store is refused for other probabilities and gone on with for the same."""
    model = logistic(1, 6)
    given: dict[str, Any] = {
        "minibatch_size": 2, "store": tmp_path / "chain", "n_iters": 10, "jit_compile": False
    }  # fmt: skip
    first = model.chain(minibatches=Weighted(PROBABILITIES), **given)
    again = model.chain(minibatches=Weighted(4 * PROBABILITIES), **given)
    np.testing.assert_array_equal(flat(first), flat(again))
    with pytest.raises(ValueError, match="minibatches"):
        model.chain(minibatches=Weighted(PROBABILITIES**2), **given)


# ------------------------------------------------------------------------ over all minibatches


@dataclass
class Estimator:
    """An estimator, its state, and the terms whose sum over the dataset it estimates."""

    gradient: Gradient
    state: Any
    terms: Array


def estimators(model: Any, n: int) -> dict[str, Estimator]:
    """Return every estimator away from where it is exact."""
    here, there = model.origin, model.origin + 0.3
    centered = CenteredState(tf.constant(there), tf.constant(model.full(there)))
    table = model.terms(there)
    table[::2] = model.terms(model.origin - 0.5)[::2]
    seen = SAGAState(tf.constant(table), tf.constant(table.sum(0)))
    change = model.terms(here) - model.terms(there)
    return {
        "minibatch": Estimator(MinibatchGradient(), (), model.terms(here)),
        "cv": Estimator(ControlVariate(1e-3), centered, change),
        "svrg": Estimator(SVRG(), centered, change),
        "saga": Estimator(
            SAGA().bind(whole(model, n)), seen, model.terms(here) - table
        ),
    }


@pytest.mark.some(12)
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("name", ["minibatch", "cv", "svrg", "saga"])
def test_mean_and_variance_over_all_minibatches(
    name: str, n: int, d: int, summed: bool
) -> None:
    """Weighted estimates have the full gradient as their mean and the variance of the strata,
    which is no more than that of independent draws."""
    model = logistic(d, 6, summed=summed)
    each = estimators(model, n)[name]
    found = over_all(each.gradient, each.state, model, model.origin, "weighted", n)
    mean, covariance = found.moments()
    np.testing.assert_allclose(mean, model.full(model.origin), rtol=1e-11, atol=1e-11)
    expected = variance("weighted", each.terms, n)
    np.testing.assert_allclose(covariance, expected, rtol=1e-10, atol=1e-10)
    total = each.terms.sum(0)
    independent = ((each.terms**2 / PROBABILITIES[:, None]).sum(0) - total**2) / n
    assert (np.diag(covariance) <= independent * (1 + 1e-10)).all()


NOT_SUMS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "a mean": tf.reduce_mean,
    "divided by n": lambda terms: tf.reduce_sum(terms) / terms.shape[0],
    "a square": lambda terms: tf.reduce_sum(terms) ** 2 / 10,
    "with a constant": lambda terms: tf.reduce_sum(terms) + 1.0,
    "with a prior": lambda terms: (
        tf.reduce_sum(terms) - 0.3 * terms[0] ** 2 * terms.shape[0]
    ),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", list(NOT_SUMS))
@pytest.mark.parametrize("gradient", ["minibatch", "svrg", "saga"])
def test_what_is_no_sum_over_rows_is_refused(kind: str, gradient: str) -> None:
    """A log-likelihood that is not the sum of what it is of single rows is found out."""
    model = logistic(3, 6)
    wrong = model.__class__(
        lambda params, data: NOT_SUMS[kind](model.log_lik(params, data)),
        **{
            name: getattr(model, name)
            for name in ("log_prior", "data", "start", "terms", "prior")
        },
    )
    with pytest.raises(
        ValueError, match="`log_lik` must be a sum over the observations"
    ):
        wrong.chain(
            minibatches=Weighted(PROBABILITIES), minibatch_size=3, gradient=gradient
        )


def test_what_cannot_be_called_row_by_row_is_told() -> None:
    """A log-likelihood that fails on a single row is refused with what to do."""
    model = logistic(3, 6)

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        return tf.reduce_sum(
            model.log_lik(params, data) * tf.constant([1.0] * 3, tf.float64)[:3]
        )

    def of_three(params: Any, data: Any) -> tf.Tensor:
        tf.ensure_shape(data["y"], (3,))
        return log_lik(params, data)

    wrong = model.__class__(
        of_three, model.log_prior, model.data, model.start, model.terms, model.prior
    )
    with pytest.raises(
        ValueError, match=r"`log_lik` was asked for the terms.*shape \(n,\)"
    ):
        wrong.chain(minibatches=Weighted(PROBABILITIES), minibatch_size=3)


# ------------------------------------------------------------------------------ whole chains


@pytest.mark.some(1)
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_step_by_step(jit_compile: bool, summed: bool) -> None:
    """Plain SGLD with weighted minibatches is a transcription in NumPy, step by step."""
    model, n, stepsize = logistic(3, 6, summed=summed), 3, 0.02
    numbers = remade(model, "weighted", n, iterations=40, length=LONGEST_BLOCK)

    def estimate(theta: Array, rows: Array) -> Array:
        return (
            model.prior(theta)
            + weights_of("weighted", 6, rows) @ model.terms(theta)[rows]
        )

    theta, draws, gradients = model.origin, [], []
    g = estimate(theta, numbers.start_rows)
    for normals, rows in zip(numbers.noise, numbers.rows, strict=True):
        theta = theta + stepsize / 2 * g + np.sqrt(stepsize) * normals[0]
        g = estimate(theta, rows)
        draws.append(theta)
        gradients.append(g)
    chain = model.chain(
        minibatches=Weighted(PROBABILITIES),
        minibatch_size=n,
        stepsize=stepsize,
        store_gradients=True,
        jit_compile=jit_compile,
    )
    np.testing.assert_allclose(flat(chain), draws, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        flat(chain.gradients or {}), gradients, rtol=1e-10, atol=1e-10
    )


def centered_law(problem: Line, n: int, stepsize: float) -> Array:
    """Return E[z zᵀ] of SGLD with control variates centered at the start, z = (1, θ, ĝ)."""
    h, K, prior, H = *problem[1:], problem.total
    center = problem.model.origin[0]

    def drift(z: Array) -> None:
        z[THETA] += stepsize / 2 * z[GRADIENT]

    def estimate(choice: Choice) -> Callable[[Array], Array]:
        slope = prior + choice.weights @ K[choice.rows]

        def change(z: Array) -> None:
            z[GRADIENT] = (h.sum() - H * center) * z[0] - slope * (
                z[THETA] - center * z[0]
            )

        return moved(change)

    one = Moves(3).then([(1.0, moved(drift))]).noise(THETA, stepsize)
    return one.then(
        [(c.chance, estimate(c)) for c in choices("weighted", len(h), n)]
    ).stationary()


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("gradient", ["minibatch", "cv"])
def test_stationary_law(gradient: str) -> None:
    """The variance of SGLD with weighted minibatches is that of its own second moment equation,
    and not that of uniform ones."""
    problem, n, stepsize = line(6), 2, 0.08
    draws = problem.model.chain(
        gradient="minibatch" if gradient == "minibatch" else ControlVariate(1e-3, 0),
        minibatches=Weighted(PROBABILITIES),
        minibatch_size=n,
        stepsize=stepsize,
        n_chains=64,
        burn_in=200,
        n_iters=4000,
    )["theta"]
    uniform = plain_law(problem, "without", n, stepsize)
    plain = gradient == "minibatch"
    law = (
        plain_law(problem, "weighted", n, stepsize)
        if plain
        else centered_law(problem, n, stepsize)
    )
    found = compare_line(draws, law)
    assert found.precision < 0.02, "the run is too short to tell"
    assert found.accepts, found
    assert not compare_line(draws, uniform).accepts


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["minibatch", "svrg", "saga"])
def test_draws_do_not_depend_on_how_the_chain_is_run(
    gradient: str, tmp_path: Any
) -> None:
    """With a store, thinned, stepped or among other chains the draws are the same."""
    model, p = logistic(3, 24), np.linspace(1.0, 4.0, 24)
    given: dict[str, Any] = {
        **{"minibatches": Weighted(p), "minibatch_size": 4, "gradient": gradient},
        **{"n_iters": 60, "jit_compile": False},
    }
    expected = flat(model.chain(**given))
    same = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_array_equal(
        flat(model.chain(**given, store=tmp_path / "a")), expected
    )
    np.testing.assert_allclose(
        flat(model.chain(**given, thin=3)), expected[2::3], **same
    )
    for n_chains in (1, 3):
        several = flat(model.chain(**given, n_chains=n_chains), 2)
        np.testing.assert_allclose(several[0], expected, **same)
    sampler = model.stepwise(**given)
    session = sgmcmc.init_sess(sampler)
    sgmcmc.sgmcmc_step(sampler, session, 25)
    sgmcmc.sgmcmc_step(sampler, session, 35)
    params = sgmcmc.get_params(sampler, session)
    np.testing.assert_allclose(flat(params, 0), expected[-1], **same)


@pytest.mark.slow
@pytest.mark.skipif(not native.callable_by_xla(), reason="no native code here")
@pytest.mark.some(1)
@pytest.mark.parametrize("gradient", ["minibatch", "cv", "saga"])
def test_in_place_as_gathered_ahead(
    gradient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heavy minibatches that several chains gather in place give the draws of minibatches that are
    gathered ahead, weights and rows included."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(300, 40)), rng.normal(size=300)

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        return -0.5 * (data["y"] - tf.linalg.matvec(data["x"], params["beta"])) ** 2

    def sampler(function: Callable[..., Any], **given: Any) -> Any:
        return function(
            log_lik,
            {"x": x, "y": y},
            {"beta": np.zeros(40)},
            lambda params: -0.5 * tf.reduce_sum(params["beta"] ** 2),
            dynamics="sgld",
            gradient=ControlVariate(1e-4, 20) if gradient == "cv" else gradient,
            minibatches=Weighted(np.abs(x).sum(1)),
            minibatch_size=60,
            preconditioner="none",
            stepsize=1e-4,
            n_chains=3,
            seed=1,
            verbose=False,
            dtype=tf.float64,
            **given,
        )

    def path() -> str:
        inner = sampler(sgmcmc.setup)._sampler
        return chosen_stream(inner, inner.chain).path

    assert path() == "in place"
    found = sampler(sgmcmc.sample, n_iters=40, burn_in=0)["beta"]
    settings = streams._Settings(worth_a_call=2**40)
    monkeypatch.setattr(seams.STREAM_SETTINGS, settings)
    assert path() == "gathered ahead"
    expected = sampler(sgmcmc.sample, n_iters=40, burn_in=0)["beta"]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("summed", [False, True])
def test_bijectors_are_a_change_of_parameters(summed: bool) -> None:
    """With weighted minibatches a parameter behind a bijector moves as its logarithm does that a
    user writes out."""
    x = np.random.default_rng(3).normal(0.0, 1.5, 20)

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        terms = -0.5 * (data["x"] / params["scale"]) ** 2 - tf.math.log(params["scale"])
        return tf.reduce_sum(terms) if summed else terms

    given: dict[str, Any] = {
        **{
            "dynamics": "sgld",
            "gradient": "minibatch",
            "minibatches": Weighted(0.5 + np.abs(x)),
        },
        **{
            "minibatch_size": 3,
            "preconditioner": "none",
            "stepsize": 0.02,
            "n_chains": None,
        },
        **{
            "n_iters": 60,
            "burn_in": 0,
            "seed": 1,
            "verbose": False,
            "dtype": tf.float64,
        },
    }
    found = sgmcmc.sample(
        log_lik,
        {"x": x},
        {"scale": 2.0},
        lambda params: -params["scale"],
        bijectors={"scale": tfp.bijectors.Exp()},
        **given,
    )
    expected = sgmcmc.sample(
        lambda params, data: log_lik({"scale": tf.exp(params["log"])}, data),
        {"x": x},
        {"log": np.log(2.0)},
        lambda params: -tf.exp(params["log"]) + params["log"],
        **given,
    )
    np.testing.assert_allclose(found["scale"], np.exp(expected["log"]), rtol=1e-9)
    np.testing.assert_allclose(
        found.log_post.values, expected.log_post.values, rtol=1e-9
    )
