"""Whitening by an information of the shape of an arrow, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.model.geometry import (
    Arrow,
    ArrowBlocks,
    arrow_of,
    arrow_of_coupled,
    inverse_root,
)

Array = np.ndarray


def information(
    k: int, core: int, density: float
) -> tuple[Array, Array, tuple[Array, ...]]:
    """Return a matrix, the places of its leaves, and its parts."""
    rng, G = np.random.default_rng(k), 30
    d = G * k + core
    order = rng.permutation(d)
    leaves, rest = order[: G * k].reshape(G, k), np.sort(order[G * k :])
    D = 3 * np.eye(k) + 0.5 * rng.random((G, 1, 1)) * np.ones((k, k))
    B = 0.3 * rng.normal(size=(core, G * k)) * (rng.random((core, G * k)) < density)
    A = 20 * np.eye(core) + 0.1
    J = np.zeros((d, d))
    for block, place in zip(D, leaves, strict=True):
        J[np.ix_(place, place)] = block
    J[np.ix_(rest, leaves.ravel())], J[np.ix_(leaves.ravel(), rest)] = B, B.T
    J[np.ix_(rest, rest)] = A
    return J, leaves, (D, B, A)


@pytest.mark.parametrize("k, core, density", [(1, 5, 0.1), (2, 4, 1.0), (3, 0, 1.0)])
def test_products_are_those_of_the_dense_matrices(
    k: int, core: int, density: float
) -> None:
    J, leaves, parts = information(k, core, density)
    origin = np.random.default_rng(1).normal(size=len(J))
    need_products_of(arrow_of(origin, ArrowBlocks(leaves, *parts)), J)


def test_leaves_may_be_coupled_in_a_few_directions() -> None:
    J, leaves, (_, B, A) = information(1, 4, 1.0)
    rng, places = np.random.default_rng(2), leaves[:, 0]
    axes, values = np.linalg.qr(rng.normal(size=(30, 3)))[0], np.array([0.3, 3.0, 5.0])
    J[np.ix_(places, places)] = D = np.eye(30) + axes @ np.diag(values - 1.0) @ axes.T
    solved = np.linalg.solve(D, B.T).T
    blocks = ArrowBlocks(leaves, np.ones((30, 1, 1)), B, A)
    need_products_of(
        arrow_of_coupled(rng.normal(size=34), blocks, axes, values, solved), J
    )


def test_the_core_is_whitened_whatever_couples_the_leaves() -> None:
    J, leaves, (_, B, A) = information(1, 4, 1.0)
    rng, places = np.random.default_rng(3), leaves[:, 0]
    other = rng.normal(size=(30, 30))
    J[np.ix_(places, places)] = D = np.eye(30) + 0.02 * other @ other.T
    solved, none = np.linalg.solve(D, B.T).T, np.zeros((30, 0))
    blocks = ArrowBlocks(leaves, np.ones((30, 1, 1)), B, A)
    arrow = arrow_of_coupled(np.zeros(34), blocks, none, np.zeros(0), solved)
    core = np.setdiff1d(np.arange(34), places)
    found = arrow.transposed_times(arrow.transposed_times(J).T)
    np.testing.assert_allclose(found[np.ix_(core, core)], np.eye(4), atol=1e-12)
    np.testing.assert_allclose(found[np.ix_(core, places)], 0.0, atol=1e-12)


def need_products_of(arrow: Arrow, J: Array) -> None:
    """Compare every product with that of the dense matrix that whitens J."""
    rng, origin = np.random.default_rng(4), arrow.origin
    z, g = rng.normal(size=(2, len(J)))
    C = arrow.times(np.eye(len(J))).T
    np.testing.assert_allclose(C @ C.T @ J, np.eye(len(J)), atol=1e-12)
    np.testing.assert_allclose(arrow.out_of(tf.constant(z)), origin + C @ z, atol=1e-12)
    np.testing.assert_allclose(arrow.into(origin + C @ z), z, atol=1e-12)
    slope = arrow.slope(tf.constant(g))
    np.testing.assert_allclose(slope, C.T @ g, atol=1e-12)
    np.testing.assert_allclose(arrow.transposed_times(g), C.T @ g, atol=1e-12)
    np.testing.assert_allclose(arrow.score(slope), g, atol=1e-12)
    again = Arrow.of_arrays(arrow.arrays()).centered_at(0 * origin)
    np.testing.assert_array_equal(again.times(z), arrow.times(z))
    assert not again.origin.any() and arrow.origin is origin


def test_what_is_not_positive_definite_is_made_so() -> None:
    J, leaves, (D, B, A) = information(2, 4, 1.0)
    D[3] = [[1.0, 2.0], [2.0, 1.0]]
    A = A - 40 * np.eye(4)
    arrow = arrow_of(np.zeros(len(J)), ArrowBlocks(leaves, D, B, A))
    values = np.linalg.eigvalsh(arrow.times(arrow.transposed_times(np.eye(len(J)))))
    assert np.isfinite(values).all() and values[0] > 0


def test_the_inverse_root_is_lower_triangular() -> None:
    J = information(2, 4, 1.0)[0]
    C = inverse_root(J)
    np.testing.assert_allclose(C @ C.T @ J, np.eye(len(J)), atol=1e-12)
    assert not np.triu(C, 1).any()
