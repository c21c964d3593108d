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

FORMATS = (1, 2)  # formats of files with these units


def in_units_of(
    model: Model, draws: Mapping[str, np.ndarray], frame: pd.DataFrame
) -> dict[str, np.ndarray]:
    """Return draws of an earlier version as those of the model of this version.

    Args:
        model: Model, made from the same formula and data.
        draws: Draws by parameter, (..., draws, *shape).
        frame: Data.
    """
    converted = {name: np.asarray(values) for name, values in draws.items()}
    shift: float | np.ndarray = 0.0
    if model.terms:
        coefficients, cut_shift = _coefficients(
            model, converted["b"].astype(np.float64), frame
        )
        centered = coefficients.copy()
        if model.terms[0] == INTERCEPT:
            centered[..., 0] += coefficients[..., 1:] @ model.center[1:]
        converted["b"] = (centered - model.origin) * (model.scale / model.unit)
        shift = cut_shift - (coefficients @ model.center)[..., np.newaxis]
    if "cut" in converted:
        converted["cut"] = converted["cut"] + shift - model.level
    for factor_effects in model.effects:
        _convert_scales(factor_effects, converted)
        name = f"r_{factor_effects.name}"
        if name not in converted:
            continue
        of_bars = [moments(design, frame) for design in factor_effects.designs]
        size = np.concatenate(
            [np.hypot(columns.mean, columns.sd) for columns in of_bars]
        )
        center = factor_effects.center
        effects = converted[name] / np.where(size > 0, size, 1.0)
        for index in np.flatnonzero(center).tolist():
            intercept = factor_effects.intercept_of(index)
            effects[..., intercept] += center[index] * effects[..., index]
        converted[name] = effects * (factor_effects.scale / factor_effects.unit)
    return {name: converted[name].astype(draws[name].dtype) for name in draws}


def _coefficients(
    model: Model, b: np.ndarray, frame: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients of the user's columns, and what cutpoints at means lack, (..., 1)."""
    columns = moments(model.design, frame)
    scale, center = columns.scale, columns.mean
    if model.terms[0] == INTERCEPT:
        scale[0] = 1.0
        coefficients = b / scale
        coefficients[..., 0] -= coefficients[..., 1:] @ center[1:]
        return coefficients, np.zeros(1)
    coefficients = b / scale
    return coefficients, (coefficients @ center)[..., np.newaxis]


def _convert_scales(effects: Effects, draws: dict[str, np.ndarray]) -> None:
    """Replace standard deviations and correlations at zero by those at the means of columns."""
    if not effects.center.any():
        return
    sds, partial = f"sd_{effects.name}", f"cor_{effects.name}"
    at_zero = effects.root(
        draws[sds].astype(np.float64), draws[partial].astype(np.float64)
    )
    zeros = np.zeros(draws[sds].shape[:-1])
    rows = [np.stack([entry + zeros for entry in row], -1) for row in at_zero]
    for index in np.flatnonzero(effects.center).tolist():
        first = effects.intercept_of(index)
        rows[first] = rows[first] + effects.center[index] * rows[index]
    matrix = np.stack(rows, -2)
    root = np.linalg.cholesky(matrix @ np.swapaxes(matrix, -1, -2))
    norms = np.linalg.norm(root, axis=-1)
    partials = []
    for i, j in effects.pairs:
        first = next(indices[0] for indices in effects.correlated if i in indices)
        before = np.sum(root[..., i, first:j] ** 2, -1)
        partials.append(root[..., i, j] / np.sqrt(norms[..., i] ** 2 - before))
    draws[sds], draws[partial] = norms, np.stack(partials, -1)
