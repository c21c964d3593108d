"""The manifolds: geodesics, tangent spaces, dimensions, measures, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import block_diag, expm

import sgmcmc
from sgmcmc.manifolds import Manifold, Simplex, Sphere, Stiefel

Array = np.ndarray
CASES = [
    pytest.param(Sphere(), (2,), 1, id="circle"),
    pytest.param(Sphere(), (3, 2, 4), 18, id="spheres"),
    pytest.param(Simplex(), (2, 3), 4, id="simplices"),
    pytest.param(Stiefel(), (4, 2), 5, id="frames"),
    pytest.param(Stiefel(), (3, 3), 3, id="rotations"),
    pytest.param(Stiefel(), (2, 5, 1), 8, id="a column"),
    pytest.param(Stiefel(), (2, 3, 5, 3), 54, id="frames, leading axes"),
]
every = pytest.mark.parametrize("manifold, shape, dimension", CASES)


def point(
    manifold: Manifold, shape: tuple[int, ...], seed: int = 1
) -> tuple[Array, Array]:
    """Return a point and a tangent vector there."""
    rng = np.random.default_rng(seed)
    u = manifold.retracted(tf.constant(rng.normal(size=shape)))
    return u.numpy(), manifold.tangent(u, tf.constant(rng.normal(size=shape))).numpy()


def distance(manifold: Manifold, u: Array) -> float:
    """Return how far from the manifold something is."""
    if isinstance(manifold, Stiefel):
        return float(np.abs(np.swapaxes(u, -1, -2) @ u - np.eye(u.shape[-1])).max())
    return float(np.abs((u * u).sum(-1) - 1).max())


def along(manifold: Manifold, u: Array, v: Array) -> float:
    """Return how far from tangent a vector is."""
    if isinstance(manifold, Stiefel):
        inner = np.swapaxes(u, -1, -2) @ v
        return float(np.abs(inner + np.swapaxes(inner, -1, -2)).max())
    return float(np.abs((u * v).sum(-1)).max())


@every
def test_a_projection_is_one(
    manifold: Manifold, shape: tuple[int, ...], dimension: int
) -> None:
    """Idempotent, symmetric, its trace the dimension; what it gives is tangent."""
    u, v = point(manifold, shape)
    assert distance(manifold, u) < 1e-13 and along(manifold, u, v) < 1e-13
    assert manifold.dimension(shape) == dimension
    size = u.size
    each = [
        manifold.tangent(tf.constant(u), tf.constant(row.reshape(shape)))
        .numpy()
        .ravel()
        for row in np.eye(size)
    ]
    projection = np.array(each)
    np.testing.assert_allclose(projection, projection.T, atol=1e-13)
    np.testing.assert_allclose(projection @ projection, projection, atol=1e-13)
    np.testing.assert_allclose(np.trace(projection), dimension, atol=1e-12)


@every
def test_a_flow_is_a_geodesic(
    manifold: Manifold, shape: tuple[int, ...], dimension: int
) -> None:
    """It stays on the manifold at constant speed, its halves make the whole, it can go back, and
    it is accelerated across the manifold alone."""
    u, v = point(manifold, shape)
    flow = manifold.flow
    x, w = (t.numpy() for t in flow(tf.constant(u), tf.constant(v), 0.7))
    assert distance(manifold, x) < 1e-12 and along(manifold, x, w) < 1e-12
    np.testing.assert_allclose((w**2).sum(), (v**2).sum(), rtol=1e-12)
    half = flow(*flow(tf.constant(u), tf.constant(v), 0.35), 0.35)
    np.testing.assert_allclose(half[0].numpy(), x, atol=1e-12)
    np.testing.assert_allclose(half[1].numpy(), w, atol=1e-12)
    np.testing.assert_allclose(
        flow(tf.constant(x), tf.constant(-w), 0.7)[0], u, atol=1e-12
    )
    h = 1e-4
    turned = [flow(tf.constant(x), tf.constant(w), t)[1].numpy() for t in (-h, h)]
    push = manifold.tangent(
        tf.constant(x), tf.constant((turned[1] - turned[0]) / (2 * h))
    )
    assert np.abs(push.numpy()).max() < 1e-6
    ends = [flow(tf.constant(x), tf.constant(w), t)[0].numpy() for t in (-h, h)]
    np.testing.assert_allclose((ends[1] - ends[0]) / (2 * h), w, atol=1e-6)


def test_a_frame_moves_by_the_matrix_exponential() -> None:
    X, V = point(Stiefel(), (5, 3))
    A, S, t = X.T @ V, V.T @ V, 0.8
    exponent = np.block([[A, -S], [np.eye(3), A]])
    expected = (
        np.hstack([X, V]) @ expm(t * exponent) @ block_diag(expm(-t * A), expm(-t * A))
    )
    found = Stiefel().flow(tf.constant(X), tf.constant(V), t)
    np.testing.assert_allclose(np.hstack(found), expected, atol=1e-10)


@every
def test_at_rest_and_slowly_in_single_precision(
    manifold: Manifold, shape: tuple[int, ...], dimension: int
) -> None:
    u, v = (tf.constant(part, tf.float32) for part in point(manifold, shape))
    at_rest = manifold.flow(u, tf.zeros_like(v), 1.0)
    np.testing.assert_allclose(at_rest[0], u, atol=1e-6)
    assert np.abs(at_rest[1]).max() < 1e-20
    slow = manifold.flow(u, 1e-5 * v, 1.0)[1].numpy() / 1e-5
    np.testing.assert_allclose(slow, v, atol=1e-4)


def test_the_measure_of_the_simplex() -> None:
    """Σ log |v_i| undoes the area element of v = √ω as a function of all ω_i but the last."""
    rng = np.random.default_rng(1)
    gaps = []
    for omega in rng.dirichlet(np.ones(4), 5):
        free = tf.constant(omega[:-1])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(free)
            v = tf.sqrt(tf.concat([free, [1.0 - tf.reduce_sum(free)]], 0))
        J = tape.jacobian(v, free, experimental_use_pfor=False).numpy()
        area = 0.5 * np.linalg.slogdet(J.T @ J)[1]
        gaps.append(area + float(Simplex().log_jacobian(v)))
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-12)


def test_a_slope_at_the_edge_of_the_simplex_is_held() -> None:
    """It moves v no further than a few steps at the typical speed; elsewhere nothing changes."""
    u, epsilon = tf.constant([0.0, 1e-30, 1e-3, 0.1, 0.9]), tf.constant(1e-4)
    slope = tf.constant([0.0, 1e30, 1e3, 10.0, 1.0])
    held = Simplex().held(u, slope, epsilon).numpy()
    assert np.isfinite(held).all() and np.abs(1e-4 * held).max() < 1e-2
    np.testing.assert_allclose(held[3:], slope[3:], rtol=1e-6)


@pytest.mark.parametrize(
    "manifold, value, message",
    [
        (Sphere(), np.float64(1.0), "last axis of two or more"),
        (Sphere(), np.ones((2, 1)), "last axis of two or more"),
        (
            Sphere(),
            np.array([1.0, 1.0]),
            "must start on its manifold, Sphere.*Divide it",
        ),
        (Sphere(), np.zeros(3), "must start on its manifold"),
        (Stiefel(), np.ones(3), "two last axes"),
        (Stiefel(), np.ones((2, 3)), "no more columns than rows"),
        (Stiefel(), np.ones((3, 2)), "must start on its manifold, Stiefel.*qr"),
        (Stiefel(), 2 * np.eye(3, 2), "must start on its manifold"),
        (Simplex(), np.ones(1), "points of the simplex"),
        (
            Simplex(),
            np.array([0.5, 0.6]),
            "must start inside the simplex.*off by up to 0.1",
        ),
        (
            Simplex(),
            np.array([0.0, 1.0]),
            "must start inside the simplex.*smallest is 0",
        ),
    ],
)
def test_starts_that_are_refused(
    manifold: Manifold, value: Array, message: str
) -> None:
    with pytest.raises(ValueError, match=f"(?s)^`start` .*{message}"):
        manifold.check("start", value, tf.float32)


def test_the_report_has_the_temperature_that_noise_gives() -> None:
    """The mean distance to the mode of a narrow distribution on the sphere, over the exact one."""
    rng = np.random.default_rng(1)
    mode, N, kappa = np.array([0.0, 0.0, 1.0]), 10_000, 0.25
    x = mode + 0.5 * rng.normal(size=(N, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    total = kappa * x.sum(0)
    samples = sgmcmc.sggmc(
        lambda params, data: kappa * tf.linalg.matvec(data["x"], params["v"]),
        {"x": x}, {"v": mode}, 2e-5, manifolds={"v": Sphere()}, minibatch_size=100, n_chains=4,
        n_iters=10_000, burn_in=1000, seed=1, verbose=False,
    )  # fmt: skip
    size = np.linalg.norm(total)
    distance = size - samples["v"].astype(float) @ total  # exact: mean 1
    predicted = samples.report["Predicted"]["temperature (1 is right)"]["v"]
    assert 1.5 < predicted < 3.0
    assert distance.mean() == pytest.approx(predicted, rel=0.1)
    assert any("temperature of 'v'" in warning for warning in samples.report.warnings)
