"""The response of a regression: its numbers, levels and range, and whether it has noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.data.levels import Levels, factorized
from sgmcmc.regression.arithmetic import as_levels
from sgmcmc.regression.columns import blocks
from sgmcmc.regression.design import Design, evaluated
from sgmcmc.regression.expressions import Constants
from sgmcmc.regression.families import Family, Responses
from sgmcmc.regression.formula import INTERCEPT, Formula, unquoted
from sgmcmc.regression.frames import TEXT, labels
from sgmcmc.regression.model import Model

if TYPE_CHECKING:
    import pandas as pd


def trials_of(formula: Formula, frame: pd.DataFrame) -> np.ndarray:
    """Return the number of trials of each row; 1 if the formula has none.

    Raises:
        ValueError: It is no integer, or less than 1.
    """
    trials = _of_each_row("trials", formula.trials or "1", frame)
    bad = (trials < 1) | (trials != np.floor(trials))
    return _refuse_first(
        bad, trials, f"trials({formula.trials}) must hold integers, 1 or more"
    )


def censored_of(formula: Formula, frame: pd.DataFrame) -> np.ndarray:
    """Return 1 for each row whose time is a lower bound, else 0."""
    flags = _of_each_row("cens", formula.censored or "0", frame)
    bad = ~np.isin(flags, (0.0, 1.0))
    requirement = (
        f"cens({formula.censored}) must hold 1 if the time is censored, else 0"
    )
    return _refuse_first(bad, flags, requirement)


def _refuse_first(bad: np.ndarray, values: np.ndarray, requirement: str) -> np.ndarray:
    """Return values of which none is bad; the message about one names its row."""
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"`formula`: {requirement}; row {row} has {values[row]:g}.")
    return values


def _of_each_row(name: str, text: str, frame: pd.DataFrame) -> np.ndarray:
    """Return the expression in ``trials(...)`` or ``cens(...)`` of each row, in float64."""
    constants: Constants = {}
    numbers = _numbers(name, text, frame, constants)
    if constants:
        raise ValueError(
            f"`formula`: {name}({text}) must be a function of each row alone."
        )
    return numbers


def _numbers(
    name: str, text: str, frame: pd.DataFrame, constants: Constants
) -> np.ndarray:
    """Return the expression in ``trials(...)``, ``cens(...)`` or ``offset(...)``, in float64."""
    numbers = evaluated(text, frame, constants)
    if numbers.dtype.kind not in "biuf":
        raise TypeError(
            f"`formula`: {name}({text}) must hold numbers; it holds {numbers[0]!r}."
        )
    return numbers.astype(np.float64)


def response_levels(
    formula: Formula, frame: pd.DataFrame, family: Family, constants: Constants
) -> tuple[Any, ...]:
    """Return the levels of the response, lowest or reference first; () if it is a number.

    Args:
        formula, family: Formula and family.
        frame: All rows.
        constants: Numbers of all rows by expression, to which those of the response are added.

    Raises:
        TypeError: Text has no order, and the family needs one.
        ValueError: There are fewer than two levels.
    """
    name = unquoted(formula.response)
    values = evaluated(formula.response, frame, constants)
    categories = (
        getattr(frame[name].dtype, "categories", None)
        if name in frame.columns
        else None
    )
    if family.by_level:
        values = as_levels(values)
    if name in frame.attrs.get(TEXT, ()):
        categories = None
    if not family.by_level:
        if values.dtype.kind in "biuf":
            return ()
        texts = np.unique(values.astype(str))
        if family.name != "bernoulli" or len(texts) != 2:
            or_two = ", or two levels" if family.name == "bernoulli" else ""
            raise TypeError(
                f"`data[{name!r}]`, the response of family {family.name!r}, must hold numbers"
                f"{or_two}; it has the levels {', '.join(texts[:4])}{' …' * (len(texts) > 4)}."
            )
        return (
            tuple(map(str, texts))
            if categories is None
            else _observed(categories, values)
        )
    if categories is not None:
        levels = _observed(categories, values)
    elif values.dtype.kind in "biuf":
        levels = tuple(np.unique(values).tolist())
    elif family.name == "ordinal":
        raise TypeError(
            f"`data[{name!r}]`, the response of family 'ordinal', must hold numbers or an ordered "
            "factor, pd.Categorical(values, categories=[...], ordered=True): text has no order."
        )
    else:
        levels = tuple(map(str, np.unique(values.astype(str))))
    if len(levels) < 2:
        raise ValueError(
            f"`data[{name!r}]`, the response, has one level: it needs two or more."
        )
    if values.dtype.kind == "f" and len(levels) > max(20, len(values) // 2):
        raise ValueError(
            f"`data[{name!r}]`, the response of family {family.name!r}, has {len(levels)} levels "
            f"in {len(values)} rows: it looks like a measurement."
        )
    return levels


def _observed(levels: Any, values: np.ndarray) -> tuple[Any, ...]:
    observed = set(values.tolist())
    return tuple(level for level in list(levels) if level in observed)


def read_response(
    formula: Formula,
    frame: pd.DataFrame,
    family: Family,
    levels: tuple[Any, ...],
    constants: Constants,
) -> np.ndarray:
    """Return the response in numbers: indices of ``levels``, if there are any.

    Args:
        formula, family: Formula and family.
        frame: Rows.
        levels: Levels of the response.
        constants: Numbers of all rows by expression.

    Raises:
        ValueError: It is out of the family's range, or the left side has what the family lacks.
    """
    values = evaluated(formula.response, frame, constants)
    if levels:
        label = f"data[{formula.response!r}]"
        known_levels = Levels.of(levels)
        y = (
            factorized(values, label)
            .coded_by(known_levels, label, "regression")
            .astype(np.float64)
        )
    else:
        y = values.astype(np.float64)
    bad = ~(np.isfinite(y) & family.good(y))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"`data[{formula.response!r}]`, the response of family {family.name!r}, must hold "
            f"{family.range}; row {row} has {y[row]:g}."
        )
    if family.name == "binomial" and formula.trials is None:
        raise ValueError(
            f"`formula`: family 'binomial' needs the number of trials of each row, "
            f"'{formula.response} | trials(n) ~ ...'. Family 'bernoulli' is for single trials."
        )
    if formula.trials is not None and family.name != "binomial":
        raise ValueError(
            f"`formula`: trials(n) is for family 'binomial' only; the family is {family.name!r}."
        )
    if family.name == "binomial" and (y > trials_of(formula, frame)).any():
        raise ValueError(
            f"`data[{formula.response!r}]` has more successes than trials."
        )
    if formula.censored is not None and family.name not in ("exponential", "weibull"):
        raise ValueError(
            f"`formula`: cens(c) is not compatible with family {family.name!r}."
        )
    censored_of(formula, frame)
    return y


def responses(
    formula: Formula,
    frame: pd.DataFrame,
    y: np.ndarray,
    constants: Constants,
    weights: np.ndarray | None,
) -> Responses:
    """Return the responses of rows, with offsets, trials and censoring."""
    columns: dict[str, Any] = {"trials": trials_of(formula, frame)}
    if weights is not None:
        columns["weights"] = weights
    if formula.offset is not None:
        columns["offset"] = _numbers("offset", formula.offset, frame, constants)
    if formula.censored is not None:
        columns["censored"] = censored_of(formula, frame)
    return Responses.of(y, **columns)


_ROUNDING = 1e-13  # residual, in units of the response, below which it is rounding

_FIRST_ROWS = 2000  # number of rows that are compared first

_MOST_TERMS = 500  # largest number of terms that may determine the response, as checked

# The parameter of each family that has no posterior if there is no noise.
_SCALES = {"gaussian": "sigma", "student": "sigma", "gamma": "shape", "weibull": "shape",
           "beta": "phi"}  # fmt: skip


def need_noise(model: Model, y: np.ndarray, frame: pd.DataFrame) -> None:
    """Refuse responses that the terms, or the groups, determine.

    The likelihood then grows without bound as the noise goes to 0.

    Args:
        model: Model.
        y: Response.
        frame: All rows.

    Raises:
        ValueError: There is no noise; the message says why.
    """
    parameter = _SCALES.get(model.family.name)
    if parameter is None or len(y) < 2:
        return
    offset = model.formula.offset
    if parameter == "sigma" and offset is not None:
        y = y - evaluated(offset, frame, model.constants)
    size = float(np.abs(y).max()) * _ROUNDING
    grouped = [effects for effects in model.effects if INTERCEPT in effects.terms]
    reason = ""
    if np.ptp(y) <= size and (INTERCEPT in model.terms or grouped):
        reason = f"is {y[0]:.6g} in every row"
    elif parameter == "sigma" and _determined(model.design, y, frame):
        reason = "is a linear combination of the terms"
    elif parameter == "sigma":
        constant = [
            effects.by
            for effects in grouped
            if _constant_in_groups(effects.by, y, frame, size)
        ]
        reason = (
            f"is the same in all rows of each group of {constant[0]!r}"
            if constant
            else ""
        )
    if reason:
        less = " less offset" if parameter == "sigma" and offset is not None else ""
        raise ValueError(
            f"`formula`: the response{less} {reason}. It has no noise, and {parameter!r} of family "
            f"{model.family.name!r} no posterior."
        )


def _constant_in_groups(
    by: str, y: np.ndarray, frame: pd.DataFrame, size: float
) -> bool:
    import pandas as pd

    groups = labels(frame, by)
    if len(groups.levels) >= len(y):
        return False
    response = pd.Series(y).groupby(np.asarray(groups.codes))
    return bool((response.max() - response.min() <= size).all())


def _determined(design: Design, y: np.ndarray, frame: pd.DataFrame) -> bool:
    """Return whether terms determine a response, as those of fewer rows do not."""
    d = len(design.terms)
    if not d or d > _MOST_TERMS or design.coded or len(y) <= d:
        return False
    few = frame.iloc[: max(_FIRST_ROWS, 2 * d)].reset_index(drop=True)
    matrix = design.matrix(few)
    size = float(np.abs(y).max()) * _ROUNDING * np.sqrt(d)
    b = np.linalg.lstsq(matrix, y[: len(few)], rcond=None)[0]
    if np.abs(y[: len(few)] - matrix @ b).max() > size:
        return False
    start = 0
    for rows, design_rows in blocks(design, frame):
        if np.abs(y[start : start + len(rows)] - design_rows.dense @ b).max() > size:
            return False
        start += len(rows)
    return True
