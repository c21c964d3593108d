"""Products with the Hessian, and information of the shape of an arrow, or dense, found by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.data.passes import Function, Pass, shards
from sgmcmc.graphs.vectorization import vectorized_map
from sgmcmc.interrupts import pass_on
from sgmcmc.target.geometry import Arrow, Preconditioner, arrow_of, inverse_root
from sgmcmc.target.layout import Layout
from sgmcmc.target.target import Target
from sgmcmc.tuning.objective import Objective, along, slope_over

_NUMBERS = 2**22
"""Largest size of an intermediate result."""

_TOGETHER = 64
"""Largest number of vectors of an intermediate result."""

_ROWS = 2**16
"""Largest number of terms of the log-likelihood of an intermediate result."""

_ONE_BY_ONE = 100
"""Largest number of products for which compiling takes longer than it gains."""

_FEWEST = 20
"""Least number of groups that are looked for."""

_WIDEST = 8
"""Largest number of coordinates of a group."""

_CORE = 5000
"""The largest core, which is dense."""

_FEW = 50
"""Largest number of coordinates of a parameter for which curvature is averaged over many
positions."""

_NOTHING = 1e-9
"""Entries of the coupling, relative to its largest, that are rounding."""

_EQUAL = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-7}
"""Largest difference of entries of a Hessian that should be equal, relative to its largest."""


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
        self._objective, self._target, self._data = objective, target, data
        self._weight = weight
        functions: dict[str, Function] = {"prior": self._prior, "rows": self._rows}
        self._pass = Pass(data, functions, row_terms=target.row_terms, jit_compile=True)
        rows = min(data.size, shards(data, _ROWS, target.row_terms)[0].piece)
        self.together = int(np.clip(_NUMBERS // (rows * target.row_terms), 1, _TOGETHER))
        self._compiles = not data.sparse

    def __call__(self, u: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the products at a position with each of some vectors, (k, d)."""
        if len(vectors) > _ONE_BY_ONE and self._compiles:
            try:
                return self._many(u, vectors)
            except (tf.errors.OpError, ValueError, TypeError, NotImplementedError) as error:
                # Operations that neither XLA nor vectorization supports are computed one by one.
                pass_on(error)
                self._compiles = False
        each = [self._objective.times_hessian(u, vector) for vector in vectors]
        return np.reshape(each, vectors.shape)

    def information(self, u: np.ndarray) -> np.ndarray:
        """Return the whole matrix at a position, (d, d): from rows' factors if they are known."""
        if not self._objective.has_factors(u):
            return self(u, np.eye(len(u)))
        return self._objective.information(u)

    def _many(self, u: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        dtype = self._target.dtype.as_numpy_dtype
        point, found = u.astype(dtype), np.empty((len(vectors), len(u)))
        for first in range(0, len(vectors), self.together):
            some = vectors[first : first + self.together]
            padded = np.zeros((self.together, len(u)), dtype)
            padded[: len(some)] = some
            (of_prior,) = self._pass.run("prior", point, padded)
            (of_rows,) = self._pass.sums("rows", point, padded, most=_ROWS)
            found[first : first + len(some)] = -(of_prior.numpy() + self._weight * of_rows)[
                : len(some)
            ]
        return found

    def _prior(self, u: tf.Tensor, vectors: tf.Tensor) -> list[tf.Tensor]:
        return [vectorized_map(lambda v: along(self._target.prior_gradient, u, v), vectors)]

    def _rows(self, u: tf.Tensor, vectors: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        slope = slope_over(self._target, columns)
        return [vectorized_map(lambda v: along(slope, u, v), vectors)]


@dataclass(frozen=True)
class Structure:
    """Coordinates in many small blocks, which are independent given all others.

    Attributes:
        leaves: Places of these coordinates, a row for each block, (G, k).
        core: Places of all others, in the order of the position, (c,).
        few: Places of those of parameters with few coordinates.
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
        places: Places of its coordinates, (G, k).
    """

    name: str
    places: np.ndarray


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
    found: list[_Candidate] = []
    for name in layout.names:
        for candidate in _candidates(name, layout):
            if _has_blocks(objective, u, candidate.places, rng):
                found.append(candidate)
                break
    together = _together(objective, u, found, rng)
    if not together:
        return None
    leaves = np.concatenate([candidate.places for candidate in together], 1)
    names = tuple(candidate.name for candidate in together)
    others = [place for name, place in layout.slices.items() if name not in names]
    if sum(place.stop - place.start for place in others) > _CORE:
        return None
    small = [place for place in others if place.stop - place.start <= _FEW]
    core, few = (
        np.concatenate([np.zeros(0, int), *(np.arange(p.start, p.stop) for p in places)])
        for places in (others, small)
    )
    return Structure(leaves, core, few, names)


def _candidates(name: str, layout: Layout) -> list[_Candidate]:
    """Return the ways in which a parameter may be made of groups: along its first or last axis."""
    shape, place = layout.shapes[name], layout.slices[name]
    numbers = np.arange(place.start, place.stop).reshape(shape)
    found = []
    for axis in {0, len(shape) - 1} if shape else ():
        places = np.moveaxis(numbers, axis, 0).reshape(shape[axis], -1)
        if len(places) >= _FEWEST and places.shape[1] <= _WIDEST:
            found.append(_Candidate(name, places))
    return found


def _has_blocks(
    objective: Objective, u: np.ndarray, places: np.ndarray, rng: np.random.Generator
) -> bool:
    """Return whether the Hessian is block-diagonal in these coordinates."""
    one, other = (_blocks(objective, u, places, rng) for _ in range(2))
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return False
    dtype = np.dtype(objective.target.dtype.as_numpy_dtype)
    return bool(np.abs(one - other).max() <= _EQUAL[dtype] * np.abs(one).max())


def _blocks(
    objective: Objective, u: np.ndarray, places: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the blocks of the negative Hessian, if it has blocks, (G, k, k)."""
    G, k = places.shape
    found = np.empty((G, k, k))
    for m in range(k):
        signs, vector = rng.choice([-1.0, 1.0], G), np.zeros(len(u))
        vector[places[:, m]] = signs
        found[:, :, m] = objective.times_hessian(u, vector)[places] * signs[:, np.newaxis]
    return found


def _together(
    objective: Objective, u: np.ndarray, found: list[_Candidate], rng: np.random.Generator
) -> list[_Candidate]:
    """Return the candidates of one set of groups that hold the most coordinates."""
    best: list[_Candidate] = []
    for G in {len(candidate.places) for candidate in found}:
        chosen: list[_Candidate] = []
        alike = [candidate for candidate in found if len(candidate.places) == G]
        for candidate in sorted(alike, key=lambda one: -one.places.size):
            places = np.concatenate([one.places for one in (*chosen, candidate)], 1)
            fits = places.shape[1] <= _WIDEST
            if not chosen or (fits and _has_blocks(objective, u, places, rng)):
                chosen.append(candidate)
        best = max(best, chosen, key=lambda some: sum(one.places.size for one in some))
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
    (G, k), d, middle = leaves.shape, len(positions[0]), np.mean(positions, 0)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (k, G))
    vectors = np.zeros((k + len(core), d))
    for m in range(k):
        vectors[m, leaves[:, m]] = signs[m]
    vectors[np.arange(k, len(vectors)), core] = 1.0
    found, in_blocks = np.empty_like(vectors), np.ones(k, bool)
    averaged, rest = np.r_[in_blocks, few], np.r_[in_blocks, ~few]
    found[averaged] = np.mean([products(u, vectors[averaged]) for u in positions], 0)
    if not few.all():
        found[rest] = products(middle, vectors[rest])
    blocks = np.stack([found[m][leaves] * signs[m][:, np.newaxis] for m in range(k)], 2)
    coupling = found[k:][:, leaves.ravel()]
    coupling[np.abs(coupling) < _NOTHING * np.abs(coupling).max(initial=0.0)] = 0.0
    own = found[k:][:, core]
    own[np.ix_(~few, few)] = own[np.ix_(few, ~few)].T
    symmetric = (blocks + np.swapaxes(blocks, 1, 2)) / 2
    return arrow_of(middle, leaves, symmetric, coupling, (own + own.T) / 2, few)


def dense_at(products: Products, positions: Sequence[np.ndarray]) -> Preconditioner:
    """Return the whitening by the information averaged over positions, with their mean as origin.

    It takes d products with the Hessian at each position, or one of the rows' factors.
    """
    information = np.mean([products.information(u) for u in positions], 0)
    return Preconditioner(inverse_root(information), np.mean(positions, 0))
