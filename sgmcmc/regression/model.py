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
from sgmcmc.regression.families import Family, Tensors
from sgmcmc.regression.formula import Bar, Formula
from sgmcmc.regression.frames import Factor, labels
from sgmcmc.regression.names import INTERCEPT, entry_of, place_name, weight_name
from sgmcmc.regression.response import trials_of

if TYPE_CHECKING:
    import pandas as pd

_LOG_2PI = float(np.log(2 * np.pi))
_WIDE = 2.5
"""Standard deviations of the default priors, in units of response over term."""


@dataclass(frozen=True)
class Effects:
    """Effects of the groups of one factor.

    Attributes:
        by: Name of the factor.
        name: Name from which those of its parameters are made.
        bars: Bars of the formula with this factor.
        terms: Names of the effects of a group.
        designs: Terms of each bar, to make them from data.
        correlated: Places of the effects that are correlated with each other, for each bar.
        scale: Root mean square of the factor of each effect, (effects,). Effects are integrated
            out in these units, so that slopes of large numbers are as wide as intercepts.
    """

    by: str
    name: str
    bars: tuple[Bar, ...]
    terms: tuple[str, ...]
    designs: tuple[Design, ...]
    correlated: tuple[tuple[int, ...], ...]
    scale: np.ndarray

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of places of correlated effects, in the order of their partial correlations."""
        return [(i, j) for places in self.correlated for i in places for j in places if j < i]

    @property
    def entry(self) -> str:
        """Entry of the dataset with the group of each row."""
        return entry_of(self.by)

    @property
    def rows(self) -> list[str]:
        """Names of standard deviations, and of correlations in the order of ``pairs``."""
        sds = [f"sd({self.by}: {term})" for term in self.terms]
        return sds + [f"cor({self.by}: {self.terms[j]}, {self.terms[i]})" for i, j in self.pairs]

    def root(self, sds: Any, partial: Any) -> list[list[Any]]:
        """Return the lower triangle L of the covariance LLᵀ, entry by entry.

        Correlations come from canonical partial correlations, row by row.
        """
        q = len(self.terms)
        found: list[list[Any]] = [[0.0] * q for _ in range(q)]
        number = 0
        for places in self.correlated:
            for i in places:
                left = 1.0
                for j in [place for place in places if place < i]:
                    p = partial[..., number]
                    number += 1
                    found[i][j] = sds[..., i] * p * left**0.5
                    left = left * (1.0 - p**2)
                found[i][i] = sds[..., i] * left**0.5
        return found

    def log_density(self, effects: Tensors, params: Tensors) -> tf.Tensor:
        """Return the log density of the effects of each group, in units of ``scale``."""
        sds = params[f"sd_{self.name}"]
        sds *= tf.constant(self.scale, sds.dtype)
        partial = params.get(f"cor_{self.name}")
        root, r = self.root(sds, partial), effects[f"r_{self.name}"]
        total: Any = 0.0
        half: list[tf.Tensor] = []
        for i in range(len(self.terms)):
            known = sum((root[i][k] * half[k] for k in range(i)), start=tf.zeros([], r.dtype))
            half.append((r[:, i] - known) / root[i][i])
            total = total - 0.5 * half[i] ** 2 - tf.math.log(root[i][i]) - 0.5 * _LOG_2PI
        return total

    def columns(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the factors of the effects of a row's group over their scale, (rows, effects)."""
        parts = [design.matrix(frame) for design in self.designs]
        return np.concatenate(parts, 1) / self.scale


@dataclass(frozen=True)
class Model:
    """A regression, made from formula and data.

    Attributes:
        formula, family: Formula and family, as given.
        design: Fixed terms, to make them from data.
        center, scale: Center and scale of each column of the design: the chain moves coefficients
            of columns less center over scale.
        effects: Effects of groups.
        response_scale: Standard deviation that default priors are scaled by.
        start: Starting value of the intercept, and its prior mean.
        priors: User's priors, by term.
        outcomes: Levels of the response, if it is not a number.
        cuts: Starting values of cutpoints.
        constants: Name and value of each number of all rows in response and offset.
        lost: Terms that are zero, or linear combinations of those before them.
    """

    formula: Formula
    family: Family
    design: Design
    center: np.ndarray
    scale: np.ndarray
    effects: tuple[Effects, ...]
    response_scale: float
    start: float
    priors: Mapping[str, Any] = field(default_factory=dict)
    outcomes: tuple[Any, ...] = ()
    cuts: tuple[float, ...] = ()
    constants: Constants = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the fixed terms."""
        return self.design.terms

    @property
    def integers(self) -> list[str]:
        """Names of the entries of the dataset that are integers."""
        return [place_name(number) for number in range(len(self.design.coded))]

    @property
    def factors(self) -> dict[str, Factor]:
        """Columns of the data that are factors of terms."""
        found = dict(self.design.factors)
        for each in self.effects:
            for design in each.designs:
                found = {**design.factors, **found}
        return found

    def rows(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the dataset of some rows, without the response."""
        return self.numbers(frame, block(self.design, frame)) | self.labels(frame)

    def labels(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the groups of some rows, by entry of the dataset."""
        return {each.entry: labels(frame, each.by) for each in self.effects}

    def numbers(self, frame: pd.DataFrame, made: Block) -> dict[str, Any]:
        """Return the dataset of some rows, whose design has been made, without their groups."""
        dense = self.design.dense
        X = (made.dense - self.center[dense]) / self.scale[dense]
        found: dict[str, Any] = {"X": X.astype(np.float32)}
        for number, (places, weights) in enumerate(made.coded):
            found[place_name(number)] = tf.constant(places)
            if weights is not None:
                found[weight_name(number)] = weights.astype(np.float32)
        if self.formula.offset is not None:
            offset = evaluated(self.formula.offset, frame, self.constants)
            found["offset"] = offset.astype(np.float32)
        for each in self.effects:
            found[f"Z_{each.name}"] = each.columns(frame).astype(np.float32)
        if self.family.name == "binomial":
            found["trials"] = trials_of(self.formula, frame).astype(np.float32)
        return found

    def predictor(self, params: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the linear predictor η of each row; (rows, levels − 1) if there are several."""
        if self.family.several:
            return tf.transpose(self._fixed(params["b"], rows))
        eta = self._fixed(params["b"], rows) if self.terms else tf.reduce_sum(rows["X"], 1)
        if "offset" in rows:
            eta += rows["offset"]
        for each in self.effects:
            eta += tf.reduce_sum(rows[f"Z_{each.name}"] * params[f"r_{each.name}"], 1)
        return eta

    def _fixed(self, b: tf.Tensor, rows: Tensors) -> tf.Tensor:
        """Return the fixed part of η, (rows,), or (levels − 1, rows) of coefficients of levels."""
        coded = self.design.coded
        own = tf.gather(b, self.design.dense, axis=-1) if coded else b
        eta = (
            tf.linalg.matvec(rows["X"], own)
            if len(b.shape) == 1
            else tf.matmul(own, rows["X"], transpose_b=True)
        )
        for number, each in enumerate(coded):
            columns = slice(each.first, each.first + each.size)
            of_level = b[..., columns] / tf.constant(self.scale[columns], b.dtype)
            center = tf.constant(self.center[columns], b.dtype)
            none = tf.zeros_like(of_level[..., :1])
            found = tf.gather(tf.concat([of_level, none], -1), rows[place_name(number)], axis=-1)
            if each.weight is not None:
                found *= rows[weight_name(number)]
            eta += found - tf.reduce_sum(of_level * center, -1, keepdims=True)
        return eta

    def log_lik(self, params: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each row."""
        terms = self.family.terms(rows["y"], self.predictor(params, rows), params, rows)
        return rows["weights"] * terms if "weights" in rows else terms

    def coefficients(self, b: Any) -> Any:
        """Return coefficients of the user's columns, (..., terms), of those that the chain has."""
        found = b / self.scale
        if self.terms and self.terms[0] == INTERCEPT:
            first = b[..., :1] - (found[..., 1:] * self.center[1:]).sum(-1, keepdims=True)
            found = np.concatenate([first, found[..., 1:]], -1)
        return found

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log prior density of all parameters but effects."""
        total = tf.zeros([], next(iter(params.values())).dtype)
        if self.terms:
            total += self._log_prior_of_terms(params["b"])
        for name, where in self.family.aux:
            if where == "ordered":
                # Probabilities of levels at the means of all columns are uniform on the simplex.
                cut = params[name]
                total -= tf.reduce_sum(tf.nn.softplus(cut) + tf.nn.softplus(-cut))
            elif name == "zi":
                total += self._density(name, params[name], None)
            else:
                of_scale = self.response_scale if name == "sigma" else 10.0 if name == "nu" else 1.0
                total += self._density(name, params[name], of_scale)
        for each in self.effects:
            sds = params[f"sd_{each.name}"]
            for place in range(len(each.terms)):
                total += self._density("sd", sds[place], self.response_scale)
            for k, (i, j) in enumerate(each.pairs):
                # LKJ with shape 1: a partial correlation given j others has the density
                # (1 − p²)^((q − 2 − j)/2).
                places = next(p for p in each.correlated if i in p)
                power = 0.5 * (len(places) - 2 - places.index(j))
                if power:
                    total += power * tf.math.log1p(-(params[f"cor_{each.name}"][k] ** 2))
        return total

    def _log_prior_of_terms(self, b: tf.Tensor) -> tf.Tensor:
        mean, sd = self._normals()
        own = np.array([hasattr(self.priors.get(term), "log_prob") for term in self.terms])
        scale = np.where(np.array(self.terms) == INTERCEPT, 1.0, self.scale)
        value = b / tf.constant(scale, b.dtype)
        standard = (value - tf.constant(mean, b.dtype)) / tf.constant(sd, b.dtype)
        total = -0.5 * tf.reduce_sum(tf.where(own, tf.zeros([], b.dtype), standard**2))
        for place in np.flatnonzero(own):
            density = self.priors[self.terms[place]].log_prob(value[..., place])
            total += tf.reduce_sum(tf.cast(density, b.dtype))
        return total

    def _normals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and SD of the normal prior of each coefficient, (terms,)."""
        wide = _WIDE * self.response_scale
        mean, sd = np.zeros(len(self.terms)), wide / self.scale
        for place, term in enumerate(self.terms):
            given = self.priors.get(term)
            if term == INTERCEPT:
                mean[place], sd[place] = self.start, wide
            if isinstance(given, tuple | list):
                mean[place], sd[place] = given
        return mean, sd

    def _density(self, name: str, value: tf.Tensor, default: float | None) -> tf.Tensor:
        """Return the log density of a scale, exponential with a mean by default; or uniform."""
        given: Any = self.priors.get(name)
        if hasattr(given, "log_prob"):
            return tf.reduce_sum(tf.cast(given.log_prob(value), value.dtype))
        if default is None:
            return tf.zeros([], value.dtype)
        scale = default if given is None else 1.0 / float(given)
        return -value / scale

    @property
    def default_sds(self) -> dict[str, float]:
        """Standard deviations of the default priors, by fixed term but the intercept."""
        return {
            term: _WIDE * self.response_scale / float(scale)
            for term, scale in zip(self.terms, self.scale, strict=True)
            if term != INTERCEPT and term not in self.priors
        }

    def described_priors(self) -> dict[str, str]:
        """Return the prior of each parameter, in words."""
        found = {}
        for term, mean, sd in zip(self.terms, *self._normals(), strict=True):
            own = self.priors.get(term)
            at = " (at the means of all columns)" if term == INTERCEPT else ""
            found[term] = (
                str(own) if hasattr(own, "log_prob") else f"normal({mean:.4g}, {sd:.4g}){at}"
            )
        for name, where in self.family.aux:
            if where == "ordered":
                found[name] = "uniform probabilities of levels (at the means of all columns)"
                continue
            scale = self.response_scale if name == "sigma" else 10.0 if name == "nu" else 1.0
            found[name] = self._said(name, "uniform(0, 1)" if name == "zi" else 1.0 / scale)
        if self.effects:
            found["sd"] = self._said("sd", 1.0 / self.response_scale)
        return found

    def _said(self, name: str, default: float | str) -> str:
        prior = self.priors.get(name, default)
        return f"exponential({prior:.4g})" if checks.is_number(prior) else str(prior)
