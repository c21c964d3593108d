"""Priors of a regression: the defaults, in the units of the data, and those of the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import describe
from sgmcmc.regression.families import Family, Tensors
from sgmcmc.regression.formula import INTERCEPT, quoted, unquoted
from sgmcmc.regression.model import Effects, RegressionModel
from sgmcmc.regression.special_functions import LINKS, SD_OF_LOG, SD_OF_LOGISTIC


@dataclass(frozen=True)
class _Settings:
    sd: float = 2.5  # of the normal priors, in units of response over term
    rate: float = 100.0  # mean of that of a rate, in units of that of all rows
    # Posterior SD, in prior SDs, from which a warning says that its prior determines a term:
    largest_ratio: float = 0.5
    # The same for a uniform prior, whose density has no curvature that adds to that of the data.
    largest_ratio_uniform: float = 0.75


_SETTINGS = _Settings()
_AT_MEANS = " (at the means of all columns)"


def read_priors(
    priors: Any, terms: Sequence[str], family: Family, has_groups: bool
) -> dict[str, Any]:
    """Return the user's priors by term.

    Args:
        priors: Priors, as the user wrote them.
        terms: Fixed terms.
        family: Family.
        has_groups: Whether there are effects of groups.

    Raises:
        ValueError, TypeError: One is invalid, or of no term; the message names it.
    """
    sds = ["sd"] if has_groups else []
    allowed = [*terms, *family.scalar_names, *sds]
    with_rates = [p.name for p in family.aux if p.support == "positive"] + sds
    by_term = {
        name if name in allowed else unquoted(name): value
        for name, value in checks.by_name("priors", priors, "of priors by term").items()
    }
    checks.known_keys("priors", by_term, allowed, "the terms are")
    for name, value in by_term.items():
        is_term = name in terms
        is_pair = is_term and isinstance(value, tuple | list) and len(value) == 2
        if is_pair and not (all(map(checks.is_number, value)) and value[1] > 0):
            raise ValueError(
                f"`priors[{name!r}]` must be a mean and a positive standard deviation; it is "
                f"{value!r}."
            )
        takes_rate = not is_term and name in with_rates
        is_rate = takes_rate and checks.is_number(value) and value > 0
        if is_pair:
            by_term[name] = (float(value[0]), float(value[1]))
        elif is_rate:
            by_term[name] = float(value)
        if is_pair or is_rate or hasattr(value, "log_prob"):
            continue
        expected = "the rate of an exponential, or " if takes_rate else ""
        if is_term:
            expected = "a pair (mean, sd) of a normal, or "
        hint = f" The term is {quoted(name)!r}." if quoted(name) in terms else ""
        raise TypeError(
            f"`priors[{name!r}]` must be {expected}a distribution with `log_prob`; it is "
            f"{describe(value)}.{hint}"
        )
    return by_term


def has_distributions(model: RegressionModel) -> bool:
    """Return whether a prior of the user is a distribution, which has a dtype of its own."""
    return any(hasattr(prior, "log_prob") for prior in model.priors.values())


def log_prior(model: RegressionModel, params: Tensors) -> tf.Tensor:
    """Return the log prior density of all parameters but effects."""
    total = tf.zeros([], next(iter(params.values())).dtype)
    if model.terms:
        total += _log_prior_of_terms(model, params["b"])
    for parameter in model.family.aux:
        value = params[parameter.name]
        prior = model.prior_of(parameter)
        if prior is not None:
            total += _log_density(prior, value)
        elif parameter.log_prior is not None:
            total += parameter.log_prior(value, model.unit)
        else:  # probabilities of levels at the means of all columns: uniform on the simplex
            total -= tf.reduce_sum(tf.nn.softplus(value) + tf.nn.softplus(-value))
    for effects in model.effects:
        total += _log_prior_of_sds(model, effects, params)
        for number, (i, j) in enumerate(effects.pairs):
            # LKJ with shape 1: a partial correlation given j others has the density
            # (1 − p²)^((q − 2 − j)/2).
            power = effects.power(i, j)
            if power:
                partial = params[effects.correlations_name][number]
                total += power * tf.math.log1p(-(partial**2))
    return total


def _log_density(prior: Any, value: tf.Tensor) -> tf.Tensor:
    """Return the log density of the user's prior: a distribution, or the rate of an exponential."""
    if hasattr(prior, "log_prob"):
        return tf.reduce_sum(tf.cast(prior.log_prob(value), value.dtype))
    return -float(prior) * tf.reduce_sum(value)


def _log_prior_of_terms(model: RegressionModel, b: tf.Tensor) -> tf.Tensor:
    mean, sd = _normals(model)
    unit = np.where(model.is_intercept, model.unit, model.unit / model.scale)
    has_density = [hasattr(model.priors.get(t), "log_prob") for t in model.terms]
    custom = np.array(has_density)
    normal = np.isfinite(sd) & ~custom
    standard = b - tf.constant((mean - model.origin) / unit, b.dtype)
    standard /= tf.constant(np.where(normal, sd, unit) / unit, b.dtype)
    squares = tf.where(normal, standard**2, tf.zeros([], b.dtype))
    total = -0.5 * tf.reduce_sum(squares)
    for index in np.flatnonzero(custom):
        value = b[..., index] * float(unit[index]) + float(model.origin[index])
        total += _log_density(model.priors[model.terms[index]], value)
    if custom[0] or normal[0]:
        return total
    # The intercept, whose prior is not normal.
    intercept, kind = b[..., 0], model.family.intercept
    if kind in ("rate", "time"):
        size = intercept + float(model.origin[0] - model.start)
        size = size if kind == "rate" else -size
        return total + (size - tf.exp(size) / _SETTINGS.rate)
    if kind == "simplex":
        with_first = tf.concat([tf.zeros([1], b.dtype), intercept], 0)
        return total + tf.reduce_sum(tf.nn.log_softmax(with_first))
    eta = intercept + float(model.origin[0] + model.offset_mean)
    return total + LINKS[model.family.link].log_uniform(eta)


def _normals(model: RegressionModel) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and SD of the normal prior of each coefficient, (terms,).

    An infinite SD is that of an intercept whose prior is not normal.
    """
    mean = np.zeros(len(model.terms))
    sd = _SETTINGS.sd * model.unit / model.scale
    for index, term in enumerate(model.terms):
        if term == INTERCEPT:
            is_normal = model.family.intercept == "normal"
            mean[index] = model.start
            sd[index] = _SETTINGS.sd * model.unit if is_normal else np.inf
        prior = model.priors.get(term)
        if isinstance(prior, tuple | list):
            mean[index], sd[index] = prior
    return mean, sd


def normal_priors(model: RegressionModel) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and SD of the normal prior of each coefficient of the chain, (terms,)."""
    mean, sd = _normals(model)
    intercept = np.array(model.is_intercept, bool)
    unit = np.where(intercept, model.unit, model.unit / model.scale)
    return (mean - model.origin) / unit, sd / unit


def _log_prior_of_sds(
    model: RegressionModel, effects: Effects, params: Tensors
) -> tf.Tensor:
    sds, prior = params[effects.sds_name], model.priors.get("sd")
    if prior is None:
        rates = tf.constant(effects.scale / model.unit, sds.dtype)
        return -tf.reduce_sum(sds * rates)
    if not effects.center.any():
        return _log_density(prior, sds)
    # The user's priors are those of the effects at zero. Σ = T Σ₀ Tᵀ with |T| = 1, and the
    # volume of a covariance is Π sd^q times that of SDs and correlations.
    centered = effects.root(sds, params.get(effects.correlations_name))
    root = effects.uncentered(centered)
    sds_at_zero = [tf.sqrt(sum(entry**2 for entry in row)) for row in root]
    total = _log_density(prior, tf.stack(sds_at_zero))
    for indices in effects.correlated:
        for index in indices:
            log_ratio = tf.math.log(sds[index]) - tf.math.log(sds_at_zero[index])
            total += len(indices) * log_ratio
    return total


def default_sds(model: RegressionModel) -> dict[str, float]:
    """Return SDs of the default priors, by fixed term; of the intercept at means."""
    sds = dict(zip(model.terms, _SETTINGS.sd * model.unit / model.scale, strict=True))
    if INTERCEPT in sds:
        kind = model.family.intercept
        if kind == "normal":
            sds[INTERCEPT] = _SETTINGS.sd * model.unit
        elif kind == "probability":
            sds[INTERCEPT] = LINKS[model.family.link].sd
        else:
            sds[INTERCEPT] = SD_OF_LOGISTIC if kind == "simplex" else SD_OF_LOG
    return {term: float(sd) for term, sd in sds.items() if term not in model.priors}


def described_priors(model: RegressionModel) -> dict[str, str]:
    """Return the prior of each parameter, in words."""
    described, kind = {}, model.family.intercept
    for term, mean, sd in zip(model.terms, *_normals(model), strict=True):
        prior = model.priors.get(term)
        at = _AT_MEANS if term == INTERCEPT else ""
        if hasattr(prior, "log_prob"):
            described[term] = str(prior)
        elif np.isfinite(sd):
            described[term] = f"normal({mean:.4g}, {sd:.4g}){at}"
        elif kind == "rate":
            rate = np.exp(-model.start) / _SETTINGS.rate
            described[term] = f"log of exponential({rate:.4g}){at}"
        elif kind == "time":
            rate = np.exp(model.start) / _SETTINGS.rate
            described[term] = f"-log of exponential({rate:.4g}){at}"
        elif kind == "probability":
            described[term] = f"uniform probability{at}"
        else:
            described[term] = f"uniform probabilities of levels{at}"
    for parameter in model.family.aux:
        prior = model.prior_of(parameter)
        in_words = parameter.prior(model.unit) if prior is None else _in_words(prior)
        described[parameter.name] = in_words
    if "sd" in model.priors and model.effects:
        described["sd"] = _in_words(model.priors["sd"])
        return described
    for effects in model.effects:
        centered = effects.center.any()
        rates = effects.scale / model.unit
        for name, term, rate in zip(effects.rows, effects.terms, rates, strict=False):
            at = _AT_MEANS if centered and term == INTERCEPT else ""
            described[name] = _in_words(rate) + at
    return described


def _in_words(prior: Any) -> str:
    return f"exponential({prior:.4g})" if checks.is_number(prior) else str(prior)


def determined_by_priors(
    model: RegressionModel, draws: Mapping[str, np.ndarray]
) -> list[str]:
    """Return a warning for each parameter about which the data say little.

    A term is named if its default prior, normal with standard deviation s, has a part of the
    information that is not small: sd(β | y) > s/2. That happens if the response is separated by
    the term, or if terms are nearly collinear. The intercept is compared at the means of all
    columns. Of standard deviations σ, both σ and log σ must be so uncertain: else the data at least
    bound it. Of shapes log k counts, since they have no upper bound. Priors that the user has given
    are not checked.

    Args:
        model: Model.
        draws: Draws of the chain by parameter, (chains, draws, ...).

    Returns:
        Warnings, which name the term and the likely reason.
    """
    draws = {name: np.asarray(values, np.float64) for name, values in draws.items()}
    messages = _determined_terms(model, draws["b"]) if model.terms else []
    for name, ratio, largest in _sd_ratios(model, draws):
        if ratio > largest:
            messages.append(
                f"{name!r} is held by its prior: its posterior SD is {ratio:.2f} of the prior's. "
                "The data say little of it: see `priors`."
            )
    return messages


def _determined_terms(model: RegressionModel, b: np.ndarray) -> list[str]:
    reason = "It is nearly a combination of other terms, or there are few rows"
    if model.family.separable:
        reason = (
            "It separates the responses, is nearly a combination of other terms, or there are few "
            "rows"
        )
    described, prior_sds = described_priors(model), default_sds(model)
    units = np.where(model.is_intercept, 1.0, model.scale)
    sds = (b.std((0, 1)) * model.unit / units).ravel()
    terms = model.terms * (len(sds) // len(model.terms))
    messages = []
    for name, term, sd in zip(model.fixed_names, terms, sds, strict=True):
        ratio = float(sd) / prior_sds.get(term, np.inf)
        if ratio > _SETTINGS.largest_ratio:
            why = "Nearly all responses are alike" if term == INTERCEPT else reason
            messages.append(
                f"The term {name!r} is held by its prior: its posterior SD is {ratio:.2f} of the "
                f"prior's, {described[term]}. {why}: see `priors`."
            )
    return messages


def _sd_ratios(
    model: RegressionModel, draws: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, float, float]]:
    """Yield scales, shapes and correlations, posterior over prior SD, and what is too much."""
    largest, largest_uniform = _SETTINGS.largest_ratio, _SETTINGS.largest_ratio_uniform
    for parameter in model.family.aux:
        name, values = parameter.name, draws[parameter.name]
        if parameter.support == "ordered" or name in model.priors:
            continue
        if parameter.support == "unit":
            yield name, float(values.std() * np.sqrt(12.0)), largest_uniform
            continue
        ratio = np.log(values).std() / parameter.sd_of_log
        bound = values.std() / model.unit if parameter.scaled else np.inf
        yield name, float(min(ratio, bound)), largest
    for effects in model.effects:
        sds, names = draws[effects.sds_name], effects.rows
        if "sd" not in model.priors:
            for index, name in enumerate(names[: len(effects.terms)]):
                bound = sds[..., index].std() * effects.scale[index] / model.unit
                ratio = np.log(sds[..., index]).std() / SD_OF_LOG
                yield name, float(min(ratio, bound)), largest
        correlations = zip(names[len(effects.terms) :], effects.pairs, strict=True)
        for number, (name, (i, j)) in enumerate(correlations):
            partial = draws[effects.correlations_name][..., number]
            ratio = float(partial.std() * np.sqrt(2.0 * effects.power(i, j) + 3.0))
            yield name, ratio, largest_uniform
