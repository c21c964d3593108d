"""Effects of further factors of a Gaussian regression, after those of one are integrated out.

With the effects of groups g of one factor integrated out, those of all other factors and the
coefficients have the products, in units of σ²,

    S = W + Σ_g P_g' M_g⁻¹ P_g,

of which W is what is left within groups and P_g = Q_g'Z, both sums over the rows. As a function of
the scales S is a sum of fixed matrices, one for each kind of group and entry of M⁻¹: its lower
triangle is `terms` times those entries, and takes as long as there are pairs of levels that occur
together in a group. Effects r of the other factors have the precision A = S + Σ⁻¹, a dense matrix
whose Cholesky factor leaves F = S_dd − S_dz A⁻¹ S_zd of the remaining columns d.

F is a difference: with effects of c times the noise its relative rounding error is of the order of
c² ε, 10⁻¹⁰ for c = 1000. W is zero where it is rounding, as for factors that are functions of the
groups.

Source: Bates, Mächler, Bolker & Walker, Journal of Statistical Software 67 (2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse
from scipy.linalg import lapack


@dataclass(frozen=True)
class _Settings:
    # Of what is left within groups, relative to the squares of the columns, that is rounding.
    rounding: float = 1e-12
    # Of levels that occur together in a group: about 0.4 GB on the way, by their sizes.
    pairs: float = 2.0**23
    # Numbers of all terms, if they are dense: about 1 GB on the way.
    dense: float = 2.0**25
    groups: int = 1024  # that are a dense matrix at a time
    digits: float = 32.0  # natural log of the precision of interpolation between kinds


_SETTINGS = _Settings()


@dataclass(frozen=True)
class CrossedProducts:
    """Sums over rows of the columns of effects of other factors.

    Attributes:
        squares: Σ w z z', (m, m).
        by_effect: Σ w u_k z' over the rows of each group, for each of its effects, (groups, m).
    """

    squares: scipy.sparse.csr_matrix
    by_effect: tuple[scipy.sparse.csr_matrix, ...]

    @classmethod
    def of(
        cls,
        z: scipy.sparse.csr_matrix,
        weights: np.ndarray,
        effects: Sequence[scipy.sparse.csr_matrix],
    ) -> CrossedProducts:
        """Return those of some rows.

        Args:
            z: Columns, (rows, m).
            weights: Weights, (rows,).
            effects: Columns of each effect of groups, times the weights, (groups, rows).
        """
        weighted = z.multiply(weights[:, np.newaxis]).tocsr()
        return cls((weighted.T @ z).tocsr(), tuple((u @ z).tocsr() for u in effects))

    def __add__(self, other: CrossedProducts) -> CrossedProducts:
        by_effect = zip(self.by_effect, other.by_effect, strict=True)
        return CrossedProducts(
            self.squares + other.squares, tuple(a + b for a, b in by_effect)
        )

    def projected(self, inverses: np.ndarray) -> list[scipy.sparse.csr_matrix]:
        """Return Q'Z by effect, (groups, m), with W of Q = U W', (groups, q, q)."""
        q = len(self.by_effect)
        return [
            sum(
                self.by_effect[j].multiply(inverses[:, i, j, np.newaxis])
                for j in range(q)
            ).tocsr()
            for i in range(q)
        ]


def number_of_pairs(projections: Sequence[scipy.sparse.csr_matrix]) -> float:
    """Return the number of pairs of columns that occur together in a group."""
    sizes = np.stack([np.diff(p.indptr) for p in projections]).astype(np.float64)
    return float((sizes.sum(0) ** 2).sum() / 2.0)


def is_sparse(projections: Sequence[scipy.sparse.csr_matrix]) -> bool:
    """Return whether the terms are a sparse matrix."""
    return number_of_pairs(projections) <= _SETTINGS.pairs


def are_few(projections: Sequence[scipy.sparse.csr_matrix], roots: np.ndarray) -> bool:
    """Return whether the terms fit into memory."""
    if is_sparse(projections):
        return True
    m = projections[0].shape[1]
    nodes = len(_nodes(roots)) if len(projections) == 1 else np.inf
    return m * (m + 1.0) / 2.0 * nodes <= _SETTINGS.dense


@dataclass(frozen=True)
class CrossedSums:
    """Sums of the effects of other factors than that which is integrated out first.

    Attributes:
        levels: Number of levels of each factor, whose effects are columns level by level.
        roots: K with K'K = Σ w u u', of each kind of group or node between them, (kinds, q, q).
        terms: Terms of the entries of the lower triangle, (entries, 1 + kinds · q (q + 1) / 2):
            those of W, and those of each entry of M⁻¹ of each kind.
        places: Row and column of each entry, (2, entries).
        projections: Q'Z of all groups, transposed, (m, groups · q).
        within: Products with the other columns within groups, (m, p + 1).
    """

    levels: tuple[int, ...]
    roots: np.ndarray
    terms: scipy.sparse.csr_matrix | np.ndarray
    places: np.ndarray
    projections: scipy.sparse.csr_matrix
    within: np.ndarray

    @property
    def size(self) -> int:
        """Number of effects."""
        return len(self.within)

    @property
    def work(self) -> float:
        """Number of multiplications for the entries at one position."""
        if isinstance(self.terms, np.ndarray):
            return float(self.terms.size)
        return float(self.terms.nnz)

    def entries(self, ratios: np.ndarray) -> np.ndarray:
        """Return the entries of S, (entries, c), at roots of covariances over σ, (c, q, q)."""
        inverse = inverses_of(self.roots, ratios)
        i, j = np.triu_indices(self.roots.shape[1])
        weights = inverse[:, :, i, j].transpose(2, 1, 0).reshape(-1, len(ratios))
        weights = np.concatenate([np.ones((1, len(ratios))), weights])
        return np.asarray(self.terms @ weights)

    def eliminated(
        self, entries: np.ndarray, others: np.ndarray, ratios: Sequence[np.ndarray]
    ) -> Eliminated:
        """Return the effects as they are at one position, integrated out.

        Args:
            entries: Entries of S, (entries,).
            others: Products with the other columns, S_zd, (m, p + 1).
            ratios: Root of the covariance of each factor's effects, over σ, (q, q).
        """
        m = self.size
        precision = np.zeros((m, m), order="F")
        precision[self.places[0], self.places[1]] = entries
        log_det, start = 0.0, 0
        for levels, root in zip(self.levels, ratios, strict=True):
            q = len(root)
            inverse = np.linalg.inv(root)
            prior = inverse.T @ inverse
            first = start + q * np.arange(levels)
            for i in range(q):
                for j in range(i + 1):
                    precision[first + i, first + j] += prior[i, j]
            log_det += levels * float(np.log(np.abs(np.diag(root))).sum())
            start += levels * q
        root, failed = lapack.dpotrf(precision, lower=1, overwrite_a=1, clean=0)
        if failed:
            return Eliminated(np.inf, root, np.full_like(others, np.nan))
        log_det += float(np.log(np.diagonal(root)).sum())
        explained, _ = lapack.dtrtrs(root, others, lower=1)
        return Eliminated(log_det, root, explained)


@dataclass(frozen=True)
class Eliminated:
    """Effects of other factors at a position.

    Attributes:
        half_log_det: Half the log determinant of I + L'SL/σ².
        root: Cholesky factor of A in the lower triangle, (m, m).
        explained: Root⁻¹ S_zd, (m, p + 1).
    """

    half_log_det: float
    root: np.ndarray
    explained: np.ndarray

    def effects(
        self, coefficients: np.ndarray, sigma: float, normals: np.ndarray
    ) -> np.ndarray:
        """Return a draw given all other coefficients, (m,)."""
        toward = self.explained @ np.append(-coefficients, 1.0) + sigma * normals
        drawn, _ = lapack.dtrtrs(self.root, toward, lower=1, trans=1)
        return np.asarray(drawn)


def inverses_of(roots: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """Return M⁻¹ of kinds of groups, (c, kinds, q, q), at roots of covariances over σ."""
    columns = np.matmul(roots, ratios[:, np.newaxis])
    M = np.eye(roots.shape[1]) + np.matmul(columns, columns.transpose(0, 1, 3, 2))
    if M.shape[-1] == 1:
        return 1.0 / M
    M = np.where(np.isfinite(M).all((2, 3), keepdims=True), M, np.nan)
    return np.asarray(np.linalg.inv(M))


class KindsOfGroups(Protocol):
    """Groups, each of a kind that is known by its columns of effects."""

    @property
    def roots(self) -> np.ndarray:
        """K with K'K = Σ w u u', one for each kind of group, (kinds, q, q)."""

    @property
    def kinds(self) -> np.ndarray:
        """Kind of each group, (groups,)."""


def crossed_sums(
    products: CrossedProducts,
    projections: Sequence[scipy.sparse.csr_matrix],
    groups: KindsOfGroups,
    within: np.ndarray,
    levels: tuple[int, ...],
) -> CrossedSums:
    """Return the sums of the effects of other factors.

    Args:
        products: Sums over rows.
        projections: Q'Z of groups, by effect.
        groups: Groups.
        within: Products with the other columns within groups, (m, p + 1).
        levels: Number of levels of each factor.
    """
    m, q = len(within), len(projections)
    roots, kinds = groups.roots, groups.kinds
    pairs = [(i, j) for i in range(q) for j in range(i, q)]
    terms: Any
    if is_sparse(projections):
        of_kinds = scipy.sparse.csr_matrix(
            (np.ones(len(kinds)), (np.arange(len(kinds)), kinds)),
            (len(kinds), len(roots)),
        )
        blocks = [_pairs(projections[i], projections[j]).T @ of_kinds for i, j in pairs]
        terms = scipy.sparse.hstack(blocks).tocsr()
        squares = [block for block, (i, j) in zip(blocks, pairs, strict=True) if i == j]
        explained = np.asarray(sum(block.sum(1) for block in squares)).ravel()
    else:
        nodes = _nodes(roots)
        terms = _dense_terms(projections[0], _between(nodes, _sizes(roots))[kinds])
        roots = np.sqrt(nodes)[:, np.newaxis, np.newaxis]
        explained = terms.sum(1)
    left = np.tril(products.squares.toarray()).ravel()
    sizes = np.sqrt(left[:: m + 1])
    left -= explained
    left[np.abs(left) <= _SETTINGS.rounding * np.outer(sizes, sizes).ravel()] = 0.0
    number_of_terms = np.diff(terms.indptr) if scipy.sparse.issparse(terms) else 1
    used = np.flatnonzero((left != 0.0) | (number_of_terms > 0))
    used = used[used // m >= used % m]
    if scipy.sparse.issparse(terms):
        first = scipy.sparse.csr_matrix(left[used, np.newaxis])
        terms = scipy.sparse.hstack([first, terms[used]]).tocsr()
    else:
        terms = np.column_stack([left[used], terms[used]])
    transposed = scipy.sparse.vstack(projections).tocsr().T
    by_group = np.arange(q * len(kinds)).reshape(q, -1).T.ravel()
    return CrossedSums(
        levels,
        roots,
        terms,
        np.stack([used // m, used % m]),
        transposed.tocsc()[:, by_group].tocsr(),
        within,
    )


def _pairs(
    a: scipy.sparse.csr_matrix, b: scipy.sparse.csr_matrix
) -> scipy.sparse.csr_matrix:
    """Return a_gi b_gj + a_gj b_gi of the lower triangle of each group, (groups, m · m).

    Of a matrix with itself it is half of that.
    """
    groups, m = a.shape
    counts = np.diff(b.indptr)
    group = np.repeat(np.arange(groups), np.diff(a.indptr))
    repeats = counts[group]
    first = np.repeat(np.arange(len(group)), repeats)
    within = np.arange(len(first)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    second = b.indptr[group[first]] + within
    i, j = a.indices[first], b.indices[second]
    products = a.data[first] * b.data[second]
    if a is b:
        lower = i >= j
        i, j, first, products = i[lower], j[lower], first[lower], products[lower]
    else:
        products = np.where(i == j, 2.0, 1.0) * products
        i, j = np.maximum(i, j), np.minimum(i, j)
    place = i.astype(np.int64) * m + j
    return scipy.sparse.csr_matrix((products, (group[first], place)), (groups, m * m))


def _dense_terms(
    projections: scipy.sparse.csr_matrix, of_nodes: np.ndarray
) -> np.ndarray:
    """Return Σ_g φ(g) p_g p_g' for each node, (m · m, nodes)."""
    m, nodes = projections.shape[1], of_nodes.shape[1]
    terms = np.zeros((nodes, m, m))
    for start in range(0, projections.shape[0], _SETTINGS.groups):
        part = slice(start, start + _SETTINGS.groups)
        rows = projections[part].toarray()
        for term, values in zip(terms, of_nodes[part].T, strict=True):
            term += rows.T @ (values[:, np.newaxis] * rows)
    return np.ascontiguousarray(terms.reshape(nodes, -1).T)


def _sizes(roots: np.ndarray) -> np.ndarray:
    """Return Σ w u² of kinds of groups with one effect, that of the smallest for those of none."""
    sizes = roots[:, 0, 0] ** 2
    return np.where(sizes > 0.0, sizes, sizes[sizes > 0.0].min())


def _nodes(roots: np.ndarray) -> np.ndarray:
    """Return sizes between which 1/(1 + s ρ) is a polynomial of log s, whatever ρ is.

    As a function of log s it has its poles at an imaginary part of π: polynomials at Chebyshev's
    nodes have errors that fall by a known factor with each.
    """
    sizes = np.unique(_sizes(roots))
    low, high = np.log(sizes[[0, -1]])
    half = 0.5 * (high - low)
    if half == 0.0:
        return sizes
    pole = np.pi / half
    count = 2 + int(np.ceil(_SETTINGS.digits / np.arcsinh(pole)))
    if len(sizes) <= count:
        return sizes
    angles = np.pi * (np.arange(count) + 0.5) / count
    return np.asarray(np.exp(low + half * (1.0 + np.cos(angles))))


def _between(nodes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the weights of nodes in the polynomial through them, (kinds, nodes)."""
    distances = np.log(sizes)[:, np.newaxis] - np.log(nodes)
    at_node = np.abs(distances) < 1e-14
    if at_node.any(1).all():
        return at_node.astype(np.float64)
    k = np.arange(len(nodes))
    of_chebyshev = (-1.0) ** k * np.sin(np.pi * (k + 0.5) / len(nodes))
    weights = of_chebyshev / np.where(at_node, 1.0, distances)
    weights = np.where(at_node.any(1, keepdims=True), at_node, weights)
    return np.asarray(weights / weights.sum(1, keepdims=True))
