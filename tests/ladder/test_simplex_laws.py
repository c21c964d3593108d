"""SCIR and SGRLD against exact laws: transitions, stationary laws, minibatch noise included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

import sgmcmc
from sgmcmc.data.minibatch import Minibatch
from sgmcmc.dynamics import SCIR, SGRLD
from sgmcmc.target.geometry import Space
from sgmcmc.target.geometry.simplex import OnSimplex
from sgmcmc.target.layout import Layout
from sgmcmc.target.target import Target
from tests.ladder import FALSE_ALARM, POINTS, Array, Case, bound, every

REPLICATES = 40_000
COUNTS = np.array([12, 5, 3, 0])
ALPHA = np.array([0.1, 0.5, 1.5, 0.3])


def categories() -> Array:
    """Return twenty observations, one-hot."""
    return np.repeat(np.eye(len(COUNTS)), COUNTS, axis=0)


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log-likelihood of categories, for any number of rows of omega."""
    counts = tf.reduce_sum(dataset["z"], 0)
    return tf.reduce_sum(counts * tf.math.log(params["omega"]))


def space_of(alpha: dict[str, Array], shapes: dict[str, tuple[int, ...]] | None = None) -> Space:
    """Return the space of points of the simplex with these concentrations, and of others."""
    geometries = {name: OnSimplex(value) for name, value in alpha.items()}
    return Space(shapes or {name: value.shape for name, value in alpha.items()}, geometries)


def scir_moves(
    theta: Array, degrees: Array, h: float, steps: int, seed: int, dtype: tf.DType = tf.float64
) -> Array:
    """Return log θ after some moves of the dynamics; ``degrees`` is (steps, size), or constant."""
    dynamics = SCIR(1e-300).bind(space_of({"omega": np.full(theta.shape, 1e-300)}))
    state = dynamics.init(
        tf.constant(np.log(theta), dtype), tf.zeros(theta.shape, dtype), tf.constant(h, dtype), None
    )._replace(position=tf.constant(np.log(theta), dtype))
    for step in range(steps):
        counts = tf.constant(degrees[step] if degrees.ndim == 2 else degrees, dtype)
        seeds = tf.constant([[seed, dynamics.seeds * step + k] for k in range(dynamics.seeds)])
        state = dynamics.step(state, counts, tf.constant(h, dtype), seeds)
    return state.position.numpy().astype(float)


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
    monkeypatch.setattr("sgmcmc.dynamics.variates.FEW", few)
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


@pytest.mark.parametrize(("moves", "h", "n", "replace"), LAWS)
def test_moment_generating_function(moves: int, h: float, n: int, replace: bool) -> None:
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
        assert abs(values.mean() - np.exp(log_expected + theta0 * at)) < bound(3) * error


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
        store_unnormalised=True,
    )
    a = alpha + counts
    theta = chain.unnormalised["omega"][0].astype(float)
    assert np.isfinite(theta).all()
    least = float(np.finfo(dtype.as_numpy_dtype).tiny)
    for k in range(6):
        check_law(theta[:, k], stats.gamma(a[k]), 2 * least, 12)
        omega = chain["omega"][0, :, k].astype(float)
        check_law(omega, stats.beta(a[k], a.sum() - a[k]), 2 * least, 12)
    correlation = stats.spearmanr(theta).statistic[np.triu_indices(6, 1)]
    assert np.abs(correlation * np.sqrt(rows)).max() < bound(15)


def check_law(draws: Array, law: Any, least: float, tests: int) -> None:
    """Compare draws with a law on the part that floating point numbers can tell from zero."""
    below = law.cdf(least) if least else 0.0
    above, p = draws > least, 1.0 - below
    assert abs(above.mean() - p) <= bound(tests) * np.sqrt(p * (1 - p) / len(draws)) + 1e-12
    conditional = stats.kstest(draws[above], lambda x: (law.cdf(x) - below) / p)
    assert conditional.pvalue > FALSE_ALARM / tests


@pytest.mark.parametrize(("n", "replace"), [(2, False), (5, True), (20, True)])
def test_stationary_moments_of_a_minibatch_chain(n: int, replace: bool) -> None:
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
        n_iters=3000,
        n_chains=chains,
        verbose=False,
        seed=3,
        dtype=tf.float64,
        store_unnormalised=True,
    )
    theta = chain.unnormalised["omega"]
    total = COUNTS.sum()
    one = COUNTS / total * (1 - COUNTS / total)
    spread = total**2 / n * one * (1.0 if replace else (total - n) / (total - 1))
    mean = ALPHA + COUNTS
    variance = mean + np.tanh(h / 2) * spread
    for values, expected in ((theta, mean), ((theta - mean) ** 2, variance)):
        estimates = values.mean(1)
        errors = estimates.std(0, ddof=1) / np.sqrt(chains)
        assert (np.abs(estimates.mean(0) - expected) < bound(8, chains) * errors).all()


def test_generator_of_sgrld() -> None:
    """E_π[Lf] = 0 with the drift of the chain, on exact draws of θ = S ω."""
    rng, size = np.random.default_rng(4), 400_000
    omega = rng.dirichlet(ALPHA + COUNTS, size)
    theta = rng.gamma(ALPHA.sum(), size=(size, 1)) * omega
    space = space_of({"omega": np.broadcast_to(ALPHA, theta.shape)})
    counts = np.broadcast_to(COUNTS, theta.shape).ravel().astype(float)
    with np.errstate(divide="ignore"):
        u = np.maximum(np.log(theta), -700.0)
    drift = SGRLD(ALPHA).bind(space).drift(tf.constant(u.ravel()), tf.constant(counts)).numpy()
    drift = drift.reshape(theta.shape)
    first, second = theta[:, 0], theta[:, 1]
    everything = np.exp(-theta.sum(1))
    generated = {
        "θ": drift / 2,
        "θ²": theta * drift + theta,
        "θ₁θ₂": (drift[:, 0] * second + drift[:, 1] * first) / 2,
        "exp(−Σθ)": everything * (theta.sum(1) - drift.sum(1)) / 2,
    }
    for name, values in generated.items():
        values = values.reshape(size, -1)
        errors = values.std(0) / np.sqrt(size)
        assert (np.abs(values.mean(0)) < bound(10) * errors).all(), name
    wrong = theta * drift / 2  # the published drift has a factor θ too many
    assert (np.abs(wrong.mean(0)) > bound(4) * wrong.std(0) / np.sqrt(size)).any()


def test_a_step_of_sgrld_against_its_transcription() -> None:
    rng = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {"mu": (3,), "omega": (2, 4), "rho": (5,)}
    layout = Layout(shapes)
    alpha = {name: rng.uniform(0.1, 2.0, shapes[name]) for name in ("omega", "rho")}
    dynamics = SGRLD(alpha).bind(space_of(alpha, shapes))
    position, normals = rng.normal(size=(2, layout.size))
    gradient = rng.uniform(0.0, 9.0, layout.size)
    h = rng.uniform(0.01, 0.1, layout.size)
    state = dynamics.init(*map(tf.constant, (position, gradient, h, normals[None])))
    state = state._replace(position=tf.constant(position))
    moved = dynamics.step(state, *map(tf.constant, (gradient, h, normals[None])))
    parts = [layout.split(v) for v in (position, gradient, h, normals)]
    found = layout.split(moved.position.numpy())
    for name in shapes:
        at, g, step, noise = (part[name] for part in parts)
        if name == "mu":
            expected = at + step / 2 * g + np.sqrt(step) * noise
        else:
            theta = np.exp(at)
            omega = theta / theta.sum(-1, keepdims=True)
            drift = alpha[name] - theta + g - omega * g.sum(-1, keepdims=True)
            expected = np.log(np.abs(theta + step / 2 * drift + np.sqrt(step * theta) * noise))
        np.testing.assert_allclose(found[name], expected, rtol=1e-12, atol=1e-12)


@every(POINTS)
def test_the_start_is_at_the_scale_of_the_first_minibatch(case: Case) -> None:
    """θ = ω Σâ, or theta0: with a stepsize next to nothing the first draw is the start."""
    omega = np.array([0.4, 0.3, 0.2, 0.1])
    given = {"alpha": ALPHA, "n_iters": 1, "minibatch_size": 4, "dtype": tf.float64}
    arguments = (log_lik, {"z": categories()}, {"omega": omega}, 1e-14)
    call = case.function
    chain = call(*arguments, **given, verbose=False, store_unnormalised=True)
    theta = chain.unnormalised["omega"][0]
    np.testing.assert_allclose(theta, omega * (ALPHA.sum() + COUNTS.sum()), rtol=1e-5)
    np.testing.assert_allclose(chain["omega"][0], omega, rtol=1e-5)
    theta0 = {"omega": np.array([7.0, 1.0, 1.0, 2.0])}
    chain = call(*arguments, **given, verbose=False, store_unnormalised=True, theta0=theta0)
    np.testing.assert_allclose(chain.unnormalised["omega"][0], theta0["omega"], rtol=1e-5)


def test_expected_counts_of_a_mixture() -> None:
    """Fisher's identity: ω ∂log_lik/∂ω is the expected number in each component."""
    rng = np.random.default_rng(6)
    density = rng.uniform(size=(30, 4))
    omega = rng.dirichlet(np.ones(4))
    target = Target(
        lambda params, data: tf.reduce_sum(
            tf.math.log(tf.linalg.matvec(data["f"], params["omega"]))
        ),
        None,
        space_of({"omega": np.ones(4)}),
        tf.float64,
    )
    minibatch = Minibatch({"f": tf.constant(density)}, 2.5)
    counts = target.gradient(tf.constant(np.log(omega)), minibatch)
    weights = omega * density
    expected = 2.5 * (weights / weights.sum(1, keepdims=True)).sum(0)
    np.testing.assert_allclose(counts, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=["float32", "float64"])
def test_expected_counts_where_a_component_is_next_to_nothing(dtype: tf.DType) -> None:
    target = Target(log_lik, None, space_of({"omega": np.ones(4)}), dtype)
    u = tf.constant([0.0, 1.0, np.log(1e-30), -20_000.0], dtype)
    counts = target.gradient(u, Minibatch({"z": tf.constant(categories(), dtype)}, 50.0))
    np.testing.assert_allclose(counts, 50.0 * COUNTS, rtol=1e-6)
    omega = target.space.constrain(u)["omega"].numpy()
    np.testing.assert_allclose(omega[2], 1e-30 / (1 + np.e), rtol=1e-4)
    assert (omega > 0).all()


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=["float32", "float64"])
@every(POINTS)
@pytest.mark.parametrize(
    "n_iters", [2000, pytest.param(100_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_a_tiny_alpha_never_becomes_nan(case: Case, dtype: tf.DType, n_iters: int) -> None:
    """And no component sticks: those without counts leave zero again."""
    chain = case.function(
        log_lik,
        {"z": np.repeat(np.eye(6), [800, 100, 99, 1, 0, 0], axis=0)},
        {"omega": np.full(6, 1 / 6)},
        0.5 if case.name == "scir" else 0.01,
        alpha=1e-4,
        minibatch_size=10,
        n_iters=n_iters,
        verbose=False,
        seed=2,
        dtype=dtype,
        store_unnormalised=True,
    )
    for draws in (chain["omega"], chain.unnormalised["omega"]):
        assert np.isfinite(draws).all()
    np.testing.assert_allclose(chain["omega"].sum(-1), 1.0, rtol=1e-5)
    if case.name == "scir":  # the category with one observation, which most minibatches lack
        rare = chain["omega"][:, 3]
        assert rare.min() < 1e-30 and rare[-1000:].max() > 1e-3


def full_data_chain(n_iters: int) -> sgmcmc.Samples:
    """Return a short SCIR chain in double precision, with its gradients."""
    return sgmcmc.scir(
        log_lik,
        {"z": categories()},
        {"omega": np.full(4, 0.25)},
        0.5,
        alpha=ALPHA,
        minibatch_size=20,
        n_iters=n_iters,
        verbose=False,
        dtype=tf.float64,
        store_gradients=True,
    )


def test_gradient_kept_for_the_simplex() -> None:
    """With respect to u = log θ: â − ωΣâ, of mean zero over the posterior."""
    chain = full_data_chain(20)
    a = ALPHA + COUNTS
    expected = a - chain["omega"] * a.sum()
    np.testing.assert_allclose(chain.gradients["omega"], expected, rtol=1e-6, atol=1e-10)


def test_zero_variance_makes_the_mean_of_a_dirichlet_posterior_exact() -> None:
    chain = full_data_chain(200)
    a = ALPHA + COUNTS
    with pytest.warns(UserWarning, match="1 of 4 directions"):  # gradients sum to zero
        corrected = sgmcmc.zero_variance(chain).mean["omega"]
    np.testing.assert_allclose(corrected, a / a.sum(), rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="of the simplex"):
        sgmcmc.zero_variance(chain, degree=2)
    with pytest.raises(ValueError, match="of the simplex"):
        sgmcmc.ksd(chain)


def test_the_log_posterior() -> None:
    """log_prior + (N/n) log_lik + Σ alpha log ω."""
    chain = full_data_chain(20)
    expected = special.xlogy(ALPHA + COUNTS, chain["omega"][-1]).sum()
    np.testing.assert_allclose(chain.log_post.values[-1], expected, rtol=1e-9)
