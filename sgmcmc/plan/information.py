"""The observed information at a mode, and the covariance that it implies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from sgmcmc.plan.objective import Objective


@dataclass(frozen=True)
class _Settings:
    max_updates: int = 50  # of the SDs over which a kink is measured
    settling: int = 12  # updates after which curvatures are averaged
    floor: float = (
        1e-12  # of a curvature, relative to the largest after scaling by the diagonal
    )
    clearly_upward: float = (
        1e-3  # curvature that is not rounding, relative to the largest
    )
    # Condition number up to which no eigenvalues are needed: all are positive, and none is near
    # the floor.
    plain_condition: float = 1e10


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Level:
    """A direction in which the log posterior has no curvature.

    Attributes:
        step: Step of one SD in it, the largest that is assumed of any direction, (d,).
        shares: Part of each coordinate in it, in units of its own curvature, (d,); they add to 1.
    """

    step: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True)
class Information:
    """Curvature of the log posterior at a point.

    Attributes:
        matrix: J, the negative Hessian, prior curvature included, positive definite.
        covariance: M = J⁻¹.
        held_up: Part of each coordinate's curvature that comes from a prior with a kink, measured
            over one SD to each side.
        scale: Scale over which it is measured: one SD, by coordinate.
        not_positive: Number of directions in which the negative Hessian is not positive; J has its
            absolute value there.
        upward: Step in the direction in which the log posterior is clearly curved upward, the most
            of all, by which it rises by one half where its gradient is zero; ``None`` if it is not.
        level: Directions without curvature.
    """

    matrix: np.ndarray
    covariance: np.ndarray
    held_up: np.ndarray
    scale: np.ndarray
    not_positive: int = 0
    upward: np.ndarray | None = None
    level: tuple[Level, ...] = ()

    @cached_property
    def condition(self) -> float:
        """The condition number of J, infinite if rounding leaves no smallest eigenvalue."""
        values = np.linalg.eigvalsh(self.matrix)
        return float(values[-1] / values[0]) if values[0] > 0 else float("inf")

    @property
    def shown_condition(self) -> float | str:
        """The condition number, or why there is none."""
        if self.not_positive:
            return f"none: not positive in {self.not_positive} of {len(self.matrix)} directions"
        condition = self.condition
        return condition if np.isfinite(condition) else "beyond rounding"


def observed_information(
    objective: Objective, u: np.ndarray, hessian: np.ndarray | None = None
) -> Information:
    """Return the information at a position.

    Second derivatives do not describe the effect of a prior with a kink, such as Laplace's. There
    its curvature is that of its gradient between one SD to the left and one to the right, which in
    turn depends on the SD: s² = 1/(J(s))ⱼⱼ is solved by iteration.

    Args:
        objective: Log posterior.
        u: Position.
        hessian: Hessian of the log-likelihood, if it is known.

    Raises:
        np.linalg.LinAlgError: Second derivatives are not finite, as near a pole of the posterior.
    """
    prior = objective.prior_hessian(u)
    smooth = -(objective.likelihood_hessian(u) if hessian is None else hessian) - prior
    if not np.isfinite(smooth).all():
        raise np.linalg.LinAlgError(
            "The curvature of the log posterior is not finite there."
        )
    curved = np.diag(prior)
    diagonal = np.diag(smooth)
    # The first SDs are those of single coordinates, one if the data say nothing.
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    seen: list[np.ndarray] = []
    inverse = _LastInverse(smooth)
    for _ in range(_SETTINGS.max_updates):
        below, above = prior_on_both_sides(objective, u, scale)
        secant = (below - above) / (2 * scale) + curved
        # An infinite one is that of a pole, which is no kink.
        kinked = (secant > 1e-6 * np.abs(curved)) & np.isfinite(secant)
        seen.append(np.where(kinked, secant, 0.0))
        # If the step reaches the kink the curvature may jump to and fro; its mean settles.
        extra = np.mean(seen[min(_SETTINGS.settling, len(seen) - 1) :], 0)
        if not extra.any() and len(seen) > 2:
            break
        before = scale
        scale = np.sqrt(np.diag(inverse.turned_up(extra)))
        if np.abs(np.log(scale / before)).max() < 0.01:
            break
    matrix = smooth + np.diag(extra)
    covariance = inverse.plain(extra)
    if covariance is not None:
        return Information(matrix, covariance, extra, scale)
    units, values, vectors = _eigen(matrix)
    count, upward = _not_positive(units, values, vectors)
    scales = np.outer(units, units)
    positive = _turned_up(values)
    matrix = (vectors * positive) @ vectors.T * scales
    covariance = (vectors / positive) @ vectors.T / scales
    level = _level(units, values, vectors)
    return Information(matrix, covariance, extra, scale, count, upward, level)


def prior_on_both_sides(
    objective: Objective, u: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return each coordinate of the prior's gradient at a step below and a step above."""
    steps = np.diag(scale)
    gradients = objective.prior_gradients(np.concatenate([u - steps, u + steps]))
    return np.diag(gradients[: len(u)]), np.diag(gradients[len(u) :])


def mean_prior_gradient(
    objective: Objective, u: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Return the mean of each coordinate of the prior's gradient from a step below to one above.

    Unlike the gradient itself it is continuous where the prior has a kink, and its derivative is
    the curvature between the two ends. It is NaN where the prior is zero at both.
    """
    steps = np.diag(scale)
    values = objective.prior_values(np.concatenate([u - steps, u + steps]))
    with np.errstate(invalid="ignore"):
        return (values[len(u) :] - values[: len(u)]) / (2 * scale)


def _not_positive(
    scale: np.ndarray, values: np.ndarray, vectors: np.ndarray
) -> tuple[int, np.ndarray | None]:
    largest = np.abs(values).max()
    count = int((values <= _SETTINGS.floor * largest).sum())
    if values[0] >= -_SETTINGS.clearly_upward * largest:
        return count, None
    return count, vectors[:, 0] / scale / np.sqrt(-values[0])


def _level(
    scale: np.ndarray, values: np.ndarray, vectors: np.ndarray
) -> tuple[Level, ...]:
    """Return the directions whose eigenvalues are zero, but for rounding."""
    floor = _SETTINGS.floor * np.abs(values).max()
    if not floor > 0:
        floor = 1.0  # as in :func:`_turned_up`
    flat = vectors[:, np.abs(values) <= floor]
    return tuple(Level(v / scale / np.sqrt(floor), v**2) for v in flat.T)


class _LastInverse:
    """The inverse of a matrix whose diagonal is added to; kept for the same addition."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix
        self._added: np.ndarray | None = None
        self._inverse: np.ndarray | None = None

    def plain(self, added: np.ndarray) -> np.ndarray | None:
        """Return the inverse if the sum is clearly positive definite; else ``None``."""
        if self._added is None or not np.array_equal(added, self._added):
            self._added = added
            self._inverse = _plain_inverse(self._matrix + np.diag(added))
        return self._inverse

    def turned_up(self, added: np.ndarray) -> np.ndarray:
        """Return the inverse, with the absolute values of eigenvalues."""
        plain = self.plain(added)
        if plain is not None:
            return plain
        scale, values, vectors = _eigen(self._matrix + np.diag(added))
        return (vectors / _turned_up(values)) @ vectors.T / np.outer(scale, scale)


def _plain_inverse(matrix: np.ndarray) -> np.ndarray | None:
    """Return the inverse of a matrix that is clearly positive definite; ``None`` of others.

    It takes a tenth of the time of eigenvalues, and much less on busy cores.
    """
    scale = _scale(matrix)
    scaled = matrix / np.outer(scale, scale)
    root, failed = scipy.linalg.lapack.dpotrf(scaled, lower=1)
    if failed:
        return None
    inverse, failed = scipy.linalg.lapack.dpotri(root, lower=1)
    if failed:
        return None
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    if not np.linalg.norm(scaled) * np.linalg.norm(inverse) < _SETTINGS.plain_condition:
        return None
    return inverse / np.outer(scale, scale)


def _scale(matrix: np.ndarray) -> np.ndarray:
    diagonal = np.abs(np.diag(matrix))
    return np.sqrt(np.where(diagonal > np.finfo(float).tiny, diagonal, 1.0))


def _eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scale of each coordinate, and eigenvalues and eigenvectors in these units."""
    scale = _scale(matrix)
    return scale, *np.linalg.eigh(matrix / np.outer(scale, scale))


def _turned_up(values: np.ndarray) -> np.ndarray:
    """Return eigenvalues, all positive; nothing at all counts as a curvature of one."""
    values = np.abs(values)
    return np.maximum(values, _SETTINGS.floor * values.max() if values.any() else 1.0)


def shrunk_covariance(draws: np.ndarray, effective: float) -> np.ndarray:
    """Return the covariance of draws, shrunk toward the identity, more so if they are few.

    Args:
        draws: Draws in coordinates in which the covariance may be the identity, (k, d).
        effective: Effective number of independent draws.
    """
    d = draws.shape[1]
    centered = draws - draws.mean(0)
    covariance = centered.T @ centered / (len(draws) - 1)
    return (effective * covariance + 2 * d * np.eye(d)) / (effective + 2 * d)
