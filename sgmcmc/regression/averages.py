"""Averages of expected responses over all rows, with their weights, in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.regression.linear import Change, LinearPredictor, Members, Numbers
from sgmcmc.regression.names import columns_of

if TYPE_CHECKING:
    import pandas as pd

_MADE = 2**17
"""Draws of expected responses that are made at a time, so that they stay in the cache."""

_NUMBERS = 2**21
"""Numbers of rows that are made at a time, for all settings."""

_HELD = 2**22
"""Draws of averages that are held at a time."""

_ROWS = 2**16
"""Largest number of rows whose numbers are made at a time."""

Summary = Callable[[np.ndarray], np.ndarray]
"""Returns statistics, (statistics, cells, ...), of averages, (draws, cells, ...)."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A column that is changed.

    Attributes:
        name: Name of the column.
        column: Function of the column of some rows, which returns the changed one.
    """

    name: str
    column: Callable[[pd.Series], Any]

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return rows with the changed column."""
        if self is AS_THEY_ARE:
            return frame
        return frame.assign(**{self.name: self.column(frame[self.name])})


AS_THEY_ARE = Setting("", lambda column: column)
"""The setting that changes nothing."""


@dataclass(frozen=True)
class Contrast:
    """A quantity that is averaged: the expected response, a difference or a slope.

    Attributes:
        after: Setting whose expected response is averaged.
        before: Setting whose expected response is subtracted; ``None`` for nothing.
        slope: Whether the difference is divided by that of the column.
    """

    after: Setting = AS_THEY_ARE
    before: Setting | None = None
    slope: bool = False

    def divisors(self, frame: pd.DataFrame) -> np.ndarray | None:
        """Return the divisor of each row's difference; ``None`` for 1."""
        if not self.slope or self.before is None:
            return None
        column = frame[self.after.name]
        return np.asarray(self.after.column(column) - self.before.column(column))


@dataclass(frozen=True)
class Cells:
    """Rows that are averaged over.

    Attributes:
        frame: Rows.
        weights: Weight of each row.
        cell: Number of the cell that each row belongs to.
        size: Number of cells.
    """

    frame: pd.DataFrame
    weights: np.ndarray
    cell: np.ndarray
    size: int

    @property
    def totals(self) -> np.ndarray:
        """Sum of the weights of each cell."""
        return np.bincount(self.cell, self.weights, self.size)

    def distinct(self, names: Sequence[str]) -> Cells:
        """Return the distinct rows of each cell, which count as often as they are there.

        Args:
            names: Columns that matter.
        """
        frame = self.frame[list(names)]
        number, first = numbered(frame, self.cell, len(frame) // 2)
        if number is None:
            return Cells(frame, self.weights, self.cell, self.size)
        weights = np.bincount(number, self.weights, len(first))
        return Cells(frame.iloc[first], weights, self.cell[first], self.size)

    def blocks(self, most: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield some cells and the places of their rows, cell by cell.

        Args:
            most: Largest number of cells.
        """
        order = np.argsort(self.cell, kind="stable")
        ends = np.cumsum(np.bincount(self.cell, minlength=self.size))
        for start in range(0, self.size, most):
            stop = min(start + most, self.size)
            first = ends[start - 1] if start else 0
            yield slice(start, stop), order[first : ends[stop - 1]]


def numbered(
    frame: pd.DataFrame, other: np.ndarray, most: int | None = None
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the number of each row among the distinct ones, and the first row of each.

    Rows are in the order of their columns, whose values are in the order of their levels, missing
    values last.

    Args:
        frame: Rows.
        other: Integers by row, 0 or more, that come before all columns.
        most: Number of distinct rows above which there is no result, ``None``.
    """
    import pandas as pd

    found = np.asarray(other)
    for name in frame.columns:
        codes, size = _codes(frame[name])
        found = np.unique(found * size + codes, return_inverse=True)[1].reshape(-1)
        if most is not None and len(found) and found.max() >= most:
            return None, np.zeros(0, int)
    first = np.flatnonzero(~pd.Series(found).duplicated().to_numpy())
    return found, first[np.argsort(found[first])]


def _codes(values: pd.Series) -> tuple[np.ndarray, int]:
    """Return the place of each value among the sorted ones, missing values last, and their number.

    Raises:
        TypeError: Values cannot be compared with each other.
    """
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        codes = values.cat.codes.to_numpy().astype(np.int64)
        size = len(values.cat.categories)
        return np.where(codes < 0, size, codes), size + 1
    try:
        codes, levels = pd.factorize(values, sort=True, use_na_sentinel=False)
    except TypeError:  # levels without an order, such as numbers and text
        codes, levels = pd.factorize(values, use_na_sentinel=False)
    return codes.astype(np.int64), len(levels)


def averages(
    cells: Cells, contrasts: Sequence[Contrast], members: Members, summary: Summary
) -> list[np.ndarray]:
    """Return summaries of draws of averages, Σ w_i q_i(θ) / Σ w_i over the rows of each cell.

    Memory does not grow with rows × draws.

    Args:
        cells: Rows, weights and cells.
        contrasts: Quantities q that are averaged.
        members: Groups of the rows.
        summary: Function that returns statistics of draws.

    Returns:
        For each contrast an array (statistics, cells, ...).
    """
    found: list[list[np.ndarray]] = [[] for _ in contrasts]
    draws, totals = members.linear.draws, cells.totals
    pieces = _Pieces(cells, contrasts, members)
    for block, rows in cells.blocks(max(1, _HELD // (draws * len(contrasts) * pieces.levels))):
        sums: list[Any] = [None] * len(contrasts)
        for part, values in pieces.of(rows):
            at, starts = np.unique(cells.cell[part] - block.start, return_index=True)
            for number, (value, weights) in enumerate(values):
                if sums[number] is None:
                    size = block.stop - block.start
                    sums[number] = np.zeros((draws, size, *value.shape[2:]))
                wide = weights.reshape(-1, *[1] * (value.ndim - 2))
                value = value * wide
                if len(starts) < len(part):
                    value = np.add.reduceat(value, starts, axis=1)
                sums[number][:, at] += value
        for number, total in enumerate(sums):
            wide = totals[block].reshape(-1, *[1] * (total.ndim - 2))
            found[number].append(summary(total / wide))
    return [np.concatenate(parts, axis=1) for parts in found]


class _Pieces:
    """Values of contrasts, in pieces of rows.

    Args:
        cells: Rows, weights and cells.
        contrasts: Quantities.
        members: Groups of the rows.
    """

    def __init__(self, cells: Cells, contrasts: Sequence[Contrast], members: Members) -> None:
        self._cells, self._contrasts, self._members = cells, contrasts, members
        linear = self._linear = members.linear
        ends = (end for each in contrasts for end in (each.after, each.before))
        settings = dict.fromkeys(end for end in ends if end is not None)
        # Settings that change the groups of rows have members of their own, and come last.
        groups = {name for each in linear.model.effects for name in columns_of(each.by)}
        self._settings = sorted(settings, key=lambda s: (s.name in groups, s is not AS_THEY_ARE))
        self._of_setting = {
            each: Members(linear, each(cells.frame), members.seed)
            if each.name in groups
            else members
            for each in self._settings
        }
        family = linear.model.family
        self.levels = len(linear.model.outcomes) if family.by_level else 1

    def of(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, list[tuple[np.ndarray, Any]]]]:
        """Yield places of rows, in the order of their cells, and values and weights by contrast."""
        linear, several = self._linear, len(self._settings)
        length = max(64, _MADE // (linear.draws * self.levels))
        many = max(length, min(_ROWS, _NUMBERS // (several * max(1, len(linear.model.terms)))))
        rows = self._members.ordered(rows)
        for start in range(0, len(rows), many):
            some = rows[start : start + many]
            frame = self._cells.frame.iloc[some].reset_index(drop=True)
            ends = self._ends(frame)
            divisors = [each.divisors(frame) for each in self._contrasts]
            for first in range(0, len(some), length):
                of_cell = self._cells.cell[some[first : first + length]]
                part = first + np.argsort(of_cell, kind="stable")
                made: dict[Setting, np.ndarray] = {}
                first_eta = np.zeros(0)
                for each, end in ends.items():
                    effects = self._of_setting[each].effects(some[part], rows[start:])
                    if isinstance(end, Change):
                        eta = linear.changed(first_eta, end.part(part), effects)
                    else:
                        eta = linear.values(end.part(part), effects)
                    if not made:
                        first_eta = eta
                    made[each] = linear.expected(eta)
                found = []
                for contrast, over in zip(self._contrasts, divisors, strict=True):
                    value, weights = made[contrast.after], self._cells.weights[some[part]]
                    if contrast.before is not None:
                        value = value - made[contrast.before]
                    found.append((value, weights if over is None else weights / over[part]))
                yield some[part], found

    def _ends(self, frame: pd.DataFrame) -> dict[Setting, Change | Numbers]:
        """Return the numbers of the first setting, and how others change them, if they can."""
        linear = self._linear
        numbers = {each: linear.numbers(each(frame)) for each in self._settings}
        ends: dict[Setting, Change | Numbers] = dict(numbers)
        first, *others = self._settings
        for each in others:
            if self._of_setting[each] is self._of_setting[first]:
                change = Change.of(numbers[first], numbers[each], linear.model.design.dense)
                ends[each] = numbers[each] if change is None else change
        return ends


def by_row(
    linear: LinearPredictor, frame: pd.DataFrame, summary: Summary, seed: int = 0
) -> np.ndarray:
    """Return statistics of draws of the expected response of each row, (statistics, rows, ...)."""
    frame = frame[linear.columns]
    number, first = numbered(frame, np.zeros(len(frame), int), len(frame) // 2)
    if number is not None:
        frame = frame.iloc[first]
    frame = frame.reset_index(drop=True)
    members = Members(linear, frame, seed)
    cell = np.empty(len(frame), int)
    cell[members.ordered(np.arange(len(frame)))] = np.arange(len(frame))
    cells = Cells(frame, np.ones(len(frame)), cell, len(frame))
    (found,) = averages(cells, [Contrast()], members, summary)
    return found[:, cell if number is None else cell[number]]
