"""The model of a regression: its predictor, log-likelihood and priors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.regression.columns import Block, block
from sgmcmc.regression.design import Design, evaluated
from sgmcmc.regression.expressions import Constants
from sgmcmc.regression.families import AT, Family, Responses, Tensors
from sgmcmc.regression.formula import (
    INTERCEPT,
    Bar,
    Formula,
    entry_of,
    place_name,
    weight_name,
)
from sgmcmc.regression.frames import Factor, labels

if TYPE_CHECKING:
    import pandas as pd

_LOG_2PI = float(np.log(2 * np.pi))
_PRIOR_SD = (
    2.5  # standard deviations of the default priors, in units of response over term
)
_PRIOR_RATE = (
    100.0  # mean of the default prior of a rate, in units of that of all rows together
)
_PRIOR_DISPERSION = 10.0  # mean of the default prior of 1/shape and 1/phi
SD_OF_LOG = float(
    np.pi / np.sqrt(6.0)
)  # standard deviation of the log of an exponential variable

# Standard deviation of a logistic variable: of the log odds of a uniform probability.
_SD_OF_LOGISTIC = float(np.pi / np.sqrt(3.0))

# Entry of rows with the predictor from which that of the chain is counted, in float64.
REFERENCE = "reference"


# Number of correlated effects of a group from which on their density is made of matrices.
_MANY_EFFECTS = 3


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
    def rows(self) -> list[str]:
        """Names of standard deviations, and of correlations in the order of ``pairs``."""
        sds = [f"sd({self.by}: {term})" for term in self.terms]
        return sds + [
            f"cor({self.by}: {self.terms[j]}, {self.terms[i]})" for i, j in self.pairs
        ]

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

    def log_density(self, effects: Tensors, params: Tensors) -> tf.Tensor:
        """Return the log density of the effects of each group, in units of ``unit / scale``."""
        sds = params[f"sd_{self.name}"]
        sds *= tf.constant(self.scale / self.unit, sds.dtype)
        partial, r = params.get(f"cor_{self.name}"), effects[f"r_{self.name}"]
        q = len(self.terms)
        if q >= _MANY_EFFECTS and len(self.pairs) == q * (q - 1) // 2:
            # Graphs of single entries, and above all of their derivatives, take long to make.
            triangle = _triangle(sds, partial)
            standard = tf.linalg.triangular_solve(triangle, tf.transpose(r))
            log_determinant = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(triangle)))
            return (
                -0.5 * tf.reduce_sum(standard**2, 0)
                - log_determinant
                - 0.5 * q * _LOG_2PI
            )
        root = self.root(sds, partial)
        total: Any = 0.0
        standardized: list[tf.Tensor] = []
        for i in range(q):
            explained = sum(
                (root[i][k] * standardized[k] for k in range(i)),
                start=tf.zeros([], r.dtype),
            )
            standardized.append((r[:, i] - explained) / root[i][i])
            total = (
                total
                - 0.5 * standardized[i] ** 2
                - tf.math.log(root[i][i])
                - 0.5 * _LOG_2PI
            )
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
            raw[..., self.intercept_of(effect)] -= (
                self.center[effect] * raw[..., effect]
            )
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


def _triangle(sds: tf.Tensor, partial: tf.Tensor) -> tf.Tensor:
    """Return the lower triangle of :meth:`Effects.root`, (q, q), if all effects are correlated."""
    q = sds.shape[0]
    pairs = q * (q - 1) // 2
    indices = np.full((q, q), pairs)  # that of the zero at the end
    indices[np.tril_indices(q, -1)] = np.arange(pairs)
    with_zero = tf.concat([partial, tf.zeros_like(partial[:1])], 0)
    between = tf.gather(with_zero, tf.constant(indices))
    logs = tf.math.log1p(-(between**2))
    remaining = tf.exp(0.5 * tf.cumsum(logs, axis=1, exclusive=True))
    return sds[:, tf.newaxis] * (between + tf.eye(q, dtype=sds.dtype)) * remaining


@dataclass(frozen=True)
class Model:
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
    def is_intercept(self) -> np.ndarray:
        """Whether each term is the intercept."""
        return np.array([term == INTERCEPT for term in self.terms])

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
        return self.offset_mean if self.family.name == "ordinal" else 0.0

    @property
    def integers(self) -> list[str]:
        """Names of the entries of the dataset that are integers."""
        return [place_name(number) for number in range(len(self.design.coded))]

    @property
    def factors(self) -> dict[str, Factor]:
        """Columns of the data that are factors of terms."""
        factors = dict(self.design.factors)
        for effects in self.effects:
            for design in effects.designs:
                factors = {**design.factors, **factors}
        return factors

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
        dataset: dict[str, Any] = {
            "X": (design_rows.dense - self.center[dense]) / self.scale[dense]
        }
        for number, (indices, weights) in enumerate(design_rows.coded):
            dataset[place_name(number)] = tf.constant(indices)
            if weights is not None:
                dataset[weight_name(number)] = weights
        reference = (
            design_rows.times(self.design, self.origin, self.center) - self.level
        )
        if self.formula.offset is not None:
            reference = reference + evaluated(
                self.formula.offset, frame, self.constants
            )
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
            eta += tf.reduce_sum(
                rows[f"Z_{effects.name}"] * params[f"r_{effects.name}"], 1
            )
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
            values = tf.gather(
                tf.concat([by_level, zero], -1), rows[place_name(number)], axis=-1
            )
            if term.weight is not None:
                values *= rows[weight_name(number)]
            eta += values - tf.reduce_sum(by_level * center, -1, keepdims=True)
        return eta

    def log_lik(self, params: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each row."""
        eta = self.predictor(params, rows)
        if self.family.scaled:
            params = {**params, "sigma": params["sigma"] / self.unit}
        terms = self.family.log_density(eta, params, rows)
        if self.family.scaled:
            terms -= float(np.log(self.unit))
        return rows["weights"] * terms if "weights" in rows else terms

    def coefficients(self, b: Any) -> Any:
        """Return coefficients of the user's columns, (..., terms), of those that the chain has."""
        raw = b * (self.unit / self.scale) + self.origin
        if self.terms and self.terms[0] == INTERCEPT:
            intercept = raw[..., :1] - (raw[..., 1:] * self.center[1:]).sum(
                -1, keepdims=True
            )
            raw = np.concatenate([intercept, raw[..., 1:]], -1)
        return raw

    def cutpoints(self, cuts: np.ndarray, b: Any) -> np.ndarray:
        """Return cutpoints of the user's columns, (..., levels − 1), of those of the chain."""
        shift = 0.0
        if self.terms:
            shift = (self.coefficients(b) * self.center).sum(-1, keepdims=True)
        return np.asarray(cuts, np.float64) + self.level + shift

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log prior density of all parameters but effects."""
        total = tf.zeros([], next(iter(params.values())).dtype)
        if self.terms:
            total += self._log_prior_of_terms(params["b"])
        for name, support in self.family.aux:
            value = params[name]
            if support == "ordered":
                # Probabilities of levels at the means of all columns are uniform on the simplex.
                total -= tf.reduce_sum(tf.nn.softplus(value) + tf.nn.softplus(-value))
            else:
                total += self._log_prior_of_aux(name, value)
        for effects in self.effects:
            total += self._log_prior_of_sds(effects, params)
            for k, (i, j) in enumerate(effects.pairs):
                # LKJ with shape 1: a partial correlation given j others has the density
                # (1 − p²)^((q − 2 − j)/2).
                power = effects.power(i, j)
                if power:
                    total += power * tf.math.log1p(
                        -(params[f"cor_{effects.name}"][k] ** 2)
                    )
        return total

    def _log_prior_of_aux(self, name: str, value: tf.Tensor) -> tf.Tensor:
        prior = self.priors.get(name)
        if prior is not None:
            return _density(prior, value)
        if name == "zi":
            return tf.zeros([], value.dtype)
        if name == "sigma":
            return -value / self.unit
        if name == "nu":  # gamma(2, 0.1) of ν = 1 + value
            return tf.math.log1p(value) - 0.1 * value
        # 1/value is exponential with mean _PRIOR_DISPERSION.
        return -2.0 * tf.math.log(value) - 1.0 / (_PRIOR_DISPERSION * value)

    def _log_prior_of_sds(self, effects: Effects, params: Tensors) -> tf.Tensor:
        sds, prior = params[f"sd_{effects.name}"], self.priors.get("sd")
        if prior is None:
            return -tf.reduce_sum(
                sds * tf.constant(effects.scale / self.unit, sds.dtype)
            )
        if not effects.center.any():
            return _density(prior, sds)
        # The user's priors are those of the effects at zero. Σ = T Σ₀ Tᵀ with |T| = 1, and the
        # volume of a covariance is Π sd^q times that of SDs and correlations.
        root = effects.uncentered(effects.root(sds, params.get(f"cor_{effects.name}")))
        uncentered_sds = [tf.sqrt(sum(entry**2 for entry in row)) for row in root]
        total = _density(prior, tf.stack(uncentered_sds))
        for indices in effects.correlated:
            for index in indices:
                total += len(indices) * (
                    tf.math.log(sds[index]) - tf.math.log(uncentered_sds[index])
                )
        return total

    def _log_prior_of_terms(self, b: tf.Tensor) -> tf.Tensor:
        mean, sd = self._normals()
        unit = np.where(self.is_intercept, self.unit, self.unit / self.scale)
        custom = np.array(
            [hasattr(self.priors.get(term), "log_prob") for term in self.terms]
        )
        normal = np.isfinite(sd) & ~custom
        standard = b - tf.constant((mean - self.origin) / unit, b.dtype)
        standard /= tf.constant(np.where(normal, sd, unit) / unit, b.dtype)
        total = -0.5 * tf.reduce_sum(
            tf.where(normal, standard**2, tf.zeros([], b.dtype))
        )
        for index in np.flatnonzero(custom):
            value = b[..., index] * float(unit[index]) + float(self.origin[index])
            total += _density(self.priors[self.terms[index]], value)
        if not (custom[0] or normal[0]):
            total += self._log_prior_of_intercept(b[..., 0])
        return total

    def _log_prior_of_intercept(self, b: tf.Tensor) -> tf.Tensor:
        """Return the log density of an intercept whose prior is not normal."""
        kind, link = self.family.intercept, self.family.link
        if kind in ("rate", "time"):
            size = b + float(self.origin[0] - self.start)
            size = size if kind == "rate" else -size
            return size - tf.exp(size) / _PRIOR_RATE
        if kind == "simplex":
            return tf.reduce_sum(
                tf.nn.log_softmax(tf.concat([tf.zeros([1], b.dtype), b], 0))
            )
        a = b + float(self.origin[0] + self.offset_mean)
        if link == "probit":
            return -0.5 * a**2
        return (
            a - tf.exp(a)
            if link == "cloglog"
            else -tf.nn.softplus(a) - tf.nn.softplus(-a)
        )

    def _normals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and SD of the normal prior of each coefficient, (terms,).

        An infinite SD is that of an intercept whose prior is not normal.
        """
        mean, sd = np.zeros(len(self.terms)), _PRIOR_SD * self.unit / self.scale
        for index, term in enumerate(self.terms):
            prior = self.priors.get(term)
            if term == INTERCEPT:
                normal = self.family.intercept == "normal"
                mean[index], sd[index] = (
                    self.start,
                    _PRIOR_SD * self.unit if normal else np.inf,
                )
            if isinstance(prior, tuple | list):
                mean[index], sd[index] = prior
        return mean, sd

    @property
    def default_sds(self) -> dict[str, float]:
        """Standard deviations of the default priors, by fixed term; of the intercept at means."""
        kind, link = self.family.intercept, self.family.link
        of_intercept = {
            "normal": _PRIOR_SD * self.unit, "rate": SD_OF_LOG, "time": SD_OF_LOG,
            "simplex": _SD_OF_LOGISTIC,
            "probability": {"logit": _SD_OF_LOGISTIC, "probit": 1.0}.get(link, SD_OF_LOG),
        }  # fmt: skip
        sds = dict(zip(self.terms, _PRIOR_SD * self.unit / self.scale, strict=True))
        if INTERCEPT in sds:
            sds[INTERCEPT] = of_intercept[kind]
        return {term: float(sd) for term, sd in sds.items() if term not in self.priors}

    def described_priors(self) -> dict[str, str]:
        """Return the prior of each parameter, in words."""
        described = {}
        for term, mean, sd in zip(self.terms, *self._normals(), strict=True):
            prior = self.priors.get(term)
            at = " (at the means of all columns)" if term == INTERCEPT else ""
            if hasattr(prior, "log_prob"):
                described[term] = str(prior)
            elif np.isfinite(sd):
                described[term] = f"normal({mean:.4g}, {sd:.4g}){at}"
            else:
                described[term] = self._intercept_in_words() + at
        for name, support in self.family.aux:
            if support == "ordered":
                described[name] = (
                    "uniform probabilities of levels (at the means of all columns)"
                )
            elif name in self.priors:
                described[name] = _in_words(self.priors[name])
            elif name in ("zi", "nu"):
                described[name] = "uniform(0, 1)" if name == "zi" else "gamma(2, 0.1)"
            elif name == "sigma":
                described[name] = _in_words(1.0 / self.unit)
            else:
                described[name] = f"1/exponential({1.0 / _PRIOR_DISPERSION:.4g})"
        if "sd" in self.priors and self.effects:
            described["sd"] = _in_words(self.priors["sd"])
            return described
        for effects in self.effects:
            at = " (at the means of all columns)" if effects.center.any() else ""
            for name, term, scale in zip(
                effects.rows, effects.terms, effects.scale, strict=False
            ):
                described[name] = _in_words(scale / self.unit) + at * (
                    term == INTERCEPT
                )
        return described

    def _intercept_in_words(self) -> str:
        kind = self.family.intercept
        if kind == "rate":
            return f"log of exponential({np.exp(-self.start) / _PRIOR_RATE:.4g})"
        if kind == "time":
            return f"-log of exponential({np.exp(self.start) / _PRIOR_RATE:.4g})"
        return (
            "uniform probability"
            if kind == "probability"
            else "uniform probabilities of levels"
        )


def _density(prior: Any, value: tf.Tensor) -> tf.Tensor:
    """Return the log density of the user's prior: a distribution, or the rate of an exponential."""
    if hasattr(prior, "log_prob"):
        return tf.reduce_sum(tf.cast(prior.log_prob(value), value.dtype))
    return -float(prior) * tf.reduce_sum(value)


def _in_words(prior: Any) -> str:
    return f"exponential({prior:.4g})" if checks.is_number(prior) else str(prior)
