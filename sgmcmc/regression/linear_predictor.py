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
from sgmcmc.regression.model import RegressionModel
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.samples import Samples

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Settings:
    max_effects: int = 2**24  # draws of effects that are held
    # Multiplications of a matrix product that BLAS does not share among threads: of few columns
    # a larger product would take longer, as threads wait for each other.
    alone: int = 2**18
    min_rows_alone: int = 16  # of such a product
    # Draws of expected responses that are made at a time, so that they stay in the cache.
    draws_at_once: int = 2**17
    numbers_at_once: int = 2**21  # of rows, for all settings
    max_averages: int = 2**22  # draws of averages that are held
    rows_at_once: int = 2**16  # whose numbers are made at a time


_SETTINGS = _Settings()


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

    def select(self, rows: np.ndarray) -> Numbers:
        """Return the numbers of some of the rows."""
        coded = [
            (indices[rows], None if weights is None else weights[rows])
            for indices, weights in self.fixed.coded
        ]
        return Numbers(
            fixed=Block(self.fixed.dense[rows], coded),
            offset=None if self.offset is None else self.offset[rows],
            factors=tuple(factors[rows] for factors in self.factors),
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
        offset = None
        with np.errstate(invalid="ignore"):  # infinite numbers
            fixed = after.fixed.dense - before.fixed.dense
            factors = [
                b - a for a, b in zip(before.factors, after.factors, strict=True)
            ]
            if before.offset is not None and after.offset is not None:
                offset = after.offset - before.offset
        coded: list[tuple[int, np.ndarray, np.ndarray]] = []
        pairs = zip(before.fixed.coded, after.fixed.coded, strict=True)
        for number, ((old_indices, old), (new_indices, new)) in enumerate(pairs):
            old = np.ones(len(old_indices)) if old is None else old
            new = np.ones(len(new_indices)) if new is None else new
            same_column = np.array_equal(old_indices, new_indices)
            if not (same_column and np.array_equal(old, new)):
                coded += [(number, old_indices, -old), (number, new_indices, new)]
        changed = np.flatnonzero(fixed.any(0))
        change = cls(
            columns=dense[changed],
            dense=fixed[:, changed],
            coded=tuple(coded),
            offset=None if offset is None or not offset.any() else offset,
            factors=tuple(values if values.any() else None for values in factors),
        )
        weights = [values for _, _, values in coded]
        arrays = [change.dense, change.offset, *change.factors, *weights]
        is_finite = all(np.isfinite(a).all() for a in arrays if a is not None)
        return change if is_finite else None

    def select(self, rows: np.ndarray) -> Change:
        """Return the change of some of the rows."""
        coded = [(number, index[rows], by[rows]) for number, index, by in self.coded]
        return Change(
            columns=self.columns,
            dense=self.dense[rows],
            coded=tuple(coded),
            offset=None if self.offset is None else self.offset[rows],
            factors=tuple(None if f is None else f[rows] for f in self.factors),
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
            max(1, _SETTINGS.max_effects // (len(effects.terms) * linear.draws))
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
            labels = self._labels[number]
            cached, drawn = self._cache.get(number, (np.zeros(0, int), np.zeros(0)))
            has_all = len(cached) == len(labels) or np.isin(row_groups, cached).all()
            if not has_all:
                cached, capacity = np.arange(len(labels)), self._capacities[number]
                if len(labels) > capacity:  # those of rows asked for next
                    needed = np.unique(codes[later])
                    first = np.searchsorted(needed, row_groups.min())
                    cached = np.union1d(needed[first : first + capacity], row_groups)
                drawn = self.linear.effects(
                    number, [labels[group] for group in cached], self.seed
                )
                self._cache[number] = cached, drawn
            drawn_effects.append((drawn, np.searchsorted(cached, row_groups)))
        return drawn_effects


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

    def __init__(self, model: RegressionModel, samples: Samples, names: Any) -> None:
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
        names = [name for design in self.model.designs for name in design.variables]
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
        offset = None
        if model.formula.offset is not None:
            values = evaluated(model.formula.offset, frame, model.constants)
            offset = values.astype(float)
        return Numbers(
            fixed=block(model.design, frame),
            offset=offset,
            factors=tuple(effects.columns(frame) for effects in model.effects),
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
        if self._b is None:
            eta = np.zeros((self.draws, len(numbers.fixed.dense)))
        else:
            eta = self._fixed(numbers.fixed)
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
        several = self.model.family.several
        new_eta = eta.copy()
        rows_last = np.moveaxis(new_eta, -1, 1) if several else new_eta
        if self._b is not None and change.columns.size:
            rows_last += _product(self._b[..., change.columns], change.dense)
        for number, indices, weights in change.coded:
            rows_last += self._of_level(number, indices) * weights
        if change.offset is not None:
            new_eta += change.offset
        _add_effects(new_eta, change.factors, effects)
        return new_eta

    def _fixed(self, design_rows: Block) -> np.ndarray:
        model, design = self.model, self.model.design
        assert self._b is not None
        centered = design_rows.dense - model.center[design.dense]
        eta = _product(self._b[..., design.dense], centered)
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
    length = _SETTINGS.alone // max(1, flat.size)
    if length < _SETTINGS.min_rows_alone:
        length = max(1, len(X))
    for start in range(0, len(X), length):
        chunk = slice(start, start + length)
        np.matmul(flat, X[chunk].T, out=products[:, chunk])
    return products.reshape(*b.shape[:-1], len(X))


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

    @property
    def ends(self) -> tuple[Setting, ...]:
        """The settings whose expected responses are needed."""
        return (self.after,) if self.before is None else (self.after, self.before)

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
    draws, totals = members.linear.draws, cells.totals
    values_of = _ContrastValues(cells, contrasts, members)
    draws_per_cell = draws * len(contrasts) * values_of.levels
    summaries: list[list[np.ndarray]] = [[] for _ in contrasts]
    for span, rows in cells.blocks(max(1, _SETTINGS.max_averages // draws_per_cell)):
        sums: list[Any] = [None] * len(contrasts)
        for chunk, values in values_of.chunks(rows):
            cell_in_span = cells.cell[chunk] - span.start
            present, starts = np.unique(cell_in_span, return_index=True)
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
        ends = [end for contrast in contrasts for end in contrast.ends]
        # Settings that change the groups of rows have members of their own, and come last.
        groups = {
            name for effects in linear.model.effects for name in columns_of(effects.by)
        }
        self._settings = sorted(
            dict.fromkeys(ends),
            key=lambda s: (s.name in groups, s is not AS_THEY_ARE),
        )
        self._members_of = {
            setting: Members(linear, setting(cells.frame), members.seed)
            if setting.name in groups
            else members
            for setting in self._settings
        }
        family = linear.model.family
        self.levels = len(linear.model.outcomes) if family.by_level else 1

    def chunks(
        self, rows: np.ndarray
    ) -> Iterator[tuple[np.ndarray, list[tuple[np.ndarray, Any]]]]:
        """Yield indices of rows, ordered by cell, and values and weights by contrast."""
        linear, cells = self._linear, self._cells
        block_length = max(64, _SETTINGS.draws_at_once // (linear.draws * self.levels))
        numbers_of_row = len(self._settings) * max(1, len(linear.model.terms))
        affordable = _SETTINGS.numbers_at_once // numbers_of_row
        chunk_length = max(block_length, min(_SETTINGS.rows_at_once, affordable))
        rows = self._members.ordered(rows)
        for start in range(0, len(rows), chunk_length):
            chunk = rows[start : start + chunk_length]
            frame = cells.frame.iloc[chunk].reset_index(drop=True)
            numbers = self._numbers(frame)
            divisors = [contrast.divisors(frame) for contrast in self._contrasts]
            for first in range(0, len(chunk), block_length):
                cell = cells.cell[chunk[first : first + block_length]]
                block = first + np.argsort(cell, kind="stable")
                expected = self._expected(numbers, chunk, block, rows[start:])
                weights = cells.weights[chunk[block]]
                values = []
                for contrast, divisor in zip(self._contrasts, divisors, strict=True):
                    value = expected[contrast.after]
                    if contrast.before is not None:
                        value = value - expected[contrast.before]
                    by_row = weights if divisor is None else weights / divisor[block]
                    values.append((value, by_row))
                yield chunk[block], values

    def _numbers(self, frame: pd.DataFrame) -> dict[Setting, Change | Numbers]:
        """Return the numbers of the first setting, and how others change them, if they can."""
        linear = self._linear
        base, *others = self._settings
        base_numbers = linear.numbers(base(frame))
        by_setting: dict[Setting, Change | Numbers] = {base: base_numbers}
        for setting in others:
            numbers = linear.numbers(setting(frame))
            change = None
            if self._members_of[setting] is self._members_of[base]:
                dense = linear.model.design.dense
                change = Change.of(base_numbers, numbers, dense)
            by_setting[setting] = numbers if change is None else change
        return by_setting

    def _expected(
        self,
        numbers: dict[Setting, Change | Numbers],
        chunk: np.ndarray,
        block: np.ndarray,
        later: np.ndarray,
    ) -> dict[Setting, np.ndarray]:
        """Return draws of the expected responses of a block of a chunk of rows, by setting."""
        linear = self._linear
        expected: dict[Setting, np.ndarray] = {}
        base_eta = np.zeros(0)
        for setting, of_chunk in numbers.items():
            effects = self._members_of[setting].effects(chunk[block], later)
            if isinstance(of_chunk, Change):
                eta = linear.changed(base_eta, of_chunk.select(block), effects)
            else:
                eta = linear.values(of_chunk.select(block), effects)
            if not expected:
                base_eta = eta
            expected[setting] = linear.expected(eta)
        return expected


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
