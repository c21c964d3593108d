"""The response of a regression: its numbers, levels and range, and whether it has noise."""

from __future__ import annotations

from dataclasses import dataclass
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
from sgmcmc.regression.model import RegressionModel

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Settings:
    # Residual, in units of the response, below which it is rounding
    rounding: float = 1e-13
    first_rows: int = 2000  # that are compared first
    max_terms: int = 500  # for which it is checked whether they determine the response
    many_levels: int = 20  # of a number, from which on it looks like a measurement


_SETTINGS = _Settings()


def trials_of(formula: Formula, frame: pd.DataFrame) -> np.ndarray:
    """Return the number of trials of each row; 1 if the formula has none.

    Raises:
        ValueError: It is no integer, or less than 1.
    """
    trials = _of_each_row("trials", formula.trials or "1", frame)
    bad = (trials < 1) | (trials != np.floor(trials))
    requirement = f"trials({formula.trials}) must hold integers, 1 or more"
    return _refuse_first(bad, trials, requirement)


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
    categories = None
    if name in frame.columns and name not in frame.attrs.get(TEXT, ()):
        categories = getattr(frame[name].dtype, "categories", None)
    if not family.by_level:
        return _two_levels(name, values, categories, family)
    values = as_levels(values)
    is_number = values.dtype.kind in "biuf"
    if categories is not None:
        levels = _observed(categories, values)
    elif is_number:
        levels = tuple(np.unique(values).tolist())
    elif family.has_cutpoints:
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
    many_levels = max(_SETTINGS.many_levels, len(values) // 2)
    if values.dtype.kind == "f" and len(levels) > many_levels:
        raise ValueError(
            f"`data[{name!r}]`, the response of family {family.name!r}, has {len(levels)} levels "
            f"in {len(values)} rows: it looks like a measurement."
        )
    return levels


def _two_levels(
    name: str, values: np.ndarray, categories: Any, family: Family
) -> tuple[Any, ...]:
    """Return the two levels of a response that is no number; () if it is one."""
    if values.dtype.kind in "biuf":
        return ()
    texts = np.unique(values.astype(str))
    if not family.may_be_two_levels or len(texts) != 2:
        or_two = ", or two levels" if family.may_be_two_levels else ""
        raise TypeError(
            f"`data[{name!r}]`, the response of family {family.name!r}, must hold numbers"
            f"{or_two}; it has the levels {', '.join(texts[:4])}{' …' * (len(texts) > 4)}."
        )
    if categories is None:
        return tuple(map(str, texts))
    return _observed(categories, values)


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
    label = f"data[{formula.response!r}]"
    if levels:
        observed = factorized(values, label)
        codes = observed.coded_by(Levels.of(levels), label, "regression")
        y = codes.astype(np.float64)
    else:
        y = values.astype(np.float64)
    bad = ~(np.isfinite(y) & family.is_valid(y))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"`{label}`, the response of family {family.name!r}, must hold "
            f"{family.range}; row {row} has {y[row]:g}."
        )
    if family.has_trials and formula.trials is None:
        raise ValueError(
            f"`formula`: family {family.name!r} needs the number of trials of each row, "
            f"'{formula.response} | trials(n) ~ ...'. Family 'bernoulli' is for single trials."
        )
    if formula.trials is not None and not family.has_trials:
        raise ValueError(
            f"`formula`: trials(n) is for family 'binomial' only; the family is {family.name!r}."
        )
    if family.has_trials and (y > trials_of(formula, frame)).any():
        raise ValueError(f"`{label}` has more successes than trials.")
    if formula.censored is not None and not family.may_be_censored:
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


def need_noise(model: RegressionModel, y: np.ndarray, frame: pd.DataFrame) -> None:
    """Refuse responses that the terms, or the groups, determine.

    The likelihood then grows without bound as the noise goes to 0.

    Args:
        model: Model.
        y: Response.
        frame: All rows.

    Raises:
        ValueError: There is no noise; the message says why.
    """
    family, offset = model.family, model.formula.offset
    if family.noise is None or len(y) < 2:
        return
    less_offset = ""
    if family.scaled and offset is not None:
        y = y - evaluated(offset, frame, model.constants)
        less_offset = " less offset"
    reason = _reason_without_noise(model, y, frame)
    if reason:
        raise ValueError(
            f"`formula`: the response{less_offset} {reason}. It has no noise, and "
            f"{family.noise!r} of family {family.name!r} no posterior."
        )


def _reason_without_noise(
    model: RegressionModel, y: np.ndarray, frame: pd.DataFrame
) -> str:
    """Return why a response has no noise; empty if it has."""
    import pandas as pd

    size = float(np.abs(y).max()) * _SETTINGS.rounding
    factors = [effects.by for effects in model.effects if INTERCEPT in effects.terms]
    if np.ptp(y) <= size and (INTERCEPT in model.terms or factors):
        return f"is {y[0]:.6g} in every row"
    if not model.family.scaled:
        return ""
    if _is_determined(model.design, y, frame):
        return "is a linear combination of the terms"
    for by in factors:
        groups = labels(frame, by)
        if len(groups.levels) >= len(y):
            continue
        of_groups = pd.Series(y).groupby(np.asarray(groups.codes))
        if (of_groups.max() - of_groups.min() <= size).all():
            return f"is the same in all rows of each group of {by!r}"
    return ""


def _is_determined(design: Design, y: np.ndarray, frame: pd.DataFrame) -> bool:
    """Return whether terms determine a response, as those of fewer rows do not."""
    d = len(design.terms)
    if not d or d > _SETTINGS.max_terms or design.coded or len(y) <= d:
        return False
    few = frame.iloc[: max(_SETTINGS.first_rows, 2 * d)].reset_index(drop=True)
    matrix = design.matrix(few)
    size = float(np.abs(y).max()) * _SETTINGS.rounding * np.sqrt(d)
    b = np.linalg.lstsq(matrix, y[: len(few)], rcond=None)[0]
    if np.abs(y[: len(few)] - matrix @ b).max() > size:
        return False
    start = 0
    for rows, design_rows in blocks(design, frame):
        if np.abs(y[start : start + len(rows)] - design_rows.dense @ b).max() > size:
            return False
        start += len(rows)
    return True
