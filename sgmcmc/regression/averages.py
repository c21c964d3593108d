"""Averages of expected responses over all rows, with their weights, in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.regression.linear import Change, LinearPredictor, Members, Numbers
from sgmcmc.regression.names import columns_of

if TYPE_CHECKING:
    import pandas as pd

_MADE = (
    2**17
)  # draws of expected responses that are made at a time, so that they stay in the cache
_NUMBERS = 2**21  # numbers of rows that are made at a time, for all settings
_HELD = 2**22  # draws of averages that are held at a time
_ROWS = 2**16  # largest number of rows whose numbers are made at a time

# Returns statistics, (statistics, cells, ...), of averages, (draws, cells, ...).
Summary = Callable[[np.ndarray], np.ndarray]


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


AS_THEY_ARE = Setting("", lambda column: column)  # the setting that changes nothing


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

    def blocks(self, limit: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield some cells and the indices of their rows, cell by cell.

        Args:
            limit: Largest number of cells.
        """
        order = np.argsort(self.cell, kind="stable")
        ends = np.cumsum(np.bincount(self.cell, minlength=self.size))
        for start in range(0, self.size, limit):
            stop = min(start + limit, self.size)
            first = ends[start - 1] if start else 0
            yield slice(start, stop), order[first : ends[stop - 1]]


def numbered(
    frame: pd.DataFrame, leading: np.ndarray, limit: int | None = None
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the number of each row among the distinct ones, and the first row of each.

    Rows are in the order of their columns, whose values are in the order of their levels, missing
    values last.

    Args:
        frame: Rows.
        leading: Integers by row, 0 or more, that come before all columns.
        limit: Number of distinct rows above which there is no result, ``None``.
    """
    import pandas as pd

    numbers = np.asarray(leading)
    for name in frame.columns:
        codes, size = _codes(frame[name])
        numbers = np.unique(numbers * size + codes, return_inverse=True)[1].reshape(-1)
        if limit is not None and len(numbers) and numbers.max() >= limit:
            return None, np.zeros(0, int)
    first = np.flatnonzero(~pd.Series(numbers).duplicated().to_numpy())
    return numbers, first[np.argsort(numbers[first])]


def _codes(values: pd.Series) -> tuple[np.ndarray, int]:
    """Return the rank of each value among the sorted ones, missing values last, and their number.

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
    summaries: list[list[np.ndarray]] = [[] for _ in contrasts]
    draws, totals = members.linear.draws, cells.totals
    contrast_values = _ContrastValues(cells, contrasts, members)
    for block, rows in cells.blocks(
        max(1, _HELD // (draws * len(contrasts) * contrast_values.levels))
    ):
        sums: list[Any] = [None] * len(contrasts)
        for chunk, values in contrast_values.of(rows):
            present, starts = np.unique(
                cells.cell[chunk] - block.start, return_index=True
            )
            for number, (value, weights) in enumerate(values):
                if sums[number] is None:
                    size = block.stop - block.start
                    sums[number] = np.zeros((draws, size, *value.shape[2:]))
                value = value * weights.reshape(-1, *[1] * (value.ndim - 2))
                if len(starts) < len(chunk):
                    value = np.add.reduceat(value, starts, axis=1)
                sums[number][:, present] += value
        for number, total in enumerate(sums):
            divisor = totals[block].reshape(-1, *[1] * (total.ndim - 2))
            summaries[number].append(summary(total / divisor))
    return [np.concatenate(arrays, axis=1) for arrays in summaries]


class _ContrastValues:
    """Values of contrasts, in chunks of rows.

    Args:
        cells: Rows, weights and cells.
        contrasts: Quantities.
        members: Groups of the rows.
    """

    def __init__(
        self, cells: Cells, contrasts: Sequence[Contrast], members: Members
    ) -> None:
        self._cells, self._contrasts, self._members = cells, contrasts, members
        linear = self._linear = members.linear
        ends = (
            end for contrast in contrasts for end in (contrast.after, contrast.before)
        )
        settings = dict.fromkeys(end for end in ends if end is not None)
        # Settings that change the groups of rows have members of their own, and come last.
        groups = {
            name for effects in linear.model.effects for name in columns_of(effects.by)
        }
        self._settings = sorted(
            settings, key=lambda s: (s.name in groups, s is not AS_THEY_ARE)
        )
        self._of_setting = {
            setting: Members(linear, setting(cells.frame), members.seed)
            if setting.name in groups
            else members
            for setting in self._settings
        }
        family = linear.model.family
        self.levels = len(linear.model.outcomes) if family.by_level else 1

    def of(
        self, rows: np.ndarray
    ) -> Iterator[tuple[np.ndarray, list[tuple[np.ndarray, Any]]]]:
        """Yield indices of rows, ordered by cell, and values and weights by contrast."""
        linear = self._linear
        block_length = max(64, _MADE // (linear.draws * self.levels))
        numbers_of_row = len(self._settings) * max(1, len(linear.model.terms))
        chunk_length = max(block_length, min(_ROWS, _NUMBERS // numbers_of_row))
        rows = self._members.ordered(rows)
        for start in range(0, len(rows), chunk_length):
            chunk = rows[start : start + chunk_length]
            frame = self._cells.frame.iloc[chunk].reset_index(drop=True)
            ends = self._ends(frame)
            divisors = [contrast.divisors(frame) for contrast in self._contrasts]
            for first in range(0, len(chunk), block_length):
                cell = self._cells.cell[chunk[first : first + block_length]]
                block = first + np.argsort(cell, kind="stable")
                expected = self._expected(ends, chunk, block, rows[start:])
                weights = self._cells.weights[chunk[block]]
                values = []
                for contrast, divisor in zip(self._contrasts, divisors, strict=True):
                    value = expected[contrast.after]
                    if contrast.before is not None:
                        value = value - expected[contrast.before]
                    values.append(
                        (
                            value,
                            weights if divisor is None else weights / divisor[block],
                        )
                    )
                yield chunk[block], values

    def _expected(
        self,
        ends: dict[Setting, Change | Numbers],
        chunk: np.ndarray,
        block: np.ndarray,
        later: np.ndarray,
    ) -> dict[Setting, np.ndarray]:
        linear = self._linear
        expected: dict[Setting, np.ndarray] = {}
        base_eta = np.zeros(0)
        for setting, end in ends.items():
            effects = self._of_setting[setting].effects(chunk[block], later)
            if isinstance(end, Change):
                eta = linear.changed(base_eta, end.part(block), effects)
            else:
                eta = linear.values(end.part(block), effects)
            if not expected:
                base_eta = eta
            expected[setting] = linear.expected(eta)
        return expected

    def _ends(self, frame: pd.DataFrame) -> dict[Setting, Change | Numbers]:
        """Return the numbers of the first setting, and how others change them, if they can."""
        linear = self._linear
        numbers = {
            setting: linear.numbers(setting(frame)) for setting in self._settings
        }
        ends: dict[Setting, Change | Numbers] = dict(numbers)
        base, *changed = self._settings
        for setting in changed:
            if self._of_setting[setting] is self._of_setting[base]:
                change = Change.of(
                    numbers[base], numbers[setting], linear.model.design.dense
                )
                ends[setting] = numbers[setting] if change is None else change
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
    (statistics,) = averages(cells, [Contrast()], members, summary)
    return statistics[:, cell if number is None else cell[number]]
