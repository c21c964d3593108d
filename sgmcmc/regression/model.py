"""The model of a regression: design, priors and log-likelihood, from formula and data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import describe, did_you_mean, or_list
from sgmcmc.groups import Groups
from sgmcmc.regression.families import FAMILIES, Family, Tensors
from sgmcmc.regression.formula import Bar, Formula, column, evaluated, labels, matrix
from sgmcmc.regression.response import read_response, response_levels, trials_of

if TYPE_CHECKING:
    import pandas as pd

_LOG_2PI = float(np.log(2 * np.pi))
_INTERCEPT = "Intercept"
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
        specs: Specification of the terms of each bar, to make them from data.
        correlated: Places of the effects that are correlated with each other, for each bar.
    """

    by: str
    name: str
    bars: tuple[Bar, ...]
    terms: tuple[str, ...]
    specs: tuple[Any, ...]
    correlated: tuple[tuple[int, ...], ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of places of correlated effects, in the order of their partial correlations."""
        return [(i, j) for places in self.correlated for i in places for j in places if j < i]

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

    def law(self, effects: Tensors, params: Tensors) -> tf.Tensor:
        """Return the log density of the effects of each group."""
        sds = params[f"sd_{self.name}"]
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
        """Return the factors of the effects of a row's group, (rows, effects)."""
        parts = [
            np.asarray(matrix(bar.terms, frame, spec), np.float64)
            for bar, spec in zip(self.bars, self.specs, strict=True)
        ]
        return np.concatenate(parts, 1)


@dataclass(frozen=True)
class Model:
    """A regression, made from formula and data.

    Attributes:
        formula, family: Formula and family, as given.
        terms: Names of the fixed terms.
        spec: Specification of the fixed terms, to make them from data; ``None`` if there are none.
        center, scale: Center and scale of each column of the design: the chain moves coefficients
            of columns less center over scale.
        effects: Effects of groups.
        response_scale: Standard deviation that default priors are scaled by.
        start: Starting value of the intercept, and its prior mean.
        priors: User's priors, by term.
        outcomes: Levels of the response, if it is not a number.
        cuts: Starting values of cutpoints.
    """

    formula: Formula
    family: Family
    terms: tuple[str, ...]
    spec: Any
    center: np.ndarray
    scale: np.ndarray
    effects: tuple[Effects, ...]
    response_scale: float
    start: float
    priors: Mapping[str, Any] = field(default_factory=dict)
    outcomes: tuple[Any, ...] = ()
    cuts: tuple[float, ...] = ()

    @property
    def levels(self) -> dict[str, list[Any]]:
        """Levels of the columns that are factors among the fixed terms, the reference first."""
        found: dict[str, list[Any]] = {}
        for expression, (_, state) in (self.spec.encoder_state if self.spec else {}).items():
            named = re.fullmatch(r"(?:C\(\s*)?([^\W\d][\w.]*)\s*(?:[,)].*)?", str(expression))
            if named and "categories" in state:
                found[named.group(1)] = list(state["categories"])
        return found

    def design(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the fixed terms of some rows, (rows, terms)."""
        if self.spec is None:
            return np.zeros((len(frame), 0))
        for name in sorted(map(str, self.spec.required_variables)):
            column(frame, name)
        found = np.asarray(matrix(self.formula.fixed, frame, self.spec), np.float64)
        if self.family.name == "ordinal":
            found = found[:, 1:]  # cutpoints replace the intercept
        if not np.isfinite(found).all():
            place = int(np.argmin(np.isfinite(found).all(1)))
            raise ValueError(f"`data`: row {place} has fixed terms that are not finite.")
        return found

    def rows(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the dataset of some rows, without the response."""
        found: dict[str, Any] = {
            "X": ((self.design(frame) - self.center) / self.scale).astype(np.float32)
        }
        if self.formula.offset is not None:
            found["offset"] = evaluated(self.formula.offset, frame).astype(np.float32)
        for each in self.effects:
            found[f"Z_{each.name}"] = each.columns(frame).astype(np.float32)
            found[each.by] = labels(frame, each.by)
        if self.family.name == "binomial":
            found["trials"] = trials_of(self.formula, frame).astype(np.float32)
        return found

    def predictor(self, params: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the linear predictor η of each row; (rows, levels − 1) if there are several."""
        if self.family.several:
            return tf.linalg.matmul(rows["X"], params["b"], transpose_b=True)
        eta = (
            tf.linalg.matvec(rows["X"], params["b"]) if self.terms else tf.reduce_sum(rows["X"], 1)
        )
        if "offset" in rows:
            eta += rows["offset"]
        for each in self.effects:
            eta += tf.reduce_sum(rows[f"Z_{each.name}"] * params[f"r_{each.name}"], 1)
        return eta

    def log_lik(self, params: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each row."""
        terms = self.family.terms(rows["y"], self.predictor(params, rows), params, rows)
        return rows["weights"] * terms if "weights" in rows else terms

    def coefficients(self, b: Any) -> Any:
        """Return coefficients of the user's columns, (..., terms), of those that the chain has."""
        found = b / self.scale
        if self.terms and self.terms[0] == _INTERCEPT:
            first = b[..., :1] - (found[..., 1:] * self.center[1:]).sum(-1, keepdims=True)
            found = np.concatenate([first, found[..., 1:]], -1)
        return found

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log prior density of all parameters but effects."""
        total = tf.zeros([], next(iter(params.values())).dtype)
        wide = _WIDE * self.response_scale
        for place, term in enumerate(self.terms):
            value = params["b"][..., place]
            if term == _INTERCEPT:
                total += self._density(term, value, (self.start, wide))
            else:
                total += self._density(term, value / self.scale[place], (0.0, wide), place)
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

    def _density(self, name: str, value: tf.Tensor, default: Any, place: int = -1) -> tf.Tensor:
        given: Any = self.priors.get(name)
        if hasattr(given, "log_prob"):
            return tf.reduce_sum(tf.cast(given.log_prob(value), value.dtype))
        if isinstance(default, tuple):
            mean, sd = default if given is None else given
            if given is None and place >= 0:
                sd = sd / self.scale[place]
            return tf.reduce_sum(-0.5 * ((value - mean) / sd) ** 2)
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
            if term != _INTERCEPT and term not in self.priors
        }

    def described_priors(self) -> dict[str, str]:
        """Return the prior of each parameter, in words."""
        wide, found = _WIDE * self.response_scale, {}
        for place, term in enumerate(self.terms):
            own, mean, sd = self.priors.get(term), 0.0, wide / self.scale[place]
            if term == _INTERCEPT:
                mean, sd = self.start, wide
            if isinstance(own, tuple | list):
                mean, sd = own
            at = " (at the means of all columns)" if term == _INTERCEPT else ""
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


def read_family(family: Any, link: Any) -> Family:
    """Return a family and link by name.

    Raises:
        ValueError: There is no such family, or it has no such link.
    """
    if family not in FAMILIES:
        raise ValueError(
            f"`family` must be {or_list(FAMILIES)}; it is {describe(family)}."
            + (did_you_mean(family, list(FAMILIES)) if isinstance(family, str) else "")
        )
    links = FAMILIES[family]
    if link is None:
        return next(iter(links.values()))
    if link not in links:
        raise ValueError(f"`link` of {family} must be {or_list(links)}; it is {link!r}.")
    return links[link]


def make_model(
    formula: Formula,
    frame: pd.DataFrame,
    family: Family,
    priors: Any,
) -> tuple[Model, np.ndarray]:
    """Return the model of a regression and the response.

    Raises:
        ValueError, TypeError: Formula, data or priors are invalid; the message names the term.
    """
    outcomes = response_levels(formula, frame, family)
    y = read_response(formula, frame, family, outcomes)
    if family.several and (formula.bars or formula.offset is not None):
        raise ValueError(
            "`formula`: bars and offset(...) are not compatible with family 'categorical', each "
            "of whose levels has a linear predictor."
        )
    built = matrix(formula.fixed, frame)
    terms = tuple(map(str, built.columns))
    for name in sorted(map(str, built.model_spec.required_variables)):
        column(frame, name)
        if frame[name].to_numpy().dtype.kind not in "iuf" and frame[name].nunique() < 2:
            raise ValueError(f"`data[{name!r}]` has one level: a factor needs two or more.")
    for expression, (_, state) in built.model_spec.encoder_state.items():
        if len(state.get("categories", (0, 1))) < 2:
            raise ValueError(f"`formula`: {expression} has one level: a factor needs two or more.")
    X = np.asarray(built, np.float64)
    intercept = bool(terms) and terms[0] == _INTERCEPT
    _need_independent(X, terms, intercept)
    cuts: tuple[float, ...] = ()
    center = X.mean(0) if intercept else np.zeros(X.shape[1])
    scale = X.std(0)
    if family.name == "ordinal":
        if not intercept:
            raise ValueError(
                "`formula`: cutpoints of family 'ordinal' replace the intercept, which cannot be "
                "removed."
            )
        terms, center, scale = terms[1:], center[1:], scale[1:]
        below = np.cumsum(np.bincount(y.astype(int), minlength=len(outcomes)))[:-1] / len(y)
        cuts = tuple(np.log(below / (1.0 - below)).tolist())
    elif intercept:
        center[0], scale[0] = 0.0, 1.0
    scale = np.where(scale > 0, scale, 1.0)
    effects = _effects(formula.bars, frame)
    shift = 0.0 if formula.offset is None else float(evaluated(formula.offset, frame).mean())
    mean = y.mean() / trials_of(formula, frame).mean() if family.name == "binomial" else y.mean()
    model = Model(
        formula, family, terms, built.model_spec if terms else None, center, scale, effects,
        float(y.std()) or 1.0 if family.scaled else 1.0, float(family.linked(float(mean))) - shift,
        _read_priors(priors, terms, family, bool(effects)), outcomes, cuts,
    )  # fmt: skip
    return model, y


def _need_independent(X: np.ndarray, terms: Sequence[str], intercept: bool) -> None:
    """Refuse columns that are linear combinations of those before them."""
    sizes = np.linalg.norm(X, axis=0)
    empty = np.flatnonzero(sizes == 0)
    if empty.size:
        raise ValueError(f"`formula`: the term {terms[empty[0]]!r} is zero in every row.")
    if X.shape[1] == 0:
        return
    if intercept:
        # Years and times of a clock are far from zero: only what varies is compared.
        X = np.column_stack([X[:, :1], X[:, 1:] - X[:, 1:].mean(0)])
        varied = np.linalg.norm(X, axis=0)
        sizes = np.where(varied > 1e-12 * sizes, varied, np.inf)
    diagonal = np.abs(np.diag(np.linalg.qr(X / sizes, mode="r")))
    if len(diagonal) < X.shape[1]:
        raise ValueError(f"`data` has {len(X)} rows for {X.shape[1]} terms.")
    bad = np.flatnonzero(diagonal < 1e-8)
    if bad.size:
        raise ValueError(
            f"`formula`: the term {terms[bad[0]]!r} is a linear combination of the terms before "
            "it. Leave one of them out."
        )


def _effects(bars: Sequence[Bar], frame: pd.DataFrame) -> tuple[Effects, ...]:
    found = []
    for by in dict.fromkeys(bar.by for bar in bars):
        own = tuple(bar for bar in bars if bar.by == by)
        specs: list[Any] = []
        terms: list[str] = []
        correlated: list[tuple[int, ...]] = []
        for bar in own:
            built = matrix(bar.terms, frame)
            places = range(len(terms), len(terms) + len(built.columns))
            terms += map(str, built.columns)
            specs.append(built.model_spec)
            alone = [(place,) for place in places]
            correlated += [tuple(places)] if bar.correlated else alone
        if len(set(terms)) < len(terms):
            raise ValueError(f"`formula`: two bars have the same effect of {by!r}.")
        found.append(
            Effects(by, by.replace(":", "_"), own, tuple(terms), tuple(specs), tuple(correlated))
        )
    return tuple(found)


def _read_priors(
    priors: Any, terms: Sequence[str], family: Family, grouped: bool
) -> dict[str, Any]:
    found = checks.by_name("priors", priors, "of priors by term")
    scales = [name for name, where in family.aux if where != "ordered"]
    known = [*terms, *scales, *(["sd"] if grouped else [])]
    checks.known_keys("priors", found, known, "the terms are")
    for name, value in found.items():
        pair = isinstance(value, tuple | list) and len(value) == 2 and name in terms
        rate = name not in (*terms, "zi") and checks.is_number(value) and value > 0
        if not (hasattr(value, "log_prob") or pair or rate):
            wanted = (
                "a pair (mean, sd) of a normal, or "
                if name in terms
                else ("" if name == "zi" else "the rate of an exponential, or ")
            )
            raise TypeError(
                f"`priors[{name!r}]` must be {wanted}a distribution with `log_prob`; it is "
                f"{describe(value)}."
            )
    return found


def groups_of(model: Model) -> list[Groups]:
    """Return the groups of a model, as samplers expect them."""
    return [
        Groups(each.by, {f"r_{each.name}": np.zeros(len(each.terms))}, each.law)
        for each in model.effects
    ]
