"""Draws of a regression given its data, and the data of several regressions as one."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import did_you_mean
from sgmcmc.data.entries import by_label, need_one_order
from sgmcmc.data.levels import Categories, Levels, as_categorical, factorized
from sgmcmc.groups.labels import extended
from sgmcmc.reduce.rows import distinct_rows
from sgmcmc.regression.arithmetic import plain
from sgmcmc.regression.building import RegressionData, make_model
from sgmcmc.regression.direct import leave_sampler_open
from sgmcmc.regression.families import read_family
from sgmcmc.regression.few_rows import FewRowsCall, is_small
from sgmcmc.regression.formula import parse, with_dot
from sgmcmc.regression.frames import (
    TEXT,
    chunks,
    column,
    read_rows,
    with_levels_of,
)
from sgmcmc.regression.model import WEIGHTS, RegressionModel
from sgmcmc.regression.reduced import SumsCall, is_reducible
from sgmcmc.regression.response import need_noise, read_response
from sgmcmc.regression.saved import Content
from sgmcmc.results.samples import Samples
from sgmcmc.samplers.sample import sample

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Settings:
    # Standard deviation of a response below which, or beyond its inverse, the chain is in float64:
    # its fourth power, as in derivatives with respect to `sigma`, is out of the range of float32.
    min_unit: float = 1e-9
    # The same of effects of groups, whose SDs are parameters in the units of the user.
    min_effect_unit: float = 1e-30
    shortest: float = 0.1  # seconds that are left for a chain, at least


_SETTINGS = _Settings()

_OF_GLM = {"missing", "reduce"}  # keywords that are not those of `sample`


def sampled(content: Content) -> tuple[RegressionModel, Samples]:
    """Return the model of a content, and draws of its posterior."""
    keywords = {k: v for k, v in content.keywords.items() if k not in _OF_GLM}
    reduce = checks.flag("reduce", content.keywords.get("reduce", True))
    frame, weights = content.frame, content.weights
    formula = with_dot(parse(content.formula), frame, content.weights_column)
    family = read_family(content.family, content.link)
    model, y = make_model(formula, frame, family, content.priors or None, weights)
    counted_y, counted_rows = y, frame
    if weights is not None and not weights.all():
        counted = np.flatnonzero(weights)
        counted_y = y[counted]
        counted_rows = frame.iloc[counted].reset_index(drop=True)
    need_noise(model, counted_y, counted_rows)
    fits_float32 = _SETTINGS.min_unit < model.unit < 1 / _SETTINGS.min_unit
    for effects in model.effects:
        units = effects.unit / effects.scale
        smallest, largest = _SETTINGS.min_effect_unit, 1 / _SETTINGS.min_effect_unit
        fits_float32 &= bool(((units > smallest) & (units < largest)).all())
    dtype = tf.float32 if fits_float32 else tf.float64
    keywords = {"dtype": dtype, **keywords}
    numpy_dtype = checks.floating_dtype("dtype", keywords["dtype"]).as_numpy_dtype
    data = RegressionData(model, y, frame, weights, np.dtype(numpy_dtype))
    began = time.monotonic()
    if reduce and is_reducible(data, keywords):
        by_sums = SumsCall(data, keywords)
        if by_sums.is_less_work:
            return model, by_sums.finish()
    if reduce and is_small(data, keywords):
        by_slices = FewRowsCall(data, keywords)
        if by_slices.is_less_work:
            return model, by_slices.finish()
    arguments = data.arguments()
    if checks.is_number(keywords.get("max_seconds")):
        left = keywords["max_seconds"] - (time.monotonic() - began)
        left = min(keywords["max_seconds"], max(_SETTINGS.shortest, left))
        keywords = {**keywords, "max_seconds": left}
    others = {name for name in keywords if name != "start"}
    if reduce and weights is None and not model.effects and leave_sampler_open(others):
        distinct = distinct_rows(arguments["dataset"], WEIGHTS)
        arguments["dataset"] = distinct or arguments["dataset"]
    return model, sample(**{**arguments, **keywords})


def row_weights(
    weights: Any, data: Any, frame: pd.DataFrame, mask: np.ndarray | None
) -> np.ndarray | None:
    """Return the weight of each row that is kept; ``None`` if there are none."""
    import pandas as pd

    if weights is None:
        return None
    columns = by_label("data", data) if isinstance(data, Mapping) else {"data": data}
    need_one_order({**columns, "weights": weights})
    values = column(frame, weights) if isinstance(weights, str) else np.asarray(weights)
    if not isinstance(weights, str) and mask is not None and values.shape == mask.shape:
        values = values[mask]
    if values.dtype.kind == "O" and values.ndim == 1:
        # Decimals, and integers of Python's.
        values = np.asarray(plain(pd.Series(values)))
    if values.dtype.kind not in "biuf":
        raise TypeError(
            "`weights` must be a number, 0 or more, for each row of `data`; it holds "
            f"{values.reshape(-1)[0]!r}."
        )
    if np.ma.is_masked(weights):
        raise ValueError(
            "`weights` has masked values. A weight is a number for each row."
        )
    if values.shape != (len(frame),) or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(
            "`weights` must be a number, 0 or more, for each row of `data`."
        )
    if not values.any():
        raise ValueError("`weights` are zero for every row of `data`: no row counts.")
    return values.astype(np.float64)


def need_known_levels(model: RegressionModel, frame: pd.DataFrame) -> None:
    """Refuse rows with levels of fixed factors, or of the response, that a model lacks."""
    frame = with_levels_of(frame, model.factors)
    for chunk in chunks(frame, len(model.terms)):
        for design in model.designs:
            design.need_known(chunk)
    if model.outcomes:
        read_response(
            model.formula, frame, model.family, model.outcomes, model.constants
        )


def content_of_rows(like: Content, rows: Any, weights: Any) -> Content:
    """Return the content of a regression of other rows.

    Args:
        like: Content of a regression, with the columns that it uses.
        rows: Rows, in any container that ``data`` may be.
        weights: Weight of each, the name of a column, or ``None`` for the column that ``like``
            names, if it does.
    """
    weights = like.weights_column if weights is None else weights
    names = [str(n) for n in like.frame.columns if str(n) != like.weights_column]
    needed = dict.fromkeys([*names, weights] if isinstance(weights, str) else names)

    def used(all_: pd.DataFrame) -> list[Any]:
        present = {str(name): name for name in all_.columns}
        for name in needed:
            if name not in present:
                reader = "the formula uses" if name in names else "`weights` names"
                raise ValueError(
                    f"`rows` has no column {name!r}, which {reader}."
                    + did_you_mean(name, list(present))
                )
        return [present[name] for name in needed]

    frame, mask = read_rows(rows, used, like.keywords.get("missing") == "drop")
    if not len(frame):
        raise ValueError("`rows` has no rows.")
    return replace(
        like,
        frame=frame[used(frame)],
        weights=row_weights(weights, rows, frame, mask),
        dropped=0 if mask is None else int((~mask).sum()),
    )


def stacked(contents: Sequence[Content], coded: Collection[str]) -> Content:
    """Return the content of one regression of the rows of several, one behind the other.

    Args:
        contents: Contents.
        coded: Names of columns that are factors or labels of groups.
    """
    import pandas as pd

    first = contents[0]
    frames = [content.frame for content in contents]
    columns = {
        name: _stacked(str(name), frames, str(name) in coded)
        for name in frames[0].columns
        if str(name) != first.weights_column
    }
    weights = None
    if any(content.weights is not None for content in contents):
        ones = [np.ones(len(content.frame)) for content in contents]
        parts = zip(contents, ones, strict=True)
        weights = np.concatenate(
            [one if part.weights is None else part.weights for part, one in parts]
        )
        if first.weights_column is not None:
            columns[first.weights_column] = weights
    frame = pd.DataFrame(columns, copy=False)
    text = [set(other.attrs.get(TEXT, ())) for other in frames]
    frame.attrs[TEXT] = sorted(set.intersection(*text))
    dropped = sum(content.dropped for content in contents)
    return replace(first, frame=frame, weights=weights, dropped=dropped)


def _stacked(name: str, frames: Sequence[pd.DataFrame], is_coded: bool) -> Any:
    """Return a column of which frames have the parts; levels are those of the same value.

    Levels are written, and ordered, as in the first part.
    """
    import pandas as pd

    parts = [frame[name] for frame in frames]
    kinds = {part.dtype.kind for part in parts}
    is_one_dtype = len({str(part.dtype) for part in parts}) == 1
    are_numbers = kinds <= set("biuf")
    if kinds in ({"M"}, {"m"}) or (are_numbers and (is_one_dtype or not is_coded)):
        if "b" in kinds and not is_one_dtype:
            parts = [
                part.astype(int) if part.dtype.kind == "b" else part for part in parts
            ]
        return pd.concat(parts, ignore_index=True).to_numpy()
    all_rows = [factorized(part, f"rows[{name!r}]") for part in parts]
    first, levels = parts[0], all_rows[0].levels
    is_category = isinstance(first.dtype, pd.CategoricalDtype)
    is_sorted = not is_category or name in frames[0].attrs.get(TEXT, ())
    if is_sorted:  # as in a regression of these rows
        levels = _in_order(levels)
    for rows in all_rows[1:]:
        joined = extended(levels, rows.levels.values)
        if levels.ordered or rows.levels.ordered:
            own = set(rows.levels.values)
            in_order = tuple(value for value in joined.values if value in own)
            if len(joined) > len(levels) or in_order != rows.levels.values:
                raise ValueError(
                    f"`rows[{name!r}]` is an ordered category with the levels "
                    f"{list(rows.levels.values)}; those of the regression are "
                    f"{list(levels.values)}."
                )
        levels = joined
    levels = _in_order(levels) if is_sorted else levels
    codes = np.concatenate([rows.coded_by(levels, name) for rows in all_rows])
    if not any(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
        if all(isinstance(value, str) for value in levels.values):
            return np.array(levels.values, object)[codes]
        values = np.array(levels.values)
        if values.dtype.kind in "biuf":
            if first.dtype.kind in "biuf":
                as_first = values.astype(first.dtype)
                values = as_first if Levels.of(as_first) == levels else values
            return values[codes]
    return as_categorical(Categories(codes, levels))


def _in_order(levels: Levels) -> Levels:
    """Return levels in the order of their values, if they have one."""
    try:
        return replace(levels, values=tuple(sorted(levels.values)))
    except TypeError:
        return levels
