"""Rows of a Gaussian regression as its sums need them, factor by factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from sgmcmc.groups.labels import labeled
from sgmcmc.groups.packs import large_groups, need_groups
from sgmcmc.groups.structure import Structure
from sgmcmc.reduce.gaussian import (
    FactorLevels,
    GaussianSums,
    RegressionRows,
    gaussian_sums,
)
from sgmcmc.regression.building import RegressionData, groups_of, observed_rows
from sgmcmc.regression.columns import Block
from sgmcmc.regression.families import AT
from sgmcmc.regression.model import WEIGHTS, RegressionModel


@dataclass(frozen=True)
class _Settings:
    kept: int = 2**24  # numbers of rows that are kept between two passes
    # Columns, effects among them, up to which those of a factor are made dense: then matrices are
    # small, and sparse ones are not worth their overhead.
    dense: int = 48
    dense_work: float = 5e6  # multiplications of all groups for these, at most


_SETTINGS = _Settings()


@dataclass(frozen=True)
class FactorRows:
    """Groups of rows by each factor.

    Attributes:
        codes: Number of each row's group by each factor of the model, (rows,).
        order: Numbers of the factors in the order in which their effects are integrated out.
        levels: Numbers of levels in that order.
        structure: The groups, without packs of their rows.
    """

    codes: tuple[np.ndarray, ...]
    order: tuple[int, ...]
    levels: FactorLevels
    structure: Structure

    @classmethod
    def of(cls, data: RegressionData) -> FactorRows:
        """Return those of a regression: the factor with most levels is integrated out first."""
        model, factors = data.model, groups_of(data.model)
        of_rows = {
            by: labeled(by, values) for by, values in model.labels(data.frame).items()
        }
        for by, rows in of_rows.items():
            need_groups(by, rows.labels)
        counts = [len(of_rows[factor.by].labels) for factor in factors]
        first = max(
            (k for k, factor in enumerate(factors) if factor.integrated),
            key=counts.__getitem__,
        )
        structure = Structure(
            factors[first],
            None,
            tuple(factor for k, factor in enumerate(factors) if k != first),
            {by: rows.labels for by, rows in of_rows.items()},
            {by: rows.levels for by, rows in of_rows.items()},
            large=large_groups(of_rows[factors[first].by].codes),
        )
        sizes = [n * factor.size for n, factor in zip(counts, factors, strict=True)]
        others = sorted(set(range(len(factors))) - {first}, key=sizes.__getitem__)
        columns, dense = len(model.terms) + 1, 0
        for number in others:
            columns += sizes[number]
            work = float(sizes[first]) * columns**2
            if columns > _SETTINGS.dense or work > _SETTINGS.dense_work:
                break
            dense += 1
        ordered = [counts[number] for number in others]
        return cls(
            tuple(of_rows[factor.by].codes for factor in factors),
            (first, *others),
            FactorLevels(counts[first], tuple(ordered[:dense]), tuple(ordered[dense:])),
            structure,
        )

    @property
    def others(self) -> list[tuple[int, int]]:
        """Number and levels of each factor but the first, in order."""
        levels = [*self.levels.dense, *self.levels.crossed]
        return list(zip(self.order[1:], levels, strict=True))

    @property
    def dense(self) -> tuple[int, ...]:
        """Numbers of the factors whose effects are dense columns."""
        return self.order[1 : 1 + len(self.levels.dense)]

    @property
    def crossed(self) -> tuple[int, ...]:
        """Numbers of the factors whose effects are sparse columns."""
        return self.order[1 + len(self.levels.dense) :]


def columns_of(
    model: RegressionModel, numbers: Sequence[int], levels: Sequence[int]
) -> int:
    """Return the number of effects of some factors of a model."""
    sizes = [len(model.effects[number].terms) for number in numbers]
    return sum(n * q for n, q in zip(levels, sizes, strict=True))


def sums_of(
    data: RegressionData, factors: FactorRows | None, selected: Sequence[int] = ()
) -> GaussianSums | None:
    """Return the sums of a regression, ``None`` if there are too many.

    Args:
        data: Model and data.
        factors: Groups of rows, if there are any.
        selected: Groups of the first factor whose effects are drawn.
    """

    def chunks() -> Iterator[RegressionRows]:
        return _rows(data, factors)

    if factors is None:
        return gaussian_sums(chunks, FactorLevels())
    model = data.model
    columns = len(model.terms) + columns_of(model, factors.dense, factors.levels.dense)
    columns += 3 + sum(2 * len(effects.terms) for effects in model.effects)
    source: Callable[[], Any] = chunks
    if len(data.frame) * columns <= _SETTINGS.kept:
        all_rows = list(chunks())

        def source() -> list[RegressionRows]:
            return all_rows

    return gaussian_sums(source, factors.levels, selected)


def _rows(data: RegressionData, factors: FactorRows | None) -> Iterator[RegressionRows]:
    """Yield all rows in chunks."""
    model = data.model
    width = len(model.terms) + 1
    if factors is not None:
        width += columns_of(model, factors.dense, factors.levels.dense)
    length = max(1024, _SETTINGS.kept // (4 * width))
    for chunk, design_rows, columns in observed_rows(
        model, data.y, data.frame, data.weights
    ):
        rows = chunk.stop - chunk.start
        weights = columns.get(WEIGHTS, np.ones(rows))
        at = np.broadcast_to(columns.get(AT, 0.0), rows)
        z = [
            np.asarray(columns[f"Z_{effects.name}"], np.float64)
            for effects in model.effects
        ]
        for first in range(0, rows, length):
            part = slice(first, min(first + length, rows))
            x = dense_design(model, design_rows, part)
            xy = np.concatenate([x, at[part, np.newaxis]], 1)
            if factors is None:
                none = np.zeros((len(xy), 0))
                codes = np.zeros(len(xy), np.int64)
                yield RegressionRows(xy, weights[part], none, codes)
                continue
            there = slice(chunk.start + part.start, chunk.start + part.stop)
            codes_of = [codes[there] for codes in factors.codes]
            of_factors = [
                indicators(z[k][part], codes_of[k], levels)
                for k, levels in factors.others
            ]
            dense = of_factors[: len(factors.dense)]
            crossed = of_factors[len(factors.dense) :]
            eliminated = factors.order[0]
            yield RegressionRows(
                np.concatenate([*(block.toarray() for block in dense), xy], 1),
                weights[part],
                z[eliminated][part],
                codes_of[eliminated],
                scipy.sparse.hstack(crossed).tocsr() if crossed else None,
            )


def indicators(
    z: np.ndarray, codes: np.ndarray, levels: int
) -> scipy.sparse.csr_matrix:
    """Return the columns of the effects of a factor, level by level, (rows, levels · q)."""
    rows, q = z.shape
    columns = q * codes[:, np.newaxis] + np.arange(q)
    starts = q * np.arange(rows + 1)
    return scipy.sparse.csr_matrix(
        (z.ravel(), columns.ravel(), starts), (rows, levels * q)
    )


def dense_design(model: RegressionModel, rows: Block, part: slice) -> np.ndarray:
    """Return some rows of the design as a dense matrix, centered and scaled."""
    design, dense = model.design, rows.dense[part]
    x = np.zeros((len(dense), len(model.terms)))
    x[:, design.dense] = dense
    for term, (indices, numbers) in zip(design.coded, rows.coded, strict=True):
        level = np.asarray(indices[part])
        counted = np.flatnonzero(level < term.size)
        columns = np.arange(len(model.terms))[term.columns][level[counted]]
        x[counted, columns] = 1.0 if numbers is None else numbers[part][counted]
    return (x - model.center) / model.scale
