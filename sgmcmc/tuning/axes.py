"""Directions of unusual curvature if d is too large for matrices: diagonal plus low rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sgmcmc.target.geometry import Preconditioner
from sgmcmc.tuning.objective import Objective

_STEPS = 120
"""Steps of the Lanczos iteration."""

_MOST = 60
"""Largest number of directions that are kept."""

_PLAIN = 2.0
"""A curvature up to this many times the usual one, or down to its inverse, is left as it is."""

_EXACT = 0.05
"""Residual of an eigenvector, relative to its eigenvalue, up to which it is used."""

_FLATTEST = 1e-4
"""The least curvature that a direction is scaled for, relative to the usual one."""

_SHARE = 0.25
"""Part of the available seconds that the iteration may use."""


@dataclass(frozen=True)
class Axes:
    """Curvature in scaled coordinates: some directions, and what is left.

    Attributes:
        preconditioner: Scales with the directions found.
        stiffest: Largest curvature that is left in its coordinates.
        products: Products with the Hessian over the whole dataset that were computed.
    """

    preconditioner: Preconditioner
    stiffest: float
    products: int


def find_axes(
    objective: Objective,
    scales: Preconditioner,
    positions: Sequence[np.ndarray],
    seed: int,
    seconds: float = np.inf,
) -> Axes:
    """Return a preconditioner that undoes the largest and smallest curvatures around positions.

    With D the scales, H the negative Hessian averaged over the positions, and λ, v an eigenvalue
    and eigenvector of DHD, the scale along v is divided by √λ; all others by the root of their
    mean.

    Args:
        objective: Log posterior.
        scales: Diagonal preconditioner.
        positions: Flat and unconstrained.
        seed: Seed of the first direction.
        seconds: Seconds available for the whole run.
    """
    root, began = scales.root, time.monotonic()
    taken = 0

    def product(vector: np.ndarray) -> np.ndarray:
        nonlocal taken
        taken += len(positions)
        return root * np.mean([objective.times_hessian(u, root * vector) for u in positions], 0)

    values, vectors, residuals, mean = _lanczos(
        product, len(root), np.random.default_rng(seed), began + _SHARE * seconds
    )
    exact = residuals <= _EXACT * np.abs(values)
    unusual = (values > _PLAIN * mean) | ((values < mean / _PLAIN) & (values > _FLATTEST * mean))
    chosen = np.flatnonzero(exact & unusual)
    # Those farthest from the mean, as ratios, come first.
    far = np.argsort(-np.abs(np.log(values[chosen] / mean)))[:_MOST]
    chosen = np.sort(chosen[far])
    left = np.delete(values, chosen)
    if len(chosen) == 0:
        return Axes(scales, float(values.max() / mean), taken)
    found = Preconditioner(
        root / np.sqrt(mean),
        scales.origin,
        vectors[:, chosen],
        np.sqrt(mean / values[chosen]),
    )
    return Axes(found, float(max(1.0, left.max() / mean)) if len(left) else 1.0, taken)


def _lanczos(
    product: Callable[[np.ndarray], np.ndarray], d: int, rng: np.random.Generator, until: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return Ritz values and vectors of a symmetric matrix, their residuals, and a usual value.

    All vectors are kept orthogonal. The usual value is the median of the spectrum as the first
    direction, a random one, sees it: each Ritz value weighs as the square of its vector's part in
    that direction.
    """
    steps = min(_STEPS, d)
    basis = np.zeros((steps, d))
    diagonal, beside = np.zeros(steps), np.zeros(steps)
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
        beside[k] = np.linalg.norm(image)
        if beside[k] <= 1e-10 * abs(diagonal[: k + 1]).max() or time.monotonic() > until:
            steps = k + 1
            break
        vector = image / beside[k]
    if steps == 0:
        return np.ones(1), np.zeros((d, 1)), np.full(1, np.inf), 1.0
    small = np.diag(diagonal[:steps])
    small += np.diag(beside[: steps - 1], 1) + np.diag(beside[: steps - 1], -1)
    values, inner = np.linalg.eigh(small)
    weights = np.cumsum(inner[0] ** 2)
    usual = float(values[np.searchsorted(weights, 0.5 * weights[-1])])
    residuals = np.abs(beside[steps - 1] * inner[-1])
    return values, basis[:steps].T @ inner, residuals, usual if usual > 0 else 1.0
