"""From formula and data to the model of a regression, and its posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import checks
from sgmcmc.checks import describe
from sgmcmc.data.stored import Spool
from sgmcmc.groups import Groups
from sgmcmc.regression.columns import (
    Moments,
    blocks,
    dependent,
    least_squares,
    moments,
    need_independent,
)
from sgmcmc.regression.design import Design, make_design
from sgmcmc.regression.expressions import Constants
from sgmcmc.regression.families import Family, Responses
from sgmcmc.regression.formula import (
    INTERCEPT,
    Bar,
    Formula,
    cut_names,
    escaped,
    parameter_names,
    quoted,
    unquoted,
)
from sgmcmc.regression.model import Effects, Model
from sgmcmc.regression.response import read_response, response_levels, responses

if TYPE_CHECKING:
    import pandas as pd


_ROUNDING = (
    1e-13  # part of the response below which differences are rounding of float64
)

# Part of the squares that residuals have, below which they are computed one by one.
_CANCELED = 1e-10


def make_model(
    formula: Formula,
    frame: pd.DataFrame,
    family: Family,
    priors: Any,
    weights: np.ndarray | None = None,
) -> tuple[Model, np.ndarray]:
    """Return the model of a regression and the response.

    Args:
        formula, frame, family, priors: Formula, data, family and the user's priors.
        weights: Weight of each row, not all zero; ``None`` for 1.

    Raises:
        ValueError, TypeError: Formula, data or priors are invalid; the message names the term.
    """
    constants: Constants = {}
    outcomes = response_levels(formula, frame, family, constants)
    y = read_response(formula, frame, family, outcomes, constants)
    if family.several and (formula.bars or formula.offset is not None):
        raise ValueError(
            "`formula`: bars and offset(...) are not compatible with family 'categorical', each "
            "of whose levels has a linear predictor."
        )
    design = make_design(formula.fixed, frame)
    response = responses(formula, frame, y, constants, weights)
    intercept = design.terms[:1] == (INTERCEPT,)
    start = family.start(response)
    centered, values, unit = None, None, 1.0
    if family.scaled:
        centered = _CenteredResponse.of(response, start if intercept else 0.0)
        values, unit = centered.values, centered.unit
    effects = _effects(formula.bars, frame, weights, unit)
    reserved = _reserved_names(family, effects, outcomes)
    design = design.named([escaped(term, reserved) for term in design.terms])
    column_moments = moments(design, frame, weights, values)
    aliased = dependent(design, column_moments, frame, weights)
    if not formula.dotted:
        need_independent(design, aliased, column_moments.rows)
    center = column_moments.mean if intercept else np.zeros(len(design.terms))
    scale = column_moments.scale
    origin, residual = np.zeros(len(design.terms)), 1.0
    if centered is not None:
        origin, residual = centered.explained(column_moments, design, frame, weights)
    offset_mean = float(np.average(response.offset, weights=response.weights))
    cuts: tuple[float, ...] = ()
    if family.name == "ordinal":
        if not intercept:
            raise ValueError(
                "`formula`: cutpoints of family 'ordinal' replace the intercept, which cannot be "
                "removed."
            )
        design = design.without_intercept()
        center, scale, origin = center[1:], scale[1:], origin[1:]
        cuts = _cutpoints(response, len(outcomes))
    elif intercept:
        center[0], scale[0] = 0.0, 1.0
        origin[0] = -offset_mean if family.intercept == "probability" else start
    model = Model(
        formula=formula,
        family=family,
        design=design,
        center=center,
        scale=scale,
        origin=origin,
        effects=effects,
        unit=unit,
        start=start,
        offset_mean=offset_mean,
        residual=residual,
        priors=_read_priors(priors, design.terms, family, bool(effects)),
        outcomes=outcomes,
        cuts=cuts,
        constants=constants,
        aliased=tuple(aliased),
    )
    return model, y


def _reserved_names(
    family: Family, effects: Sequence[Effects], outcomes: Sequence[Any]
) -> list[str]:
    names = [name for name, support in family.aux if support != "ordered"]
    names += cut_names(outcomes) if len(names) < len(family.aux) else []
    for factor_effects in effects:
        names += factor_effects.rows
    return [*names, *(["sd"] if effects else [])]


@dataclass(frozen=True)
class _CenteredResponse:
    """A response that scales the default priors, less its offset and mean.

    Attributes:
        values: Response less offset and center, (rows,).
        total: Sum of its weighted squares.
        unit: Its standard deviation; its size if that is zero.
    """

    values: np.ndarray
    total: float
    unit: float

    @classmethod
    def of(cls, response: Responses, center: float) -> _CenteredResponse:
        """Return that of responses.

        Args:
            response: Responses.
            center: Mean of the response less offset; 0 if there is no intercept.
        """
        centered = response.y - response.offset
        mean = np.average(centered, weights=response.weights)
        unit = float(
            np.sqrt(np.average((centered - mean) ** 2, weights=response.weights))
        )
        size = float(np.sqrt(np.average(centered**2, weights=response.weights)))
        unit = unit if unit > _ROUNDING * size else size or 1.0
        centered = centered - center
        return cls(centered, float(response.weights @ centered**2), unit)

    def explained(
        self,
        column_moments: Moments,
        design: Design,
        frame: pd.DataFrame,
        weights: np.ndarray | None,
    ) -> tuple[np.ndarray, float]:
        """Return coefficients by least squares, and the standard deviation of residuals."""
        intercept = design.terms[:1] == (INTERCEPT,)
        origin = least_squares(column_moments, intercept)
        residual_squares = self.total - float(origin @ column_moments.response)
        if residual_squares < _CANCELED * self.total and column_moments.rows > len(
            design.terms
        ):
            residuals = self.values - _fixed(design, frame, column_moments, origin)
            residual_moments = moments(design, frame, weights, residuals)
            change = least_squares(residual_moments, intercept)
            origin = origin + change
            residuals -= _fixed(design, frame, column_moments, change)
            w = np.ones(len(residuals)) if weights is None else weights
            residual_squares = float(w @ residuals**2)
        residual = np.sqrt(max(residual_squares, 0.0) / column_moments.total)
        return origin, float(
            residual
        ) if residual > _ROUNDING * self.unit else self.unit


def _fixed(
    design: Design,
    frame: pd.DataFrame,
    column_moments: Moments,
    coefficients: np.ndarray,
) -> np.ndarray:
    """Return the fixed part of the predictor of centered columns, (rows,)."""
    intercept = design.terms[:1] == (INTERCEPT,)
    center = column_moments.mean if intercept else np.zeros(len(design.terms))
    return np.concatenate(
        [
            design_rows.times(design, coefficients, center)
            for _, design_rows in blocks(design, frame)
        ]
    )


def _cutpoints(response: Responses, levels: int) -> tuple[float, ...]:
    """Return the log odds of the shares of levels, half a row more in each."""
    counts = np.bincount(response.y.astype(int), response.weights, levels) + 0.5
    cumulative = np.cumsum(counts)[:-1] / counts.sum()
    return tuple(np.log(cumulative / (1.0 - cumulative)).tolist())


def _effects(
    bars: Sequence[Bar], frame: pd.DataFrame, weights: np.ndarray | None, unit: float
) -> tuple[Effects, ...]:
    effects = []
    names = parameter_names(list(dict.fromkeys(bar.by for bar in bars)))
    for by, name in names.items():
        factor_bars = tuple(bar for bar in bars if bar.by == by)
        designs: list[Design] = []
        terms: list[str] = []
        correlated: list[tuple[int, ...]] = []
        sizes: list[tuple[np.ndarray, np.ndarray]] = []
        for bar in factor_bars:
            design = make_design(bar.terms, frame, large=len(frame))
            indices = range(len(terms), len(terms) + len(design.terms))
            terms += design.terms
            designs.append(design)
            sizes.append(_center_and_scale(design, frame, weights, bar.correlated))
            if bar.correlated:
                correlated.append(tuple(indices))
            else:
                correlated += [(index,) for index in indices]
        if len(set(terms)) < len(terms):
            raise ValueError(f"`formula`: two bars have the same effect of {by!r}.")
        center, scale = (np.concatenate(arrays) for arrays in zip(*sizes, strict=True))
        factor_effects = Effects(
            by=by,
            name=name,
            bars=factor_bars,
            terms=tuple(terms),
            designs=tuple(designs),
            correlated=tuple(correlated),
            center=center,
            scale=scale,
            unit=unit,
        )
        effects.append(factor_effects)
    return tuple(effects)


def _center_and_scale(
    design: Design, frame: pd.DataFrame, weights: np.ndarray | None, correlated: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the center of each effect's column, 0 unless its intercept is free to move, and scale.

    The scale is the standard deviation; the size of a column that does not vary; 1 of zeros.
    """
    if design.terms == (INTERCEPT,):
        return np.zeros(1), np.ones(1)
    column_moments = moments(design, frame, weights)
    size = np.where(column_moments.mean != 0, np.abs(column_moments.mean), 1.0)
    scale = np.where(column_moments.varies, column_moments.sd, size)
    has_intercept = correlated and design.terms[0] == INTERCEPT
    return np.where(
        column_moments.varies & has_intercept, column_moments.mean, 0.0
    ), scale


def _read_priors(
    priors: Any, terms: Sequence[str], family: Family, grouped: bool
) -> dict[str, Any]:
    scales = [name for name, support in family.aux if support != "ordered"]
    allowed = [*terms, *scales, *(["sd"] if grouped else [])]
    by_term = {
        name if name in allowed else unquoted(name): value
        for name, value in checks.by_name("priors", priors, "of priors by term").items()
    }
    checks.known_keys("priors", by_term, allowed, "the terms are")
    for name, value in by_term.items():
        pair = isinstance(value, tuple | list) and len(value) == 2 and name in terms
        if pair and not (all(map(checks.is_number, value)) and value[1] > 0):
            raise ValueError(
                f"`priors[{name!r}]` must be a mean and a positive standard deviation; it is "
                f"{value!r}."
            )
        rate = name not in (*terms, "zi") and checks.is_number(value) and value > 0
        if not (hasattr(value, "log_prob") or pair or rate):
            expected = (
                "a pair (mean, sd) of a normal, or "
                if name in terms
                else ("" if name == "zi" else "the rate of an exponential, or ")
            )
            raise TypeError(
                f"`priors[{name!r}]` must be {expected}a distribution with `log_prob`; it is "
                f"{describe(value)}."
                + (f" The term is {quoted(name)!r}." if quoted(name) in terms else "")
            )
    return by_term


def groups_of(model: Model) -> list[Groups]:
    """Return the groups of a model, as samplers expect them."""
    normal = model.family.name == "gaussian"
    return [
        Groups(
            effects.entry,
            {f"r_{effects.name}": np.zeros(len(effects.terms))},
            effects.log_density,
            normal=normal,
        )
        for effects in model.effects
    ]


def posterior(
    model: Model,
    y: np.ndarray,
    frame: pd.DataFrame,
    weights: np.ndarray | None,
    dtype: Any = np.float32,
) -> dict[str, Any]:
    """Return the arguments of :func:`sgmcmc.sample` for the posterior of a regression.

    Args:
        model: Model.
        y: Response.
        frame: Data.
        weights: Weight of each row, or ``None``.
        dtype: Floating point type of the dataset.

    Raises:
        ValueError: There is nothing to sample.
    """
    params: dict[str, Any] = {}
    bijectors: dict[str, Any] = {}
    if model.terms:
        several = (len(model.outcomes) - 1,) if model.family.several else ()
        params["b"] = np.zeros((*several, len(model.terms)))
        if model.terms[0] == INTERCEPT and not model.family.scaled:
            params["b"][..., 0] = model.start - model.origin[0]
    _add_scales(model, params, bijectors)
    if not params:
        raise ValueError("`formula` has no terms: there is nothing to sample.")
    groups = groups_of(model)
    return {
        "log_lik": model.log_lik,
        "dataset": _dataset(model, y, frame, weights, np.dtype(dtype)),
        "params": params,
        "log_prior": model.log_prior,
        "bijectors": bijectors or None,
        "integers": model.integers,
        **({"groups": groups} if groups else {}),
    }


def _dataset(
    model: Model,
    y: np.ndarray,
    frame: pd.DataFrame,
    weights: np.ndarray | None,
    dtype: np.dtype,
) -> dict[str, Any]:
    """Return the dataset of all rows, made in chunks; large columns are in mapped files.

    A row of weight zero has the numbers of another one: they do not count, but must be finite.
    """
    row_indices = None
    if weights is not None and not weights.all():
        row_indices = np.where(weights > 0, np.arange(len(y)), np.argmax(weights > 0))
        y = y[row_indices]
    writers: dict[str, Spool] = {}
    start = 0
    for rows, design_rows in blocks(model.design, frame, row_indices):
        chunk = slice(start, start + len(rows))
        start = chunk.stop
        response = responses(model.formula, rows, y[chunk], model.constants, None)
        columns = model.observed(model.numbers(rows, design_rows), response)
        if weights is not None:
            columns["weights"] = weights[chunk]
        for name, values in columns.items():
            array = np.asarray(values)
            column_dtype = dtype if array.dtype.kind == "f" else array.dtype
            writers.setdefault(name, Spool(column_dtype)).add(array)
    return {name: writer.array() for name, writer in writers.items()} | model.labels(
        frame
    )


def _add_scales(
    model: Model, params: dict[str, Any], bijectors: dict[str, Any]
) -> None:
    from tensorflow_probability import bijectors as tfb

    for name, support in model.family.aux:
        if support == "ordered":
            params[name], bijectors[name] = np.asarray(model.cuts), tfb.Ascending()
        elif support == "unit":
            params[name], bijectors[name] = 0.2, tfb.Sigmoid()
        else:
            params[name] = (
                model.residual if name == "sigma" else 5.0 if name == "nu" else 1.0
            )
            bijectors[name] = tfb.Exp()
    for effects in model.effects:
        sds = f"sd_{effects.name}"
        params[sds] = 0.5 * model.unit / effects.scale
        bijectors[sds] = tfb.Exp()
        if effects.pairs:
            params[f"cor_{effects.name}"] = np.zeros(len(effects.pairs))
            bijectors[f"cor_{effects.name}"] = tfb.Tanh()
