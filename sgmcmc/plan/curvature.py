"""Curvature of a log posterior: information, and arrows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.data.dataset import Data, Tensors
from sgmcmc.data.passes import Function, Pass, shards
from sgmcmc.graphs.tracing import vectorized_map
from sgmcmc.interrupts import pass_on
from sgmcmc.model.geometry import (
    Arrow,
    ArrowBlocks,
    Preconditioner,
    arrow_of,
    inverse_root,
)
from sgmcmc.model.layout import Layout
from sgmcmc.model.target import Target
from sgmcmc.plan.objective import Objective, along, slope_over


@dataclass(frozen=True)
class _InformationSettings:
    max_updates: int = 50  # of the SDs over which a kink is measured
    settling: int = 12  # updates after which curvatures are averaged
    # Of a curvature, relative to the largest after scaling by the diagonal.
    floor: float = 1e-12
    # Curvature that is not rounding, relative to the largest.
    clearly_upward: float = 1e-3
    # Condition number up to which no eigenvalues are needed: all are positive, and none is near
    # the floor.
    definite_condition: float = 1e10


_INFORMATION_SETTINGS = _InformationSettings()


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
    inverse = _CachedInverse(smooth)
    for _ in range(_INFORMATION_SETTINGS.max_updates):
        below, above = prior_on_both_sides(objective, u, scale)
        secant = (below - above) / (2 * scale) + curved
        # An infinite one is that of a pole, which is no kink.
        kinked = (secant > 1e-6 * np.abs(curved)) & np.isfinite(secant)
        seen.append(np.where(kinked, secant, 0.0))
        # If the step reaches the kink the curvature may jump to and fro; its mean settles.
        extra = np.mean(seen[min(_INFORMATION_SETTINGS.settling, len(seen) - 1) :], 0)
        if not extra.any() and len(seen) > 2:
            break
        before = scale
        scale = np.sqrt(np.diag(inverse.with_positive_eigenvalues(extra)))
        if np.abs(np.log(scale / before)).max() < 0.01:
            break
    matrix = smooth + np.diag(extra)
    covariance = inverse.if_definite(extra)
    if covariance is not None:
        return Information(matrix, covariance, extra, scale)
    return _positive_information(matrix, extra, scale)


def _positive_information(
    matrix: np.ndarray, held_up: np.ndarray, sds: np.ndarray
) -> Information:
    """Return the information whose eigenvalues are the absolute values of those of a matrix."""
    scale, values, vectors = _eigen(matrix)
    largest = np.abs(values).max()
    floor = _INFORMATION_SETTINGS.floor * largest
    count = int((values <= floor).sum())
    upward = None
    if values[0] < -_INFORMATION_SETTINGS.clearly_upward * largest:
        upward = vectors[:, 0] / scale / np.sqrt(-values[0])
    # Eigenvalues that are zero, but for rounding; nothing at all counts as in `_positive`.
    level_floor = floor if floor > 0 else 1.0
    flat = vectors[:, np.abs(values) <= level_floor]
    level = tuple(Level(v / scale / np.sqrt(level_floor), v**2) for v in flat.T)
    scales = np.outer(scale, scale)
    positive = _positive(values)
    matrix = (vectors * positive) @ vectors.T * scales
    covariance = (vectors / positive) @ vectors.T / scales
    return Information(matrix, covariance, held_up, sds, count, upward, level)


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


class _CachedInverse:
    """The inverse of a matrix whose diagonal is added to; kept for the same addition."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix
        self._added: np.ndarray | None = None
        self._inverse: np.ndarray | None = None

    def if_definite(self, added: np.ndarray) -> np.ndarray | None:
        """Return the inverse if the sum is clearly positive definite; else ``None``."""
        if self._added is None or not np.array_equal(added, self._added):
            self._added = added
            self._inverse = _definite_inverse(self._matrix + np.diag(added))
        return self._inverse

    def with_positive_eigenvalues(self, added: np.ndarray) -> np.ndarray:
        """Return the inverse, with the absolute values of eigenvalues."""
        definite = self.if_definite(added)
        if definite is not None:
            return definite
        scale, values, vectors = _eigen(self._matrix + np.diag(added))
        return (vectors / _positive(values)) @ vectors.T / np.outer(scale, scale)


def _definite_inverse(matrix: np.ndarray) -> np.ndarray | None:
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
    if (
        not np.linalg.norm(scaled) * np.linalg.norm(inverse)
        < _INFORMATION_SETTINGS.definite_condition
    ):
        return None
    return inverse / np.outer(scale, scale)


def _scale(matrix: np.ndarray) -> np.ndarray:
    diagonal = np.abs(np.diag(matrix))
    return np.sqrt(np.where(diagonal > np.finfo(float).tiny, diagonal, 1.0))


def _eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scale of each coordinate, and eigenvalues and eigenvectors in these units."""
    scale = _scale(matrix)
    return scale, *np.linalg.eigh(matrix / np.outer(scale, scale))


def _positive(values: np.ndarray) -> np.ndarray:
    """Return eigenvalues, all positive; nothing at all counts as a curvature of one."""
    values = np.abs(values)
    return np.maximum(
        values, _INFORMATION_SETTINGS.floor * values.max() if values.any() else 1.0
    )


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


@dataclass(frozen=True)
class _ArrowSettings:
    max_numbers: int = 2**22  # in an intermediate result
    max_vectors: int = 64  # in an intermediate result
    max_terms: int = 2**16  # of the log-likelihood in an intermediate result
    min_groups: int = 20  # fewer are not searched
    max_block: int = 8  # coordinates of a group
    max_core: int = 5000  # coordinates of the core, whose matrix is dense
    coupling_rounding: float = 1e-9  # entries of the coupling, relative to its largest


_ARROW_SETTINGS = _ArrowSettings()

# Largest number of products for which compiling takes longer than it gains.
_ONE_BY_ONE = 100
_FEW = 50  # coordinates of a parameter up to which curvature is averaged over many positions
# Largest difference of entries of a Hessian that should be equal, relative to its largest.
_EQUAL = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-7}


class Products:
    """The negative Hessian of the log posterior over all rows, times vectors.

    Args:
        objective: Log posterior.
        target: Log posterior, in the dtype in which many products are computed.
        data: Dataset.
        weight: Number of observations that each of them represents.

    Attributes:
        together: Number of vectors that are multiplied at once.
    """

    def __init__(
        self, objective: Objective, target: Target, data: Data, weight: float = 1.0
    ) -> None:
        self._objective = objective
        self.target = target
        self.data = data
        self._weight = weight
        functions: dict[str, Function] = {"prior": self._prior, "rows": self._rows}
        self._pass = Pass(data, functions, row_terms=target.row_terms, jit_compile=True)
        shard_rows = min(
            data.size,
            shards(data, _ARROW_SETTINGS.max_terms, target.row_terms)[0].chunk,
        )
        vectors_in_memory = _ARROW_SETTINGS.max_numbers // (
            shard_rows * target.row_terms
        )
        self.together = int(np.clip(vectors_in_memory, 1, _ARROW_SETTINGS.max_vectors))
        self._compiles = not data.sparse

    def __call__(self, u: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the products at a position with each of some vectors, (k, d)."""
        if len(vectors) > _ONE_BY_ONE and self._compiles:
            try:
                return self._many(u, vectors)
            except (
                tf.errors.OpError,
                ValueError,
                TypeError,
                NotImplementedError,
            ) as error:
                # Operations that neither XLA nor vectorization supports are computed one by one.
                pass_on(error)
                self._compiles = False
        products = [self._objective.times_hessian(u, vector) for vector in vectors]
        return np.reshape(products, vectors.shape)

    def information(self, u: np.ndarray) -> np.ndarray:
        """Return the whole matrix at a position, (d, d): from rows' factors if they are known."""
        if not self._objective.has_factors(u):
            return self(u, np.eye(len(u)))
        return self._objective.information(u)

    def _many(self, u: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        dtype = self.target.dtype.as_numpy_dtype
        point = u.astype(dtype)
        products = np.empty((len(vectors), len(u)))
        for first in range(0, len(vectors), self.together):
            chunk = vectors[first : first + self.together]
            padded = np.zeros((self.together, len(u)), dtype)
            padded[: len(chunk)] = chunk
            (of_prior,) = self._pass.run("prior", point, padded)
            (of_rows,) = self._pass.sums(
                "rows", point, padded, max_terms=_ARROW_SETTINGS.max_terms
            )
            total = of_prior.numpy() + self._weight * of_rows
            products[first : first + len(chunk)] = -total[: len(chunk)]
        return products

    def _prior(self, u: tf.Tensor, vectors: tf.Tensor) -> list[tf.Tensor]:
        return [
            vectorized_map(lambda v: along(self.target.prior_gradient, u, v), vectors)
        ]

    def _rows(
        self, u: tf.Tensor, vectors: tf.Tensor, columns: Tensors
    ) -> list[tf.Tensor]:
        slope = slope_over(self.target, columns)
        return [vectorized_map(lambda v: along(slope, u, v), vectors)]


@dataclass(frozen=True)
class IndependentBlocks:
    """Coordinates in many small blocks, which are independent given all others.

    Attributes:
        leaves: Indices of these coordinates, a row for each block, (G, k).
        core: Indices of all others, in the order of the position, (c,).
        few: Indices of those of parameters with few coordinates.
        names: Parameters that the leaves are of.
    """

    leaves: np.ndarray
    core: np.ndarray
    few: np.ndarray
    names: tuple[str, ...]


def find_structure(
    objective: Objective, layout: Layout, u: np.ndarray, seed: int
) -> IndependentBlocks | None:
    """Return the blocks of the information at a position, or ``None`` if there are none.

    A parameter of G × k numbers is made of blocks if its part of the Hessian is block-diagonal.
    With s random signs, one for each group, and e_m a unit vector, the entries of H(s ⊗ e_m) times
    s are then those of the blocks whatever s is, and almost surely not otherwise. Parameters with
    as many groups belong together if that holds for all of them at once.

    Args:
        objective: Log posterior.
        layout: Layout of the position.
        u: Position, flat and unconstrained.
        seed: Seed of the signs.
    """
    rng = np.random.default_rng([seed, len(u)])
    candidates: dict[str, np.ndarray] = {}
    for name in layout.names:
        shape, entries = layout.shapes[name], layout.slices[name]
        all_indices = np.arange(entries.start, entries.stop).reshape(shape)
        # It may be made of groups along its first or last axis.
        for axis in {0, len(shape) - 1} if shape else ():
            indices = np.moveaxis(all_indices, axis, 0).reshape(shape[axis], -1)
            groups, size = indices.shape
            if groups < _ARROW_SETTINGS.min_groups or size > _ARROW_SETTINGS.max_block:
                continue
            if _has_blocks(objective, u, indices, rng):
                candidates[name] = indices
                break
    chosen = _together(objective, u, candidates, rng)
    if not chosen:
        return None
    leaves = np.concatenate(list(chosen.values()), 1)
    names = tuple(chosen)
    core_slices = [
        entries for name, entries in layout.slices.items() if name not in names
    ]
    if (
        sum(entries.stop - entries.start for entries in core_slices)
        > _ARROW_SETTINGS.max_core
    ):
        return None
    small_slices = [
        entries for entries in core_slices if entries.stop - entries.start <= _FEW
    ]
    core, few = (
        np.concatenate(
            [np.zeros(0, int), *(np.arange(p.start, p.stop) for p in slices)]
        )
        for slices in (core_slices, small_slices)
    )
    return IndependentBlocks(leaves, core, few, names)


def _has_blocks(
    objective: Objective, u: np.ndarray, indices: np.ndarray, rng: np.random.Generator
) -> bool:
    first, second = (_blocks(objective, u, indices, rng) for _ in range(2))
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return False
    dtype = np.dtype(objective.target.dtype.as_numpy_dtype)
    difference = np.abs(first - second).max()
    return bool(difference <= _EQUAL[dtype] * np.abs(first).max())


def _blocks(
    objective: Objective, u: np.ndarray, indices: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the blocks of the negative Hessian, if it has blocks, (G, k, k)."""
    G, k = indices.shape
    blocks = np.empty((G, k, k))
    for m in range(k):
        signs = rng.choice([-1.0, 1.0], G)
        vector = np.zeros(len(u))
        vector[indices[:, m]] = signs
        blocks[:, :, m] = (
            objective.times_hessian(u, vector)[indices] * signs[:, np.newaxis]
        )
    return blocks


def _together(
    objective: Objective,
    u: np.ndarray,
    candidates: dict[str, np.ndarray],
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Return the candidates of one set of groups that have the most coordinates.

    A candidate has the indices of its coordinates, (groups, coordinates of each).
    """
    best: dict[str, np.ndarray] = {}
    largest_first = sorted(candidates, key=lambda name: -candidates[name].size)
    for G in {len(indices) for indices in candidates.values()}:
        group: dict[str, np.ndarray] = {}
        for name in largest_first:
            if len(candidates[name]) != G:
                continue
            indices = np.concatenate([*group.values(), candidates[name]], 1)
            fits = indices.shape[1] <= _ARROW_SETTINGS.max_block
            if not group or (fits and _has_blocks(objective, u, indices, rng)):
                group[name] = candidates[name]
        best = max(best, group, key=lambda one: sum(i.size for i in one.values()))
    return best


def arrow_at(
    products: Products,
    structure: IndependentBlocks,
    positions: Sequence[np.ndarray],
    seed: int,
) -> Arrow:
    """Return the whitening by the information around positions, with their mean as origin.

    Rows of parameters with few coordinates are averaged over the positions, by Louis' identity:
    their curvature at one position says little of their marginal. All others are averaged too if
    they are in blocks alone. Otherwise they are those at the mean: averages of so many rows take
    long, and averages of some rows are inconsistent with values at the mean of others if directions
    of both are nearly the same.

    Args:
        products: Products with the Hessian.
        structure: Blocks of the information.
        positions: Flat and unconstrained.
        seed: Seed of the signs.
    """
    leaves, core = structure.leaves, structure.core
    few = np.isin(core, structure.few)
    G, k = leaves.shape
    d = len(positions[0])
    center = np.mean(positions, 0)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (k, G))
    vectors = np.zeros((k + len(core), d))
    for m in range(k):
        vectors[m, leaves[:, m]] = signs[m]
    vectors[np.arange(k, len(vectors)), core] = 1.0
    hessian_vectors = np.empty_like(vectors)
    in_blocks = np.ones(k, bool)
    averaged = np.r_[in_blocks, few]
    at_center = np.r_[in_blocks, ~few]
    hessian_vectors[averaged] = np.mean(
        [products(u, vectors[averaged]) for u in positions], 0
    )
    if not few.all():
        hessian_vectors[at_center] = products(center, vectors[at_center])
    of_leaves = hessian_vectors[:k, leaves] * signs[:, :, np.newaxis]
    blocks = np.stack(list(of_leaves), 2)
    coupling = hessian_vectors[k:][:, leaves.ravel()]
    rounding = _ARROW_SETTINGS.coupling_rounding * np.abs(coupling).max(initial=0.0)
    coupling[np.abs(coupling) < rounding] = 0.0
    core_block = hessian_vectors[k:][:, core]
    core_block[np.ix_(~few, few)] = core_block[np.ix_(few, ~few)].T
    blocks = (blocks + np.swapaxes(blocks, 1, 2)) / 2
    core_block = (core_block + core_block.T) / 2
    information = ArrowBlocks(leaves, blocks, coupling, core_block)
    return arrow_of(center, information, few)


def dense_at(products: Products, positions: Sequence[np.ndarray]) -> Preconditioner:
    """Return the whitening by the information averaged over positions, with their mean as origin.

    It takes d products with the Hessian at each position, or one of the rows' factors.
    """
    information = np.mean([products.information(u) for u in positions], 0)
    return Preconditioner(inverse_root(information), np.mean(positions, 0))
