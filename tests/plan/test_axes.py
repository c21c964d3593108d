"""Diagonal plus low rank: the algebra of the coordinates, and the directions that are found."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.dynamics import HMC
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.plan.lanczos import unusual_directions
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.whitening import Axes, find_axes
from tests.plan.models import Tensors, objective

D, K = 300, 4


def orthonormal(rng: np.random.Generator, d: int, k: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((d, k)))[0]


def low_rank(
    rng: np.random.Generator, d: int = 7, k: int = 2
) -> tuple[Preconditioner, np.ndarray]:
    """Return a preconditioner and its C as a matrix."""
    root, axes = rng.uniform(0.5, 2.0, d), orthonormal(rng, d, k)
    lengths = rng.uniform(0.1, 5.0, k)
    full = np.diag(root) @ (np.eye(d) + axes @ np.diag(lengths - 1.0) @ axes.T)
    return Preconditioner(root, rng.standard_normal(d), axes, lengths), full


def test_low_rank_is_the_matrix_it_stands_for() -> None:
    rng = np.random.default_rng(1)
    found, C = low_rank(rng)
    zeta, slope = rng.standard_normal((2, 7))
    u = found.out_of(tf.constant(zeta)).numpy()
    np.testing.assert_allclose(u, found.origin + C @ zeta, rtol=1e-12)
    np.testing.assert_allclose(
        found.into(np.stack([u, u])), np.stack([zeta, zeta]), rtol=1e-9
    )
    np.testing.assert_allclose(found.slope(tf.constant(slope)), C.T @ slope, rtol=1e-12)
    back = found.score(found.slope(tf.constant(slope)))
    np.testing.assert_allclose(back, slope, rtol=1e-9)


def test_directions_of_a_dense_spectrum_are_left_as_they_are() -> None:
    """Lanczos finds single eigenvectors at its ends alone; those within are mixtures of many."""
    rng, d = np.random.default_rng(4), 5000
    values = rng.uniform(0.2, 5.0, d)
    values[:2] = 20.0, 1e-2
    found = unusual_directions(lambda v: values * v, d, 120, 60, rng, isolated=True)
    np.testing.assert_allclose(found.values[[0, -1]], [1e-2, 20.0], rtol=1e-3)
    assert len(found.values) < 20
    errors = values[:, None] * found.vectors - found.values * found.vectors
    assert np.linalg.norm(errors, axis=0).max() < 0.02
    assert found.smallest == pytest.approx(0.2, abs=0.02)
    assert found.largest == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize(
    ("flattest", "length"), [(1.0, np.pi / 2), (0.25, 2.5), (0.01, 6.0), (0.0, 6.0)]
)
def test_trajectories_are_long_enough_for_the_flattest_direction(
    flattest: float, length: float
) -> None:
    axes = Axes(Preconditioner(np.ones(2), np.zeros(2)), flattest, 2.0)
    usual = HMC(length=np.pi / 2)
    found = axes.suited(usual)
    assert found.length == pytest.approx(length)
    assert found.spread == (0.0 if flattest == 1.0 else 0.5)


def test_means_forget_the_flattest_direction_within_few_trajectories() -> None:
    """Correlations of N(0, 1/λ) from one trajectory to the next, lengths from half to 1½ times."""
    for flat in (0.3, 1.0):
        lengths = 1.25 / np.sqrt(flat) * np.linspace(0.5, 1.5, 1001)
        for curvature in np.geomspace(flat, 100 * flat, 50):
            angles = np.sqrt(curvature) * lengths
            assert np.cos(angles).mean() < 0.3  # an ESS of 0.54 a draw and more
            assert (np.cos(angles) ** 2).mean() < 0.61  # and of 0.24 for squares


def posterior(precision: np.ndarray) -> Objective:
    """Return the log posterior −uᵀPu/2, all of it in one row."""

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        P = tf.constant(precision, params["u"].dtype)
        return (
            -0.5
            * tf.reduce_sum(params["u"] * tf.linalg.matvec(P, params["u"]))
            * dataset["w"]
        )

    return objective(
        log_lik, {"w": np.ones(1)}, {"u": (len(precision),)}, dtype=tf.float64
    )


def test_products_are_those_of_the_hessian() -> None:
    rng = np.random.default_rng(2)
    root = rng.standard_normal((9, 9))
    P = root @ root.T
    log_post, u, v = posterior(P), rng.standard_normal(9), rng.standard_normal(9)
    np.testing.assert_allclose(log_post.times_hessian(u, v), P @ v, rtol=1e-10)
    np.testing.assert_allclose(-log_post.likelihood_hessian(u), P, rtol=1e-10)


def test_directions_of_unusual_curvature_are_undone() -> None:
    """Four eigenvalues far from a usual one of 3: the whitened curvature is all near one."""
    rng = np.random.default_rng(3)
    scales, axes = rng.uniform(0.1, 10.0, D), orthonormal(rng, D, K)
    unusual = np.array([3e3, 40.0, 0.2, 0.01])
    spread = 3.0 * rng.uniform(0.8, 1.25, D)
    bulk = np.eye(D) - axes @ axes.T
    S = bulk @ np.diag(spread) @ bulk + axes @ np.diag(unusual) @ axes.T
    P = S / np.outer(scales, scales)
    found = find_axes(
        posterior(P), Preconditioner(scales, np.zeros(D)), [np.zeros(D)], seed=1
    )
    assert (
        found.preconditioner.lengths is not None
        and len(found.preconditioner.lengths) == K
    )
    columns = np.stack(
        [found.preconditioner.out_of(tf.constant(row)).numpy() for row in np.eye(D)],
        axis=1,
    )
    values = np.linalg.eigvalsh(columns.T @ P @ columns)
    assert 0.7 < values[0] and values[-1] < 1.4
    assert found.stiffest < 1.4
