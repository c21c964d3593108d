"""The model of a regression: its predictor, its effects of groups, and its log-likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sgmcmc.regression.columns import Block, block
from sgmcmc.regression.design import Design, evaluated
from sgmcmc.regression.expressions import Constants
from sgmcmc.regression.families import AT, Auxiliary, Family, Responses, Tensors
from sgmcmc.regression.formula import (
    INTERCEPT,
    Bar,
    Formula,
    columns_of,
    entry_of,
    place_name,
    weight_name,
)
from sgmcmc.regression.frames import Factor, labels

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Settings:
    # Correlated effects of a group from which on their density is made of matrices: graphs of
    # single entries, and above all of their derivatives, take long to make.
    many_effects: int = 3


_SETTINGS = _Settings()

_LOG_2PI = float(np.log(2 * np.pi))

# Entry of rows with the predictor from which that of the chain is counted, in float64.
REFERENCE = "reference"
WEIGHTS = "weights"  # column with the number of rows that each row is


@dataclass(frozen=True)
class Effects:
    """Effects of the groups of one factor.

    Attributes:
        by: Name of the factor.
        name: Name from which those of its parameters are made.
        bars: Bars of the formula with this factor.
        terms: Names of the effects of a group.
        designs: Terms of each bar, to make them from data.
        correlated: Indices of the effects that are correlated with each other, for each bar.
        center: Mean of the factor of each effect that is correlated with an intercept, else 0.
            Effects of the chain are those of factors less their center, so that the intercept is
            the effect at the means, wherever zero is.
        scale: Standard deviation of the factor of each effect, (effects,), 1 for an intercept.
        unit: Unit of the predictor. Effects are integrated out in units of ``unit / scale``, so
            that slopes of large numbers are as wide as intercepts.
    """

    by: str
    name: str
    bars: tuple[Bar, ...]
    terms: tuple[str, ...]
    designs: tuple[Design, ...]
    correlated: tuple[tuple[int, ...], ...]
    center: np.ndarray
    scale: np.ndarray
    unit: float

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of indices of correlated effects, in the order of their partial correlations."""
        return [
            (i, j)
            for indices in self.correlated
            for i in indices
            for j in indices
            if j < i
        ]

    @property
    def entry(self) -> str:
        """Entry of the dataset with the group of each row."""
        return entry_of(self.by)

    @property
    def effects_name(self) -> str:
        """Name of the parameter with the effects."""
        return f"r_{self.name}"

    @property
    def sds_name(self) -> str:
        """Name of the parameter with their standard deviations."""
        return f"sd_{self.name}"

    @property
    def correlations_name(self) -> str:
        """Name of the parameter with their partial correlations."""
        return f"cor_{self.name}"

    @property
    def rows(self) -> list[str]:
        """Names of standard deviations, and of correlations in the order of ``pairs``."""
        sds = [f"sd({self.by}: {term})" for term in self.terms]
        correlations = [
            f"cor({self.by}: {self.terms[j]}, {self.terms[i]})" for i, j in self.pairs
        ]
        return sds + correlations

    def power(self, i: int, j: int) -> float:
        """Return that of 1 − p² in the density of the partial correlation p of a pair."""
        indices = next(indices for indices in self.correlated if i in indices)
        return 0.5 * (len(indices) - 2 - indices.index(j))

    def root(self, sds: Any, partial: Any) -> list[list[Any]]:
        """Return the lower triangle L of the covariance LLᵀ, entry by entry.

        Correlations come from canonical partial correlations, row by row.
        """
        q = len(self.terms)
        triangle: list[list[Any]] = [[0.0] * q for _ in range(q)]
        number = 0
        for indices in self.correlated:
            for i in indices:
                remaining = 1.0
                for j in [k for k in indices if k < i]:
                    p = partial[..., number]
                    number += 1
                    triangle[i][j] = sds[..., i] * p * remaining**0.5
                    remaining = remaining * (1.0 - p**2)
                triangle[i][i] = sds[..., i] * remaining**0.5
        return triangle

    def root_matrix(self, sds: tf.Tensor, partial: tf.Tensor) -> tf.Tensor:
        """Return :meth:`root` as a matrix, (q, q), if all effects are correlated."""
        q = sds.shape[0]
        pairs = q * (q - 1) // 2
        indices = np.full((q, q), pairs)  # that of the zero at the end
        indices[np.tril_indices(q, -1)] = np.arange(pairs)
        with_zero = tf.concat([partial, tf.zeros_like(partial[:1])], 0)
        between = tf.gather(with_zero, tf.constant(indices))
        logs = tf.math.log1p(-(between**2))
        remaining = tf.exp(0.5 * tf.cumsum(logs, axis=1, exclusive=True))
        return sds[:, tf.newaxis] * (between + tf.eye(q, dtype=sds.dtype)) * remaining

    def log_density(self, effects: Tensors, params: Tensors) -> tf.Tensor:
        """Return the log density of the effects of each group, in units of ``unit / scale``."""
        sds = params[self.sds_name]
        sds *= tf.constant(self.scale / self.unit, sds.dtype)
        partial, r = params.get(self.correlations_name), effects[self.effects_name]
        q = len(self.terms)
        all_correlated = len(self.pairs) == q * (q - 1) // 2
        if q >= _SETTINGS.many_effects and all_correlated:
            triangle = self.root_matrix(sds, partial)
            standard = tf.linalg.triangular_solve(triangle, tf.transpose(r))
            log_determinant = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(triangle)))
            squares = tf.reduce_sum(standard**2, 0)
            return -0.5 * squares - log_determinant - 0.5 * q * _LOG_2PI
        root = self.root(sds, partial)
        total: Any = 0.0
        standardized: list[tf.Tensor] = []
        for i in range(q):
            explained = tf.zeros([], r.dtype)
            for k in range(i):
                explained += root[i][k] * standardized[k]
            z = (r[:, i] - explained) / root[i][i]
            standardized.append(z)
            total = total - 0.5 * z**2 - tf.math.log(root[i][i]) - 0.5 * _LOG_2PI
        return total

    def columns(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the factors of the effects of a row's group, centered and scaled."""
        columns = [design.matrix(frame) for design in self.designs]
        return (np.concatenate(columns, 1) - self.center) / self.scale

    def intercept_of(self, effect: int) -> int:
        """Return the index of the intercept from which an effect's center is subtracted."""
        return next(indices[0] for indices in self.correlated if effect in indices)

    def of_columns(self, effects: np.ndarray) -> np.ndarray:
        """Return the effects of the user's columns, (..., effects), of those that the chain has."""
        raw = effects * (self.unit / self.scale)
        for effect in np.flatnonzero(self.center).tolist():
            shift = self.center[effect] * raw[..., effect]
            raw[..., self.intercept_of(effect)] -= shift
        return raw

    def uncentered(self, root: list[list[Any]]) -> list[list[Any]]:
        """Return R with the covariance R Rᵀ of the effects of columns that are not centered.

        Args:
            root: Lower triangle of the covariance of effects of centered columns.
        """
        rows = [list(row) for row in root]
        for effect in np.flatnonzero(self.center).tolist():
            first, center = self.intercept_of(effect), float(self.center[effect])
            rows[first] = [
                a - center * b for a, b in zip(rows[first], root[effect], strict=True)
            ]
        return rows


@dataclass(frozen=True)
class RegressionModel:
    """A regression, made from formula and data.

    Attributes:
        formula, family: Formula and family, as given.
        design: Fixed terms, to make them from data.
        center, scale: Center and scale of each column of the design. They, and all other numbers
            of the data, know the weights.
        origin: Coefficient of each column less center from which those of the chain are counted:
            of a normal or Student's response by least squares, else that of the intercept alone.
            So the numbers of the chain are near zero, and none is rounded that others hang on.
        effects: Effects of groups.
        unit: Unit of the predictor: the standard deviation of the response less offset, for
            families that it scales, else 1. It scales the default priors.
        start: Starting value of the intercept at the means of all columns.
        offset_mean: Mean offset.
        residual: Starting value of ``sigma``.
        priors: User's priors, by term.
        outcomes: Levels of the response, if it is not a number.
        cuts: Starting values of cutpoints.
        constants: Name and value of each number of all rows in response and offset.
        aliased: Terms that are zero, or linear combinations of those before them.
    """

    formula: Formula
    family: Family
    design: Design
    center: np.ndarray
    scale: np.ndarray
    origin: np.ndarray
    effects: tuple[Effects, ...]
    unit: float
    start: float
    offset_mean: float
    residual: float
    priors: Mapping[str, Any] = field(default_factory=dict)
    outcomes: tuple[Any, ...] = ()
    cuts: tuple[float, ...] = ()
    constants: Constants = field(default_factory=dict)
    aliased: tuple[str, ...] = ()

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the fixed terms."""
        return self.design.terms

    @property
    def has_intercept(self) -> bool:
        """Whether the first fixed term is the intercept."""
        return self.terms[:1] == (INTERCEPT,)

    @property
    def is_intercept(self) -> np.ndarray:
        """Whether each term is the intercept."""
        return np.array([term == INTERCEPT for term in self.terms])

    @property
    def predictors(self) -> tuple[int, ...]:
        """Shape of the predictors of one row: one number, or one for each level but the first."""
        return (len(self.outcomes) - 1,) if self.family.several else ()

    @property
    def fixed_names(self) -> list[str]:
        """Names of the fixed terms; with several predictors, of each level's."""
        if not self.family.several:
            return list(self.terms)
        return [
            f"{level}: {term}" for level in self.outcomes[1:] for term in self.terms
        ]

    @property
    def level(self) -> float:
        """Predictor that cutpoints of the chain are counted from."""
        return self.offset_mean if self.family.has_cutpoints else 0.0

    @property
    def integers(self) -> list[str]:
        """Names of the entries of the dataset that are integers."""
        return [place_name(number) for number in range(len(self.design.coded))]

    @property
    def designs(self) -> list[Design]:
        """The design of fixed terms, and those of all effects of groups."""
        of_effects = [design for effects in self.effects for design in effects.designs]
        return [self.design, *of_effects]

    @property
    def factors(self) -> dict[str, Factor]:
        """Columns of the data that are factors of terms."""
        factors = dict(self.design.factors)
        for design in self.designs[1:]:
            factors = {**design.factors, **factors}
        return factors

    @property
    def coded_columns(self) -> set[str]:
        """Columns of the data that are factors of terms or of bars."""
        groups = {name for effects in self.effects for name in columns_of(effects.by)}
        return groups | set(self.factors)

    def prior_of(self, parameter: Auxiliary) -> Any:
        """Return the user's prior of an auxiliary parameter; ``None`` for the default."""
        if parameter.support == "ordered":
            return None
        return self.priors.get(parameter.name)

    def rows(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the dataset of some rows, without the response."""
        return self.numbers(frame, block(self.design, frame)) | self.labels(frame)

    def labels(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the groups of some rows, by entry of the dataset."""
        return {effects.entry: labels(frame, effects.by) for effects in self.effects}

    def numbers(self, frame: pd.DataFrame, design_rows: Block) -> dict[str, Any]:
        """Return the dataset of some rows, whose design has been made, without their groups.

        The entry ``REFERENCE`` is the predictor at ``origin``, in float64.
        """
        dense = self.design.dense
        centered = design_rows.dense - self.center[dense]
        dataset: dict[str, Any] = {"X": centered / self.scale[dense]}
        for number, (indices, weights) in enumerate(design_rows.coded):
            dataset[place_name(number)] = tf.constant(indices)
            if weights is not None:
                dataset[weight_name(number)] = weights
        at_origin = design_rows.times(self.design, self.origin, self.center)
        reference = at_origin - self.level
        offset = self.formula.offset
        if offset is not None:
            reference = reference + evaluated(offset, frame, self.constants)
        for effects in self.effects:
            dataset[f"Z_{effects.name}"] = effects.columns(frame)
        return {**dataset, REFERENCE: reference}

    def observed(self, dataset: dict[str, Any], responses: Responses) -> dict[str, Any]:
        """Return the dataset of some rows with their response.

        Args:
            dataset: Result of ``rows`` or ``numbers``.
            responses: Responses.
        """
        columns = self.family.columns(responses)
        rows = {name: values for name, values in dataset.items() if name != REFERENCE}
        if AT in columns or self.formula.offset is not None or self.origin.any():
            columns[AT] = (columns.get(AT, 0.0) - dataset[REFERENCE]) / self.unit
        return rows | columns

    def predictor(self, params: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the linear predictor η of each row; (rows, levels − 1) if there are several.

        It is counted from that at ``origin``, in units of ``unit``.
        """
        if self.family.several:
            return tf.transpose(self._fixed(params["b"], rows))
        eta = (
            self._fixed(params["b"], rows)
            if self.terms
            else tf.reduce_sum(rows["X"], 1)
        )
        for effects in self.effects:
            of_groups = rows[f"Z_{effects.name}"] * params[effects.effects_name]
            eta += tf.reduce_sum(of_groups, 1)
        return eta

    def _fixed(self, b: tf.Tensor, rows: Tensors) -> tf.Tensor:
        """Return the fixed part of η, (rows,), or (levels − 1, rows) of coefficients of levels."""
        coded = self.design.coded
        dense = tf.gather(b, self.design.dense, axis=-1) if coded else b
        eta = (
            tf.linalg.matvec(rows["X"], dense)
            if len(b.shape) == 1
            else tf.matmul(dense, rows["X"], transpose_b=True)
        )
        for number, term in enumerate(coded):
            columns = term.columns
            by_level = b[..., columns] / tf.constant(self.scale[columns], b.dtype)
            center = tf.constant(self.center[columns], b.dtype)
            zero = tf.zeros_like(by_level[..., :1])
            with_reference = tf.concat([by_level, zero], -1)
            values = tf.gather(with_reference, rows[place_name(number)], axis=-1)
            if term.weight is not None:
                values *= rows[weight_name(number)]
            eta += values - tf.reduce_sum(by_level * center, -1, keepdims=True)
        return eta

    def log_lik(self, params: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each row."""
        return self.terms_of(self.predictor(params, rows), params, rows)

    def terms_of(self, eta: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each row, a function of its linear predictor.

        Args:
            eta: Linear predictors, as :meth:`predictor` returns them.
            aux: Auxiliary parameters, by name.
            rows: Columns of the log-likelihood.
        """
        for parameter in self.family.aux:
            if parameter.scaled:
                in_units = aux[parameter.name] / self.unit
                aux = {**aux, parameter.name: in_units}
        terms = self.family.log_density(eta, aux, rows)
        if self.family.scaled:
            terms -= float(np.log(self.unit))
        return rows[WEIGHTS] * terms if WEIGHTS in rows else terms

    def coefficients(self, b: Any) -> Any:
        """Return coefficients of the user's columns, (..., terms), of those that the chain has."""
        raw = b * (self.unit / self.scale) + self.origin
        if not self.has_intercept:
            return raw
        at_means = (raw[..., 1:] * self.center[1:]).sum(-1, keepdims=True)
        return np.concatenate([raw[..., :1] - at_means, raw[..., 1:]], -1)

    def cutpoints(self, cuts: np.ndarray, b: Any) -> np.ndarray:
        """Return cutpoints of the user's columns, (..., levels − 1), of those of the chain."""
        shift = 0.0
        if self.terms:
            shift = (self.coefficients(b) * self.center).sum(-1, keepdims=True)
        return np.asarray(cuts, np.float64) + self.level + shift
