"""Columns of a design: blocks of rows, means and standard deviations, and their independence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from sgmcmc.regression.design import Design
from sgmcmc.regression.frames import pieces
from sgmcmc.regression.names import INTERCEPT

if TYPE_CHECKING:
    import pandas as pd

_COMPARED = 4000
"""Largest number of columns for which they are all compared with each other."""

_EMPTY = "zero in every row"
_COMBINED = "a linear combination of the terms before it. Leave one of them out"
"""Reasons why data say nothing of a term."""

_RIDGE = 1e-11
"""Ridge of the scaled normal equations of a regression that need not be exact."""

_SUSPECT = 1e-9
"""Part of a column's variance that is not explained by those before it, below which rounding
matters: it is computed again without squares, if there is a dense matrix."""


@dataclass(frozen=True)
class Block:
    """Rows of a design.

    Attributes:
        dense: Dense columns, (rows, dense columns).
        coded: Place of each row's column, and its number or ``None`` for 1, for each coded term.
    """

    dense: np.ndarray
    coded: list[tuple[np.ndarray, np.ndarray | None]]

    def times(self, design: Design, coefficients: np.ndarray, center: np.ndarray) -> np.ndarray:
        """Return the sum of columns less center times coefficients, (rows,), in float64."""
        dense = design.dense
        found = (self.dense - center[dense]) @ coefficients[dense]
        for each, (places, numbers) in zip(design.coded, self.coded, strict=True):
            columns = slice(each.first, each.first + each.size)
            own = np.append(coefficients[columns], 0.0)[places]
            found += own if numbers is None else own * numbers
            found -= coefficients[columns] @ center[columns]
        return found


def blocks(
    design: Design, frame: pd.DataFrame, places: np.ndarray | None = None
) -> Iterator[tuple[pd.DataFrame, Block]]:
    """Yield rows and their design, in pieces; ``places`` are those of the rows, all by default."""
    for part in pieces(frame, len(design.dense) + 2 * len(design.coded), places):
        yield part, block(design, part)


def block(design: Design, frame: pd.DataFrame) -> Block:
    """Return some rows of a design."""
    dense = design.matrix(frame)
    coded = [(each.places(frame), design.weights(each, frame)) for each in design.coded]
    return Block(dense, coded)


@dataclass(frozen=True)
class Moments:
    """Means and products of the columns of a design, a weight being a number of repeated rows.

    Attributes:
        rows: Number of rows whose weight is not zero.
        total: Sum of the weights.
        mean: Mean of each column.
        products: Σ w (x_i − m)(x_j − m') of centered columns, (columns, columns); of many columns
            the diagonal alone, (columns,).
        response: Σ w x_i y, (columns,), of a response whose mean is zero if there is an intercept;
            zeros without a response.
    """

    rows: int
    total: float
    mean: np.ndarray
    products: np.ndarray
    response: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of each column."""
        squares = self.products if self.products.ndim == 1 else np.diag(self.products)
        return np.sqrt(np.maximum(squares, 0.0) / self.total)

    @property
    def varies(self) -> np.ndarray:
        """Whether each column varies, by more than rounding."""
        return np.asarray(self.sd > 1e-12 * np.abs(self.mean))

    @property
    def scale(self) -> np.ndarray:
        """Standard deviation of each column, 1 of one that does not vary."""
        return np.where(self.varies, self.sd, 1.0)


def moments(
    design: Design,
    frame: pd.DataFrame,
    weights: np.ndarray | None = None,
    response: np.ndarray | None = None,
) -> Moments:
    """Return means and products of the columns of a design, in one pass.

    Args:
        design: Terms.
        frame: All rows.
        weights: Weight of each row, not all zero; ``None`` for 1.
        response: Response of each row, for ``Moments.response``.
    """
    d = len(design.terms)
    every, with_intercept = d <= _COMPARED, design.terms[:1] == (INTERCEPT,)
    near, total, of_response = np.zeros(d), np.zeros(d), np.zeros(d)
    products = np.zeros((d, d) if every else d)
    start, rows, whole = 0, 0, 0.0
    for _, part in blocks(design, frame):
        here = slice(start, start + len(part.dense))
        start = here.stop
        w = np.ones(len(part.dense)) if weights is None else weights[here]
        if whole == 0.0 and w.any():
            near[design.dense] = w @ part.dense / w.sum()  # sums of numbers near zero are exact
        total += _sums(design, part, near, w)
        products += _products(design, part, near, w) if every else _squares(design, part, near, w)
        if response is not None:
            of_response += _sums(design, part, near, w * response[here])
            if not with_intercept:
                of_response += near * float(w @ response[here])
        rows += int(np.count_nonzero(w))
        whole += float(w.sum())
    shift = total / whole
    products -= whole * (np.outer(shift, shift) if every else shift**2)
    return Moments(rows, whole, near + shift, products, of_response)


def _sparse(design: Design, part: Block, place: int) -> scipy.sparse.csr_matrix:
    places, numbers = part.coded[place]
    n, size = len(places), design.coded[place].size
    values = np.ones(n) if numbers is None else numbers
    return scipy.sparse.csr_matrix((values, places, np.arange(n + 1)), (n, size + 1))[:, :size]


def _sums(design: Design, part: Block, near: np.ndarray, w: np.ndarray) -> np.ndarray:
    found = np.zeros(len(design.terms))
    found[design.dense] = w @ (part.dense - near[design.dense])
    for each, (places, numbers) in zip(design.coded, part.coded, strict=True):
        sums = np.bincount(places, w if numbers is None else w * numbers, each.size + 1)
        found[each.first : each.first + each.size] = sums[:-1]
    return found


def _squares(design: Design, part: Block, near: np.ndarray, w: np.ndarray) -> np.ndarray:
    found = np.zeros(len(design.terms))
    found[design.dense] = w @ (part.dense - near[design.dense]) ** 2
    for each, (places, numbers) in zip(design.coded, part.coded, strict=True):
        squares = w if numbers is None else w * numbers**2
        found[each.first : each.first + each.size] = np.bincount(places, squares, each.size + 1)[
            :-1
        ]
    return found


def _products(design: Design, part: Block, near: np.ndarray, w: np.ndarray) -> np.ndarray:
    found = np.zeros((len(design.terms), len(design.terms)))
    dense = part.dense - near[design.dense]
    weighted = dense if (w == 1.0).all() else w[:, np.newaxis] * dense
    found[np.ix_(design.dense, design.dense)] = dense.T @ weighted
    sparse = [_sparse(design, part, place) for place in range(len(design.coded))]
    for one, left in zip(design.coded, sparse, strict=True):
        rows = np.arange(one.first, one.first + one.size)
        across = left.T @ weighted
        found[np.ix_(rows, design.dense)] = across
        found[np.ix_(design.dense, rows)] = across.T
        left_weighted = left.multiply(w[:, np.newaxis]).tocsr()
        for other, right in zip(design.coded, sparse, strict=True):
            columns = np.arange(other.first, other.first + other.size)
            found[np.ix_(rows, columns)] = (left_weighted.T @ right).toarray()
    return found


def dependent(
    design: Design, found: Moments, frame: pd.DataFrame, weights: np.ndarray | None = None
) -> dict[str, str]:
    """Return the terms of which data say nothing that other terms do not say, and the reason.

    These are columns that are linear combinations of those before them, or zero in every row. With
    an intercept only what varies is compared, so that years and times of a clock, far from zero,
    are like other columns. Rows of weight zero do not count.
    """
    terms, rows = design.terms, found.total
    varied = found.sd**2 * rows
    raw = varied + rows * found.mean**2
    intercept = bool(terms) and terms[0] == INTERCEPT
    empty = raw == 0
    constant = (varied <= 1e-24 * raw) & ~empty & intercept
    constant[: int(intercept)] = False
    lost = {terms[place]: _EMPTY for place in np.flatnonzero(empty)}
    lost |= {terms[place]: _COMBINED for place in np.flatnonzero(constant)}
    kept = np.flatnonzero(~(empty | constant))[int(intercept) :]
    if found.products.ndim == 1 or not kept.size:
        return lost
    compared = found.products[np.ix_(kept, kept)]
    if not intercept:
        compared = compared + rows * np.outer(found.mean[kept], found.mean[kept])
    size = np.sqrt(np.diag(compared))
    scaled = compared / np.outer(size, size)
    left = np.diag(np.linalg.cholesky(scaled + 1e-2 * _SUSPECT * np.eye(len(size)))) ** 2
    suspect = np.flatnonzero(left < _SUSPECT)
    if suspect.size and not design.coded:
        center = found.mean[kept] * intercept
        left = _triangle(design, frame, (kept, center, size), weights)
        suspect = np.flatnonzero(left < 1e-8)
    return lost | {terms[kept[place]]: _COMBINED for place in suspect}


def need_independent(design: Design, lost: dict[str, str], rows: int) -> None:
    """Refuse terms of which the data say nothing.

    Args:
        design: Fixed terms.
        lost: Result of :func:`dependent`.
        rows: Number of rows.

    Raises:
        ValueError: There is such a term, or there are fewer rows than terms; the message names it.
    """
    if rows < len(design.terms):
        raise ValueError(f"`data` has {rows} rows for {len(design.terms)} terms.")
    for term, reason in lost.items():
        raise ValueError(f"`formula`: the term {term!r} is {reason}.")


def least_squares(found: Moments, intercept: bool) -> np.ndarray:
    """Return coefficients of centered columns that explain the response, nearly the best ones.

    Args:
        found: Moments, with the response.
        intercept: Whether the first column is an intercept, whose coefficient is zero here.
    """
    coefficients, products = np.zeros(len(found.mean)), found.products
    if products.ndim == 1:
        return coefficients
    if not intercept:
        products = products + found.total * np.outer(found.mean, found.mean)
    size = np.sqrt(np.diag(products))
    kept = np.flatnonzero(size > 1e-12 * np.sqrt(found.total) * np.abs(found.mean))
    if kept.size:
        scaled = products[np.ix_(kept, kept)] / np.outer(size[kept], size[kept])
        scaled += _RIDGE * np.eye(len(kept))  # terms may be combinations of others
        standard = np.linalg.solve(scaled, found.response[kept] / size[kept])
        coefficients[kept] = standard / size[kept]
    return coefficients


def _triangle(
    design: Design,
    frame: pd.DataFrame,
    columns: tuple[np.ndarray, np.ndarray, np.ndarray],
    weights: np.ndarray | None,
) -> np.ndarray:
    """Return the size of each column's residual given those before it, piece by piece by QR.

    Args:
        design, frame: Terms and rows.
        columns: Places, centers and sizes of the columns.
        weights: Weight of each row; ``None`` for 1.
    """
    kept, center, size = columns
    root: np.ndarray = np.zeros((0, len(size)))
    start = 0
    for _, part in blocks(design, frame):
        scaled = (part.dense[:, kept] - center) / size
        if weights is not None:
            scaled *= np.sqrt(weights[start : start + len(scaled), np.newaxis])
        start += len(scaled)
        root = np.asarray(np.linalg.qr(np.concatenate([root, scaled]), mode="r"))
    return np.abs(np.diag(root))
