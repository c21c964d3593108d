"""Predictions of a regression, and effects of variables on them: differences and slopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import checks
from sgmcmc.checks import describe
from sgmcmc.regression.frames import as_frame, column, pieces, with_levels_of
from sgmcmc.regression.model import Model
from sgmcmc.regression.response import censored_of, read_response
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.samples import Samples

if TYPE_CHECKING:
    import pandas as pd

_DRAWS = 1000
"""Largest number of draws used for predictions."""

_MANY = 100_000
"""Rows from which the density of all rows is averaged over one draw of each chain, not five."""

_ROWS = 2000
"""Largest number of rows of the regression that are averaged over."""

Ends = Callable[["pd.DataFrame"], tuple[dict[str, Any], dict[str, Any], float]]
"""Returns columns before and after a change, and the divisor of the difference."""


@dataclass(frozen=True)
class Predictor:
    """Predictions of a regression.

    Attributes:
        model: Model.
        samples: Draws.
        frame: Data.
        weights: Weight of each row's log-likelihood; ``None`` for 1.
    """

    model: Model
    samples: Samples
    frame: pd.DataFrame
    weights: np.ndarray | None

    @cached_property
    def thinned(self) -> Samples:
        """At most 1000 of the draws."""
        draws = by_chain(self.samples.settings, self.samples)
        chains, count = next(iter(draws.values())).shape[:2]
        return self.samples[:: max(1, -(-chains * count // _DRAWS))]

    @cached_property
    def aux(self) -> dict[str, np.ndarray]:
        """Auxiliary parameters of these draws, (draws, 1)."""
        draws = by_chain(self.samples.settings, self.thinned)
        found = {}
        for name, where in self.model.family.aux:
            values = np.asarray(draws[name], np.float64)
            last = values.shape[2:] if where == "ordered" else ()
            found[name] = values.reshape(-1, 1, *last)
        return found

    def linear(self, data: Any) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
        """Yield rows and the draws of their linear predictors, (draws, rows, ...), in pieces."""
        frame = self.frame if data is None else as_frame(data)
        for part in pieces(frame, _DRAWS):
            if data is not None:
                part = with_levels_of(part, self.model.factors)
            eta = self.thinned.predict(self.model.predictor, self.model.rows(part), reduce=None)
            eta = np.asarray(eta, np.float64)
            several = eta.shape[-1:] if self.model.family.several else ()
            yield part, eta.reshape(-1, len(part), *several)

    def expected(self, eta: np.ndarray) -> np.ndarray:
        """Return expected responses, (draws, rows), or (draws, rows, levels) probabilities."""
        mean = self.model.family.mean(eta, self.aux)
        return mean if self.model.family.by_level else np.broadcast_to(mean, eta.shape)

    def predict(self, data: Any, kind: str, quantiles: Sequence[float], seed: int) -> np.ndarray:
        """Return predictions, as :meth:`Regression.predict` does."""
        family, found = self.model.family, []
        rng = np.random.default_rng(seed)
        for frame, eta in self.linear(data):
            if kind == "response":
                trials = self.model.rows(frame).get("trials")
                drawn = family.draw(rng, eta, self.aux, trials)
                found.append(np.asarray(self.model.outcomes)[drawn] if family.by_level else drawn)
            elif kind == "mean":
                found.append(self.expected(eta).mean(0))
            else:
                found.append(np.quantile(self.expected(eta), list(quantiles), axis=0))
        return np.concatenate(found, axis=0 if kind == "mean" else 1)

    def response(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the response of some rows in numbers."""
        model = self.model
        return read_response(model.formula, frame, model.family, model.outcomes, model.constants)

    def dataset(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the dataset of some rows, without weights."""
        rows = {"y": self.response(frame).astype(np.float32), **self.model.rows(frame)}
        if self.model.family.name in ("exponential", "weibull"):
            rows["censored"] = censored_of(self.model.formula, frame).astype(np.float32)
        return rows

    def _weighted(self, frame: pd.DataFrame, places: Any) -> dict[str, Any]:
        """Return the dataset of some rows of the regression, with their weights."""
        rows = self.dataset(frame)
        return rows if self.weights is None else {**rows, "weights": self.weights[places]}

    def log_density(self, places: np.ndarray) -> np.ndarray:
        """Return the log density of rows, times their weights, (draws, rows)."""
        rows = self._weighted(self.frame.iloc[places].reset_index(drop=True), places)
        found = self.thinned.predict(self.model.log_lik, rows, reduce=None)
        return np.asarray(found, np.float64).reshape(-1, len(places))

    def mean_log_density(self) -> np.ndarray:
        """Return an approximate log density of each row: the mean over a few draws."""
        count = len(next(iter(by_chain(self.thinned.settings, self.thinned).values()))[0])
        few = self.thinned[:: max(1, count if len(self.frame) > _MANY else count // 5)]
        found, start = [], 0
        for part in pieces(self.frame, len(self.model.terms)):
            places = slice(start, start + len(part))
            found.append(few.predict(self.model.log_lik, self._weighted(part, places)))
            start += len(part)
        return np.concatenate(found).astype(np.float64)


def comparisons(predictor: Predictor, variables: Any, data: Any, by: Any, prob: float) -> Any:
    """Return differences of the expected response, as :meth:`Regression.comparisons` does."""
    changes: dict[str, Ends] = {}
    for name, change in _wanted(predictor, variables).items():
        levels = _levels(predictor, name)
        if change is None and levels is not None:
            for level in levels[1:]:
                changes[f"{name}: {level} - {levels[0]}"] = _between(name, levels[0], level)
        elif isinstance(change, tuple | list) and len(change) == 2:
            changes[f"{name}: {change[1]} - {change[0]}"] = _between(name, *change)
        elif levels is None and (change is None or checks.is_number(change)):
            step = 1.0 if change is None else float(change)
            changes[f"{name}: {step:+g}"] = _plus(name, 0.0, step, 1.0)
        else:
            raise TypeError(
                f"`variables[{name!r}]` must be a pair of values"
                + (", or a number to add" if levels is None else " of the factor")
                + f"; it is {describe(change)}."
            )
    return _averages(predictor, changes, data, by, prob)


def slopes(predictor: Predictor, variables: Any, data: Any, by: Any, prob: float) -> Any:
    """Return slopes of the expected response, as :meth:`Regression.slopes` does."""
    changes: dict[str, Ends] = {}
    for name in _wanted(predictor, variables):
        if _levels(predictor, name) is not None:
            if variables is None:
                continue
            raise ValueError(f"`variables`: {name!r} is a factor; see comparisons().")
        step = 1e-2 * (float(np.std(predictor.frame[name])) or 1.0)
        changes[name] = _plus(name, -step / 2, step / 2, step)
    return _averages(predictor, changes, data, by, prob)


def predictions(predictor: Predictor, data: Any, by: Any, prob: float) -> Any:
    """Return expected responses with intervals, as :meth:`Regression.predictions` does."""
    import pandas as pd

    frame = _grid(predictor, data) if isinstance(data, Mapping) else some_rows(predictor, data)
    drawn = np.concatenate([predictor.expected(eta) for _, eta in predictor.linear(frame)], axis=1)
    shown = frame[list(data)] if isinstance(data, Mapping) else frame
    if by is not None:
        shown, parts = _parts(frame, by)
        drawn = np.stack([drawn[:, part].mean(1) for part in parts], 1)
    levels = predictor.model.outcomes
    if predictor.model.family.by_level:
        shown = shown.loc[shown.index.repeat(len(levels))].reset_index(drop=True)
        shown = shown.assign(level=list(levels) * (len(shown) // len(levels)))
        drawn = drawn.reshape(len(drawn), -1)
    found = interval({place: drawn[:, place] for place in range(drawn.shape[1])}, prob)
    return pd.concat([shown.reset_index(drop=True), found], axis=1)


def interval(found: Mapping[Any, np.ndarray], prob: float) -> pd.DataFrame:
    """Return a frame with mean, SD and central interval of draws by name."""
    import pandas as pd

    if not (checks.is_number(prob) and 0 < prob < 1):
        raise ValueError(f"`prob` must be between 0 and 1; it is {prob!r}.")
    rows = {}
    for name, draws in found.items():
        lower, upper = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2])
        rows[name] = {
            "estimate": draws.mean(), "error": draws.std(), "lower": lower, "upper": upper,
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index")


def _plus(name: str, before: float, after: float, over: float) -> Ends:
    def ends(frame: pd.DataFrame) -> Any:
        values = column(frame, name)
        return {name: values + before}, {name: values + after}, over

    return ends


def _between(name: str, before: Any, after: Any) -> Ends:
    return lambda frame: ({name: before}, {name: after}, 1.0)


def _averages(
    predictor: Predictor, changes: dict[str, Ends], data: Any, by: Any, prob: float
) -> pd.DataFrame:
    """Return a frame with a row for each change, of all rows or for each value of ``by``."""
    frame = some_rows(predictor, data)
    groups, parts = _parts(frame, by) if by is not None else (None, [slice(None)])
    found = {}
    for name, ends in changes.items():
        before, after, over = ends(frame)
        drawn = (_expected(predictor, frame, after) - _expected(predictor, frame, before)) / over
        for place, part in enumerate(parts):
            row = name if groups is None else f"{name} [{_said(groups.iloc[place])}]"
            average = drawn[:, part].mean(1)
            if predictor.model.family.by_level:
                for level, draws in zip(predictor.model.outcomes, average.T, strict=True):
                    found[f"{row} [{level}]"] = draws
            else:
                found[row] = average
    return interval(found, prob)


def _said(row: pd.Series) -> str:
    return ", ".join(f"{name} = {value}" for name, value in row.items())


def _expected(predictor: Predictor, frame: pd.DataFrame, change: dict[str, Any]) -> np.ndarray:
    drawn = [predictor.expected(eta) for _, eta in predictor.linear(frame.assign(**change))]
    return np.concatenate(drawn, axis=1)


def _parts(frame: pd.DataFrame, by: Any) -> tuple[pd.DataFrame, list[np.ndarray]]:
    """Return the values of some columns that there are, and the rows of each."""
    names = [by] if isinstance(by, str) else list(by)
    for name in names:
        column(frame, name)
    keys = frame[names].drop_duplicates().sort_values(names).reset_index(drop=True)
    number = frame[names].merge(keys.assign(number_=np.arange(len(keys))), how="left")["number_"]
    return keys, [np.flatnonzero(number.to_numpy() == place) for place in range(len(keys))]


def _wanted(predictor: Predictor, variables: Any) -> dict[str, Any]:
    """Return the variables, each with the change that the user asks for, or ``None``."""
    known = sorted(predictor.model.design.variables)
    if variables is None:
        return dict.fromkeys(known)
    wanted = [variables] if isinstance(variables, str) else variables
    checks.known_keys("variables", wanted, known, "the variables of the fixed terms are")
    return dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted)


def _levels(predictor: Predictor, name: str) -> list[Any] | None:
    """Return the levels of a factor or flag; ``None`` if the variable is a number."""
    flag = predictor.frame[name].dtype.kind == "b"
    factor = predictor.model.design.factors.get(name)
    if factor is not None:
        return list(factor.levels.values)
    return [False, True] if flag else None


def some_rows(predictor: Predictor, data: Any) -> pd.DataFrame:
    """Return the rows to average over."""
    frame = predictor.frame if data is None else as_frame(data)
    if data is None and len(frame) > _ROWS:
        places = np.random.default_rng(0).choice(len(frame), _ROWS, replace=False)
        frame = frame.iloc[np.sort(places)]
    return frame.reset_index(drop=True)


def _grid(predictor: Predictor, values: Mapping[str, Any]) -> pd.DataFrame:
    """Return all combinations of some values, other columns at their mean or mode."""
    import pandas as pd

    frame = predictor.frame
    columns = {name: list(np.atleast_1d(np.asarray(each))) for name, each in values.items()}
    checks.known_keys("data", columns, list(map(str, frame.columns)), "the columns are")
    grid = pd.MultiIndex.from_product(list(columns.values()), names=list(columns))
    found = grid.to_frame(index=False)
    for name in frame.columns:
        if name not in columns:
            own = frame[name]
            typical = own.mean() if own.dtype.kind == "f" else own.mode().iloc[0]
            found[name] = pd.Series([typical] * len(found), dtype=own.dtype)
    return found
