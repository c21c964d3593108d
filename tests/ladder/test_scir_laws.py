"""SCIR against exact laws: transitions, stationary laws, minibatch noise included."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from scipy.special import gammaln

import sgmcmc
from sgmcmc.dynamics import SCIR
from tests import seams
from tests.ladder import Array, bound
from tests.ladder.categories import (
    ALPHA,
    COUNTS,
    REPLICATES,
    categories,
    check_law,
    log_lik,
    space_of,
)


def scir_moves(
    theta: Array,
    degrees: Array,
    h: float,
    steps: int,
    seed: int,
    dtype: tf.DType = tf.float64,
) -> Array:
    """Return log θ after some moves of the dynamics; ``degrees`` is (steps, size), or constant."""
    dynamics = SCIR(1e-300).bind(space_of({"omega": np.full(theta.shape, 1e-300)}))
    state = dynamics.init(
        tf.constant(np.log(theta), dtype),
        tf.zeros(theta.shape, dtype),
        tf.constant(h, dtype),
        None,
    )._replace(position=tf.constant(np.log(theta), dtype))
    for step in range(steps):
        counts = tf.constant(degrees[step] if degrees.ndim == 2 else degrees, dtype)
        seeds = tf.constant(
            [[seed, dynamics.seeds * step + k] for k in range(dynamics.seeds)]
        )
        state = dynamics.step(state, counts, tf.constant(h, dtype), seeds)
    return state.position.numpy().astype(float)


@pytest.mark.some(6)
@pytest.mark.parametrize("few", [0, 10**6], ids=["by arithmetic", "by TensorFlow"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("theta", "degrees", "h"),
    [
        (1e-8, 0.1, 0.5),
        (0.5, 2.0, 0.1),
        (3.0, 0.7, 2.0),
        (1e3, 500.0, 0.01),
        (1.5, 0.3, 0.5),
        (50.0, 1e-3, 1.0),
    ],
)
def test_a_move_has_the_non_central_chi_squared_law(
    theta: float,
    degrees: float,
    h: float,
    dtype: tf.DType,
    few: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seams.SCIR, seams.changed(seams.SCIR, few=few))
    size = 20_000
    u = scir_moves(np.full(size, theta), np.full(size, degrees), h, 1, 7, dtype)
    law = stats.ncx2(2 * degrees, 2 * theta / np.expm1(h), scale=-np.expm1(-h) / 2)
    assert np.isfinite(u).all()
    # SciPy's distribution function overflows near zero where that is in the far tail.
    check_law(np.exp(u), law, 1e-30 if degrees < 1 else 0.0, 1)


def minibatch_counts(
    rng: np.random.Generator, n: int, replace: bool, shape: tuple[int, ...]
) -> Array:
    """Return how many of a minibatch are of the first category."""
    total = COUNTS.sum()
    if replace:
        return rng.binomial(n, COUNTS[0] / total, shape)
    return rng.hypergeometric(COUNTS[0], total - COUNTS[0], n, shape)


def count_law(n: int, replace: bool) -> Any:
    """Return the law of that number."""
    total = int(COUNTS.sum())
    if replace:
        return stats.binom(n, COUNTS[0] / total)
    return stats.hypergeom(total, int(COUNTS[0]), n)


LAWS = [(1, 0.5, 1, False), (10, 0.3, 1, False), (10, 0.3, 5, True), (4, 1.5, 5, False)]


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize(("moves", "h", "n", "replace"), LAWS)
def test_moments_after_some_moves(moves: int, h: float, n: int, replace: bool) -> None:
    """Corollary 5.4.2: mean and variance of θ_M, the minibatch noise of ĉ included."""
    total, theta0, alpha = COUNTS.sum(), 20.0, ALPHA[0]
    counts = minibatch_counts(np.random.default_rng(1), n, replace, (moves, REPLICATES))
    degrees = alpha + total / n * counts
    theta = np.exp(scir_moves(np.full(REPLICATES, theta0), degrees, h, moves, 5))
    a, spread = alpha + COUNTS[0], (total / n) ** 2 * count_law(n, replace).var()
    decay, decays = np.exp(-h), np.exp(-moves * h)
    mean = theta0 * decays + a * (1 - decays)
    variance = (
        2 * theta0 * (decays - decays**2)
        + a * (1 - decays) ** 2
        + (1 - decays**2) * (1 - decay) / (1 + decay) * spread
    )
    squares = (theta - mean) ** 2
    for found, expected in ((theta, mean), (squares, variance)):
        error = found.std() / np.sqrt(REPLICATES)
        assert abs(found.mean() - expected) < bound(2) * error


@pytest.mark.some(1)
@pytest.mark.parametrize(("moves", "h", "n", "replace"), LAWS[::-1])
def test_moment_generating_function(
    moves: int, h: float, n: int, replace: bool
) -> None:
    """Theorem 5.4.1: E exp(sθ_M), the minibatch noise of ĉ included."""
    total, theta0, alpha = COUNTS.sum(), 6.0, ALPHA[0]
    counts = minibatch_counts(np.random.default_rng(2), n, replace, (moves, REPLICATES))
    degrees = alpha + total / n * counts
    theta = np.exp(scir_moves(np.full(REPLICATES, theta0), degrees, h, moves, 6))
    support, law = np.arange(n + 1), count_law(n, replace)
    for s in (-0.05, -0.3, 0.02):
        log_expected, at = 0.0, s
        for _ in range(moves):  # from the last move to the first
            shrunk = 1 - at * -np.expm1(-h)
            powers = shrunk ** -(alpha + total / n * support)
            log_expected += np.log(np.sum(law.pmf(support) * powers))
            at *= np.exp(-h) / shrunk
        values = np.exp(s * theta)
        error = values.std() / np.sqrt(REPLICATES)
        assert (
            abs(values.mean() - np.exp(log_expected + theta0 * at)) < bound(3) * error
        )


@pytest.mark.some(1)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=["float32", "float64"])
def test_the_marginal_of_the_full_data_chain(dtype: tf.DType) -> None:
    """With n = N θ has the law Gamma(a, 1), for a from 1e-3 to 1e3, and ω is Dirichlet."""
    alpha = np.array([1e-3, 0.1, 0.5, 4.0, 30.0, 1e3])
    counts = np.array([0, 0, 1, 2, 0, 7])
    rows = 4000  # independent of each other, for the counts are the same at every iteration
    chain = sgmcmc.scir(
        log_lik,
        {"z": np.repeat(np.eye(6), counts, axis=0)},
        {"omega": np.full((rows, 6), 1 / 6)},
        3.0,
        alpha=alpha,
        minibatch_size=10,
        n_iters=6,
        thin=6,
        verbose=False,
        seed=11,
        dtype=dtype,
        store_unnormalized=True,
    )
    a = alpha + counts
    theta = chain.unnormalized["omega"][0].astype(float)
    assert np.isfinite(theta).all()
    least = float(np.finfo(dtype.as_numpy_dtype).tiny)
    for k in range(6):
        check_law(theta[:, k], stats.gamma(a[k]), 2 * least, 12)
        omega = chain["omega"][0, :, k].astype(float)
        check_law(omega, stats.beta(a[k], a.sum() - a[k]), 2 * least, 12)
    correlation = stats.spearmanr(theta).statistic[np.triu_indices(6, 1)]
    assert np.abs(correlation * np.sqrt(rows)).max() < bound(15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "replace", "n_iters"),
    [
        (5, True, 1000),
        *((n, replace, 3000) for n, replace in ((2, False), (5, True), (20, True))),
    ],
)
def test_stationary_moments_of_a_minibatch_chain(
    n: int, replace: bool, n_iters: int
) -> None:
    """Mean a and variance a + tanh(h/2) Var ĉ, from the public function, start to end."""
    h, chains = 1.0, 24
    chain = sgmcmc.scir(
        log_lik,
        {"z": categories()},
        {"omega": np.full(4, 0.25)},
        h,
        alpha=ALPHA,
        minibatch_size=n,
        replace=replace,
        burn_in=20,
        n_iters=n_iters,
        n_chains=chains,
        verbose=False,
        seed=3,
        dtype=tf.float64,
        store_unnormalized=True,
    )
    theta = chain.unnormalized["omega"]
    total = COUNTS.sum()
    one = COUNTS / total * (1 - COUNTS / total)
    spread = total**2 / n * one * (1.0 if replace else (total - n) / (total - 1))
    mean = ALPHA + COUNTS
    variance = mean + np.tanh(h / 2) * spread
    for values, expected in ((theta, mean), ((theta - mean) ** 2, variance)):
        estimates = values.mean(1)
        errors = estimates.std(0, ddof=1) / np.sqrt(chains)
        assert (np.abs(estimates.mean(0) - expected) < bound(8, chains) * errors).all()


def test_a_fresh_scale_has_its_law_and_leaves_the_point_alone() -> None:
    """Two parameters of several points each, at a stepsize that moves nothing but the scale."""
    rows, h = 4000, 1e-9
    start = {"a": np.array([0.1, 0.2, 0.7]), "b": np.array([0.4, 0.6])}
    shapes = {name: (rows, len(point)) for name, point in start.items()}
    space = space_of({name: np.full(shape, 0.01) for name, shape in shapes.items()})
    dynamics = SCIR(0.01, fresh_scale=True).bind(space)
    counts = {
        "a": np.tile([0.0, 0.5, 0.2], (rows, 1)),
        "b": np.tile([3.0, 1.0], (rows, 1)),
    }
    u = {
        name: np.log(np.broadcast_to(start[name], shape))
        for name, shape in shapes.items()
    }
    position, slopes = (
        tf.constant(space.layout.join(arrays, np.float64)) for arrays in (u, counts)
    )
    state = dynamics.init(position, slopes, tf.constant(h, tf.float64), None)
    seeds = tf.constant([[9, k] for k in range(dynamics.seeds)])
    after = dynamics.step(state, slopes, tf.constant(h, tf.float64), seeds).position
    for name, u_after in space.layout.split(after).items():
        theta = np.exp(u_after.numpy())
        totals = theta.sum(axis=1)
        a = 0.01 * theta.shape[1] + counts[name][0].sum()
        check_law(totals, stats.gamma(a), 0.0, 2)
        large = totals > 1e-3  # the noise of the move is the root of 2h/θ
        np.testing.assert_allclose(
            theta[large] / totals[large, np.newaxis],
            np.broadcast_to(start[name], theta[large].shape),
            atol=0.01,
        )


@pytest.mark.slow
def test_a_fresh_scale_wants_all_data() -> None:
    """A point that 4 of 100 rows tell of, minibatches of 10, stationary mean of ω₁.

    Given ω and â, ω' is Dirichlet(â + P), where P has the mean Mω, and its sum M, negative binomial
    with size Σâ and probability 1 − e^(−h), does not depend on ω. So the mean of ω₁ is
    E[â₁/(Σâ + M)] / E[Σâ/(Σâ + M)], far from the posterior's a₁/Σa at every h.
    """
    h, seen, replicates, rng = 1.5, np.arange(5), 8000, np.random.default_rng(1)
    law, above, below, M = stats.hypergeom(100, 4, 10), 0.0, 0.0, np.arange(3000)
    for k, probability in zip(seen, law.pmf(seen), strict=True):
        total = 2.0 + 10 * k
        inverse = np.sum(stats.nbinom(total, -np.expm1(-h)).pmf(M) / (total + M))
        above += probability * (1.0 + 10 * k) * inverse
        below += probability * total * inverse
    space = space_of({"omega": np.full((replicates, 2), 1.0)})
    dynamics = SCIR(1.0, fresh_scale=True).bind(space)
    state, step = None, tf.constant(h, tf.float64)
    for move in range(12):
        counts = np.zeros((replicates, 2))
        counts[:, 0] = 10 * law.rvs(replicates, random_state=rng)
        slopes = tf.constant(counts.ravel())
        if state is None:
            state = dynamics.init(
                tf.math.log(tf.fill([2 * replicates], step)), slopes, step, None
            )
        seeds = tf.constant([[move, k] for k in range(dynamics.seeds)])
        state = dynamics.step(state, slopes, step, seeds)
    theta = np.exp(state.position.numpy()).reshape(-1, 2)
    omega = theta[:, 0] / theta.sum(axis=1)
    error = omega.std() / np.sqrt(replicates)
    assert abs(omega.mean() - above / below) < bound(1) * error
    assert abs(above / below - 5 / 6) > 0.15


def two_topics(
    points: Array,
) -> tuple[Array, Array, Array]:
    """Return the documents of a small topic model, and assignments and laws for given topics.

    Two topics of two words with prior Dirichlet(1/2, 1/2), three documents, each of one topic,
    the first with probability 0.3.

    Args:
        points: topics, (..., 2, 2).

    Returns:
        The documents, all assignments, (8, 3), and their probabilities given the topics.
    """
    x, weights = np.array([[4.0, 0.0], [3.0, 1.0], [0.0, 3.0]]), np.array([0.3, 0.7])
    every = np.array(list(itertools.product([0, 1], repeat=3)))
    joint = weights * np.exp(np.einsum("nw,...kw->...nk", x, np.log(points)))
    each = joint / joint.sum(-1, keepdims=True)
    return x, every, np.prod(each[..., np.arange(3), every], axis=-1)


@pytest.mark.parametrize(
    ("fresh_scale", "exact"),
    [(True, True), (False, False)],
)
@pytest.mark.slow
def test_totals_that_vary_want_a_fresh_scale(fresh_scale: bool, exact: bool) -> None:
    """Replicates from the exact posterior, some steps on, with latent variables drawn."""
    replicates, rng = 20_000, np.random.default_rng(5)
    x, every, _ = two_topics(np.full((2, 2), 0.5))
    counts = np.stack([np.stack([x[z == k].sum(0) for k in (0, 1)]) for z in every])
    log_p = gammaln(0.5 + counts).sum((1, 2)) - gammaln(1 + counts.sum(2)).sum(1)
    p = np.exp(log_p) * np.prod(np.array([0.3, 0.7])[every], axis=1)
    p /= p.sum()
    start = rng.gamma(0.5 + counts[rng.choice(8, replicates, p=p)])
    start = np.maximum(start / start.sum(-1, keepdims=True), 1e-30)

    def gibbs(params: Any, minibatch: Any, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        each = tf.einsum("nw,rkw->nrk", minibatch["x"], tf.math.log(params["topics"]))
        first = tf.sigmoid(each[..., 0] - each[..., 1] + np.log(0.3 / 0.7))
        return {
            **minibatch,
            "first": tf.random.stateless_uniform(first.shape, seed) < first,
        }

    def complete(params: Any, minibatch: Any) -> tf.Tensor:
        each = tf.einsum("nw,rkw->nrk", minibatch["x"], tf.math.log(params["topics"]))
        return tf.reduce_sum(tf.where(minibatch["first"], each[..., 0], each[..., 1]))

    chain = sgmcmc.scir(
        complete,
        {"x": x},
        {"topics": start},
        0.2,
        alpha=0.5,
        fresh_scale=fresh_scale,
        gibbs=gibbs,
        minibatch_size=3,
        n_iters=30,
        thin=30,
        seed=1,
        verbose=False,
    )
    given = two_topics(chain["topics"][-1].astype(float))[2]
    error = given.std(0) / np.sqrt(replicates)
    worst = np.max(np.abs(given.mean(0) - p) / error)
    assert worst < bound(8) if exact else worst > 10
