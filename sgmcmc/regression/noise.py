"""Responses without noise, of which a scale or shape has no posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgmcmc.regression.columns import blocks
from sgmcmc.regression.design import Design, evaluated
from sgmcmc.regression.frames import labels
from sgmcmc.regression.model import Model
from sgmcmc.regression.names import INTERCEPT

if TYPE_CHECKING:
    import pandas as pd

_ROUNDING = 1e-13  # residual, in units of the response, below which it is rounding
_ROWS = 2000  # number of rows that are compared first
_TERMS = 500  # largest number of terms for which it is checked whether they determine the response

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
    if not d or d > _TERMS or design.coded or len(y) <= d:
        return False
    few = frame.iloc[: max(_ROWS, 2 * d)].reset_index(drop=True)
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
