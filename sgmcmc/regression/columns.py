"""Columns of a design: blocks of rows, means and standard deviations, and their independence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from sgmcmc import checks
from sgmcmc.regression.design import Design
from sgmcmc.regression.frames import chunks

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Settings:
    max_products: int = 4000  # columns up to which all are compared with each other
    # Ridge of the scaled normal equations of a regression that need not be exact.
    ridge: float = 1e-11
    # Part of a column's variance that is not explained by those before it, below which rounding
    # matters: it is computed again without squares, if there is a dense matrix.
    suspect: float = 1e-9
    unexplained: float = 1e-8  # the same, without squares, of a linear combination


_SETTINGS = _Settings()

# Reasons why data say nothing of a term.
_ZERO = "zero in every row"
_COMBINED = "a linear combination of the terms before it. Leave one of them out"


@dataclass(frozen=True)
class Block:
    """Rows of a design.

    Attributes:
        dense: Dense columns, (rows, dense columns).
        coded: Index of each row's column, and its number or ``None`` for 1, for each coded term.
    """

    dense: np.ndarray
    coded: list[tuple[np.ndarray, np.ndarray | None]]

    def times(
        self, design: Design, coefficients: np.ndarray, center: np.ndarray
    ) -> np.ndarray:
        """Return the sum of columns less center times coefficients, (rows,), in float64."""
        dense = design.dense
        values = (self.dense - center[dense]) @ coefficients[dense]
        for term, (indices, numbers) in zip(design.coded, self.coded, strict=True):
            columns = term.columns
            of_rows = np.append(coefficients[columns], 0.0)[indices]
            values += of_rows if numbers is None else of_rows * numbers
            values -= coefficients[columns] @ center[columns]
        return values


def blocks(
    design: Design, frame: pd.DataFrame, rows: np.ndarray | None = None
) -> Iterator[tuple[pd.DataFrame, Block]]:
    """Yield rows and their design, in chunks; ``rows`` are the rows to yield, all by default."""
    for chunk in chunks(frame, len(design.dense) + 2 * len(design.coded), rows):
        yield chunk, block(design, chunk)


def block(design: Design, frame: pd.DataFrame) -> Block:
    """Return some rows of a design."""
    dense = design.matrix(frame)
    coded = [
        (term.indices(frame), design.weights(term, frame)) for term in design.coded
    ]
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
        return checks.varies(self.sd, self.mean)

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
    all_pairs = d <= _SETTINGS.max_products
    products_of = _products if all_pairs else _squares
    reference, sums, response_sums = np.zeros(d), np.zeros(d), np.zeros(d)
    products = np.zeros((d, d) if all_pairs else d)
    start, rows, total_weight = 0, 0, 0.0
    for _, chunk in blocks(design, frame):
        rows_of_chunk = slice(start, start + len(chunk.dense))
        start = rows_of_chunk.stop
        w = np.ones(len(chunk.dense)) if weights is None else weights[rows_of_chunk]
        if total_weight == 0.0 and w.any():
            # Sums of numbers near zero are exact.
            reference[design.dense] = w @ chunk.dense / w.sum()
        sums += _sums(design, chunk, reference, w)
        products += products_of(design, chunk, reference, w)
        if response is not None:
            y = response[rows_of_chunk]
            response_sums += _sums(design, chunk, reference, w * y)
            if not design.has_intercept:
                response_sums += reference * float(w @ y)
        rows += int(np.count_nonzero(w))
        total_weight += float(w.sum())
    shift = sums / total_weight
    products -= total_weight * (np.outer(shift, shift) if all_pairs else shift**2)
    return Moments(rows, total_weight, reference + shift, products, response_sums)


def _sparse(design: Design, chunk: Block, number: int) -> scipy.sparse.csr_matrix:
    indices, numbers = chunk.coded[number]
    n, size = len(indices), design.coded[number].size
    values = np.ones(n) if numbers is None else numbers
    shape = n, size + 1
    matrix = scipy.sparse.csr_matrix((values, indices, np.arange(n + 1)), shape)
    return matrix[:, :size]


def _sums(
    design: Design, chunk: Block, reference: np.ndarray, w: np.ndarray
) -> np.ndarray:
    sums = np.zeros(len(design.terms))
    sums[design.dense] = w @ (chunk.dense - reference[design.dense])
    for term, (indices, numbers) in zip(design.coded, chunk.coded, strict=True):
        weighted = w if numbers is None else w * numbers
        sums[term.columns] = np.bincount(indices, weighted, term.size + 1)[:-1]
    return sums


def _squares(
    design: Design, chunk: Block, reference: np.ndarray, w: np.ndarray
) -> np.ndarray:
    squares = np.zeros(len(design.terms))
    squares[design.dense] = w @ (chunk.dense - reference[design.dense]) ** 2
    for term, (indices, numbers) in zip(design.coded, chunk.coded, strict=True):
        weighted = w if numbers is None else w * numbers**2
        squares[term.columns] = np.bincount(indices, weighted, term.size + 1)[:-1]
    return squares


def _products(
    design: Design, chunk: Block, reference: np.ndarray, w: np.ndarray
) -> np.ndarray:
    products = np.zeros((len(design.terms), len(design.terms)))
    dense = chunk.dense - reference[design.dense]
    weighted = dense if (w == 1.0).all() else w[:, np.newaxis] * dense
    products[np.ix_(design.dense, design.dense)] = dense.T @ weighted
    sparse = [_sparse(design, chunk, number) for number in range(len(design.coded))]
    for term, left in zip(design.coded, sparse, strict=True):
        rows = term.columns
        across = left.T @ weighted
        products[rows, design.dense] = across
        products[design.dense, rows] = across.T
        left_weighted = left.multiply(w[:, np.newaxis]).tocsr()
        for other_term, right in zip(design.coded, sparse, strict=True):
            products[rows, other_term.columns] = (left_weighted.T @ right).toarray()
    return products


def dependent(
    design: Design,
    column_moments: Moments,
    frame: pd.DataFrame,
    weights: np.ndarray | None = None,
) -> dict[str, str]:
    """Return the terms of which data say nothing that other terms do not say, and the reason.

    These are columns that are linear combinations of those before them, or zero in every row. With
    an intercept only what varies is compared, so that years and times of a clock, far from zero,
    are like other columns. Rows of weight zero do not count.
    """
    terms, total = design.terms, column_moments.total
    has_intercept = design.has_intercept
    mean = column_moments.mean
    varied = column_moments.sd**2 * total
    raw = varied + total * mean**2
    empty = raw == 0
    constant = (
        (varied <= 1e-24 * raw) & ~empty & has_intercept
    )  # the square of rounding
    constant[: int(has_intercept)] = False
    aliased = {terms[index]: _ZERO for index in np.flatnonzero(empty)}
    aliased |= {terms[index]: _COMBINED for index in np.flatnonzero(constant)}
    compared = np.flatnonzero(~(empty | constant))[int(has_intercept) :]
    if column_moments.products.ndim == 1 or not compared.size:
        return aliased
    gram = column_moments.products[np.ix_(compared, compared)]
    if not has_intercept:
        gram = gram + total * np.outer(mean[compared], mean[compared])
    size = np.sqrt(np.diag(gram))
    scaled = gram / np.outer(size, size)
    ridge = 1e-2 * _SETTINGS.suspect * np.eye(len(size))
    unexplained = np.diag(np.linalg.cholesky(scaled + ridge)) ** 2
    suspect = np.flatnonzero(unexplained < _SETTINGS.suspect)
    if suspect.size and not design.coded:
        center = mean[compared] * has_intercept
        # R of a QR decomposition, chunk by chunk: its diagonal are the columns' residuals.
        triangle: np.ndarray = np.zeros((0, len(size)))
        start = 0
        for _, chunk in blocks(design, frame):
            scaled = (chunk.dense[:, compared] - center) / size
            if weights is not None:
                of_rows = weights[start : start + len(scaled), np.newaxis]
                scaled *= np.sqrt(of_rows)
            start += len(scaled)
            stacked = np.concatenate([triangle, scaled])
            triangle = np.asarray(np.linalg.qr(stacked, mode="r"))
        suspect = np.flatnonzero(np.abs(np.diag(triangle)) < _SETTINGS.unexplained)
    return aliased | {terms[compared[index]]: _COMBINED for index in suspect}


def need_independent(design: Design, aliased: dict[str, str], rows: int) -> None:
    """Refuse terms of which the data say nothing.

    Args:
        design: Fixed terms.
        aliased: Result of :func:`dependent`.
        rows: Number of rows.

    Raises:
        ValueError: There is such a term, or there are fewer rows than terms; the message names it.
    """
    if rows < len(design.terms):
        raise ValueError(f"`data` has {rows} rows for {len(design.terms)} terms.")
    for term, reason in aliased.items():
        raise ValueError(f"`formula`: the term {term!r} is {reason}.")


def least_squares(column_moments: Moments, intercept: bool) -> np.ndarray:
    """Return coefficients of centered columns that explain the response, nearly the best ones.

    Args:
        column_moments: Moments, with the response.
        intercept: Whether the first column is an intercept, whose coefficient is zero here.
    """
    mean, total = column_moments.mean, column_moments.total
    coefficients, products = np.zeros(len(mean)), column_moments.products
    if products.ndim == 1:
        return coefficients
    if not intercept:
        products = products + total * np.outer(mean, mean)
    size = np.sqrt(np.diag(products))
    rounding = 1e-12 * np.sqrt(total) * np.abs(mean)
    varying = np.flatnonzero(size > rounding)
    if not varying.size:
        return coefficients
    sizes = size[varying]
    scaled = products[np.ix_(varying, varying)] / np.outer(sizes, sizes)
    # Terms may be combinations of others.
    scaled += _SETTINGS.ridge * np.eye(len(varying))
    standard = np.linalg.solve(scaled, column_moments.response[varying] / sizes)
    coefficients[varying] = standard / sizes
    return coefficients
