"""From formula and data to the model of a regression, and its posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import checks
from sgmcmc.checks import describe, did_you_mean, or_list
from sgmcmc.data.stored import Spool
from sgmcmc.groups import Groups
from sgmcmc.regression.columns import blocks, dependent, moments, need_independent
from sgmcmc.regression.design import Design, evaluated, make_design
from sgmcmc.regression.expressions import Constants
from sgmcmc.regression.families import FAMILIES, Family
from sgmcmc.regression.formula import Bar, Formula
from sgmcmc.regression.model import Effects, Model
from sgmcmc.regression.names import (
    INTERCEPT,
    apart,
    cut_names,
    parameter_names,
    quoted,
    unquoted,
)
from sgmcmc.regression.response import censored_of, read_response, response_levels, trials_of

if TYPE_CHECKING:
    import pandas as pd


def read_family(family: Any, link: Any) -> Family:
    """Return a family and link by name.

    Raises:
        ValueError: There is no such family, or it has no such link.
    """
    if family not in FAMILIES:
        raise ValueError(
            f"`family` must be {or_list(FAMILIES)}; it is {describe(family)}." + _meant(family)
        )
    links = FAMILIES[family]
    if link is None:
        return next(iter(links.values()))
    if link not in links:
        raise ValueError(f"`link` of {family} must be {or_list(links)}; it is {link!r}.")
    return links[link]


_ELSEWHERE = {
    "normal": "gaussian", "t": "student", "logistic": "bernoulli", "binary": "bernoulli",
    "nbinom": "negative_binomial", "negbinomial": "negative_binomial",
    "negbin": "negative_binomial",
    "cumulative": "ordinal", "multinomial": "categorical", "zip": "zero_inflated_poisson",
}  # fmt: skip
"""Names of families in other packages."""


def _meant(family: Any) -> str:
    if not isinstance(family, str):
        return ""
    known = _ELSEWHERE.get(family.lower())
    return f" Did you mean {known!r}?" if known else did_you_mean(family, list(FAMILIES))


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
    constants: Constants = {}
    outcomes = response_levels(formula, frame, family, constants)
    y = read_response(formula, frame, family, outcomes, constants)
    if family.several and (formula.bars or formula.offset is not None):
        raise ValueError(
            "`formula`: bars and offset(...) are not compatible with family 'categorical', each "
            "of whose levels has a linear predictor."
        )
    effects = _effects(formula.bars, frame)
    design = make_design(formula.fixed, frame)
    design = design.named([apart(term, _own(family, effects, outcomes)) for term in design.terms])
    found = moments(design, frame)
    lost = dependent(design, found, frame)
    if not formula.dotted:
        need_independent(design, lost, found.rows)
    intercept = bool(design.terms) and design.terms[0] == INTERCEPT
    center = found.mean if intercept else np.zeros(len(design.terms))
    scale = np.where(found.sd > 1e-12 * np.abs(found.mean), found.sd, 1.0)
    cuts: tuple[float, ...] = ()
    if family.name == "ordinal":
        if not intercept:
            raise ValueError(
                "`formula`: cutpoints of family 'ordinal' replace the intercept, which cannot be "
                "removed."
            )
        design, center, scale = design.without_intercept(), center[1:], scale[1:]
        below = np.cumsum(np.bincount(y.astype(int), minlength=len(outcomes)))[:-1] / len(y)
        cuts = tuple(np.log(below / (1.0 - below)).tolist())
    elif intercept:
        center[0], scale[0] = 0.0, 1.0
    shift = 0.0
    if formula.offset is not None:
        shift = float(evaluated(formula.offset, frame, constants).mean())
    mean = y.mean() / trials_of(formula, frame).mean() if family.name == "binomial" else y.mean()
    model = Model(
        formula, family, design, center, scale, effects,
        float(y.std()) or 1.0 if family.scaled else 1.0, float(family.linked(float(mean))) - shift,
        _read_priors(priors, design.terms, family, bool(effects)), outcomes, cuts, constants,
        tuple(lost),
    )  # fmt: skip
    return model, y


def _own(family: Family, effects: Sequence[Effects], outcomes: Sequence[Any]) -> list[str]:
    """Return the names of the rows of the summary, and keys of priors, that are not of terms."""
    found = [name for name, where in family.aux if where != "ordered"]
    found += cut_names(outcomes) if len(found) < len(family.aux) else []
    for each in effects:
        found += each.rows
    return [*found, *(["sd"] if effects else [])]


def _effects(bars: Sequence[Bar], frame: pd.DataFrame) -> tuple[Effects, ...]:
    found = []
    names = parameter_names(list(dict.fromkeys(bar.by for bar in bars)))
    for by, name in names.items():
        own = tuple(bar for bar in bars if bar.by == by)
        designs: list[Design] = []
        terms: list[str] = []
        correlated: list[tuple[int, ...]] = []
        scales: list[np.ndarray] = []
        for bar in own:
            design = make_design(bar.terms, frame, large=len(frame))
            places = range(len(terms), len(terms) + len(design.terms))
            terms += design.terms
            designs.append(design)
            scales.append(_root_mean_square(design, frame))
            alone = [(place,) for place in places]
            correlated += [tuple(places)] if bar.correlated else alone
        if len(set(terms)) < len(terms):
            raise ValueError(f"`formula`: two bars have the same effect of {by!r}.")
        scale = np.concatenate(scales)
        found.append(Effects(by, name, own, tuple(terms), tuple(designs), tuple(correlated), scale))
    return tuple(found)


def _root_mean_square(design: Design, frame: pd.DataFrame) -> np.ndarray:
    """Return that of each column; 1 for columns of zeros."""
    if design.terms == (INTERCEPT,):
        return np.ones(1)
    found = moments(design, frame)
    size = np.sqrt(found.mean**2 + found.sd**2)
    return np.where(size > 0, size, 1.0)


def _read_priors(
    priors: Any, terms: Sequence[str], family: Family, grouped: bool
) -> dict[str, Any]:
    scales = [name for name, where in family.aux if where != "ordered"]
    known = [*terms, *scales, *(["sd"] if grouped else [])]
    found = {
        name if name in known else unquoted(name): value
        for name, value in checks.by_name("priors", priors, "of priors by term").items()
    }
    checks.known_keys("priors", found, known, "the terms are")
    for name, value in found.items():
        pair = isinstance(value, tuple | list) and len(value) == 2 and name in terms
        if pair and not (all(map(checks.is_number, value)) and value[1] > 0):
            raise ValueError(
                f"`priors[{name!r}]` must be a mean and a positive standard deviation; it is "
                f"{value!r}."
            )
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
                + (f" The term is {quoted(name)!r}." if quoted(name) in terms else "")
            )
    return found


def groups_of(model: Model) -> list[Groups]:
    """Return the groups of a model, as samplers expect them."""
    normal = model.family.name == "gaussian"
    return [
        Groups(
            each.entry,
            {f"r_{each.name}": np.zeros(len(each.terms))},
            each.log_density,
            normal=normal,
        )
        for each in model.effects
    ]


def posterior(
    model: Model, y: np.ndarray, frame: pd.DataFrame, weights: np.ndarray | None
) -> dict[str, Any]:
    """Return the arguments of :func:`sgmcmc.sample` for the posterior of a regression.

    Args:
        model: Model.
        y: Response.
        frame: Data.
        weights: Weight of each row, or ``None``.

    Raises:
        ValueError: There is nothing to sample.
    """
    dataset = {"y": y.astype(np.float32), **_dataset(model, frame)}
    if model.family.name in ("exponential", "weibull"):
        dataset["censored"] = censored_of(model.formula, frame).astype(np.float32)
    if weights is not None:
        dataset["weights"] = weights.astype(np.float32)
    params: dict[str, Any] = {}
    bijectors: dict[str, Any] = {}
    if model.terms:
        several = (len(model.outcomes) - 1,) if model.family.several else ()
        params["b"] = np.zeros((*several, len(model.terms)))
        if model.terms[0] == INTERCEPT:
            params["b"][..., 0] = model.start
    _add_scales(model, params, bijectors)
    if not params:
        raise ValueError("`formula` has no terms: there is nothing to sample.")
    groups = groups_of(model)
    return {
        "log_lik": model.log_lik,
        "dataset": dataset,
        "params": params,
        "log_prior": model.log_prior,
        "bijectors": bijectors or None,
        "integers": model.integers,
        **({"groups": groups} if groups else {}),
    }


def _dataset(model: Model, frame: pd.DataFrame) -> dict[str, Any]:
    """Return the dataset of all rows, made in pieces; large columns are in mapped files."""
    spools: dict[str, Spool] = {}
    for rows, made in blocks(model.design, frame):
        for name, values in model.numbers(rows, made).items():
            array = np.asarray(values)
            spools.setdefault(name, Spool(array.dtype)).add(array)
    return {name: spool.array() for name, spool in spools.items()} | model.labels(frame)


def _add_scales(model: Model, params: dict[str, Any], bijectors: dict[str, Any]) -> None:
    """Add auxiliary parameters, and scales and correlations of effects."""
    from tensorflow_probability import bijectors as tfb

    for name, where in model.family.aux:
        if where == "ordered":
            params[name], bijectors[name] = np.asarray(model.cuts), tfb.Ascending()
        elif where == "unit":
            params[name], bijectors[name] = 0.2, tfb.Sigmoid()
        else:
            params[name] = model.response_scale if name == "sigma" else 5.0 if name == "nu" else 1.0
            bijectors[name] = tfb.Exp()
    for each in model.effects:
        sds = f"sd_{each.name}"
        params[sds] = 0.5 * model.response_scale / each.scale
        bijectors[sds] = tfb.Exp()
        if each.pairs:
            params[f"cor_{each.name}"] = np.zeros(len(each.pairs))
            bijectors[f"cor_{each.name}"] = tfb.Tanh()
