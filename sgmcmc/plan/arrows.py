"""Products with the Hessian, and information of the shape of an arrow, or dense, found by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data, Tensors
from sgmcmc.data.passes import Function, Pass, shards
from sgmcmc.graphs.tracing import vectorized_map
from sgmcmc.interrupts import pass_on
from sgmcmc.model.geometry import Arrow, Preconditioner, arrow_of, inverse_root
from sgmcmc.model.layout import Layout
from sgmcmc.model.target import Target
from sgmcmc.plan.objective import Objective, along, slope_over


@dataclass(frozen=True)
class _Settings:
    max_numbers: int = 2**22  # in an intermediate result
    max_vectors: int = 64  # in an intermediate result
    max_terms: int = 2**16  # of the log-likelihood in an intermediate result
    min_groups: int = 20  # fewer are not searched
    max_block: int = 8  # coordinates of a group
    max_core: int = 5000  # coordinates of the core, whose matrix is dense
    coupling_rounding: float = 1e-9  # entries of the coupling, relative to its largest


_SETTINGS = _Settings()

_ONE_BY_ONE = (
    100  # largest number of products for which compiling takes longer than it gains
)
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
    """

    def __init__(
        self, objective: Objective, target: Target, data: Data, weight: float = 1.0
    ) -> None:
        self._objective = objective
        self._target = target
        self._data = data
        self._weight = weight
        functions: dict[str, Function] = {"prior": self._prior, "rows": self._rows}
        self._pass = Pass(data, functions, row_terms=target.row_terms, jit_compile=True)
        shard_rows = min(
            data.size, shards(data, _SETTINGS.max_terms, target.row_terms)[0].chunk
        )
        vectors_in_memory = _SETTINGS.max_numbers // (shard_rows * target.row_terms)
        self.together = int(np.clip(vectors_in_memory, 1, _SETTINGS.max_vectors))
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
        dtype = self._target.dtype.as_numpy_dtype
        point = u.astype(dtype)
        products = np.empty((len(vectors), len(u)))
        for first in range(0, len(vectors), self.together):
            chunk = vectors[first : first + self.together]
            padded = np.zeros((self.together, len(u)), dtype)
            padded[: len(chunk)] = chunk
            (of_prior,) = self._pass.run("prior", point, padded)
            (of_rows,) = self._pass.sums(
                "rows", point, padded, max_terms=_SETTINGS.max_terms
            )
            total = of_prior.numpy() + self._weight * of_rows
            products[first : first + len(chunk)] = -total[: len(chunk)]
        return products

    def _prior(self, u: tf.Tensor, vectors: tf.Tensor) -> list[tf.Tensor]:
        return [
            vectorized_map(lambda v: along(self._target.prior_gradient, u, v), vectors)
        ]

    def _rows(
        self, u: tf.Tensor, vectors: tf.Tensor, columns: Tensors
    ) -> list[tf.Tensor]:
        slope = slope_over(self._target, columns)
        return [vectorized_map(lambda v: along(slope, u, v), vectors)]


@dataclass(frozen=True)
class Structure:
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


@dataclass(frozen=True)
class _Candidate:
    """A parameter that may be made of blocks.

    Attributes:
        name: Name.
        indices: Indices of its coordinates, (G, k).
    """

    name: str
    indices: np.ndarray


def find_structure(
    objective: Objective, layout: Layout, u: np.ndarray, seed: int
) -> Structure | None:
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
    candidates: list[_Candidate] = []
    for name in layout.names:
        for candidate in _candidates(name, layout):
            if _has_blocks(objective, u, candidate.indices, rng):
                candidates.append(candidate)
                break
    chosen = _together(objective, u, candidates, rng)
    if not chosen:
        return None
    leaves = np.concatenate([candidate.indices for candidate in chosen], 1)
    names = tuple(candidate.name for candidate in chosen)
    core_slices = [
        entries for name, entries in layout.slices.items() if name not in names
    ]
    if (
        sum(entries.stop - entries.start for entries in core_slices)
        > _SETTINGS.max_core
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
    return Structure(leaves, core, few, names)


def _candidates(name: str, layout: Layout) -> list[_Candidate]:
    """Return the ways in which a parameter may be made of groups: along its first or last axis."""
    shape = layout.shapes[name]
    entries = layout.slices[name]
    all_indices = np.arange(entries.start, entries.stop).reshape(shape)
    candidates = []
    for axis in {0, len(shape) - 1} if shape else ():
        indices = np.moveaxis(all_indices, axis, 0).reshape(shape[axis], -1)
        if (
            len(indices) >= _SETTINGS.min_groups
            and indices.shape[1] <= _SETTINGS.max_block
        ):
            candidates.append(_Candidate(name, indices))
    return candidates


def _has_blocks(
    objective: Objective, u: np.ndarray, indices: np.ndarray, rng: np.random.Generator
) -> bool:
    first, second = (_blocks(objective, u, indices, rng) for _ in range(2))
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return False
    dtype = np.dtype(objective.target.dtype.as_numpy_dtype)
    return bool(np.abs(first - second).max() <= _EQUAL[dtype] * np.abs(first).max())


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
    candidates: list[_Candidate],
    rng: np.random.Generator,
) -> list[_Candidate]:
    """Return the candidates of one set of groups that have the most coordinates."""
    best: list[_Candidate] = []
    for G in {len(candidate.indices) for candidate in candidates}:
        group: list[_Candidate] = []
        of_size = [candidate for candidate in candidates if len(candidate.indices) == G]
        for candidate in sorted(of_size, key=lambda c: -c.indices.size):
            indices = np.concatenate([c.indices for c in (*group, candidate)], 1)
            fits = indices.shape[1] <= _SETTINGS.max_block
            if not group or (fits and _has_blocks(objective, u, indices, rng)):
                group.append(candidate)
        best = max(best, group, key=lambda one: sum(c.indices.size for c in one))
    return best


def arrow_at(
    products: Products, structure: Structure, positions: Sequence[np.ndarray], seed: int
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
    (G, k), d, center = leaves.shape, len(positions[0]), np.mean(positions, 0)
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
    blocks = np.stack(
        [hessian_vectors[m][leaves] * signs[m][:, np.newaxis] for m in range(k)], 2
    )
    coupling = hessian_vectors[k:][:, leaves.ravel()]
    rounding = _SETTINGS.coupling_rounding * np.abs(coupling).max(initial=0.0)
    coupling[np.abs(coupling) < rounding] = 0.0
    core_block = hessian_vectors[k:][:, core]
    core_block[np.ix_(~few, few)] = core_block[np.ix_(few, ~few)].T
    symmetric = (blocks + np.swapaxes(blocks, 1, 2)) / 2
    return arrow_of(
        center, leaves, symmetric, coupling, (core_block + core_block.T) / 2, few
    )


def dense_at(products: Products, positions: Sequence[np.ndarray]) -> Preconditioner:
    """Return the whitening by the information averaged over positions, with their mean as origin.

    It takes d products with the Hessian at each position, or one of the rows' factors.
    """
    information = np.mean([products.information(u) for u in positions], 0)
    return Preconditioner(inverse_root(information), np.mean(positions, 0))
