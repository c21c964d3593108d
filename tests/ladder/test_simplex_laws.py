"""SGRLD against its generator and its transcription; expected counts, starts, tiny components."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

import sgmcmc
from sgmcmc.data.dataset import Minibatch
from sgmcmc.dynamics import SGRLD
from sgmcmc.model.layout import Layout
from sgmcmc.model.target import Target
from tests.ladder import POINTS, Case, bound, every
from tests.ladder.categories import (
    ALPHA,
    COUNTS,
    categories,
    log_lik,
    space_of,
)


def test_generator_of_sgrld() -> None:
    """E_π[Lf] = 0 with the drift of the chain, on exact draws of θ = S ω."""
    rng, size = np.random.default_rng(4), 400_000
    omega = rng.dirichlet(ALPHA + COUNTS, size)
    theta = rng.gamma(ALPHA.sum(), size=(size, 1)) * omega
    space = space_of({"omega": np.broadcast_to(ALPHA, theta.shape)})
    counts = np.broadcast_to(COUNTS, theta.shape).ravel().astype(float)
    with np.errstate(divide="ignore"):
        u = np.maximum(np.log(theta), -700.0)
    drift = (
        SGRLD(ALPHA)
        .bind(space)
        .drift(tf.constant(u.ravel()), tf.constant(counts))
        .numpy()
    )
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


@pytest.mark.parametrize("parameterization", ["expanded_natural", "reduced_natural"])
def test_generator_of_the_natural_parameterizations(parameterization: str) -> None:
    """E_π[Lf] = E[(drift·∇f + Δf)/2] = 0 on exact draws of u, over the coordinates that move."""
    rng, size = np.random.default_rng(4), 400_000
    reduced = parameterization == "reduced_natural"
    alpha = np.array([1.5, 0.5, 2.0, 0.8])
    omega = rng.dirichlet(alpha + COUNTS, size)
    scale = 1 / omega[:, -1:] if reduced else rng.gamma(alpha.sum(), size=(size, 1))
    u = np.log(omega * scale)
    space = space_of({"omega": np.broadcast_to(alpha, u.shape)})
    counts = np.broadcast_to(COUNTS, u.shape).ravel().astype(float)
    dynamics = SGRLD(alpha, parameterization=parameterization).bind(space)
    drift = (
        dynamics.drift(tf.constant(u.ravel()), tf.constant(counts))
        .numpy()
        .reshape(u.shape)
    )
    moving = 3 if reduced else 4
    u, drift, omega = u[:, :moving], drift[:, :moving], omega[:, :moving]
    # Of sin u, which is bounded however far u goes, of u₁u₂, and of log Σe^u.
    wave = (drift * np.cos(u) - np.sin(u)) / 2
    product = (
        drift[:, 0] * np.sin(u[:, 1]) + drift[:, 1] * u[:, 0] * np.cos(u[:, 1])
    ) / 2
    product -= u[:, 0] * np.sin(u[:, 1]) / 2
    everything = (drift * omega + omega * (1 - omega)).sum(1) / 2
    for values in (drift / 2, wave, product, everything):
        values = values.reshape(size, -1)
        errors = values.std(0) / np.sqrt(size)
        assert (np.abs(values.mean(0)) < bound(20) * errors).all()


@pytest.mark.slow
@pytest.mark.parametrize("parameterization", ["expanded_natural", "reduced_natural"])
def test_natural_parameterizations_have_the_law_at_small_stepsizes(
    parameterization: str,
) -> None:
    """From the public function: the posterior mean of ω, and its variance to the bias of h."""
    chains, a = 16, 2.0 + COUNTS
    chain = sgmcmc.sgrld(
        log_lik,
        {"z": categories()},
        {"omega": np.full(4, 0.25)},
        0.02,
        alpha=2.0,
        minibatch_size=20,
        n_chains=chains,
        burn_in=500,
        n_iters=10_000,
        thin=5,
        seed=5,
        verbose=False,
        dtype=tf.float64,
        parameterization=parameterization,
    )
    mean = a / a.sum()
    variance = mean * (1 - mean) / (a.sum() + 1)
    for values, expected in (
        (chain["omega"], mean),
        ((chain["omega"] - mean) ** 2, variance),
    ):
        estimates = values.mean(1)
        errors = estimates.std(0, ddof=1) / np.sqrt(chains)
        # h × curvature / 4 is the relative error of an Euler step's variance: 0.02 × 7 / 4.
        most = bound(8, chains) * errors + 0.04 * expected
        assert (np.abs(estimates.mean(0) - expected) < most).all()
        assert (errors < 0.04 * expected).all(), "the run is too short to tell"


@pytest.mark.parametrize("parameterization", ["expanded_natural", "reduced_natural"])
def test_a_step_of_the_natural_parameterizations(parameterization: str) -> None:
    rng = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {"mu": (3,), "omega": (2, 4), "rho": (5,)}
    layout = Layout(shapes)
    alpha = {name: rng.uniform(0.1, 2.0, shapes[name]) for name in ("omega", "rho")}
    dynamics = SGRLD(alpha, parameterization=parameterization).bind(
        space_of(alpha, shapes)
    )
    position, normals = rng.normal(size=(2, layout.size))
    gradient, h = rng.uniform(0.0, 9.0, layout.size), 0.05
    vectors = (gradient, np.asarray(h), normals[None])
    state = dynamics.init(*map(tf.constant, (position, *vectors)))
    moved = dynamics.step(state, *map(tf.constant, vectors))
    start, found = (
        layout.split(state.position.numpy()),
        layout.split(moved.position.numpy()),
    )
    for name in ("omega", "rho"):
        u, c, noise = (
            start[name],
            layout.split(gradient)[name],
            layout.split(normals)[name],
        )
        omega = np.exp(u) / np.exp(u).sum(-1, keepdims=True)
        a = alpha[name]
        if parameterization == "reduced_natural":
            assert (u[..., -1] == 0).all()
            drift = a + c - omega * (a + c).sum(-1, keepdims=True)
        else:
            np.testing.assert_allclose(np.exp(u).sum(-1), a.sum(-1))
            drift = a - np.exp(u) + c - omega * c.sum(-1, keepdims=True)
        expected = u + h / 2 * drift + np.sqrt(h) * noise
        if parameterization == "reduced_natural":
            expected[..., -1] = 0.0
        np.testing.assert_allclose(found[name], expected, rtol=1e-12, atol=1e-12)


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
            expected = np.log(
                np.abs(theta + step / 2 * drift + np.sqrt(step * theta) * noise)
            )
        np.testing.assert_allclose(found[name], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.some(1)
@every(POINTS)
def test_the_start_is_at_the_scale_of_the_first_minibatch(case: Case) -> None:
    """θ = ω Σâ, or theta0: with a stepsize next to nothing the first draw is the start."""
    omega = np.array([0.4, 0.3, 0.2, 0.1])
    given = {"alpha": ALPHA, "n_iters": 1, "minibatch_size": 4, "dtype": tf.float64}
    arguments = (log_lik, {"z": categories()}, {"omega": omega}, 1e-14)
    call = case.function
    chain = call(*arguments, **given, verbose=False, store_unnormalized=True)
    theta = chain.unnormalized["omega"][0]
    np.testing.assert_allclose(theta, omega * (ALPHA.sum() + COUNTS.sum()), rtol=1e-5)
    np.testing.assert_allclose(chain["omega"][0], omega, rtol=1e-5)
    theta0 = {"omega": np.array([7.0, 1.0, 1.0, 2.0])}
    chain = call(
        *arguments, **given, verbose=False, store_unnormalized=True, theta0=theta0
    )
    np.testing.assert_allclose(
        chain.unnormalized["omega"][0], theta0["omega"], rtol=1e-5
    )


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
    counts = target.gradient(
        u, Minibatch({"z": tf.constant(categories(), dtype)}, 50.0)
    )
    np.testing.assert_allclose(counts, 50.0 * COUNTS, rtol=1e-6)
    omega = target.space.constrain(u)["omega"].numpy()
    np.testing.assert_allclose(omega[2], 1e-30 / (1 + np.e), rtol=1e-4)
    assert (omega > 0).all()


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=["float32", "float64"])
@every(POINTS)
@pytest.mark.some(1)
@pytest.mark.parametrize(
    "n_iters",
    [2000, pytest.param(100_000, marks=pytest.mark.slow)],
    ids=["short", "long"],
)
def test_a_tiny_alpha_never_becomes_nan(
    case: Case, dtype: tf.DType, n_iters: int
) -> None:
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
        store_unnormalized=True,
    )
    for draws in (chain["omega"], chain.unnormalized["omega"]):
        assert np.isfinite(draws).all()
    np.testing.assert_allclose(chain["omega"].sum(-1), 1.0, rtol=1e-5)
    if (
        case.name == "scir"
    ):  # the category with one observation, which most minibatches lack
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
    np.testing.assert_allclose(
        chain.gradients["omega"], expected, rtol=1e-6, atol=1e-10
    )


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
