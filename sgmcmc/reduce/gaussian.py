"""Gaussian regressions from their sums: coefficients and effects of groups integrated out.

Rows y_i ~ N(x_i b + z_i r_g, σ²) of groups g have effects r_g = L u_g, with standard normal u_g,
and coefficients have normal priors. With Z_g = Q_g K_g, Q_g with orthonormal columns,

    −log p(y | b, σ, L) = n log σ + Σ_g ½ log |M_g| + (w(b) + Σ_g e_g' M_g⁻¹ e_g) / 2σ² + constant,

where M_g = I + K_g L L' K_g' / σ², e_g = Q_g'(y − X b), and w(b) is the sum of squares of what is
left of y − X b after its projection on the columns of Z_g. All terms are squares, so that nothing
cancels however small σ is: `GaussianSums` has the triangular root of the products that w(b) is made
of, and the projections. Groups with the same K_g are summed up in turn, by a QR decomposition. As a
function of b it is a sum of squares, and the integral over b is closed.

Effects of further factors are coefficients whose prior depends on the scales. Those of factors with
few levels are columns of X, times L of their factor; those of others are integrated out before
(:mod:`sgmcmc.reduce.crossed`).

Source: Bates, Mächler, Bolker & Walker, Journal of Statistical Software 67 (2015), for the integral
over effects and coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse

from sgmcmc.reduce.crossed import (
    CrossedProducts,
    CrossedSums,
    are_few,
    crossed_sums,
)


@dataclass(frozen=True)
class _Settings:
    # Square of a singular value of a group's columns, relative to the largest, that is rounding.
    rank: float = 1e-12
    numbers: int = 2**21  # of a matrix whose QR decomposition is made at a time


_SETTINGS = _Settings()


@dataclass(frozen=True)
class RegressionRows:
    """Rows of a Gaussian regression, in float64.

    Attributes:
        xy: Columns of coefficients, with the response behind them, (rows, p + 1). Effects of
            further factors with few levels are coefficients, before the others.
        weights: Number of repeated rows that each stands for, (rows,).
        z: Columns of the effects of a row's group, (rows, q).
        codes: Number of each row's group, (rows,).
        crossed: Columns of the effects of all other factors, (rows, m); ``None`` for none.
    """

    xy: np.ndarray
    weights: np.ndarray
    z: np.ndarray
    codes: np.ndarray
    crossed: scipy.sparse.csr_matrix | None = None


@dataclass(frozen=True)
class GroupSums:
    """Sums of the rows of each group.

    Attributes:
        roots: K with K'K = Σ w z z', one for each kind of group, (kinds, q, q).
        counts: Number of groups of each kind, (kinds,).
        projections: Q'[X y], (groups, q, p + 1); or fewer with the same products within each kind.
        kinds: Kind that each of these is of, (groups,).
    """

    roots: np.ndarray
    counts: np.ndarray
    projections: np.ndarray
    kinds: np.ndarray

    @cached_property
    def by_entry(self) -> np.ndarray:
        """K with kinds as the last axis, (q, q, kinds)."""
        return np.ascontiguousarray(self.roots.transpose(1, 2, 0))

    @cached_property
    def by_column(self) -> np.ndarray:
        """Projections with groups as the last axis, (q, p + 1, groups)."""
        return np.ascontiguousarray(self.projections.transpose(1, 2, 0))

    @cached_property
    def _is_of_its_own_kind(self) -> bool:
        """Whether each group is the only one of its kind."""
        return np.array_equal(self.kinds, np.arange(len(self.roots)))

    def of_kinds(self, values: np.ndarray) -> np.ndarray:
        """Return values of kinds for each group, (..., groups)."""
        return values if self._is_of_its_own_kind else values[..., self.kinds]

    def of_groups(self, groups: np.ndarray) -> GroupSums:
        """Return the sums of some groups, each of which is a kind of its own."""
        kinds, own = self.kinds[groups], np.arange(len(groups))
        return GroupSums(
            self.roots[kinds], np.ones(len(groups)), self.projections[groups], own
        )

    def pooled(self) -> GroupSums:
        """Return the same with no more projections of a kind than there are products of them."""
        _, q, columns = self.projections.shape
        projections: list[np.ndarray] = []
        kinds: list[np.ndarray] = []
        order = np.argsort(self.kinds, kind="stable")
        ends = np.cumsum(np.bincount(self.kinds, minlength=len(self.roots)))
        for kind, groups in enumerate(np.split(order, ends[:-1])):
            of_kind = self.projections[groups].reshape(len(groups), q * columns)
            if len(of_kind) > q * columns:
                of_kind = np.asarray(np.linalg.qr(of_kind, "r"))
            projections.append(of_kind.reshape(-1, q, columns))
            kinds.append(np.full(len(of_kind), kind))
        return GroupSums(
            self.roots, self.counts, np.concatenate(projections), np.concatenate(kinds)
        )


@dataclass(frozen=True)
class GaussianSums:
    """Sums that the likelihood of a Gaussian regression is a function of.

    Attributes:
        total: Sum of the weights.
        root: Triangular R, R'R the products of the columns of [X y], less their projections on
            those of the effects of each group, (p + 1, p + 1).
        groups: Sums of groups, pooled if there is nothing crossed; ``None`` without groups.
        selected: Sums of the groups whose effects are drawn; ``None`` for none.
        dense: Number of levels of each factor whose effects are columns of X.
        crossed: Sums of the effects of all other factors; ``None`` for none.
        crossed_selected: Their projections on the groups whose effects are drawn, (groups · q, m).
    """

    total: float
    root: np.ndarray
    groups: GroupSums | None = None
    selected: GroupSums | None = None
    dense: tuple[int, ...] = ()
    crossed: CrossedSums | None = None
    crossed_selected: scipy.sparse.csr_matrix | None = None

    def of_groups(self, groups: np.ndarray) -> GaussianSums:
        """Return the same with some of the selected groups, by their numbers among these."""
        assert self.selected is not None
        crossed = self.crossed_selected
        if crossed is not None:
            q = self.selected.projections.shape[1]
            crossed = crossed[(q * groups[:, np.newaxis] + np.arange(q)).ravel()]
        selected = self.selected.of_groups(groups)
        return replace(self, selected=selected, crossed_selected=crossed)


@dataclass(frozen=True)
class FactorLevels:
    """Numbers of levels of the factors of a regression.

    Attributes:
        eliminated: Those of the factor whose effects are integrated out first, 0 for none.
        dense: Those of each factor whose effects are columns of X.
        crossed: Those of each factor whose effects are columns of ``RegressionRows.crossed``.
    """

    eliminated: int = 0
    dense: tuple[int, ...] = ()
    crossed: tuple[int, ...] = ()


def gaussian_sums(
    chunks: Callable[[], Iterable[RegressionRows]],
    levels: FactorLevels,
    selected: Sequence[int] = (),
) -> GaussianSums | None:
    """Return the sums of rows; with groups in two passes, else in one.

    Args:
        chunks: Function that returns all rows, in chunks.
        levels: Numbers of levels.
        selected: Groups whose effects are drawn.

    Returns:
        Sums; ``None`` if there are too many pairs of levels that occur together.
    """
    if not levels.eliminated:
        total, root, _ = _within(chunks(), None, np.zeros((0, 0, 0)))
        return GaussianSums(total, root)
    of_groups, inverses, products = _projected(chunks, levels.eliminated)
    drawn = of_groups.of_groups(np.asarray(selected, int)) if len(selected) else None
    if products is None:
        total, root, _ = _within(chunks(), of_groups, inverses)
        return GaussianSums(total, root, of_groups.pooled(), drawn, levels.dense)
    projections = products.projected(inverses[of_groups.kinds])
    if not are_few(projections, of_groups.roots):
        return None
    total, root, within = _within(chunks(), of_groups, inverses)
    crossed = crossed_sums(products, projections, of_groups, within, levels.crossed)
    q = len(projections)
    rows = (q * np.asarray(selected, int)[:, np.newaxis] + np.arange(q)).ravel()
    of_drawn = crossed.projections.T.tocsr()[rows] if len(selected) else None
    return GaussianSums(total, root, of_groups, drawn, levels.dense, crossed, of_drawn)


def _projected(
    chunks: Callable[[], Iterable[RegressionRows]], groups: int
) -> tuple[GroupSums, np.ndarray, CrossedProducts | None]:
    """Return the sums of groups, for each kind W with Q = Z W', (kinds, q, q), and products."""
    squares: np.ndarray | float = 0.0
    products: np.ndarray | float = 0.0
    crossed: CrossedProducts | None = None
    for rows in chunks():
        n, q = rows.z.shape
        indicators = scipy.sparse.csr_matrix(
            (rows.weights, (rows.codes, np.arange(n))), (groups, n)
        )
        pairs = (rows.z[:, :, np.newaxis] * rows.z[:, np.newaxis]).reshape(n, q * q)
        squares = squares + (indicators @ pairs).reshape(groups, q, q)
        by_effect = [indicators @ (rows.z[:, [k]] * rows.xy) for k in range(q)]
        products = products + np.stack(by_effect, 1)
        if rows.crossed is not None:
            effects = [indicators.multiply(rows.z[:, k]).tocsr() for k in range(q)]
            of_rows = CrossedProducts.of(rows.crossed, rows.weights, effects)
            crossed = of_rows if crossed is None else crossed + of_rows
    assert isinstance(squares, np.ndarray) and isinstance(products, np.ndarray)
    flat = np.ascontiguousarray(squares.reshape(groups, -1))
    distinct, kinds, counts = np.unique(
        flat, axis=0, return_inverse=True, return_counts=True
    )
    kinds = kinds.reshape(-1)
    values, vectors = np.linalg.eigh(distinct.reshape(-1, *squares.shape[1:]))
    kept = values > _SETTINGS.rank * np.maximum(values[:, -1:], 0.0)
    sizes = np.sqrt(np.where(kept, values, 0.0))
    transposed = vectors.transpose(0, 2, 1)
    inverses = np.where(kept, 1.0 / np.where(kept, sizes, 1.0), 0.0)
    inverses = inverses[:, :, np.newaxis] * transposed
    roots = sizes[:, :, np.newaxis] * transposed
    projections = np.matmul(inverses[kinds], products)
    sums = GroupSums(roots, counts.astype(np.float64), projections, kinds)
    return sums, inverses, crossed


def _within(
    chunks: Iterable[RegressionRows], groups: GroupSums | None, inverses: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the sum of the weights, and within groups the root and the products with crossed."""
    total, root, crossed = 0.0, np.zeros((0, 0)), np.zeros((0, 0))
    for rows in chunks:
        total += float(rows.weights.sum())
        columns = rows.xy.shape[1]
        length = max(4 * columns, _SETTINGS.numbers // columns)
        for start in range(0, len(rows.xy), length):
            part = slice(start, start + length)
            left, weights = rows.xy[part], rows.weights[part, np.newaxis]
            if groups is not None:
                codes = rows.codes[part]
                kinds = groups.kinds[codes]
                coordinates = np.einsum("rkj,rj->rk", inverses[kinds], rows.z[part])
                left = left.copy()
                for k in range(coordinates.shape[1]):
                    left -= coordinates[:, [k]] * groups.projections[codes, k]
            if rows.crossed is not None:
                of_part = np.asarray(rows.crossed[part].T @ (weights * left))
                crossed = of_part if not crossed.size else crossed + of_part
            left = np.sqrt(weights) * left
            stacked = np.concatenate([root, left]) if len(root) else left
            root = np.asarray(np.linalg.qr(stacked, "r"))
    size = root.shape[1]
    if len(root) < size:
        root = np.concatenate([root, np.zeros((size - len(root), size))])
    return total, root, crossed
