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


def blocks(design: Design, frame: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, Block]]:
    """Yield rows and their design, in pieces."""
    for part in pieces(frame, len(design.dense) + 2 * len(design.coded)):
        yield part, block(design, part)


def block(design: Design, frame: pd.DataFrame) -> Block:
    """Return some rows of a design."""
    dense = design.matrix(frame)
    coded = [(each.places(frame), design.weights(each, frame)) for each in design.coded]
    return Block(dense, coded)


@dataclass(frozen=True)
class Moments:
    """Means and products of the columns of a design.

    Attributes:
        rows: Number of rows.
        mean: Mean of each column.
        products: Σ (x_i − m)(x_j − m') of centered columns, (columns, columns); of many columns
            the diagonal alone, (columns,).
    """

    rows: int
    mean: np.ndarray
    products: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of each column."""
        squares = self.products if self.products.ndim == 1 else np.diag(self.products)
        return np.sqrt(np.maximum(squares, 0.0) / max(1, self.rows))


def moments(design: Design, frame: pd.DataFrame) -> Moments:
    """Return means and products of the columns of a design, in one pass."""
    d = len(design.terms)
    every = d <= _COMPARED
    near, total = np.zeros(d), np.zeros(d)
    products = np.zeros((d, d) if every else d)
    rows = 0
    for number, (_, part) in enumerate(blocks(design, frame)):
        if number == 0 and len(part.dense):
            near[design.dense] = part.dense.mean(0)  # sums of numbers near zero are exact
        total += _sums(design, part, near)
        products += _products(design, part, near) if every else _squares(design, part, near)
        rows += len(part.dense)
    shift = total / max(1, rows)
    products -= rows * (np.outer(shift, shift) if every else shift**2)
    return Moments(rows, near + shift, products)


def _sparse(design: Design, part: Block, place: int) -> scipy.sparse.csr_matrix:
    places, weights = part.coded[place]
    n, size = len(places), design.coded[place].size
    values = np.ones(n) if weights is None else weights
    return scipy.sparse.csr_matrix((values, places, np.arange(n + 1)), (n, size + 1))[:, :size]


def _sums(design: Design, part: Block, near: np.ndarray) -> np.ndarray:
    found = np.zeros(len(design.terms))
    found[design.dense] = (part.dense - near[design.dense]).sum(0)
    for each, (places, weights) in zip(design.coded, part.coded, strict=True):
        sums = np.bincount(places, weights, each.size + 1)
        found[each.first : each.first + each.size] = sums[:-1]
    return found


def _squares(design: Design, part: Block, near: np.ndarray) -> np.ndarray:
    found = np.zeros(len(design.terms))
    found[design.dense] = ((part.dense - near[design.dense]) ** 2).sum(0)
    for each, (places, weights) in zip(design.coded, part.coded, strict=True):
        squares = None if weights is None else weights**2
        found[each.first : each.first + each.size] = np.bincount(places, squares, each.size + 1)[
            :-1
        ]
    return found


def _products(design: Design, part: Block, near: np.ndarray) -> np.ndarray:
    found = np.zeros((len(design.terms), len(design.terms)))
    dense = part.dense - near[design.dense]
    found[np.ix_(design.dense, design.dense)] = dense.T @ dense
    sparse = [_sparse(design, part, place) for place in range(len(design.coded))]
    for one, left in zip(design.coded, sparse, strict=True):
        rows = np.arange(one.first, one.first + one.size)
        across = left.T @ dense
        found[np.ix_(rows, design.dense)] = across
        found[np.ix_(design.dense, rows)] = across.T
        for other, right in zip(design.coded, sparse, strict=True):
            columns = np.arange(other.first, other.first + other.size)
            found[np.ix_(rows, columns)] = (left.T @ right).toarray()
    return found


def dependent(design: Design, found: Moments, frame: pd.DataFrame) -> dict[str, str]:
    """Return the terms of which data say nothing that other terms do not say, and the reason.

    These are columns that are linear combinations of those before them, or zero in every row. With
    an intercept only what varies is compared, so that years and times of a clock, far from zero,
    are like other columns.
    """
    terms, rows = design.terms, found.rows
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
        left = _triangle(design, frame, kept, found.mean[kept] * intercept, size)
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


def _triangle(
    design: Design, frame: pd.DataFrame, kept: np.ndarray, center: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Return the size of each column's residual given those before it, piece by piece by QR."""
    root: np.ndarray = np.zeros((0, len(size)))
    for _, part in blocks(design, frame):
        stacked = np.concatenate([root, (part.dense[:, kept] - center) / size])
        root = np.asarray(np.linalg.qr(stacked, mode="r"))
    return np.abs(np.diag(root))
