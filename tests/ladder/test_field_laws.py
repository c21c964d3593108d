"""The laws of pSGLD, BADODAB, Barker dynamics and the lattice random walk.

Their updates act on each coordinate by itself, so that one long vector is as many chains.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from scipy.linalg import solve_sylvester

import sgmcmc
from sgmcmc.dynamics import BADODAB, GSGNHT, PSGLD, SMILE, Barker, Dynamics
from sgmcmc.dynamics.momentum import ThermostatState
from sgmcmc.model.geometry import Space
from tests.ladder import BY_NAME, Array, check, compare, flat, gaussian

LIMIT = 4.5
"""Standard errors that a comparison may be off."""


def stationary(
    dynamics: Dynamics,
    epsilon: float,
    noise: float,
    chains: int,
    steps: int,
    start: Array,
) -> Array:
    """Return θ of each chain at the end; the gradient is −θ and normal noise of this variance."""
    bound = dynamics.bind(Space({"theta": (chains,)}))
    stepsize = tf.constant(epsilon, tf.float64)

    def gradient(theta: tf.Tensor, seed: Any) -> tf.Tensor:
        drawn = tf.random.stateless_normal([chains], [3, seed], dtype=tf.float64)
        return -theta + noise**0.5 * drawn

    @tf.function
    def run(theta: tf.Tensor) -> Any:
        g = gradient(theta, 0)
        opening = tf.random.stateless_normal(
            [bound.start_normals, chains], [1, 1], dtype=tf.float64
        )
        state = bound.init(theta, g, stepsize, opening)
        for k in tf.range(1, steps + 1):
            normals = tf.random.stateless_normal(
                [bound.step_normals, chains], [2, k], dtype=tf.float64
            )
            state = bound.step(state, g, stepsize, normals)
            g = gradient(state.position, k)
            state = bound.finish_step(state, g, stepsize)
        return state.position

    return run(tf.constant(start)).numpy()


def check_variance(theta: Array, expected: float, allowance: float = 0.0) -> None:
    """Assert that the mean square of independent draws is as expected."""
    squares = theta**2
    error = squares.std() / np.sqrt(squares.size)
    assert abs(squares.mean() - expected) < LIMIT * error + allowance * expected
    assert error < 0.02 * expected


# ------------------------------------------------------------------------------------- pSGLD


@pytest.mark.slow
def test_frozen_psgld_is_sgld_with_a_stepsize_for_each_coordinate() -> None:
    """Frozen at the first gradient, −θ₀ = −2: ε/(λ + 2), and the variance 1/(1 − εG/4)."""
    chains = 20_000
    dynamics = PSGLD(damping=0.5, until=1)
    theta = stationary(dynamics, 2.0, 0.0, chains, 40, np.full(chains, 2.0))
    check_variance(theta, 1 / (1 - 2.0 / 2.5 / 4))
    # The preconditioner of a wrong coordinate, or none, would be seen.
    assert abs((theta**2).mean() * (1 - 2.0 / 4) - 1) > 0.2


@pytest.mark.slow
def test_the_bias_of_adaptive_psgld() -> None:
    """Without Γ the density is p(θ|x) (λ + √E ĝ²) as ε → 0, here φ(θ) (λ + |θ|)."""
    chains, damping = 10_000, 0.5
    third, first = 2 * np.sqrt(2 / np.pi), np.sqrt(2 / np.pi)
    biased = (damping + third) / (damping + first)
    assert biased > 1.6
    start = np.random.default_rng(1).normal(size=chains)
    adaptive = PSGLD(alpha=0.0, damping=damping, until=None)
    theta = stationary(adaptive, 0.02, 0.0, chains, 1500, start)
    check_variance(theta, biased, 0.01)


@pytest.mark.slow
def test_a_long_memory_makes_the_bias_of_adaptive_psgld_small() -> None:
    """With 1/(1 − α) iterations long against the chain's, V is its mean, and the density right."""
    chains = 8000
    start = np.random.default_rng(1).normal(size=chains)
    theta = stationary(PSGLD(0.999, 0.5, None), 0.2, 0.0, chains, 4000, start)
    check_variance(theta, 1.0, 0.06)


def test_psgld_is_frozen_when_the_burn_in_ends() -> None:
    x = np.random.default_rng(1).normal(size=(50, 2)) * [1.0, 0.1]

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * tf.reduce_sum(((dataset["x"] - params["t"]) / [1.0, 0.1]) ** 2, 1)

    given: dict[str, Any] = {
        "gradient": "minibatch", "minibatches": "uniform", "minibatch_size": 10, "seed": 1,
        "preconditioner": "none", "stepsize": 0.05, "verbose": False, "n_iters": 30,
        "jit_compile": False,
    }  # fmt: skip
    start = {"t": np.zeros(2)}
    named, counted = (
        sgmcmc.sample(log_lik, {"x": x}, start, dynamics=d, burn_in=20, **given)
        for d in ("psgld", PSGLD(until=20))
    )
    np.testing.assert_array_equal(named["t"], counted["t"])
    assert named.settings["dynamics"]["until"] == "burn_in"
    with pytest.raises(ValueError, match="`until`: PSGLD learns"):
        sgmcmc.sample(log_lik, {"x": x}, start, dynamics="psgld", burn_in=0, **given)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (PSGLD(alpha=1.0), "`alpha` must be at least 0"),
        (PSGLD(alpha="x"), "`alpha` must be a number"),  # type: ignore[arg-type]
        (PSGLD(damping=0.0), "`damping` must be positive"),
        (PSGLD(until=0), "`until`"),
        (PSGLD(until="end"), "`until` must be an integer"),
        (BADODAB(a=-1.0), "`a` must be positive"),
        (Barker(noise_variance=-1.0), "`noise_variance` must not be negative"),
        (Barker(noise_variance="much"), "'fisher' or 'extreme'"),
        (Barker(increments="cauchy"), "`increments`"),
    ],
)
def test_wrong_constants_are_refused(part: Dynamics, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        part.bind(Space({"theta": (2,)}))


# ----------------------------------------------------------------------------------- BADODAB


class Each:
    """A layout in which every coordinate is a parameter."""

    def means(self, vector: tf.Tensor) -> tf.Tensor:
        """Return the vector."""
        return vector

    per_coordinate = means


def drift_of_moments(h: float) -> Array:
    """Return what a step changes in the moments of the invariant law, by quadrature.

    In the time of the paper h = √ε, v = ν/h and ξ/h are N(0, 1) and N(A, 1) for one coordinate.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(10)
    weights = weights / weights.sum()
    theta, v, xi, zeta = (g.ravel() for g in np.meshgrid(*[points] * 4))
    weight = np.prod(np.meshgrid(*[weights] * 4), axis=0).ravel()
    A, epsilon = 0.7, tf.constant(h * h, tf.float64)
    dynamics = replace(BADODAB(), a=A * h, layout=Each())
    state = ThermostatState(*map(tf.constant, (theta, h * v, h * (A + xi))))
    state = dynamics.step(state, tf.constant(-theta), epsilon, tf.constant(zeta[None]))
    state = dynamics.finish_step(state, -state.position, epsilon)
    after = (
        state.position.numpy(),
        state.momentum.numpy() / h,
        state.thermostat.numpy() / h - A,
    )

    def moments(theta: Array, v: Array, xi: Array) -> Array:
        functions = [theta**2, v**2, xi, xi**2, theta * v, theta**4, v**2 * xi, v**4]
        return np.array([weight @ f for f in functions])

    return np.abs(moments(*after) - moments(theta, v, xi))


def test_badodab_leaves_its_law_invariant_to_second_order() -> None:
    """As h → 0 one step changes moments by h³, so that the law is right to h²."""
    coarse, fine = drift_of_moments(0.025), drift_of_moments(0.0125)
    assert coarse.max() > 1e-4
    assert (fine < coarse / 7).all()


@pytest.mark.slow
@pytest.mark.parametrize("noise", [pytest.param(0.0, marks=pytest.mark.slow), 20.0])
def test_badodab_absorbs_the_noise_of_gradients(noise: float) -> None:
    """In 10 000 coordinates with one thermostat, which sees the mean of all."""
    chains, epsilon = 10_000, 0.01
    start = np.random.default_rng(1).normal(size=chains)
    theta = stationary(BADODAB(a=0.1), epsilon, noise, chains, 600, start)
    check_variance(theta, 1.0, epsilon)
    if noise:
        held = sgmcmc.dynamics.Underdamped(0.1)
        assert (stationary(held, epsilon, noise, chains, 600, start) ** 2).mean() > 1.8


def test_badodab_is_the_geodesic_thermostat_in_flat_space() -> None:
    rng = np.random.default_rng(2)
    space = Space({"a": (2,), "b": (3,)})
    ours, theirs = BADODAB(0.2).bind(space), GSGNHT(0.2).bind(space)
    draw = lambda *shape: tf.constant(rng.normal(size=shape))  # noqa: E731
    stepsize, first, g = tf.constant(0.1, tf.float64), draw(1, 5), draw(5)
    one, other = (
        d.init(tf.ones(5, tf.float64), g, stepsize, first) for d in (ours, theirs)
    )
    for _ in range(4):
        zeta, after = draw(1, 5), draw(5)
        one = ours.finish_step(ours.step(one, g, stepsize, zeta), after, stepsize)
        other = theirs.finish_step(
            theirs.step(other, g, stepsize, zeta), after, stepsize
        )
        g = after
        for mine, their in zip(one, other, strict=True):
            np.testing.assert_allclose(mine, their, rtol=1e-12)


# ------------------------------------------------------------------------------------ Barker

NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()


def chance(z: Array, g: Array, noise: float, corrected: bool) -> Array:
    """Return the probability of +z, with the noise of the gradient integrated out."""
    ghat = np.asarray(g)[..., None] + np.sqrt(noise) * NODES
    z = np.asarray(z)[..., None]
    left = 1 - (noise if corrected else 0.0) * z**2 / 1.702**2
    p = 1 / (1 + np.exp(-z * ghat / np.sqrt(np.where(left > 0, left, 1))))
    return np.where(left > 0, p, z * ghat > 0) @ NODE_WEIGHTS


def exact_variance(
    epsilon: float, noise: float, corrected: bool, bimodal: bool
) -> float:
    """Return the stationary variance for the gradient −θ, from the kernel on a grid."""
    grid = np.linspace(-7, 7, 351)
    step = grid[None, :] - grid[:, None]
    scaled = step / np.sqrt(epsilon)
    if bimodal:
        size = (stats.norm.pdf((np.abs(scaled) - np.sqrt(0.99)) / 0.1)) / 0.2
    else:
        size = stats.norm.pdf(scaled)
    kernel = (
        2
        * size
        * chance(step, np.broadcast_to(-grid[:, None], step.shape), noise, corrected)
    )
    kernel /= kernel.sum(1, keepdims=True)
    density = stats.norm.pdf(grid)
    for _ in range(400):
        density = density @ kernel
    return float((density * grid**2).sum() / density.sum())


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("noise", "variance", "increments"),
    [
        (3.0, 3.0, "normal"),
        (0.0, 0.0, "normal"),
        (0.0, 0.0, "bimodal"),
        (3.0, 0.0, "normal"),
    ],
)
def test_the_stationary_variance_of_barker(
    noise: float, variance: float, increments: str
) -> None:
    chains, epsilon = 20_000, 0.5
    expected = exact_variance(epsilon, noise, bool(variance), increments == "bimodal")
    start = np.random.default_rng(1).normal(size=chains)
    theta = stationary(Barker(variance, increments), epsilon, noise, chains, 100, start)
    check_variance(theta, expected)


@pytest.mark.parametrize("noise_variance", [0.0, "extreme"])
def test_the_first_moment_of_a_step_of_barker(noise_variance: Any) -> None:
    """By quadrature; without noise E[bz] = E[z tanh(zg/2)], and of the extreme form E|z|."""
    chains, epsilon, g = 200_000, 0.3, 1.4
    rng = np.random.default_rng(3)
    dynamics = Barker(noise_variance).bind(Space({"theta": (chains,)}))
    zeros = tf.zeros(chains, tf.float64)
    state = dynamics.init(zeros, zeros, zeros, zeros)
    moved = dynamics.step(
        state,
        tf.fill([chains], tf.constant(g, tf.float64)),
        tf.constant(epsilon, tf.float64),
        tf.constant(rng.normal(size=(2, chains))),
    ).position.numpy()
    z = np.sqrt(epsilon) * NODES
    expected = NODE_WEIGHTS @ (z * np.tanh(z * g / 2))
    if noise_variance == "extreme":
        expected = np.sqrt(2 * epsilon / np.pi)
    assert abs(moved.mean() - expected) < LIMIT * moved.std() / np.sqrt(chains)
    assert abs((moved**2).mean() / epsilon - 1) < LIMIT * np.sqrt(2 / chains)


def test_the_correction_takes_the_noise_out_of_the_probability() -> None:
    """Within 0.02 while Vz² < k², of an error of up to a tenth without it."""
    z, g = (
        a.ravel() for a in np.meshgrid(np.linspace(0, 0.9, 10), np.linspace(-4, 4, 17))
    )
    exact = 1 / (1 + np.exp(-z * g))
    assert np.abs(chance(z, g, 3.0, True) - exact).max() < 0.02
    assert np.abs(chance(z, g, 3.0, False) - exact).max() > 0.05


def test_barker_estimates_the_noise_of_its_gradients() -> None:
    """From rows with weights N/n: N²/n times the variance of a row, fewer one degree of freedom."""
    parts = np.random.default_rng(1).normal(size=(7, 3))
    dynamics = Barker("fisher").bind(Space({"theta": (3,)}))
    zeros = tf.zeros(3, tf.float64)
    state = dynamics.init(zeros, zeros, zeros, zeros)
    for rows in (parts, 2 * parts):
        state = dynamics.learn(state, tf.constant(rows))
    np.testing.assert_allclose(
        state.variance.mean, 2.5 * 7 * parts.var(0, ddof=1), rtol=1e-12
    )


def test_barker_does_not_diverge_where_sgld_does() -> None:
    theta = stationary(Barker(), 10.0, 0.0, 1000, 200, np.full(1000, 50.0))
    assert np.abs(theta).max() < 60
    sgld = stationary(sgmcmc.dynamics.SGLD(), 10.0, 0.0, 1000, 200, np.full(1000, 50.0))
    assert not (np.abs(sgld) < 1e6).any()


# ----------------------------------------------------------------------- the lattice random walk


def test_the_lattice_walk_has_the_exact_variance_whatever_the_noise() -> None:
    """In independent coordinates, while probabilities are not cut off; that of SGLD is 1.25."""
    theta = stationary(sgmcmc.dynamics.SGLRW(), 0.2, 4.0, 20_000, 80, np.zeros(20_000))
    check_variance(theta, 1.0, 0.002)
    sgld = stationary(sgmcmc.dynamics.SGLD(), 0.2, 4.0, 20_000, 80, np.zeros(20_000))
    assert (sgld**2).mean() > 1.2


@pytest.mark.slow
def test_the_exact_covariance_of_the_lattice_walk() -> None:
    """What coordinates share in gradient and noise moves covariances, and variances with them."""
    problem, n = gaussian(3, 50), 15
    H, V = problem.precision, 50 * 35 / n * np.cov(problem.h.T)
    epsilon = 0.06 / np.linalg.eigvalsh(H)[-1]
    sigma = problem.covariance
    for _ in range(200):
        shared = H @ sigma @ H + V
        np.fill_diagonal(shared, 0.0)
        sigma = solve_sylvester(H / 2, H / 2, np.eye(3) + epsilon / 4 * shared)
    assert np.abs(sigma / problem.covariance - 1).max() > 0.05
    assert (
        2 / np.sqrt(epsilon) > 4.0 * np.sqrt(np.diag(H @ sigma @ H + V)).max()
    )  # not cut off
    draws = BY_NAME["sglrw"].run(
        problem, epsilon, n, n_chains=40, burn_in=400, n_iters=9000
    )
    check(compare(flat(draws, 2), problem.mean, sigma), 0.02)


def test_a_gradient_that_is_not_a_number_ends_the_lattice_walk() -> None:
    dynamics, nan = sgmcmc.dynamics.SGLRW(), tf.constant([np.nan], tf.float64)
    state = dynamics.init(tf.zeros(1, tf.float64), nan, nan, nan)
    moved = dynamics.step(
        state, nan, tf.constant(0.1, tf.float64), tf.zeros((1, 1), tf.float64)
    )
    assert np.isnan(moved.position)


# ------------------------------------------------------------------------------------- SMILE


def smile(
    spread: Array, dynamics: Any, gradient: str = "minibatch"
) -> tuple[Array, float]:
    """Return variances over those of N(0, I/N), of 10 coordinates, and the error of their mean.

    The rows of each coordinate have this spread, so that the noise of its gradient does.
    """
    d, N = 10, 200
    x = np.random.default_rng(1).normal(size=(N, d))
    x = (x - x.mean(0)) / x.std(0, ddof=1) * spread

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2, 1)

    samples = sgmcmc.sample(
        log_lik, {"x": x}, {"theta": np.zeros(d)}, dynamics=dynamics, gradient=gradient,
        minibatches="uniform", preconditioner="none", stepsize=0.02 / N, n_chains=16,
        n_iters=10_000, burn_in=1000, seed=1, verbose=False,
        **({} if gradient == "full" else {"minibatch_size": 40}),
    )  # fmt: skip
    squares = (np.asarray(samples["theta"], float) ** 2).mean(1) * N
    return squares.mean(0), float(squares.mean(1).std(ddof=1) / 4)


@pytest.mark.slow
def test_noise_alike_in_all_coordinates_does_not_bias_smile() -> None:
    """Within 2 %, of second order in the stepsize; underdamped dynamics are at 1.4."""
    found, error = smile(np.ones(10), SMILE())
    assert abs(found.mean() - 1) < LIMIT * error + 0.01
    assert error < 0.005


@pytest.mark.slow
def test_noise_that_is_not_alike_does_unless_coordinates_are_scaled_by_it() -> None:
    spread = np.repeat([0.3, 3.0], 5)
    exact, error = smile(spread, SMILE(), "full")
    assert abs(exact.mean() - 1) < LIMIT * error + 0.01
    biased, _ = smile(spread, SMILE())
    assert biased[:5].max() < 0.6
    assert biased[5:].min() > 1.4
    scaled, _ = smile(spread, SMILE(preconditioned=True))
    assert np.abs(scaled - 1).max() < 0.06


def test_a_single_coordinate_has_no_direction() -> None:
    with pytest.raises(ValueError, match="with a single coordinate there is none"):
        SMILE().bind(Space({"theta": ()}))
