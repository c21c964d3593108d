"""Chains on manifolds against exact moments, the order of the integrator, and rounding.

Many independent targets are the leading axes of one parameter, so that a single chain has many
independent copies, over which standard errors are taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, special, stats

import sgmcmc
from sgmcmc.manifolds import Manifold, Simplex, Sphere, Stiefel
from tests.ladder import GEODESIC, Case

Array = np.ndarray
Tensors = dict[str, tf.Tensor]
COPIES = 64
CONSTANTS = {"sggmc": {"alpha": 0.1}, "gsgnht": {"a": 0.05}}


def moments(
    case: Case,
    manifold: Manifold,
    start: Array,
    log_density: Any,
    epsilon: float,
    n_iters: int,
) -> tuple[Array, Array]:
    """Return the means of θ and θ² along a chain, at every place of the parameter."""

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return log_density(params["v"]) + 0.0 * tf.reduce_sum(dataset["nothing"])

    chain = case.function(
        log_lik,
        {"nothing": np.zeros(1)},
        {"v": start},
        epsilon,
        minibatch_size=1,
        manifolds={"v": manifold},
        reductions={
            "first": sgmcmc.running_mean(lambda params: params["v"]),
            "second": sgmcmc.running_mean(lambda params: params["v"] ** 2),
        },
        store_params=False,
        n_iters=n_iters,
        burn_in=n_iters // 10,
        verbose=False,
        seed=1,
        **CONSTANTS[case.name],
    )
    assert chain.reductions is not None
    return tuple(
        np.asarray(chain.reductions[name], np.float64) for name in ("first", "second")
    )  # type: ignore[return-value]


def close(found: Array, expected: Array, allowance: float = 0.0) -> None:
    """The mean over copies, the first axis, is as expected up to standard errors.

    One test fails by chance once in 10 000 seeds or less.
    """
    error = found.std(0, ddof=1) / np.sqrt(len(found))
    limit = stats.t.isf(0.5e-4 / found[0].size, len(found) - 1)
    gap = np.abs(found.mean(0) - expected)
    assert (gap < limit * error + allowance).all(), (gap / error).max()


def fisher_mean(kappa: float, d: int) -> float:
    """Return E[μ·v] of a von Mises–Fisher law."""
    return float(special.ive(d / 2, kappa) / special.ive(d / 2 - 1, kappa))


def bingham_squares(values: Array) -> Array:
    """Return E[v_i²] under exp(Σ λ_i v_i²): derivatives of the log of its normalizer.

    That is, up to a constant, the inverse Laplace transform at 1 of ∏ (s − λ_i)^(−1/2), here along
    Talbot's contour.
    """
    # Of the modified contour of Weideman and Trefethen, Math. Comp. 76, 2007
    terms = 32
    theta = (2 * np.arange(terms) + 1) * np.pi / terms - np.pi
    cotangent, sine = 1 / np.tan(0.6407 * theta), np.sin(0.6407 * theta)
    z = terms * (0.5017 * theta * cotangent - 0.6122 + 0.2645j * theta)
    slope = 0.5017 * (cotangent - 0.6407 * theta / sine**2) + 0.2645j
    weights = np.exp(z) * slope / 1j
    s = z[:, np.newaxis] - (values - values.max())
    product = weights * np.prod(s**-0.5, 1)
    return 0.5 * (product[:, np.newaxis] / s).real.sum(0) / product.real.sum()


@pytest.mark.parametrize("d", [2, 3, 10])
def test_the_moments_of_bingham(d: int) -> None:
    """Against one-dimensional integrals, where only one value differs from the others."""
    values = np.zeros(d)
    values[0] = -2.5

    def density(t: float) -> float:
        return (1 - t * t) ** ((d - 3) / 2) * np.exp(-2.5 * t * t)

    above = integrate.quad(lambda t: t * t * density(t), -1, 1)[0]
    expected = above / integrate.quad(density, -1, 1)[0]
    found = bingham_squares(values)
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-9)


ROWS = [
    pytest.param(
        case,
        d,
        id=f"{case.name}-{d}",
        marks=pytest.mark.slow,
    )
    for case in GEODESIC
    for d in (2, 3, 10)
]


@pytest.mark.parametrize("case, d", ROWS)
def test_spheres(case: Case, d: int) -> None:
    """Uniform, von Mises–Fisher and Bingham laws on S^(d−1): E[v] and E[v²]."""
    kappa, values = 2.0, np.linspace(0.0, -3.0, d)
    n_iters = 8000 if d == 3 else 20_000
    pull = np.zeros((3, d))
    pull[1] = kappa / np.sqrt(d)
    bend = np.zeros((3, d))
    bend[2] = values

    def log_density(v: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(
            v * tf.constant(pull, v.dtype) + v**2 * tf.constant(bend, v.dtype)
        )

    start = np.random.default_rng(1).normal(size=(COPIES, 3, d))
    start /= np.linalg.norm(start, axis=-1, keepdims=True)
    first, second = moments(case, Sphere(), start, log_density, 0.01, n_iters)
    mean = fisher_mean(kappa, d)
    expected = np.zeros((3, d))
    expected[1] = mean / np.sqrt(d)
    close(first, expected)
    along = 1 - (d - 1) / kappa * mean  # E[(μ·v)²]
    squares = np.full((3, d), 1 / d)
    squares[2] = bingham_squares(values)
    close(second[:, 1:], squares[1:])
    # By symmetry E[v_i²] is 1/d for each i on the diagonal, whatever E[(μ·v)²] is.
    assert 1 / d < along < 1
    if d == 10:
        return
    # A fifth more or less of concentration is seen.
    for factor in (0.8, 1.25):
        wrong = expected.copy()
        wrong[1] = fisher_mean(factor * kappa, d) / np.sqrt(d)
        with pytest.raises(AssertionError):
            close(first, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("case", GEODESIC, ids=lambda case: case.name)
def test_the_square_along_the_mean(case: Case) -> None:
    """E[(μ·v)²] of von Mises–Fisher laws with μ an axis, on S², κ from 0.5 to 4."""
    kappa = np.array([0.5, 1.0, 2.0, 4.0])

    def log_density(v: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(v[..., 2] * tf.constant(kappa, v.dtype))

    start = np.tile([1.0, 0.0, 0.0], (COPIES, 4, 1))
    first, second = moments(case, Sphere(), start, log_density, 0.005, 40_000)
    mean = np.array([fisher_mean(k, 3) for k in kappa])
    close(first[..., 2], mean)
    close(second[..., 2], 1 - 2 / kappa * mean)


@pytest.mark.slow
@pytest.mark.parametrize("case", GEODESIC, ids=lambda case: case.name)
def test_frames(case: Case) -> None:
    """Matrix Langevin laws exp(κ (X₁₁ + X₂₂)) on the 3 × 2 frames, κ = 0 and 1.5.

    A frame is two columns of a rotation, Rz(a) Rx(b) Rz(c); X₁₁ + X₂₂ is (1 + cos b) cos(a + c) and
    X₃₁² + X₃₂² is sin² b, with sin b the density of b.
    """
    kappa = np.array([0.0, 1.5])

    def log_density(X: tf.Tensor) -> tf.Tensor:
        trace = X[..., 0, 0] + X[..., 1, 1]
        return tf.reduce_sum(trace * tf.constant(kappa, X.dtype))

    start = np.broadcast_to(np.eye(3, 2), (COPIES, 2, 3, 2))
    first, second = moments(case, Stiefel(), start, log_density, 0.01, 20_000)

    def mean_of(f: Any) -> float:
        """f is the integral over a + c of what is averaged, times the density."""
        top = integrate.quad(
            lambda b: np.sin(b) * f(b, 1.5 * (1 + np.cos(b))), 0, np.pi
        )[0]
        below = integrate.quad(
            lambda b: np.sin(b) * special.i0(1.5 * (1 + np.cos(b))), 0, np.pi
        )[0]
        return top / below

    traces = [0.0, mean_of(lambda b, k: (1 + np.cos(b)) * special.i1(k))]
    lowest = [2 / 3, mean_of(lambda b, k: np.sin(b) ** 2 * special.i0(k))]
    close(first[..., 0, 0] + first[..., 1, 1], np.array(traces))
    close(second[..., 2, :].sum(-1), np.array(lowest))


@pytest.mark.slow
@pytest.mark.parametrize("case", GEODESIC, ids=lambda case: case.name)
def test_simplices(case: Case) -> None:
    """Dirichlet laws with concentrations from 1/2 on, as densities of ω."""
    alpha = np.array(
        [[0.5, 0.5, 0.5], [1.0, 1.0, 1.0], [5.0, 1.0, 0.5], [3.0, 2.0, 4.0]]
    )

    def log_density(omega: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.constant(alpha - 1.0, omega.dtype) * tf.math.log(omega))

    start = np.full((COPIES, 4, 3), 1 / 3)
    first, second = moments(case, Simplex(), start, log_density, 0.002, 100_000)
    total = alpha.sum(-1, keepdims=True)
    mean = alpha / total
    # The kick at the edge is held, which costs an error of the order of ε.
    close(first, mean, allowance=0.002)
    close(second, mean * (alpha + 1) / (total + 1), allowance=0.002)


@pytest.mark.slow
@pytest.mark.parametrize("case", GEODESIC, ids=lambda case: case.name)
def test_the_integrator_is_of_second_order(case: Case) -> None:
    """The bias of E[μ·v] is in proportion to ε, the square of the time of a step."""
    kappa, stepsizes = 4.0, np.array([0.05, 0.1, 0.2])

    def log_density(v: tf.Tensor) -> tf.Tensor:
        return kappa * tf.reduce_sum(v[..., 2])

    start = np.tile([0.0, 0.0, 1.0], (2048, 1))
    bias, errors = [], []
    for epsilon in stepsizes:
        found = moments(case, Sphere(), start, log_density, epsilon, 20_000)[0][:, 2]
        bias.append(abs(found.mean() - fisher_mean(kappa, 3)))
        errors.append(found.std() / np.sqrt(found.size) / bias[-1])
    assert max(errors) < 0.2
    slope, slope_error = np.polyfit(np.log(stepsizes), np.log(bias), 1)[0], max(errors)
    assert abs(slope - 1.0) < 0.2 + 3 * slope_error / np.log(4)


TOY = np.array([[0.5, np.sqrt(0.75)], [0.5, -np.sqrt(0.75)]])
"""The directions of the two modes of figure 3 of the paper, at ±π/3."""


def noisy_circle(**given: Any) -> Any:
    """Return the arguments of a chain on the circle with the gradient noise N(0, 1000 I).

    Each row of the data adds a linear term; these sum to zero, and a minibatch is one of them.
    """
    N = 4000
    z = np.random.default_rng(3).normal(size=(N, 2))
    z -= z.mean(0)
    z = z @ np.linalg.inv(np.linalg.cholesky(np.cov(z.T, ddof=0))).T * np.sqrt(1000) / N

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        heights = 5.0 * tf.linalg.matvec(tf.constant(TOY, tf.float32), params["v"])
        toy = tf.reduce_logsumexp(heights + [0.0, np.log(2.0)])
        return toy / N + tf.linalg.matvec(dataset["z"], params["v"])

    return {
        "log_lik": log_lik,
        "dataset": {"z": z},
        "params": {"v": [1.0, 0.0]},
        "minibatch_size": 1,
        "replace": True,
        "manifolds": {"v": Sphere()},
        "n_chains": 16,
        "verbose": False,
        "seed": 1,
        **given,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, constants",
    [
        ("sggmc", {"alpha": 0.05, "noise_variance": 1000.0}),
        ("sggmc", {"alpha": 0.05, "noise_variance": "fisher", "minibatch_size": 4}),
        ("gsgnht", {"a": 0.05}),
    ],
)
def test_noise_of_the_gradient_is_taken_up(
    method: str, constants: dict[str, Any]
) -> None:
    """E[v] and E[v₁²] of the toy of figure 3, under noise of variance 1000 (or 250)."""

    def density(angle: float) -> float:
        return float(np.exp(5.0 * TOY @ [np.cos(angle), np.sin(angle)]) @ [1.0, 2.0])

    def mean_of(f: Any) -> float:
        ends = -np.pi, np.pi
        top = integrate.quad(lambda t: f(t) * density(t), *ends)[0]
        return top / integrate.quad(density, *ends)[0]

    learns = (
        constants.get("noise_variance") == "fisher"
    )  # which takes ten times as long
    arguments = noisy_circle(
        stepsize=1e-4,
        n_iters=50_000 if learns else 200_000,
        burn_in=5000,
        thin=20,
        **constants,
    )
    v = getattr(sgmcmc, method)(**arguments)["v"].astype(np.float64)
    found = np.stack(
        [v[..., 0].mean(1), v[..., 1].mean(1), (v[..., 0] ** 2).mean(1)], 1
    )
    expected = np.array(
        [mean_of(f) for f in (np.cos, np.sin, lambda t: np.cos(t) ** 2)]
    )
    close(found, expected)
    if method == "sggmc" and not learns:  # without the correction it is far off
        hot = sgmcmc.sggmc(**{**arguments, "noise_variance": 0.0})["v"]
        with pytest.raises(AssertionError):
            close((hot[..., 0] ** 2).mean(1).astype(np.float64)[:, None], expected[2:])


@pytest.mark.slow
@pytest.mark.parametrize("case", GEODESIC, ids=lambda case: case.name)
@pytest.mark.parametrize("manifold", [Sphere(), Stiefel()], ids=["sphere", "frames"])
def test_a_million_steps_in_single_precision(case: Case, manifold: Manifold) -> None:
    """Unit norms, orthogonality and tangent velocities hold to 1e-6."""
    start = np.eye(4, 2) if isinstance(manifold, Stiefel) else np.eye(10)[:3]
    pull = np.random.default_rng(1).normal(size=start.shape)
    sampler = case.setup(
        lambda params, dataset: tf.reduce_sum(
            params["v"] * tf.constant(pull, tf.float32)
        ),
        {"nothing": np.zeros(1)},
        {"v": start},
        0.01,
        minibatch_size=1,
        manifolds={"v": manifold},
        seed=1,
        **CONSTANTS[case.name],
    )
    sess = sgmcmc.init_sess(sampler, verbose=False)
    sgmcmc.sgmcmc_step(sampler, sess, n_steps=1_000_000)
    state = sess._runners[0].carry.state
    u, v = (leaf.numpy().astype(np.float64).reshape(start.shape) for leaf in state[:2])
    if isinstance(manifold, Stiefel):
        gram, inner = u.T @ u - np.eye(2), u.T @ v
        inner = inner + inner.T
    else:
        gram, inner = (u * u).sum(-1) - 1, (u * v).sum(-1)
    assert np.abs(gram).max() < 1e-6
    assert np.abs(inner).max() < 1e-6 * np.linalg.norm(v)
