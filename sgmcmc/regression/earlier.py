"""Draws of regressions that earlier versions saved, in the units of this one.

In formats 1 and 2 the chain moved coefficients of columns less their mean over their standard
deviation, whatever the unit of the response; standard deviations and correlations of effects at
zero of their columns; and effects in units of the root mean square of their columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sgmcmc.regression.columns import moments
from sgmcmc.regression.model import Effects, Model
from sgmcmc.regression.names import INTERCEPT

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (1, 2)
"""Formats of files with these units."""


def in_units_of(
    model: Model, draws: Mapping[str, np.ndarray], frame: pd.DataFrame
) -> dict[str, np.ndarray]:
    """Return draws of an earlier version as those of the model of this version.

    Args:
        model: Model, made from the same formula and data.
        draws: Draws by parameter, (..., draws, *shape).
        frame: Data.
    """
    found = {name: np.asarray(values) for name, values in draws.items()}
    cuts_move: float | np.ndarray = -model.level
    if model.terms:
        coefficients, lacking = _coefficients(model, found["b"].astype(np.float64), frame)
        centered = coefficients.copy()
        if model.terms[0] == INTERCEPT:
            centered[..., 0] += coefficients[..., 1:] @ model.center[1:]
        found["b"] = (centered - model.origin) * (model.scale / model.unit)
        cuts_move = lacking - (coefficients @ model.center)[..., np.newaxis] - model.level
    if "cut" in found:
        found["cut"] = found["cut"] + cuts_move
    for each in model.effects:
        _convert_scales(each, found)
        name = f"r_{each.name}"
        if name in found:
            parts = [moments(design, frame) for design in each.designs]
            size = np.concatenate([np.hypot(part.mean, part.sd) for part in parts])
            effects = found[name] / np.where(size > 0, size, 1.0)
            for place in np.flatnonzero(each.center).tolist():
                effects[..., each.intercept_of(place)] += each.center[place] * effects[..., place]
            found[name] = effects * (each.scale / each.unit)
    return {name: found[name].astype(draws[name].dtype) for name in draws}


def _coefficients(
    model: Model, b: np.ndarray, frame: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients of the user's columns, and what cutpoints at means lack, (..., 1)."""
    columns = moments(model.design, frame)
    scale, center = columns.scale, columns.mean
    if model.terms[0] == INTERCEPT:
        scale[0] = 1.0
        found = b / scale
        found[..., 0] -= found[..., 1:] @ center[1:]
        return found, np.zeros(1)
    found = b / scale
    return found, (found @ center)[..., np.newaxis]


def _convert_scales(each: Effects, draws: dict[str, np.ndarray]) -> None:
    """Replace standard deviations and correlations at zero by those at the means of columns."""
    if not each.center.any():
        return
    sds, partial = f"sd_{each.name}", f"cor_{each.name}"
    at_zero = each.root(draws[sds].astype(np.float64), draws[partial].astype(np.float64))
    zeros = np.zeros(draws[sds].shape[:-1])
    rows = [np.stack([entry + zeros for entry in row], -1) for row in at_zero]
    for place in np.flatnonzero(each.center).tolist():
        first = each.intercept_of(place)
        rows[first] = rows[first] + each.center[place] * rows[place]
    matrix = np.stack(rows, -2)
    root = np.linalg.cholesky(matrix @ np.swapaxes(matrix, -1, -2))
    found = np.linalg.norm(root, axis=-1)
    partials = []
    for i, j in each.pairs:
        first = next(places[0] for places in each.correlated if i in places)
        before = np.sum(root[..., i, first:j] ** 2, -1)
        partials.append(root[..., i, j] / np.sqrt(found[..., i] ** 2 - before))
    draws[sds], draws[partial] = found, np.stack(partials, -1)
