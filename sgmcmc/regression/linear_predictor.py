"""Draws of linear predictors and expected responses of rows, and their averages, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.regression.columns import Block, block
from sgmcmc.regression.design import evaluated
from sgmcmc.regression.expressions import Expression
from sgmcmc.regression.formula import columns_of
from sgmcmc.regression.frames import with_levels_of
from sgmcmc.regression.model import Model
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.samples import Samples

if TYPE_CHECKING:
    import pandas as pd


_EFFECTS = 2**24  # largest number of draws of effects that are held

# Multiplications of a matrix product that BLAS does not share among threads. Of few columns a
# larger product would take longer, as threads wait for each other.
_ALONE = 2**18

_FEW = 16  # least number of rows of such a product


@dataclass(frozen=True)
class Numbers:
    """Numbers of some rows, of which linear predictors are made.

    Attributes:
        fixed: Fixed terms.
        offset: Offset of each row, if any.
        factors: Factors of the effects of a row's groups, (rows, effects), for each factor.
    """

    fixed: Block
    offset: np.ndarray | None
    factors: tuple[np.ndarray, ...]

    def part(self, rows: np.ndarray) -> Numbers:
        """Return those of some of the rows."""
        coded = [
            (indices[rows], None if weights is None else weights[rows])
            for indices, weights in self.fixed.coded
        ]
        return Numbers(
            Block(self.fixed.dense[rows], coded),
            None if self.offset is None else self.offset[rows],
            tuple(factors[rows] for factors in self.factors),
        )


@dataclass(frozen=True)
class Change:
    """Differences of the numbers of some rows, by which linear predictors change.

    Attributes:
        columns: Indices of the dense columns that change, among the terms.
        dense: Their differences, (rows, columns).
        coded: Number of a coded term, index of each row's column, and what its coefficient is
            multiplied by.
        offset: Difference of the offset of each row, if any.
        factors: Differences of the factors of effects, (rows, effects), if any, for each factor.
    """

    columns: np.ndarray
    dense: np.ndarray
    coded: tuple[tuple[int, np.ndarray, np.ndarray], ...]
    offset: np.ndarray | None
    factors: tuple[np.ndarray | None, ...]

    @classmethod
    def of(cls, before: Numbers, after: Numbers, dense: np.ndarray) -> Change | None:
        """Return the change of some numbers; ``None`` if they are not finite.

        Args:
            before: Numbers.
            after: Other numbers of these rows.
            dense: Indices of the dense columns among the terms.
        """
        with np.errstate(invalid="ignore"):  # infinite numbers
            fixed = after.fixed.dense - before.fixed.dense
            factors = [
                b - a for a, b in zip(before.factors, after.factors, strict=True)
            ]
        changed = np.flatnonzero(fixed.any(0))
        coded: list[tuple[int, np.ndarray, np.ndarray]] = []
        pairs = zip(before.fixed.coded, after.fixed.coded, strict=True)
        for number, ((from_, old), (to, new)) in enumerate(pairs):
            old = np.ones(len(from_)) if old is None else old
            new = np.ones(len(to)) if new is None else new
            if not (np.array_equal(from_, to) and np.array_equal(old, new)):
                coded += [(number, from_, -old), (number, to, new)]
        offset = None
        if before.offset is not None and after.offset is not None:
            with np.errstate(invalid="ignore"):
                offset = after.offset - before.offset
        change = cls(
            dense[changed],
            fixed[:, changed],
            tuple(coded),
            offset if offset is not None and offset.any() else None,
            tuple(values if values.any() else None for values in factors),
        )
        arrays = [
            change.dense,
            change.offset,
            *change.factors,
            *(values for _, _, values in coded),
        ]
        return (
            change
            if all(np.isfinite(a).all() for a in arrays if a is not None)
            else None
        )

    def part(self, rows: np.ndarray) -> Change:
        """Return that of some of the rows."""
        return Change(
            self.columns,
            self.dense[rows],
            tuple(
                (number, indices[rows], by[rows]) for number, indices, by in self.coded
            ),
            None if self.offset is None else self.offset[rows],
            tuple(None if factor is None else factor[rows] for factor in self.factors),
        )


class Members:
    """Groups of the rows of a frame, and draws of their effects, one for each group in a call.

    Args:
        linear: Linear predictor.
        frame: Rows.
        seed: Seed of the random numbers.
    """

    def __init__(self, linear: LinearPredictor, frame: pd.DataFrame, seed: int) -> None:
        self.linear, self.seed = linear, seed
        entries = [effects.entry for effects in linear.model.effects]
        values = linear.model.labels(frame)
        coded = [linear.origin.coded(entry, values[entry]) for entry in entries]
        self._labels = [labels for labels, _ in coded]
        self._codes = [codes for _, codes in coded]
        self._capacities = [
            max(1, _EFFECTS // (len(effects.terms) * linear.draws))
            for effects in linear.model.effects
        ]
        self._cache: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def ordered(self, rows: np.ndarray) -> np.ndarray:
        """Return rows in the order of groups whose effects are not all held at once, if any."""
        for labels, codes, capacity in zip(
            self._labels, self._codes, self._capacities, strict=True
        ):
            if len(labels) > capacity:
                return rows[np.argsort(codes[rows], kind="stable")]
        return rows

    def effects(
        self, rows: np.ndarray, later: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return draws of effects, (effects, draws, groups), and each row's group among these.

        Args:
            rows: Rows.
            later: These rows and others that are asked for next.
        """
        drawn_effects = []
        for number, codes in enumerate(self._codes):
            row_groups = codes[rows]
            cached, drawn = self._cache.get(number, (np.zeros(0, int), np.zeros(0)))
            if (
                len(cached) < len(self._labels[number])
                and not np.isin(row_groups, cached).all()
            ):
                cached = self._next(number, row_groups, codes[later])
                labels = [self._labels[number][group] for group in cached]
                drawn = self.linear.effects(number, labels, self.seed)
                self._cache[number] = cached, drawn
            drawn_effects.append((drawn, np.searchsorted(cached, row_groups)))
        return drawn_effects

    def _next(self, number: int, groups: np.ndarray, later: np.ndarray) -> np.ndarray:
        """Return the groups whose effects are drawn: all, or those of rows asked for next."""
        total, capacity = len(self._labels[number]), self._capacities[number]
        if total <= capacity:
            return np.arange(total)
        needed = np.unique(later)
        first = np.searchsorted(needed, groups.min())
        return np.union1d(needed[first : first + capacity], groups)


class LinearPredictor:
    """Draws of linear predictors, those of :meth:`Model.predictor`, and of expected responses.

    Args:
        model: Model.
        samples: Draws.
        names: Names of the columns of the data.

    Attributes:
        draws: Number of draws, of all chains together.
        weights: Weight of each draw, (draws,); ``None`` if all are alike.
        aux: Auxiliary parameters, (draws, 1, ...).
    """

    def __init__(self, model: Model, samples: Samples, names: Any) -> None:
        self.model, self._samples, self._names = model, samples, names
        arrays = by_chain(samples.settings, samples)
        self._shape = next(iter(arrays.values())).shape[:2]
        self.draws = int(np.prod(self._shape))
        weights = samples.weights
        self.weights = None if weights is None else np.tile(weights, self._shape[0])
        self.aux = {}
        for parameter in model.family.aux:
            values = np.asarray(arrays[parameter.name], np.float64)
            values = values.reshape(self.draws, 1, *values.shape[2:])
            if parameter.support == "ordered":
                values = values + model.level
            self.aux[parameter.name] = values
        self._b = None
        if model.terms:
            b = np.asarray(arrays["b"], np.float64)
            self._b = b.reshape(self.draws, *b.shape[2:]) * (model.unit / model.scale)
            self._b += model.origin

    @property
    def origin(self) -> Any:
        """The sampler that made the draws, which knows the groups of the data."""
        if self._samples.origin is None:
            raise ValueError(
                "`samples` is not in the process of the chain that made it, and files do not hold "
                "the model: effects cannot be drawn."
            )
        return self._samples.origin

    @cached_property
    def variables(self) -> list[str]:
        """Columns of the data that linear predictors depend on, without factors of groups."""
        designs = [self.model.design]
        for effects in self.model.effects:
            designs += effects.designs
        names = [name for design in designs for name in design.variables]
        offset = self.model.formula.offset
        if offset is not None:
            names += Expression(offset, self._names).variables
        return list(dict.fromkeys(names))

    @cached_property
    def columns(self) -> list[str]:
        """All columns of the data that linear predictors depend on."""
        groups = [
            name for effects in self.model.effects for name in columns_of(effects.by)
        ]
        return list(dict.fromkeys([*self.variables, *groups]))

    def numbers(self, frame: pd.DataFrame) -> Numbers:
        """Return the numbers of some rows.

        Raises:
            ValueError: A column is not there, or a level is not known.
        """
        model = self.model
        frame = with_levels_of(frame, model.factors)
        offset = model.formula.offset
        return Numbers(
            block(model.design, frame),
            None
            if offset is None
            else evaluated(offset, frame, model.constants).astype(float),
            tuple(effects.columns(frame) for effects in model.effects),
        )

    def effects(self, number: int, labels: Sequence[Any], seed: int) -> np.ndarray:
        """Return draws of the effects of groups of a factor, (effects, draws, groups)."""
        effects = self.model.effects[number]
        arrays = by_chain(self._samples.settings, self._samples)
        by_name = self.origin.effects_of_labels(arrays, effects.entry, labels, seed)
        draws = np.asarray(by_name[effects.effects_name], np.float64)
        draws = effects.unit * draws.reshape(self.draws, len(labels), -1)
        return np.ascontiguousarray(np.moveaxis(draws, 2, 0))

    def values(
        self, numbers: Numbers, effects: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> np.ndarray:
        """Return draws of η, (draws, rows), or (draws, rows, levels − 1) if there are several.

        Args:
            numbers: Numbers of the rows.
            effects: Draws of the effects of each factor, and each row's group among these.
        """
        rows = len(numbers.fixed.dense)
        eta = (
            np.zeros((self.draws, rows))
            if self._b is None
            else self._fixed(numbers.fixed)
        )
        if numbers.offset is not None:
            eta += numbers.offset
        _add_effects(eta, numbers.factors, effects)
        return eta

    def changed(
        self,
        eta: np.ndarray,
        change: Change,
        effects: Sequence[tuple[np.ndarray, np.ndarray]],
    ) -> np.ndarray:
        """Return draws of η of rows whose numbers change.

        Args:
            eta: Draws before.
            change: Differences of the numbers.
            effects: Draws of the effects of each factor, and each row's group among these.
        """
        new_eta = eta.copy()
        levels_last = (
            np.moveaxis(new_eta, -1, 1) if self.model.family.several else new_eta
        )
        if self._b is not None and change.columns.size:
            levels_last += _product(self._b[..., change.columns], change.dense)
        for number, indices, weights in change.coded:
            levels_last += self._of_level(number, indices) * weights
        if change.offset is not None:
            new_eta += change.offset
        _add_effects(new_eta, change.factors, effects)
        return new_eta

    def _fixed(self, design_rows: Block) -> np.ndarray:
        model, design = self.model, self.model.design
        assert self._b is not None
        eta = _product(
            self._b[..., design.dense], design_rows.dense - model.center[design.dense]
        )
        for number, (indices, weights) in enumerate(design_rows.coded):
            columns = design.coded[number].columns
            values = self._of_level(number, indices)
            values = values if weights is None else values * weights
            at_center = self._b[..., columns] * model.center[columns]
            eta += values - at_center.sum(-1, keepdims=True)
        return np.moveaxis(eta, 1, 2) if model.family.several else eta

    def _of_level(self, number: int, indices: np.ndarray) -> np.ndarray:
        """Return draws of coefficients of a coded term, zero for its first level, (..., rows)."""
        assert self._b is not None
        coefficients = self._b[..., self.model.design.coded[number].columns]
        reference = np.zeros_like(coefficients[..., :1])
        return np.concatenate([coefficients, reference], -1)[..., indices]

    def expected(self, eta: np.ndarray) -> np.ndarray:
        """Return expected responses, (draws, rows), or (draws, rows, levels) probabilities."""
        mean = self.model.family.mean(eta, self.aux)
        return mean if self.model.family.by_level else np.broadcast_to(mean, eta.shape)


def _add_effects(
    eta: np.ndarray,
    factors: Sequence[np.ndarray | None],
    effects: Sequence[tuple[np.ndarray, np.ndarray]],
) -> None:
    """Add the effects of each row's groups to draws of η, in place.

    Args:
        eta: Draws, (draws, rows).
        factors: Factors of the effects, (rows, effects), of each factor; ``None`` for zeros.
        effects: Draws of the effects of each factor, and each row's group among these.
    """
    for of_factor, (drawn, groups) in zip(factors, effects, strict=True):
        if of_factor is None:
            continue
        for index, of_term in enumerate(drawn):
            eta += of_factor[:, index] * of_term[:, groups]


def _product(b: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return products of draws of coefficients and rows, (draws, ..., rows)."""
    flat = b.reshape(int(np.prod(b.shape[:-1])), b.shape[-1])
    products = np.empty((len(flat), len(X)))
    length = _ALONE // max(1, flat.size)
    length = length if length >= _FEW else max(1, len(X))
    for start in range(0, len(X), length):
        chunk = slice(start, start + length)
        np.matmul(flat, X[chunk].T, out=products[:, chunk])
    return products.reshape(*b.shape[:-1], len(X))


_MADE = (
    2**17
)  # draws of expected responses that are made at a time, so that they stay in the cache

_NUMBERS = 2**21  # numbers of rows that are made at a time, for all settings

_HELD = 2**22  # draws of averages that are held at a time

_ROWS_AT_ONCE = 2**16  # largest number of rows whose numbers are made at a time

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
    for span, rows in cells.blocks(
        max(1, _HELD // (draws * len(contrasts) * contrast_values.levels))
    ):
        sums: list[Any] = [None] * len(contrasts)
        for chunk, values in contrast_values.of(rows):
            present, starts = np.unique(
                cells.cell[chunk] - span.start, return_index=True
            )
            for number, (value, weights) in enumerate(values):
                if sums[number] is None:
                    size = span.stop - span.start
                    sums[number] = np.zeros((draws, size, *value.shape[2:]))
                value = value * weights.reshape(-1, *[1] * (value.ndim - 2))
                if len(starts) < len(chunk):
                    value = np.add.reduceat(value, starts, axis=1)
                sums[number][:, present] += value
        for number, total in enumerate(sums):
            divisor = totals[span].reshape(-1, *[1] * (total.ndim - 2))
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
        chunk_length = max(block_length, min(_ROWS_AT_ONCE, _NUMBERS // numbers_of_row))
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
