"""Families of responses: log-likelihood, link, priors, checks and draws of each.

The log-likelihood of a row is computed from d = η − z, the distance of its predictor η from a
reference z that lies near the largest density, and is relative to the density there. So no large
numbers cancel: counts of a million, shapes of a million and times far from zero keep their digits
in float32. What depends on the data alone is computed once, in float64.

A new family is a class, and an entry of ``FAMILIES``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.special
import tensorflow as tf

from sgmcmc.checks import describe, did_you_mean, or_list
from sgmcmc.regression.special_functions import (
    LINKS,
    LOG_2PI,
    SD_OF_LOG,
    log_gamma_residual,
    log_ratio,
    logistic,
)

Array = np.ndarray
Columns = dict[str, Array]
Random = np.random.Generator
Tensors = dict[str, tf.Tensor]

AT = "at"  # column with the reference z of each row; families without it have z = 0


class Responses(NamedTuple):
    """Responses of rows, and what belongs to them.

    Attributes:
        y: Response in numbers, (rows,).
        weights: Weight of each row.
        offset: Offset of each row, or 0.
        trials: Number of trials of each row.
        censored: Whether the time of each row is a lower bound, as 0 or 1.
    """

    y: Array
    weights: Array
    offset: Array
    trials: Array
    censored: Array

    @classmethod
    def of(cls, y: Any, **columns: Any) -> Responses:
        """Return responses with weights and trials of 1, and no offset or censoring by default."""
        y = np.asarray(y, np.float64)
        defaults = {"weights": 1.0, "offset": 0.0, "trials": 1.0, "censored": 0.0}
        broadcast = {
            name: np.broadcast_to(np.asarray(value, np.float64), y.shape)
            for name, value in (defaults | columns).items()
        }
        return cls(y, **broadcast)

    def mean(self, values: Array) -> float:
        """Return the weighted mean of numbers by row."""
        return float(np.average(values, weights=self.weights))


@dataclass(frozen=True)
class Auxiliary:
    """A parameter of a family besides the linear predictor.

    Attributes:
        name: Name.
        log_prior: Default log prior density, a function of the value and the unit of the response;
            ``None`` for cutpoints.
        prior: The same in words, a function of the unit.
        support: "positive", "unit" (between 0 and 1) or "ordered" (cutpoints, one fewer than
            levels).
        start: Starting value.
        scaled: Whether it has the unit of the response.
        shift: Number that is added to it for users.
        sd_of_log: Standard deviation of its logarithm under the default prior.
    """

    name: str
    log_prior: Callable[[tf.Tensor, float], tf.Tensor] | None
    prior: Callable[[float], str]
    support: str = "positive"
    start: float = 1.0
    scaled: bool = False
    shift: float = 0.0
    sd_of_log: float = SD_OF_LOG


def _dispersion(name: str) -> Auxiliary:
    """Return a parameter whose inverse is exponential with mean 10."""
    mean = 10.0
    return Auxiliary(
        name,
        lambda value, _: -2.0 * tf.math.log(value) - 1.0 / (mean * value),
        lambda _: f"1/exponential({1.0 / mean:.4g})",
    )


_SHAPE, _PHI = _dispersion("shape"), _dispersion("phi")
_SIGMA = Auxiliary(
    "sigma",
    lambda value, unit: -value / unit,
    lambda unit: f"exponential({1.0 / unit:.4g})",
    scaled=True,
)
_NU = Auxiliary(  # ν − 1, which is positive
    "nu",
    lambda value, _: tf.math.log1p(value) - 0.1 * value,
    lambda _: "gamma(2, 0.1)",
    start=5.0,
    shift=1.0,
    sd_of_log=0.9,  # of log(ν − 1), if ν > 1 is gamma(2, 0.1)
)
_ZERO_INFLATION = Auxiliary(
    "zi",
    lambda value, _: tf.zeros([], value.dtype),
    lambda _: "uniform(0, 1)",
    support="unit",
    start=0.2,
)
_CUTPOINTS = Auxiliary(
    "cut",
    None,
    lambda _: "uniform probabilities of levels (at the means of all columns)",
    support="ordered",
)


class Family:
    """A distribution of the response given the linear predictor η.

    Args:
        link: Name of the link.

    Attributes:
        name: Name of the family.
        links: Names of its links, the default first.
        range: Range of the responses, in words.
        intercept: Default prior of the intercept: "normal", "rate" (exponential of e^η), "time"
            (exponential of e^−η), "probability" (uniform) or "simplex" (uniform).
        aux: Auxiliary parameters.
        noise: Auxiliary parameter that has no posterior if the response has no noise.
        scaled: Whether the response's standard deviation scales the default priors.
        quadratic: Whether the log-likelihood is a quadratic function of η.
        may_be_two_levels: Whether responses may be text with two levels.
        has_trials: Whether the left side has ``trials(n)``.
        may_be_censored: Whether the left side may have ``cens(c)``.
        separable: Whether terms may separate the responses, so that their priors alone bound them.
        by_level: Whether responses are indices of levels, and their mean has an entry, the
            probability, for each level.
        several: Whether η has an entry for each level except the first.
    """

    name: ClassVar[str]
    links: ClassVar[tuple[str, ...]] = ("identity",)
    range: ClassVar[str]
    intercept: ClassVar[str] = "normal"
    aux: ClassVar[tuple[Auxiliary, ...]] = ()
    noise: ClassVar[str | None] = None
    scaled: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False
    may_be_two_levels: ClassVar[bool] = False
    has_trials: ClassVar[bool] = False
    may_be_censored: ClassVar[bool] = False
    separable: ClassVar[bool] = False
    by_level: ClassVar[bool] = False
    several: ClassVar[bool] = False

    def __init__(self, link: str) -> None:
        self.link = link

    @property
    def has_cutpoints(self) -> bool:
        """Whether cutpoints of levels replace the intercept."""
        return any(parameter.support == "ordered" for parameter in self.aux)

    @property
    def scalar_names(self) -> list[str]:
        """Names of the auxiliary parameters that are one number each."""
        return [p.name for p in self.aux if p.support != "ordered"]

    def is_valid(self, y: Array) -> Array:
        """Return whether each response is in range."""
        raise NotImplementedError

    def columns(self, responses: Responses) -> Columns:
        """Return the columns of the log-likelihood, with that of z."""
        raise NotImplementedError

    def start(self, responses: Responses) -> float:
        """Return the predictor of the mean response without terms.

        It is the starting value of the intercept, and where its prior is centered.
        """
        return 0.0

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each row, a function of d = η − z."""
        raise NotImplementedError

    def mean(self, eta: Array, aux: Columns) -> Array:
        """Return the expected response."""
        raise NotImplementedError

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        """Return draws of the response."""
        raise NotImplementedError

    def log_density(self, eta: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the log density of each row, given its predictor and ``columns``."""
        return self.terms(eta - rows[AT] if AT in rows else eta, aux, rows)


class _RealFamily(Family):
    """A distribution of real numbers around η."""

    range = "finite numbers"
    noise = "sigma"
    scaled = True

    def is_valid(self, y: Array) -> Array:
        return np.isfinite(y)

    def columns(self, responses: Responses) -> Columns:
        return {AT: responses.y}

    def start(self, responses: Responses) -> float:
        return responses.mean(responses.y - responses.offset)

    def mean(self, eta: Array, aux: Columns) -> Array:
        return eta


class _Gaussian(_RealFamily):
    """Normal distribution with mean η and standard deviation σ."""

    name = "gaussian"
    quadratic = True
    aux = (_SIGMA,)

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        sigma = aux["sigma"]
        return -0.5 * (d / sigma) ** 2 - tf.math.log(sigma) - 0.5 * LOG_2PI

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        return rng.normal(eta, aux["sigma"])


class _Student(_RealFamily):
    """Student's distribution around η, of scale σ, with ν degrees of freedom."""

    name = "student"
    aux = (_SIGMA, _NU)

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        sigma, nu = aux["sigma"], _NU.shift + aux["nu"]
        constant = log_gamma_residual(0.5 * (nu + 1)) - log_gamma_residual(0.5 * nu)
        constant += (
            0.5 * nu * tf.math.log1p(1.0 / nu)
            - 0.5
            - 0.5 * LOG_2PI
            - tf.math.log(sigma)
        )
        return constant - 0.5 * (nu + 1) * tf.math.log1p((d / sigma) ** 2 / nu)

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        return eta + aux["sigma"] * rng.standard_t(_NU.shift + aux["nu"], eta.shape)


class _ProportionFamily(Family):
    """Successes of trials, of probability p, the inverse link of η."""

    links = tuple(LINKS)
    intercept = "probability"
    separable = True

    def start(self, responses: Responses) -> float:
        """Return the link of successes over trials, half of each kind more."""
        successes = responses.weights @ responses.y + 0.5
        trials = responses.weights @ responses.trials + 1.0
        eta = float(LINKS[self.link].predictor(successes / trials))
        return eta - responses.mean(responses.offset)

    def mean(self, eta: Array, aux: Columns) -> Array:
        return LINKS[self.link].probability(eta)


class _Bernoulli(_ProportionFamily):
    """A success or none."""

    name = "bernoulli"
    may_be_two_levels = True
    range = "0 or 1"

    def is_valid(self, y: Array) -> Array:
        return (y == 0) | (y == 1)

    def columns(self, responses: Responses) -> Columns:
        return {"y": responses.y}

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        yes, no = LINKS[self.link].log_probabilities(d)
        return rows["y"] * yes + (1.0 - rows["y"]) * no

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        return rng.binomial(1, self.mean(eta, aux))


class _Binomial(_ProportionFamily):
    """Number of successes of several trials."""

    name = "binomial"
    range = "integers, 0 or more"
    has_trials = True

    def is_valid(self, y: Array) -> Array:
        return _is_count(y)

    def columns(self, responses: Responses) -> Columns:
        y, n, gammaln = responses.y, responses.trials, scipy.special.gammaln
        p = (y + 0.5) / (n + 1.0)
        density = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
        density += y * np.log(p) + (n - y) * np.log1p(-p)
        at = LINKS[self.link].predictor(p)
        columns = {
            "y": y,
            "trials": n,
            "p": p,
            "log_odds": LINKS["logit"].predictor(p),
            "constant": density,
            AT: at,
        }
        if self.link != "logit":
            columns["link"] = at
        return columns

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        if self.link != "logit":
            # The log odds are known to the rounding of one number, whatever the number of trials.
            yes, no = LINKS[self.link].log_probabilities(d + rows["link"])
            d = yes - no - rows["log_odds"]
        ratio = log_ratio(d, rows["p"], rows["log_odds"])
        return rows["y"] * d - rows["trials"] * ratio + rows["constant"]

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        return rng.binomial(np.asarray(trials).astype(int), self.mean(eta, aux))


class _LogFamily(Family):
    """A distribution of positive numbers with mean exp(η)."""

    links = ("log",)
    range = "positive numbers"

    def is_valid(self, y: Array) -> Array:
        return y > 0

    def mean(self, eta: Array, aux: Columns) -> Array:
        return np.exp(eta)


class _CountFamily(_LogFamily):
    """A distribution of counts."""

    range = "integers, 0 or more"
    intercept = "rate"

    def is_valid(self, y: Array) -> Array:
        return _is_count(y)

    def columns(self, responses: Responses) -> Columns:
        """Return counts, log counts (of ½ for none), and the log density of a Poisson count."""
        y = responses.y
        a = np.maximum(y, 0.5)
        density = y * np.log(a) - a - scipy.special.gammaln(y + 1.0)
        return {"y": y, AT: np.log(a), "constant": density}

    def start(self, responses: Responses) -> float:
        """Return the log of counts over exposures, half a count more, so that none has a rate."""
        counts = float(responses.weights @ responses.y) + 0.5
        return float(np.log(counts)) - _log_sum(responses.offset, responses.weights)


class _Poisson(_CountFamily):
    """Poisson distribution of mean exp(η)."""

    name = "poisson"

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        y = rows["y"]
        return y * d - tf.maximum(y, 0.5) * tf.math.expm1(d) + rows["constant"]

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        return rng.poisson(np.exp(eta))


class _NegativeBinomial(_CountFamily):
    """Poisson distribution whose rate has a gamma distribution."""

    name = "negative_binomial"
    aux = (_SHAPE,)

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        shape, y = aux["shape"], rows["y"]
        a = tf.maximum(y, 0.5)
        ratio = log_ratio(d, a / (a + shape), tf.math.log(a) - tf.math.log(shape))
        beyond_poisson = (
            log_gamma_residual(y + shape)
            - log_gamma_residual(shape)
            - 0.5 * tf.math.log1p(y / shape)
        )
        best = tf.where(
            y > 0,
            beyond_poisson + rows["constant"],
            -shape * tf.math.log1p(a / shape),
        )
        return y * d - (y + shape) * ratio + best

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        shape = aux["shape"]
        return rng.poisson(rng.gamma(shape, np.exp(eta) / shape))


class _ZeroInflatedPoisson(_Poisson):
    """Zero with probability ``zi``, else a Poisson count."""

    name = "zero_inflated_poisson"
    aux = (_ZERO_INFLATION,)

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        log_zi, log_poisson = tf.math.log(aux["zi"]), tf.math.log1p(-aux["zi"])
        ways_to_zero = [log_zi + 0.0 * d, log_poisson - 0.5 * tf.exp(d)]
        at_zero = tf.reduce_logsumexp(tf.stack(ways_to_zero), 0)
        return tf.where(
            rows["y"] > 0, log_poisson + super().terms(d, aux, rows), at_zero
        )

    def mean(self, eta: Array, aux: Columns) -> Array:
        return (1 - aux["zi"]) * np.exp(eta)

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        is_zero = rng.uniform(size=eta.shape) < aux["zi"]
        return np.where(is_zero, 0, rng.poisson(np.exp(eta)))


class _Gamma(_LogFamily):
    """Gamma distribution of mean exp(η)."""

    name = "gamma"
    aux = (_SHAPE,)
    noise = "shape"

    def columns(self, responses: Responses) -> Columns:
        return {AT: np.log(responses.y), "constant": -np.log(responses.y)}

    def start(self, responses: Responses) -> float:
        log_total = _log_sum(np.log(responses.y), responses.weights)
        return log_total - _log_sum(responses.offset, responses.weights)

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        k = aux["shape"]
        best = 0.5 * (tf.math.log(k) - LOG_2PI) - log_gamma_residual(k)
        return best - k * (tf.math.expm1(-d) + d) + rows["constant"]

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        return rng.gamma(aux["shape"], np.exp(eta) / aux["shape"])


class _TimeFamily(_LogFamily):
    """A distribution of times, some of which may be lower bounds."""

    intercept = "time"
    may_be_censored = True

    def columns(self, responses: Responses) -> Columns:
        log_time = np.log(responses.y)
        return {
            AT: log_time,
            "censored": responses.censored,
            "constant": -(1.0 - responses.censored) * log_time,
        }

    def start(self, responses: Responses) -> float:
        """Return the log of time over ends, half an end more."""
        ends = float(responses.weights @ (1.0 - responses.censored)) + 0.5
        log_times = np.log(responses.y) - responses.offset
        return _log_sum(log_times, responses.weights) - float(np.log(ends))


class _Exponential(_TimeFamily):
    """Exponential distribution of mean exp(η)."""

    name = "exponential"

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        return -(1.0 - rows["censored"]) * d - tf.exp(-d) + rows["constant"]

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        return rng.exponential(np.exp(eta))


class _Weibull(_TimeFamily):
    """Weibull distribution of mean exp(η)."""

    name = "weibull"
    aux = (_SHAPE,)
    noise = "shape"

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        k = aux["shape"]
        power = k * (tf.math.lgamma(1.0 + 1.0 / k) - d)
        density = (1.0 - rows["censored"]) * (tf.math.log(k) + power)
        return density - tf.exp(power) + rows["constant"]

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        k = aux["shape"]
        scale = np.exp(eta - scipy.special.gammaln(1 + 1 / k))
        return scale * rng.standard_exponential(eta.shape) ** (1 / k)


class _Beta(Family):
    """Beta distribution of a proportion, with precision φ."""

    name = "beta"
    links = ("logit",)
    range = "numbers between 0 and 1"
    aux = (_PHI,)
    noise = "phi"

    def is_valid(self, y: Array) -> Array:
        return (y > 0) & (y < 1)

    def columns(self, responses: Responses) -> Columns:
        y = responses.y
        log_odds = LINKS["logit"].predictor(y)
        constant = -np.log(y) - np.log1p(-y)
        return {"y": y, "log_odds": log_odds, AT: log_odds, "constant": constant}

    def start(self, responses: Responses) -> float:
        mean = np.average(responses.y, weights=responses.weights)
        return float(LINKS["logit"].predictor(mean)) - responses.mean(responses.offset)

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        phi, y, log_odds = aux["phi"], rows["y"], rows["log_odds"]
        eta = d + log_odds
        mean = tf.sigmoid(eta)
        best = 0.5 * (
            tf.math.log(phi) - LOG_2PI - tf.nn.softplus(eta) - tf.nn.softplus(-eta)
        )
        best += log_gamma_residual(phi) - log_gamma_residual(mean * phi)
        best -= log_gamma_residual(tf.sigmoid(-eta) * phi)
        return phi * (log_ratio(d, y, log_odds) - mean * d) + best + rows["constant"]

    def mean(self, eta: Array, aux: Columns) -> Array:
        return logistic(eta)

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        mean = scipy.special.expit(eta)
        return rng.beta(mean * aux["phi"], (1 - mean) * aux["phi"])


class _LevelFamily(Family):
    """A distribution of levels, whose mean is the probability of each."""

    links = ("logit",)
    range = "levels"
    separable = True
    by_level = True

    def is_valid(self, y: Array) -> Array:
        return _is_count(y)

    def columns(self, responses: Responses) -> Columns:
        return {"y": responses.y}

    def draw(self, rng: Random, eta: Array, aux: Columns, trials: Any) -> Array:
        cumulative = np.cumsum(self.mean(eta, aux)[..., :-1], -1)
        return (rng.uniform(size=(*cumulative.shape[:-1], 1)) > cumulative).sum(-1)


class _Ordinal(_LevelFamily):
    """Levels between cutpoints of a logistic variable around η."""

    name = "ordinal"
    aux = (_CUTPOINTS,)

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        """Return log(F(c_y − d) − F(c_{y−1} − d)) of the logistic distribution function F."""
        # Cutpoints beyond all others, whose distribution function is 0 or 1 in any dtype.
        far = tf.constant([1e6], d.dtype)
        cuts = tf.concat([-far, tf.cast(aux["cut"], d.dtype), far], 0)
        level = tf.cast(rows["y"], tf.int32)

        def cut_of(index: tf.Tensor) -> tf.Tensor:
            # Products with indicators, not gathers: derivatives of any order stay dense.
            indicator = tf.one_hot(index, cuts.shape[0], dtype=d.dtype)
            return tf.linalg.matvec(indicator, cuts)

        lower = cut_of(level) - d
        upper = cut_of(level + 1) - d
        # F(u) − F(l) = F(u) (1 − F(l)) (1 − exp(l − u)): no difference of numbers near 1.
        log_difference = tf.math.log(-tf.math.expm1(lower - upper))
        return log_difference - tf.nn.softplus(-upper) - tf.nn.softplus(lower)

    def mean(self, eta: Array, aux: Columns) -> Array:
        cumulative = scipy.special.expit(aux["cut"] - eta[..., None])
        edge = np.zeros_like(cumulative[..., :1])
        return np.diff(np.concatenate([edge, cumulative, edge + 1.0], -1), axis=-1)


class _Categorical(_LevelFamily):
    """Levels whose log odds against the first are linear predictors."""

    name = "categorical"
    intercept = "simplex"
    several = True

    def terms(self, d: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        level = tf.cast(rows["y"], tf.int32) - 1
        indicator = tf.one_hot(level, d.shape[-1], dtype=d.dtype)
        all_levels = tf.concat([tf.zeros_like(d[:, :1]), d], 1)
        return tf.reduce_sum(indicator * d, 1) - tf.reduce_logsumexp(all_levels, 1)

    def mean(self, eta: Array, aux: Columns) -> Array:
        all_levels = np.concatenate([0.0 * eta[..., :1], eta], -1)
        return scipy.special.softmax(all_levels, axis=-1)


def _is_count(y: Array) -> Array:
    return (y >= 0) & (y == np.floor(y))


def _log_sum(values: Array, weights: Array) -> float:
    """Return log Σ w exp(v)."""
    return float(scipy.special.logsumexp(values, b=weights))


# Families by name and link; the first link is the default.
FAMILIES: dict[str, dict[str, Family]] = {
    family.name: {link: family(link) for link in family.links}
    for family in (
        _Gaussian,
        _Student,
        _Bernoulli,
        _Binomial,
        _Poisson,
        _NegativeBinomial,
        _Gamma,
        _Beta,
        _Exponential,
        _Weibull,
        _ZeroInflatedPoisson,
        _Ordinal,
        _Categorical,
    )
}

# Names of families in other packages.
_SYNONYMS = {
    "normal": "gaussian", "t": "student", "logistic": "bernoulli", "binary": "bernoulli",
    "nbinom": "negative_binomial", "negbinomial": "negative_binomial",
    "negbin": "negative_binomial",
    "cumulative": "ordinal", "multinomial": "categorical", "zip": "zero_inflated_poisson",
}  # fmt: skip


def read_family(family: Any, link: Any) -> Family:
    """Return a family and link by name.

    Raises:
        ValueError: There is no such family, or it has no such link.
    """
    if not isinstance(family, str) or family not in FAMILIES:
        hint = ""
        if isinstance(family, str):
            synonym = _SYNONYMS.get(family.lower())
            hint = f" Did you mean {synonym!r}?" if synonym else ""
            hint = hint or did_you_mean(family, list(FAMILIES))
        raise ValueError(
            f"`family` must be {or_list(FAMILIES)}; it is {describe(family)}." + hint
        )
    links = FAMILIES[family]
    if link is None:
        return next(iter(links.values()))
    if not isinstance(link, str) or link not in links:
        raise ValueError(
            f"`link` of {family} must be {or_list(links)}; it is {link!r}."
        )
    return links[link]
