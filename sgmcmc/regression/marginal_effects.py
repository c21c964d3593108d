"""Predictions of a regression, and tables of expected responses, differences and slopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import checks
from sgmcmc.checks import describe
from sgmcmc.data.levels import Levels
from sgmcmc.regression.formula import quoted
from sgmcmc.regression.frames import as_frame, chunks, need_column
from sgmcmc.regression.linear_predictor import (
    AS_THEY_ARE,
    Cells,
    Contrast,
    LinearPredictor,
    Members,
    Setting,
    Summary,
    averages,
    by_row,
    numbered,
)
from sgmcmc.regression.model import RegressionModel
from sgmcmc.regression.response import read_response, responses, trials_of
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.diagnostics import weighted_quantiles
from sgmcmc.results.samples import Samples

if TYPE_CHECKING:
    import pandas as pd


_STATISTICS = ("estimate", "error", "lower", "upper")  # columns of results


@dataclass(frozen=True)
class _Settings:
    max_draws: int = 1000  # used for predictions
    # Rows from which the density of all rows is averaged over one draw of each chain, not five.
    many_rows: int = 100_000
    draws_at_once: int = 2**21  # of linear predictors
    # Change of a variable, in its standard deviations, that slopes are computed from; the least
    # change, if the variable is near zero; and the largest of a positive variable, in its values.
    step: float = 1e-4
    min_step: float = 1e-6
    relative_step: float = 1e-3
    grid: int = 25  # values of a variable that `condition` names


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Predictor:
    """Predictions of a regression.

    Attributes:
        model: Model.
        samples: Draws.
        frame: Data.
        weights: Weight of each row's log-likelihood; ``None`` for 1.
        weights_column: Name of their column, if they are one.
    """

    model: RegressionModel
    samples: Samples
    frame: pd.DataFrame
    weights: np.ndarray | None
    weights_column: str | None = None

    @cached_property
    def thinned(self) -> Samples:
        """At most 1000 of the draws."""
        draws = by_chain(self.samples.settings, self.samples)
        chains, count = next(iter(draws.values())).shape[:2]
        thin = -(-chains * count // _SETTINGS.max_draws)
        return self.samples[:: max(1, thin)]

    @cached_property
    def linear(self) -> LinearPredictor:
        """Linear predictors at these draws."""
        return LinearPredictor(self.model, self.thinned, self.frame.columns)

    def rows(self, data: Any) -> pd.DataFrame:
        """Return rows of the user's, or those of the regression, with all columns that are used.

        Raises:
            ValueError: There are none, or one lacks a value or a column; the message names it.
        """
        if data is None:
            return self.frame
        frame = as_frame(data)
        if not len(frame):
            raise ValueError("`data` has no rows.")
        for name in self.linear.columns:
            need_column(frame, name)
        return frame

    def predictors(
        self, data: Any, seed: int = 0
    ) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
        """Yield rows and the draws of their linear predictors, (draws, rows, ...), in chunks."""
        frame = self.rows(data)
        members = Members(self.linear, frame, seed)
        length = max(64, _SETTINGS.draws_at_once // self.linear.draws)
        for start in range(0, len(frame), length):
            chunk = frame.iloc[start : start + length].reset_index(drop=True)
            rows = np.arange(start, start + len(chunk))
            numbers = self.linear.numbers(chunk)
            yield chunk, self.linear.values(numbers, members.effects(rows, rows))

    def predict(
        self, data: Any, kind: str, quantiles: Sequence[float], seed: int
    ) -> np.ndarray:
        """Return predictions, as :meth:`Regression.predict` does."""
        if kind == "response":
            model, family = self.model, self.model.family
            rng = np.random.default_rng(seed)
            draws = []
            for rows, eta in self.predictors(data, seed):
                trials = trials_of(model.formula, rows) if family.has_trials else None
                drawn = family.draw(rng, eta, self.linear.aux, trials)
                if family.by_level:
                    drawn = np.asarray(model.outcomes)[drawn]
                draws.append(drawn)
            return np.concatenate(draws, axis=1)
        frame = self.rows(data)
        weights = self.linear.weights

        def summary(draws: np.ndarray) -> np.ndarray:
            if kind == "mean":
                return np.average(draws, axis=0, weights=weights)[np.newaxis]
            if weights is None:
                return np.quantile(draws, list(quantiles), axis=0)
            return weighted_quantiles(draws, list(quantiles), weights)

        values = by_row(self.linear, frame, summary, seed)
        return values[0] if kind == "mean" else values

    def response(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the response of some rows in numbers."""
        model = self.model
        return read_response(
            model.formula, frame, model.family, model.outcomes, model.constants
        )

    def dataset(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the dataset of some rows, without weights."""
        model = self.model
        y = self.response(frame)
        response = responses(model.formula, frame, y, model.constants, None)
        return model.observed(model.rows(frame), response)

    def log_density(self, row_indices: np.ndarray) -> np.ndarray:
        """Return the log density of rows, each once, (draws, rows)."""
        rows = self.dataset(self.frame.iloc[row_indices].reset_index(drop=True))
        log_density = self.thinned.predict(self.model.log_lik, rows, reduce=None)
        return np.asarray(log_density, np.float64).reshape(-1, len(row_indices))

    def mean_log_density(self) -> np.ndarray:
        """Return an approximate log density of each row: the mean over a few draws."""
        draws = by_chain(self.thinned.settings, self.thinned)
        count = next(iter(draws.values())).shape[1]
        is_large = len(self.frame) > _SETTINGS.many_rows
        few_draws = self.thinned[:: max(1, count if is_large else count // 5)]
        log_density = [
            few_draws.predict(self.model.log_lik, self.dataset(chunk))
            for chunk in chunks(self.frame, len(self.model.terms))
        ]
        return np.concatenate(log_density).astype(np.float64)


@dataclass(frozen=True)
class Question:
    """Rows that a table is about.

    Attributes:
        data: Rows; ``None`` for those of the regression.
        by: Column, or list of columns, for whose values there are averages.
        weights: Weight of each row, or the name of their column; ``None`` for those of the
            regression.
        condition: Columns whose values make a grid.
        prob: Probability of the central interval.
    """

    data: Any = None
    by: Any = None
    weights: Any = None
    condition: Any = None
    prob: float = 0.95

    def __post_init__(self) -> None:
        if not (checks.is_number(self.prob) and 0 < self.prob < 1):
            raise ValueError(f"`prob` must be between 0 and 1; it is {self.prob!r}.")


@dataclass(frozen=True)
class Rows:
    """Rows of a table, their weights, and the columns for whose values there are averages."""

    frame: pd.DataFrame
    weights: np.ndarray
    by: list[Any] | None


def predictions(predictor: Predictor, about: Question) -> pd.DataFrame:
    """Return expected responses with intervals, as :meth:`Regression.predictions` does."""
    rows = _rows(predictor, about)
    shown = rows.frame
    if about.condition is not None:
        shown = shown[list(_named(about.condition))]
    elif isinstance(about.data, Mapping):
        shown = shown[list(about.data)]
    if about.by is None:
        values = by_row(predictor.linear, rows.frame, statistics(predictor, about.prob))
        return _table(predictor, shown, values)
    keys, totals, (values,) = _averaged(predictor, rows, [Contrast()], about.prob)
    return _table(predictor, keys, values, totals)


def comparisons(predictor: Predictor, variables: Any, about: Question) -> pd.DataFrame:
    """Return differences of the expected response, as :meth:`Regression.comparisons` does."""
    contrasts: dict[str, Contrast] = {}
    for name, change in _changes(predictor, variables).items():
        levels, numeric = _levels(predictor, name), _is_variable(predictor, name)
        takes_number = levels is None and numeric
        if change is None and levels is not None:
            reference, *compared = [_set_to(name, level) for level in levels]
            for level, setting in zip(levels[1:], compared, strict=True):
                label = f"{name}: {level} - {levels[0]}"
                contrasts[label] = Contrast(setting, reference)
        elif isinstance(change, tuple | list) and len(change) == 2:
            _need_levels(name, levels, change)
            before, after = (_set_to(name, value) for value in change)
            contrasts[f"{name}: {change[1]} - {change[0]}"] = Contrast(after, before)
        elif takes_number and (change is None or checks.is_number(change)):
            step = 1.0 if change is None else float(change)
            contrasts[f"{name}: {step:+g}"] = Contrast(
                _shifted_by(name, step), AS_THEY_ARE
            )
        elif change is None and variables is None:
            continue  # text or dates inside of a function, which only a pair of values changes
        else:
            of_factor = " of the factor" if levels is not None else ""
            or_number = ", or a number to add" if takes_number else ""
            raise TypeError(
                f"`variables[{name!r}]` must be a pair of values{of_factor}{or_number}; it is "
                f"{describe(change)}."
            )
    return _differences(predictor, contrasts, about)


def slopes(predictor: Predictor, variables: Any, about: Question) -> pd.DataFrame:
    """Return slopes of the expected response, as :meth:`Regression.slopes` does."""
    contrasts: dict[str, Contrast] = {}
    for name in _changes(predictor, variables):
        if _levels(predictor, name) is None and _is_variable(predictor, name):
            contrasts[name] = _slope(predictor, name)
        elif variables is not None:
            raise ValueError(f"`variables`: {name!r} is a factor; see comparisons().")
    return _differences(predictor, contrasts, about)


def statistics(predictor: Predictor, prob: float) -> Summary:
    """Return the function that returns mean, SD and central interval of draws."""
    ends = [(1 - prob) / 2, (1 + prob) / 2]
    weights = predictor.linear.weights

    def summary(draws: np.ndarray) -> np.ndarray:
        if weights is None:
            lower, upper = np.quantile(draws, ends, axis=0)
            return np.stack([draws.mean(0), draws.std(0), lower, upper])
        mean = np.average(draws, axis=0, weights=weights)
        sd = np.sqrt(np.average((draws - mean) ** 2, axis=0, weights=weights))
        lower, upper = weighted_quantiles(draws, ends, weights)
        return np.stack([mean, sd, lower, upper])

    return summary


def _averaged(
    predictor: Predictor, rows: Rows, contrasts: Sequence[Contrast], prob: float
) -> tuple[pd.DataFrame, np.ndarray, list[np.ndarray]]:
    """Return the values of ``by``, the sum of the weights of each, and statistics by contrast."""
    keys, cells = _cells(predictor, rows)
    members = Members(predictor.linear, cells.frame, 0)
    if not contrasts:
        return keys, cells.totals, []
    by_contrast = averages(cells, contrasts, members, statistics(predictor, prob))
    return keys, cells.totals, by_contrast


def _differences(
    predictor: Predictor, contrasts: Mapping[str, Contrast], about: Question
) -> pd.DataFrame:
    """Return a frame with a row for each contrast, of all rows or for each value of ``by``."""
    import pandas as pd

    rows = _rows(predictor, about)
    keys, totals, by_contrast = _averaged(
        predictor, rows, list(contrasts.values()), about.prob
    )
    outcomes = predictor.model.outcomes if predictor.model.family.by_level else ()
    levels = [f" [{level}]" for level in outcomes] or [""]
    names, blocks = [], []
    cells = keys.to_dict("records")
    for name, values in zip(contrasts, by_contrast, strict=True):
        for row in cells:
            cell = ", ".join(f"{column} = {value}" for column, value in row.items())
            label = f"{name} [{cell}]" if row else name
            names += [f"{label}{level}" for level in levels]
        blocks.append(values.reshape(len(_STATISTICS), -1))
    table = np.concatenate(blocks, 1) if blocks else np.zeros((len(_STATISTICS), 0))
    columns = dict(zip(_STATISTICS, table, strict=True))
    counts = np.tile(np.repeat(_counts(totals), len(levels)), len(contrasts))
    return pd.DataFrame({**columns, "rows": counts}, index=names)


def _table(
    predictor: Predictor,
    shown: pd.DataFrame,
    values: np.ndarray,
    totals: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return rows with statistics, a row for each level if responses are levels."""
    import pandas as pd

    outcomes = predictor.model.outcomes if predictor.model.family.by_level else ()
    columns: dict[str, Any] = {}
    if outcomes:
        columns["level"] = list(outcomes) * len(shown)
    columns |= dict(zip(_STATISTICS, values.reshape(len(_STATISTICS), -1), strict=True))
    if totals is not None:
        columns["rows"] = np.repeat(_counts(totals), len(outcomes) or 1)
    names = {*map(str, shown.columns), *columns}
    renamed = {}
    for name in shown.columns:
        if name in columns:
            renamed[name] = quoted(str(name))
            while renamed[name] in names:
                renamed[name] = quoted(renamed[name])
            names.add(renamed[name])
    shown = shown.rename(columns=renamed)
    shown = shown.loc[shown.index.repeat(len(outcomes) or 1)].reset_index(drop=True)
    return pd.concat([shown, pd.DataFrame(columns)], axis=1)


def _counts(totals: np.ndarray) -> np.ndarray:
    """Return sums of weights, as integers if they are."""
    whole = np.round(totals)
    is_whole = (np.abs(totals - whole) <= 1e-9 * whole).all()
    return whole.astype(np.int64) if is_whole else totals


def _rows(predictor: Predictor, about: Question) -> Rows:
    """Return the rows of a question, without those of weight zero."""
    by = None if about.by is None else list(about.by)
    if isinstance(about.by, str):
        by = [about.by]
    frame, weights = predictor.frame, predictor.weights
    if about.condition is not None:
        if about.data is not None:
            raise ValueError("`condition` makes rows of its own: leave out `data`.")
        named = _named(about.condition)
        frame, weights = grid(predictor, named), None
        by = list(named) if by is None else by
    elif isinstance(about.data, Mapping):
        frame, weights = grid(predictor, about.data), None
    elif about.data is not None:
        frame, column = predictor.rows(about.data), predictor.weights_column
        has_weights = column is not None and column in frame.columns
        weights = frame[column] if has_weights else None
    if not len(frame):
        raise ValueError("`data` has no rows.")
    for name in by or ():
        if name not in frame.columns:
            raise ValueError(f"`by` names {name!r}, but `data` has no such column.")
    user_weights = about.weights
    if isinstance(user_weights, str):
        checks.known_keys(
            "weights", [user_weights], list(map(str, frame.columns)), "the columns are"
        )
        user_weights = frame[user_weights]
    values = np.ones(len(frame)) if weights is None else weights
    values = np.asarray(values if user_weights is None else user_weights, np.float64)
    if values.shape != (len(frame),) or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError("`weights` must be a number, 0 or more, for each row.")
    if not values.any():
        raise ValueError(
            "`weights` are zero in every row: there is nothing to average over."
        )
    return Rows(frame, values, by)


def _cells(predictor: Predictor, rows: Rows) -> tuple[pd.DataFrame, Cells]:
    """Return the values of ``by`` that there are, and the rows of each, but for weights of zero."""
    frame, weights = rows.frame, rows.weights
    if not weights.all():
        frame, weights = frame[weights > 0].reset_index(drop=True), weights[weights > 0]
    shown = frame[list(dict.fromkeys(rows.by or ()))]
    cell, first = numbered(shown, np.zeros(len(frame), int))
    assert cell is not None
    keys = shown.iloc[first].reset_index(drop=True)
    cells = Cells(frame, weights, cell, len(first))
    return keys, cells.distinct(predictor.linear.columns)


def _set_to(name: str, value: Any) -> Setting:
    """Return the setting of a column to one value, in the column's own type."""
    import pandas as pd

    def column(values: pd.Series) -> Any:
        dtype = values.dtype
        is_factor = isinstance(dtype, pd.CategoricalDtype)
        if is_factor and value in values.cat.categories:
            code = values.cat.categories.get_loc(value)
            return pd.Categorical.from_codes(np.full(len(values), code), dtype=dtype)
        if checks.is_number(value):
            return np.full(len(values), value)
        kind = None if isinstance(value, bool) else object
        return pd.Series([value] * len(values), dtype=kind)

    return Setting(name, column)


def _shifted_by(name: str, step: float) -> Setting:
    return Setting(name, lambda values: values.to_numpy(np.float64) + step)


def _slope(predictor: Predictor, name: str) -> Contrast:
    """Return the slope in a variable: a central difference, within the range of the regression.

    Steps are small next to the variable's SD and, of a positive variable, next to each value; the
    difference is divided by that of the numbers as they are rounded.
    """
    fitted = predictor.frame[name].to_numpy(np.float64)
    low, high, sd = fitted.min(), fitted.max(), float(fitted.std())
    sd = sd or abs(low) or 1.0

    def shifted(sign: float) -> Setting:
        def column(values: pd.Series) -> np.ndarray:
            x = values.to_numpy(np.float64)
            step = np.full(len(x), _SETTINGS.step * sd)
            if low > 0:
                relative = _SETTINGS.relative_step * np.abs(x)
                step = np.clip(relative, _SETTINGS.min_step * sd, _SETTINGS.step * sd)
            inside = (x >= low) & (x <= high)
            target = x + sign * step
            return np.where(inside, np.clip(target, low, high), target)

        return Setting(name, column)

    return Contrast(shifted(1.0), shifted(-1.0), slope=True)


def _is_numeric(values: pd.Series) -> bool:
    return getattr(values.dtype, "kind", "O") in "iuf"


def _is_variable(predictor: Predictor, name: str) -> bool:
    """Return whether a column is a number in terms or offsets, not only the number of a group."""
    return name in predictor.linear.variables and _is_numeric(predictor.frame[name])


def _changes(predictor: Predictor, variables: Any) -> dict[str, Any]:
    """Return the variables, each with the change that the user asks for, or ``None``."""
    if variables is None:
        return dict.fromkeys(sorted(predictor.model.design.variables))
    names = [variables] if isinstance(variables, str) else variables
    allowed = sorted(predictor.linear.columns)
    checks.known_keys("variables", names, allowed, "the variables of the formula are")
    return dict(names) if isinstance(names, Mapping) else dict.fromkeys(names)


def _levels(predictor: Predictor, name: str) -> list[Any] | None:
    """Return the levels of a factor or flag; ``None`` if the variable is a number."""
    flag = predictor.frame[name].dtype.kind == "b"
    factor = predictor.model.factors.get(name)
    if factor is not None:
        return list(factor.levels.values)
    return [False, True] if flag else None


def _need_levels(name: str, levels: list[Any] | None, change: Sequence[Any]) -> None:
    if levels is None:
        return
    for value in change:
        if Levels.of(levels).codes([value])[0] < 0:
            raise ValueError(
                f"`variables[{name!r}]`: {value!r} is not a level of the factor; the levels are "
                f"{', '.join(map(repr, levels))}."
            )


def _named(condition: Any) -> dict[str, Any]:
    """Return the values of each column of a condition, ``None`` for the usual ones."""
    if isinstance(condition, Mapping):
        return dict(condition)
    return dict.fromkeys([condition] if isinstance(condition, str) else condition)


def grid(predictor: Predictor, values: Mapping[str, Any]) -> pd.DataFrame:
    """Return all combinations of some values, other columns at their mean or mode.

    Args:
        predictor: Predictions.
        values: Values by column; ``None`` for its levels, or 25 numbers of its range.
    """
    import pandas as pd

    frame, weights = predictor.frame, predictor.weights
    checks.known_keys("data", values, list(map(str, frame.columns)), "the columns are")
    columns: dict[str, list[Any]] = {}
    for name, choice in values.items():
        if isinstance(choice, list):
            columns[name] = choice
            continue
        if choice is not None:
            columns[name] = list(np.atleast_1d(np.asarray(choice)))
            continue
        levels, column = _levels(predictor, name), frame[name]
        if levels is not None:
            columns[name] = list(levels)
        elif not _is_numeric(column):
            columns[name] = list(column.drop_duplicates().to_numpy())
        else:
            numbers = np.unique(column.to_numpy())
            if len(numbers) > _SETTINGS.grid:
                numbers = np.linspace(numbers[0], numbers[-1], _SETTINGS.grid)
            columns[name] = list(numbers)
    product = pd.MultiIndex.from_product(list(columns.values()), names=list(columns))
    rows = product.to_frame(index=False)
    row_weights = pd.Series(
        np.ones(len(frame)) if weights is None else weights, frame.index
    )
    for name in predictor.linear.columns:
        if name in columns:
            continue
        column = frame[name]
        if _levels(predictor, name) is None and _is_variable(predictor, name):
            numbers = column.to_numpy(np.float64)
            rows[name] = np.average(numbers, weights=row_weights)
        else:
            typical = row_weights.groupby(column, observed=True).sum().idxmax()
            rows[name] = pd.Series([typical] * len(rows), dtype=column.dtype)
    return rows
