"""From formula and data to the model of a regression, and its posterior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.stored import Spool
from sgmcmc.groups import Groups
from sgmcmc.reduce.rows import CountedRows
from sgmcmc.regression.columns import (
    Block,
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
)
from sgmcmc.regression.model import WEIGHTS, Effects, RegressionModel
from sgmcmc.regression.priors import log_prior, read_priors
from sgmcmc.regression.response import read_response, response_levels, responses
from sgmcmc.run.sampler_origin import SamplerOrigin
from sgmcmc.samplers.sample import setup

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Settings:
    rounding: float = 1e-13  # of the response: smaller differences are those of float64
    # Part of the squares that residuals have, below which they are computed one by one:
    canceled: float = 1e-10
    start_of_sds: float = 0.5  # of effects of groups, in units of response over factor


_SETTINGS = _Settings()


def make_model(
    formula: Formula,
    frame: pd.DataFrame,
    family: Family,
    priors: Any,
    weights: np.ndarray | None = None,
) -> tuple[RegressionModel, np.ndarray]:
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
    has_intercept = design.has_intercept
    response = responses(formula, frame, y, constants, weights)
    start = family.start(response)
    centered, values, unit = None, None, 1.0
    if family.scaled:
        centered = _CenteredResponse.of(response, start if has_intercept else 0.0)
        values, unit = centered.values, centered.unit
    effects = _make_effects(formula.bars, frame, weights, unit)
    reserved = [*family.scalar_names, *(["sd"] if effects else [])]
    reserved += cut_names(outcomes) if family.has_cutpoints else []
    reserved += [name for of_factor in effects for name in of_factor.rows]
    design = design.named([escaped(term, reserved) for term in design.terms])
    column_moments = moments(design, frame, weights, values)
    aliased = dependent(design, column_moments, frame, weights)
    if not formula.dotted:
        need_independent(design, aliased, column_moments.rows)
    center = np.zeros(len(design.terms))
    if has_intercept:
        center = column_moments.mean.copy()
    scale = column_moments.scale
    origin, residual = np.zeros(len(design.terms)), 1.0
    if centered is not None:
        origin, residual = centered.explained(column_moments, design, frame, weights)
    offset_mean = response.mean(response.offset)
    cuts: tuple[float, ...] = ()
    if family.has_cutpoints:
        if not has_intercept:
            raise ValueError(
                "`formula`: cutpoints of family 'ordinal' replace the intercept, which cannot be "
                "removed."
            )
        design = design.without_intercept()
        center, scale, origin = center[1:], scale[1:], origin[1:]
        cuts = _start_of_cutpoints(response, len(outcomes))
    elif has_intercept:
        center[0], scale[0] = 0.0, 1.0
        origin[0] = -offset_mean if family.intercept == "probability" else start
    model = RegressionModel(
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
        priors=read_priors(priors, design.terms, family, bool(effects)),
        outcomes=outcomes,
        cuts=cuts,
        constants=constants,
        aliased=tuple(aliased),
    )
    return model, y


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
        values = response.y - response.offset
        mean = np.average(values, weights=response.weights)
        sd = float(np.sqrt(response.mean((values - mean) ** 2)))
        size = float(np.sqrt(response.mean(values**2)))
        unit = sd if sd > _SETTINGS.rounding * size else size or 1.0
        centered = values - center
        return cls(centered, float(response.weights @ centered**2), unit)

    def explained(
        self,
        column_moments: Moments,
        design: Design,
        frame: pd.DataFrame,
        weights: np.ndarray | None,
    ) -> tuple[np.ndarray, float]:
        """Return coefficients by least squares, and the standard deviation of residuals."""
        has_intercept = design.has_intercept
        center = column_moments.mean if has_intercept else np.zeros(len(design.terms))

        def fitted(coefficients: np.ndarray) -> np.ndarray:
            chunks = [
                design_rows.times(design, coefficients, center)
                for _, design_rows in blocks(design, frame)
            ]
            return np.concatenate(chunks)

        origin = least_squares(column_moments, has_intercept)
        residual_squares = self.total - float(origin @ column_moments.response)
        has_residuals = column_moments.rows > len(design.terms)
        if has_residuals and residual_squares < _SETTINGS.canceled * self.total:
            residuals = self.values - fitted(origin)
            residual_moments = moments(design, frame, weights, residuals)
            change = least_squares(residual_moments, has_intercept)
            origin = origin + change
            residuals -= fitted(change)
            w = np.ones(len(residuals)) if weights is None else weights
            residual_squares = float(w @ residuals**2)
        sd = float(np.sqrt(max(residual_squares, 0.0) / column_moments.total))
        return origin, sd if sd > _SETTINGS.rounding * self.unit else self.unit


def _start_of_cutpoints(response: Responses, levels: int) -> tuple[float, ...]:
    """Return the log odds of the shares of levels, half a row more in each."""
    counts = np.bincount(response.y.astype(int), response.weights, levels) + 0.5
    cumulative = np.cumsum(counts)[:-1] / counts.sum()
    return tuple(np.log(cumulative / (1.0 - cumulative)).tolist())


def _make_effects(
    bars: Sequence[Bar], frame: pd.DataFrame, weights: np.ndarray | None, unit: float
) -> tuple[Effects, ...]:
    effects = []
    names = parameter_names(list(dict.fromkeys(bar.by for bar in bars)))
    for by, name in names.items():
        factor_bars = tuple(bar for bar in bars if bar.by == by)
        designs: list[Design] = []
        terms: list[str] = []
        correlated: list[tuple[int, ...]] = []
        centers: list[np.ndarray] = []
        scales: list[np.ndarray] = []
        for bar in factor_bars:
            design = make_design(bar.terms, frame, large=len(frame))
            if not design.terms:
                raise ValueError(f"`formula`: a bar of {by!r} has no effects.")
            indices = range(len(terms), len(terms) + len(design.terms))
            terms += design.terms
            designs.append(design)
            center, scale = np.zeros(1), np.ones(1)
            if design.terms != (INTERCEPT,):
                columns = moments(design, frame, weights)
                # The size of a column that does not vary, 1 of zeros.
                size = np.where(columns.mean != 0, np.abs(columns.mean), 1.0)
                scale = np.where(columns.varies, columns.sd, size)
                # Zero unless the intercept of these effects is free to move.
                has_intercept = bar.correlated and design.terms[0] == INTERCEPT
                is_centered = columns.varies & has_intercept
                center = np.where(is_centered, columns.mean, 0.0)
            centers.append(center)
            scales.append(scale)
            if bar.correlated:
                correlated.append(tuple(indices))
            else:
                correlated += [(index,) for index in indices]
        if len(set(terms)) < len(terms):
            raise ValueError(f"`formula`: two bars have the same effect of {by!r}.")
        of_factor = Effects(
            by=by,
            name=name,
            bars=factor_bars,
            terms=tuple(terms),
            designs=tuple(designs),
            correlated=tuple(correlated),
            center=np.concatenate(centers),
            scale=np.concatenate(scales),
            unit=unit,
        )
        effects.append(of_factor)
    return tuple(effects)


def sample_arguments(
    model: RegressionModel,
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
    params, bijectors = parameters_of(model)
    if not params:
        raise ValueError("`formula` has no terms: there is nothing to sample.")
    arguments = {
        "log_lik": model.log_lik,
        "dataset": _dataset(model, y, frame, weights, np.dtype(dtype)),
        "params": params,
        "log_prior": partial(log_prior, model),
        "bijectors": bijectors or None,
        "integers": model.integers,
    }
    if model.effects:
        arguments["groups"] = groups_of(model)
    return arguments


def parameters_of(model: RegressionModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return starting values and bijectors of the parameters, by name."""
    from tensorflow_probability import bijectors as tfb

    params: dict[str, Any] = {}
    bijectors: dict[str, Any] = {}
    if model.terms:
        params["b"] = np.zeros((*model.predictors, len(model.terms)))
        if model.has_intercept and not model.family.scaled:
            params["b"][..., 0] = model.start - model.origin[0]
    by_support = {"positive": tfb.Exp, "unit": tfb.Sigmoid, "ordered": tfb.Ascending}
    for parameter in model.family.aux:
        start: Any = model.residual if parameter.scaled else parameter.start
        if parameter.support == "ordered":
            start = np.asarray(model.cuts)
        params[parameter.name] = start
        bijectors[parameter.name] = by_support[parameter.support]()
    for effects in model.effects:
        sds = _SETTINGS.start_of_sds * model.unit / effects.scale
        params[effects.sds_name], bijectors[effects.sds_name] = sds, tfb.Exp()
        if effects.pairs:
            params[effects.correlations_name] = np.zeros(len(effects.pairs))
            bijectors[effects.correlations_name] = tfb.Tanh()
    return params, bijectors


def groups_of(model: RegressionModel) -> list[Groups]:
    """Return the groups of a model, as samplers expect them."""
    return [
        Groups(
            effects.entry,
            {effects.effects_name: np.zeros(len(effects.terms))},
            effects.log_density,
            normal=model.family.quadratic,
        )
        for effects in model.effects
    ]


@dataclass(frozen=True)
class RegressionData:
    """Model and data of a regression.

    Attributes:
        model: Model.
        y: Response.
        frame: Data.
        weights: Weight of each row, or ``None``.
        dtype: Floating point type of draws.
    """

    model: RegressionModel
    y: np.ndarray
    frame: pd.DataFrame
    weights: np.ndarray | None
    dtype: np.dtype

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of :func:`sgmcmc.sample` for the posterior."""
        return sample_arguments(
            self.model, self.y, self.frame, self.weights, self.dtype
        )

    def over_rows(self, chains: int) -> SamplerOrigin:
        """Return a sampler of the posterior over the rows that is set up, and is not run."""
        stepwise = setup(
            **self.arguments(),
            dynamics="sgld",
            gradient="minibatch",
            minibatches="uniform",
            minibatch_size=1,
            preconditioner="none",
            stepsize=1e-9,
            n_chains=chains,
            dtype=tf.as_dtype(self.dtype),
            seed=0,
            verbose=False,
        )
        return SamplerOrigin(stepwise._sampler)


def observed_rows(
    model: RegressionModel,
    y: np.ndarray,
    frame: pd.DataFrame,
    weights: np.ndarray | None,
) -> Iterator[tuple[slice, Block, dict[str, Any]]]:
    """Yield all rows in chunks: which they are, their design, and their dataset without groups.

    A row of weight zero has the numbers of another one: they do not count, but must be finite.
    """
    row_indices = None
    if weights is not None and not weights.all():
        row_indices = np.where(weights > 0, np.arange(len(y)), np.argmax(weights > 0))
        y = y[row_indices]
    start = 0
    for rows, design_rows in blocks(model.design, frame, row_indices):
        chunk = slice(start, start + len(rows))
        start = chunk.stop
        response = responses(model.formula, rows, y[chunk], model.constants, None)
        columns = model.observed(model.numbers(rows, design_rows), response)
        if weights is not None:
            columns[WEIGHTS] = weights[chunk]
        yield chunk, design_rows, columns


def _dataset(
    model: RegressionModel,
    y: np.ndarray,
    frame: pd.DataFrame,
    weights: np.ndarray | None,
    dtype: np.dtype,
) -> dict[str, Any]:
    """Return the dataset of all rows; large columns are in mapped files."""
    writers: dict[str, Spool] = {}
    for _, _, columns in observed_rows(model, y, frame, weights):
        for name, values in columns.items():
            array = np.asarray(values)
            column_dtype = dtype if array.dtype.kind == "f" else array.dtype
            writers.setdefault(name, Spool(column_dtype)).add(array)
    arrays: dict[str, Any] = {name: writer.array() for name, writer in writers.items()}
    columns = arrays | model.labels(frame)
    return columns if weights is None else CountedRows(columns, WEIGHTS)
