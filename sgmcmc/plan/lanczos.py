"""Directions of unusual curvature, by the iteration of Lanczos."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Product = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class _Settings:
    # Of curvatures up to which, or its inverse, none is unusual.
    usual_ratio: float = 2.0
    # Of an eigenvector that is used, relative to its eigenvalue.
    max_residual: float = 0.05
    # Residual relative to the distance of the next eigenvalue. Beyond, the vector may be a mixture
    # of many of a dense spectrum, and undoing its curvature alone gains nothing.
    max_residual_of_gap: float = 0.5
    min_ratio: float = 1e-4  # of curvatures that are scaled, relative to the usual one


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Directions:
    """Eigenvalues and eigenvectors of a symmetric matrix that are far from the usual ones.

    Attributes:
        values: Eigenvalues, (k,).
        vectors: Eigenvectors, (d, k).
        usual: A usual eigenvalue.
        smallest, largest: The extremes of all other eigenvalues.
    """

    values: np.ndarray
    vectors: np.ndarray
    usual: float
    smallest: float
    largest: float


def unusual_directions(
    product: Product,
    d: int,
    steps: int,
    max_directions: int,
    rng: np.random.Generator,
    until: float = np.inf,
    isolated: bool = False,
) -> Directions:
    """Return the directions in which curvature is more than twice the usual one, or below half.

    Args:
        product: Product of the matrix with a vector, (d,).
        d: Size of the matrix.
        steps: Largest number of products.
        max_directions: Largest number of directions: those farthest from the usual, as ratios.
        rng: Generator of the first direction.
        until: Time at which to stop, by the monotonic clock.
        isolated: Whether to return only directions whose eigenvalues are isolated.
    """
    values, vectors, residuals, usual = _ritz(product, d, min(steps, d), rng, until)
    limits = _SETTINGS.max_residual * np.abs(values)
    if isolated:
        gaps = np.diff(values, prepend=-np.inf, append=np.inf)
        limits = np.minimum(
            limits,
            _SETTINGS.max_residual_of_gap * np.minimum(gaps[:-1], gaps[1:]),
        )
    exact = residuals <= limits
    is_stiff = values > _SETTINGS.usual_ratio * usual
    is_soft = values < usual / _SETTINGS.usual_ratio
    is_unusual = is_stiff | (is_soft & (values > _SETTINGS.min_ratio * usual))
    chosen = np.flatnonzero(exact & is_unusual)
    order = np.argsort(-np.abs(np.log(values[chosen] / usual)))
    chosen = np.sort(chosen[order[:max_directions]])
    unselected = np.delete(values, chosen)
    smallest, largest = (
        (unselected.min(), unselected.max()) if len(unselected) else (usual, usual)
    )
    return Directions(
        values[chosen], vectors[:, chosen], usual, float(smallest), float(largest)
    )


def _ritz(
    product: Product, d: int, steps: int, rng: np.random.Generator, until: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return Ritz values and vectors of a symmetric matrix, their residuals, and a usual value.

    All vectors are kept orthogonal. The usual value is the median of the Ritz values, each weighted
    by the square of its vector's component in the first direction, which is random.
    """
    basis = np.zeros((steps, d))
    diagonal = np.zeros(steps)
    off_diagonal = np.zeros(steps)
    vector = rng.standard_normal(d)
    vector /= np.linalg.norm(vector)
    for k in range(steps):
        basis[k] = vector
        image = product(vector)
        if not np.isfinite(image).all():
            steps = k
            break
        diagonal[k] = vector @ image
        for _ in range(2):
            image = image - basis[: k + 1].T @ (basis[: k + 1] @ image)
        off_diagonal[k] = np.linalg.norm(image)
        if (
            off_diagonal[k] <= 1e-10 * abs(diagonal[: k + 1]).max()
            or time.monotonic() > until
        ):
            steps = k + 1
            break
        vector = image / off_diagonal[k]
    if steps == 0:
        return np.ones(1), np.zeros((d, 1)), np.full(1, np.inf), 1.0
    small = np.diag(diagonal[:steps])
    small += np.diag(off_diagonal[: steps - 1], 1) + np.diag(
        off_diagonal[: steps - 1], -1
    )
    values, small_vectors = np.linalg.eigh(small)
    weights = np.cumsum(small_vectors[0] ** 2)
    usual = float(values[np.searchsorted(weights, 0.5 * weights[-1])])
    residuals = np.abs(off_diagonal[steps - 1] * small_vectors[-1])
    return (
        values,
        basis[:steps].T @ small_vectors,
        residuals,
        usual if usual > 0 else 1.0,
    )
