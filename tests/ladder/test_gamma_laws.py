"""SCIR for gamma parameters, and with differences of counts, against exact laws."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import sgmcmc
from sgmcmc.data.dataset import Minibatch
from sgmcmc.dynamics import SCIR
from sgmcmc.gradients import SVRG
from sgmcmc.gradients.control_variate import CenteredState
from sgmcmc.model.geometry import Space
from sgmcmc.model.geometry.gamma import OnHalfLine, OnSimplex
from sgmcmc.model.target import Target
from tests.ladder import Array, bound
from tests.ladder.categories import REPLICATES, check_law

Tensors = dict[str, tf.Tensor]


def seeds_of(dynamics: SCIR, seed: int) -> tf.Tensor:
    return tf.constant([[seed, k] for k in range(dynamics.seeds)])


# ------------------------------------------------------------------------------ one transition


@pytest.mark.some(3)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("start", "count", "exposure", "unit", "h"),
    [
        (0.5, 2.0, 3.0, 3.0, 0.1),
        (1e-6, 0.0, 40.0, 80.0, 1.0),
        (20.0, 300.0, 9.0, 2.0, 0.5),
        (2.0, -1.5, 3.0, 4.0, 0.7),
        (2.0, 1.0, -0.5, 1.0, 0.7),
        (1e-60, 0.0, 3.0, 3.0, 0.5),
    ],
    ids=[
        "plain",
        "no count",
        "slow clock",
        "negative count",
        "negative exposure",
        "next to zero",
    ],
)
def test_a_move_of_a_gamma_parameter(
    start: float, count: float, exposure: float, unit: float, h: float, dtype: tf.DType
) -> None:
    """Non-central χ² with a and b = rate + e over a time h/b̄; what is negative changes sides."""
    size, shape, rate = 20_000, 0.4, 0.2
    prior = OnHalfLine(np.full(size, shape), np.full(size, rate))
    dynamics = SCIR(gamma={}).bind(Space({"rate": (size,)}, {"rate": prior}))
    slopes = np.concatenate([np.full(size, count), np.full(size, exposure)])
    position = np.concatenate(
        [np.full(size, np.log(start)), np.full(size, np.log(unit))]
    )
    state = dynamics.init(
        *(tf.constant(v, dtype) for v in (position, slopes)),
        tf.constant(h, dtype),
        None,
    )._replace(position=tf.constant(position, dtype))
    state = dynamics.step(
        state, tf.constant(slopes, dtype), tf.constant(h, dtype), seeds_of(dynamics, 7)
    )
    u, log_unit = np.split(state.position.numpy().astype(float), 2)
    a = shape + max(count, 0.0) + max(-exposure, 0.0) * start
    b = rate + max(exposure, 0.0) + max(-count, 0.0) / start
    time = b * h / unit
    law = stats.ncx2(
        2 * a, 2 * b * start / np.expm1(time), scale=-np.expm1(-time) / (2 * b)
    )
    check_law(np.exp(u), law, 1e-30 if a < 1 else 0.0, 1)
    # The clock's rate is the mean of the first log b̂, before this step, and this step's.
    np.testing.assert_allclose(log_unit, (np.log(unit) + np.log(b)) / 2, rtol=1e-5)


@pytest.mark.parametrize("place", [0, 1], ids=["counts", "exposures"])
def test_what_is_not_a_number_stays_so(place: int) -> None:
    """So that the chain stops and says where."""
    prior = OnHalfLine(np.ones(2), np.ones(2))
    dynamics = SCIR(gamma={}).bind(Space({"rate": (2,)}, {"rate": prior}))
    slopes = np.ones(4)
    state = dynamics.init(*map(tf.constant, (np.zeros(4), slopes, 0.1, 0.0)))
    slopes[2 * place] = np.nan
    h, seeds = tf.constant(0.1, tf.float64), seeds_of(dynamics, 1)
    moved = dynamics.step(state, tf.constant(slopes), h, seeds)
    assert np.isnan(moved.position.numpy()[0])
    assert np.isfinite(moved.position.numpy()[[1, 3]]).all()


@pytest.mark.some(1)
@pytest.mark.parametrize("theta", [0.3, 5.0])
def test_a_negative_difference_of_counts_acts_as_a_rate(theta: float) -> None:
    """a = alpha, b = 1 + |ĉ|/θ: the drift a − bθ is alpha + ĉ − θ."""
    size, alpha, count, h = 20_000, 0.7, -2.5, 0.4
    space = Space({"omega": (size,)}, {"omega": OnSimplex(np.full(size, alpha))})
    dynamics = SCIR(alpha, differences=True).bind(space)
    state = dynamics.init(
        tf.fill([size], tf.constant(np.log(theta), tf.float64)),
        tf.zeros([size], tf.float64), tf.constant(h, tf.float64), None,
    )._replace(position=tf.fill([size], tf.constant(np.log(theta), tf.float64)))  # fmt: skip
    counts = tf.fill([size], tf.constant(count, tf.float64))
    moved = dynamics.step(
        state, counts, tf.constant(h, tf.float64), seeds_of(dynamics, 3)
    )
    b = 1 - count / theta
    law = stats.ncx2(
        2 * alpha, 2 * b * theta / np.expm1(b * h), scale=-np.expm1(-b * h) / (2 * b)
    )
    check_law(np.exp(moved.position.numpy()), law, 1e-30, 1)


# --------------------------------------------------------------------------- counts, exposures


def hierarchy(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return a Poisson log-likelihood of products and sums, and a normal one with a variance."""
    product = params["w"][:, None] * params["w"]
    mixed = tf.linalg.matvec(dataset["f"], params["w"])
    return (
        tf.reduce_sum(dataset["m"] * tf.math.log(product)) - tf.reduce_sum(product)
        + tf.reduce_sum(dataset["y"] * tf.math.log(mixed) - mixed)
        + tf.reduce_sum(-0.5 * tf.math.log(params["v"]) - 0.5 * dataset["y"] ** 2 / params["v"])
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=["float32", "float64"])
def test_counts_and_exposures(dtype: tf.DType) -> None:
    """Of products both are right, of sums the counts are expected ones, of a variance those of
    its inverse; and c − eλ is λ ∂log_lik."""
    rng = np.random.default_rng(1)
    data = {"m": rng.poisson(2.0, (3, 3)), "f": rng.uniform(size=(4, 3))}
    data["y"] = rng.poisson(3.0, 4)
    w, v = rng.uniform(0.2, 2.0, 3), 2.3
    one = np.ones(())
    geometries = {
        "w": OnHalfLine(np.ones(3), np.ones(3)),
        "v": OnHalfLine(one, one, -1.0),
    }
    space = Space({"w": (3,), "v": ()}, geometries)
    target = Target(hierarchy, None, space, dtype)
    position = tf.constant(space.start({"w": w, "v": np.asarray(v)}, dtype), dtype)
    columns = {name: tf.constant(value, dtype) for name, value in data.items()}
    slopes = space.layout.split(
        target.gradient(position, Minibatch(columns, 2.0)).numpy()
    )
    expected = w * data["f"] / (data["f"] @ w)[:, None]
    counts = data["m"].sum(0) + data["m"].sum(1) + data["y"] @ expected
    exposures = 2 * w.sum() + data["f"].sum(0)
    rounding = 1e-5 if dtype is tf.float32 else 1e-12
    np.testing.assert_allclose(slopes["w"][0], 2 * counts, rtol=rounding)
    np.testing.assert_allclose(slopes["w"][1], 2 * exposures, rtol=20 * rounding)
    of_variance = [2 * 0.5 * 4, 2 * 0.5 * (data["y"] ** 2).sum()]
    np.testing.assert_allclose(slopes["v"], of_variance, rtol=20 * rounding)
    np.testing.assert_allclose(space.constrain(position)["v"], v, rtol=1e-6)


# ---------------------------------------------------------------------------- stationary laws

Y = np.array([3.0, 0.0, 7.0, 2.0, 5.0])
T = np.array([0.5, 1.5, 2.5, 0.7, 1.0])


def rates(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the log-likelihood of counts with exposures, for any number of rates."""
    rate = params["rate"]
    counts, exposures = tf.reduce_sum(dataset["y"]), tf.reduce_sum(dataset["t"])
    return tf.reduce_sum(counts * tf.math.log(rate) - exposures * rate)


def test_full_data_chains_have_the_posterior_at_any_stepsize() -> None:
    """Gamma parameters, a power of one, a point of the simplex and a free parameter together."""
    rows, z = 3000, np.repeat(np.eye(2), [4, 1], axis=0)
    shapes, prior_rates = np.array([0.1, 2.0, 40.0]), np.array([1.0, 0.5, 3.0])

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        half = 0.5 * tf.reduce_sum(dataset["y"] ** 2)
        n = tf.cast(tf.shape(dataset["y"])[0], half.dtype)
        variance = params["v"]
        return (
            rates(params, dataset)
            + tf.reduce_sum(-0.5 * n * tf.math.log(variance) - half / variance)
            + tf.reduce_sum(
                tf.reduce_sum(dataset["z"], 0) * tf.math.log(params["omega"])
            )
        )

    chain = sgmcmc.scir(
        log_lik,
        {"y": Y, "t": T, "z": z},
        {
            "rate": np.ones((rows, 3)),
            "mu": 0.0,
            "omega": np.full((rows, 2), 0.5),
            "v": np.ones(rows),
        },
        {"rate": 3.0, "mu": 0.1, "omega": 3.0, "v": 3.0},
        lambda params: -0.5 * params["mu"] ** 2,
        minibatch_size=5,
        alpha={"omega": 0.5},
        gamma={"rate": (shapes, prior_rates), "v": (3.0, 2.0, -1)},
        n_iters=7,
        thin=7,
        seed=5,
        verbose=False,
    )
    for k in range(3):
        law = stats.gamma(shapes[k] + Y.sum(), scale=1 / (prior_rates[k] + T.sum()))
        check_law(chain["rate"][0, :, k].astype(float), law, 0.0, 5)
    law = stats.invgamma(3.0 + 2.5, scale=2.0 + 0.5 * (Y**2).sum())
    check_law(chain["v"][0].astype(float), law, 0.0, 5)
    check_law(chain["omega"][0, :, 0].astype(float), stats.beta(4.5, 1.5), 0.0, 5)


def moments_of_minibatches(
    a: Array, b: Array, h: float, unit: float
) -> tuple[float, float]:
    """Return the stationary mean and variance where â and b̂ are drawn again for each step.

    λ' has the mean Dλ + (1 − D) â/b̂ and the variance 2λD(1 − D)/b̂ + â(1 − D)²/b̂², D = e^(−b̂h/b̄).
    """
    d = np.exp(-b * h / unit)
    mean = ((1 - d) * a / b).mean() / (1 - d).mean()
    linear = (2 * d * (1 - d) * (1 + a) / b).mean()
    second = (mean * linear + ((1 - d) ** 2 * (a + a**2) / b**2).mean()) / (
        1 - d**2
    ).mean()
    return mean, second - mean**2


@pytest.mark.slow
@pytest.mark.parametrize(
    "noisy", [False, True], ids=["known exposure", "noisy exposure"]
)
def test_stationary_moments_with_minibatches(noisy: bool) -> None:
    """Mean and variance, enumerated over all minibatches, from the public function."""
    h, n, chains, shape, rate = 0.8, 2, 12, 1.5, 0.5
    t = T if noisy else np.ones(5)
    every = np.array(list(combinations(range(5), n)))
    a, b = shape + 2.5 * Y[every].sum(1), rate + 2.5 * t[every].sum(1)
    mean, variance = moments_of_minibatches(a, b, h, np.exp(np.log(b).mean()))
    if not noisy:  # the formula of the docs, that of points of the simplex over b²
        np.testing.assert_allclose(
            variance, (a.mean() + np.tanh(h / 2) * a.var()) / b[0] ** 2
        )
        np.testing.assert_allclose(mean, a.mean() / b[0])
    chain = sgmcmc.scir(
        rates,
        {"y": Y, "t": t},
        {"rate": np.full(4, 2.0)},
        h,
        gamma={"rate": (shape, rate)},
        minibatch_size=n,
        n_chains=chains,
        burn_in=200,
        n_iters=1600,
        seed=2,
        verbose=False,
        dtype=tf.float64,
    )
    draws = chain["rate"]
    # The four rates of a chain see the same minibatches, so chains are what is independent.
    for values, expected in ((draws, mean), ((draws - mean) ** 2, variance)):
        estimates = values.mean((1, 2))
        error = estimates.std(ddof=1) / np.sqrt(chains)
        assert error < 0.04 * expected, "the run is too short to tell"
        assert abs(estimates.mean() - expected) < bound(2, chains) * error


@pytest.mark.slow
def test_a_hierarchy_in_turn_is_exact_at_any_stepsize() -> None:
    """y ~ Poisson(λ_j), λ_j ~ Gamma(a, β), β ~ Gamma(2, 1), against quadrature over β.

    The rows of the parameters are hierarchies of their own, independent of each other.
    """
    counts, n, shape, rows = np.array([0.0, 3.0, 9.0]), 2.0, 1.5, 500

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        rate = params["rates"]
        return tf.reduce_sum(dataset["y"][:, None] * tf.math.log(rate) - rate)

    def log_prior(params: Tensors) -> tf.Tensor:
        beta, totals = params["beta"], tf.reduce_sum(params["rates"], 1)
        return tf.reduce_sum(3 * shape * tf.math.log(beta) - beta * totals)

    chain = sgmcmc.scir(
        log_lik,
        {"y": np.stack([counts, 0 * counts])},
        {"rates": np.ones((rows, 3)), "beta": np.ones(rows)},
        1.0,
        log_prior,
        gamma={"rates": (shape, 0.0), "beta": (2.0, 1.0)},
        minibatch_size=2,
        burn_in=100,
        n_iters=200,
        updates="in_turn",
        seed=3,
        verbose=False,
        dtype=tf.float64,
    )
    beta = np.linspace(1e-4, 40.0, 400_000)
    log_p = (1 + 3 * shape) * np.log(beta) - beta
    log_p -= (shape * 3 + counts.sum()) * np.log(beta + n)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    a, rate = shape + counts[2], beta + n
    expected = {
        "beta": np.array([p @ beta, p @ beta**2]),
        "last": np.array([a * (p @ (1 / rate)), a * (a + 1) * (p @ rate**-2)]),
    }
    for name, draws in (("beta", chain["beta"]), ("last", chain["rates"][:, :, 2])):
        estimates = np.stack([draws.mean(0), (draws**2).mean(0)], 1)
        errors = estimates.std(0, ddof=1) / np.sqrt(rows)
        assert (errors < 0.03 * expected[name]).all(), "the run is too short to tell"
        assert (
            np.abs(estimates.mean(0) - expected[name]) < bound(4, rows) * errors
        ).all()


# ------------------------------------------------------------- control variates for the counts


@pytest.mark.slow
def test_control_variates_save_all_the_noise_of_known_counts() -> None:
    """Var θ = a in place of a + tanh(h/2) Var ĉ, here half as much again; that of a rate too."""
    h, chains = 1.0, 12
    z = np.repeat(np.eye(2), [14, 6], axis=0)

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        counts = tf.reduce_sum(dataset["z"], 0)
        logs = tf.math.log(params["omega"])
        rate = params["rate"]
        return (
            tf.reduce_sum(counts * logs)
            + counts[0] * tf.math.log(rate)
            - counts[1] * rate
        )

    chain = sgmcmc.sample(
        log_lik,
        {"z": z},
        {"omega": np.full(2, 0.5), "rate": 1.0},
        dynamics=SCIR({"omega": 0.5}, None, True, gamma={"rate": (1.0, 1.0)}),
        gradient="svrg",
        minibatches="uniform",
        minibatch_size=4,
        preconditioner="none",
        stepsize=h,
        n_chains=chains,
        n_iters=800,
        burn_in=50,
        seed=4,
        verbose=False,
        dtype=tf.float64,
    )
    assert chain.unnormalized is not None
    a = np.array([14.5, 6.5])
    found = {
        "θ": (chain.unnormalized["omega"], a, a),
        "λ": (chain["rate"], 15 / 7, 15 / 49),
    }
    for name, (draws, mean, variance) in found.items():
        for values, expected in ((draws, mean), ((draws - mean) ** 2, variance)):
            estimates = values.mean(1)
            errors = estimates.std(0, ddof=1) / np.sqrt(chains)
            assert (
                np.abs(estimates.mean(0) - expected) < bound(6, chains) * errors
            ).all(), name
    without = a + np.tanh(h / 2) * 20**2 / 4 * 0.7 * 0.3 * 16 / 19
    estimates = ((chain.unnormalized["omega"] - a) ** 2).mean(1)
    assert (without - a > 5 * estimates.std(0, ddof=1) / np.sqrt(chains)).all()


def test_variance_that_control_variates_save_on_a_mixture() -> None:
    """Theorem 5.4.1 for one move: 2θ(D − D²) + a(1 − D)² + (1 − D)² Var ĉ, D = e^(−h), with the
    variance of the control variate's counts over all minibatches in place of the plain one's."""
    rng = np.random.default_rng(6)
    density = rng.uniform(size=(6, 3))
    omega, center = np.array([0.5, 0.3, 0.2]), np.array([0.45, 0.33, 0.22])
    alpha, h, n = 0.5, 0.7, 2
    space = Space({"omega": (3,)}, {"omega": OnSimplex(np.full(3, alpha))})
    target = Target(
        lambda params, data: tf.reduce_sum(
            tf.math.log(tf.linalg.matvec(data["f"], params["omega"]))
        ),
        None, space, tf.float64,
    )  # fmt: skip

    def shares(at: Array) -> Array:
        weights = at * density
        return weights / weights.sum(1, keepdims=True)

    def variance_of(terms: Array) -> Array:
        return 6 * (6 - n) / n * terms.var(0, ddof=1)

    state = CenteredState(
        tf.constant(np.log(center)), tf.constant(shares(center).sum(0))
    )
    estimates = []
    for rows in combinations(range(6), n):
        minibatch = Minibatch({"f": tf.constant(density[list(rows)])}, 6 / n)
        found, _ = SVRG().estimate(
            target, state, tf.constant(np.log(omega)), minibatch, minibatch
        )
        estimates.append(found.numpy())
    counts = np.array(estimates)
    np.testing.assert_allclose(counts.mean(0), shares(omega).sum(0), rtol=1e-12)
    spread = variance_of(shares(omega) - shares(center))
    np.testing.assert_allclose(counts.var(0), spread, rtol=1e-10)
    assert (counts > 0).all() and (spread < 0.1 * variance_of(shares(omega))).all()

    theta = np.array([3.0, 1.5, 0.4])
    drawn = rng.integers(len(counts), size=REPLICATES)
    dynamics = SCIR(alpha, differences=True).bind(
        Space({"o": (REPLICATES, 3)}, {"o": OnSimplex(np.full((REPLICATES, 3), alpha))})
    )
    u = tf.constant(np.tile(np.log(theta), REPLICATES))
    state_: Any = dynamics.init(u, tf.zeros_like(u), tf.constant(h, tf.float64), None)
    moved = dynamics.step(
        state_._replace(position=u), tf.constant(counts[drawn].ravel()),
        tf.constant(h, tf.float64), seeds_of(dynamics, 8),
    )  # fmt: skip
    draws = np.exp(moved.position.numpy()).reshape(REPLICATES, 3)
    d, a = np.exp(-h), alpha + shares(omega).sum(0)
    mean = theta * d + a * (1 - d)
    variance = 2 * theta * (d - d**2) + a * (1 - d) ** 2 + (1 - d) ** 2 * spread
    for values, expected in ((draws, mean), ((draws - mean) ** 2, variance)):
        errors = values.std(0) / np.sqrt(REPLICATES)
        assert (np.abs(values.mean(0) - expected) < bound(6) * errors).all()
