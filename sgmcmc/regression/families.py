"""Families of responses: log-likelihood, link, priors, checks and draws of each.

The log-likelihood of a row is computed from d = η − z, the distance of its predictor η from a
reference z that lies near the largest density, and is relative to the density there. So no large
numbers cancel: counts of a million, shapes of a million and times far from zero keep their digits
in float32. What depends on the data alone is computed once, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, did_you_mean, or_list

if TYPE_CHECKING:
    pass


Tensors = dict[str, tf.Tensor]

Columns = dict[str, np.ndarray]

_LOG_2PI = float(np.log(2 * np.pi))

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

    y: np.ndarray
    weights: np.ndarray
    offset: np.ndarray
    trials: np.ndarray
    censored: np.ndarray

    @classmethod
    def of(cls, y: Any, **columns: Any) -> Responses:
        """Return responses with weights and trials of 1, and no offset or censoring by default."""
        y = np.asarray(y, np.float64)
        fields = {
            "weights": 1.0,
            "offset": 0.0,
            "trials": 1.0,
            "censored": 0.0,
            **columns,
        }
        numbers = {
            name: np.asarray(value, np.float64) for name, value in fields.items()
        }
        return cls(
            y,
            **{
                name: np.broadcast_to(values, y.shape)
                for name, values in numbers.items()
            },
        )


@dataclass(frozen=True)
class Family:
    """A distribution of the response given the linear predictor η.

    Attributes:
        name, link: Names of the family and the link.
        terms: Log-likelihood of each row, a function of d = η − z, auxiliary parameters and
            columns.
        columns: Columns of the log-likelihood, with that of z, a function of responses.
        start: Predictor of the mean response without terms, a function of responses: the starting
            value of the intercept, and where its prior is centered.
        mean: Expected response, a function of η and auxiliary parameters, in NumPy.
        draw: Draws of the response, a function of a generator, η, auxiliary parameters and trials.
        good: Whether each response is in range.
        range: Description of that range.
        intercept: Default prior of the intercept: "normal", "rate" (exponential of e^η), "time"
            (exponential of e^−η), "probability" (uniform) or "simplex" (uniform).
        aux: Auxiliary parameters, each with its kind: "positive", "unit" (between 0 and 1) or
            "ordered" (cutpoints, one fewer than levels).
        scaled: Whether the response's standard deviation scales the default priors.
        by_level: Whether responses are indices of levels, and their mean has an entry, the
            probability, for each level.
        several: Whether η has an entry for each level except the first.
    """

    name: str
    link: str
    terms: Callable[[Any, Tensors, Tensors], tf.Tensor]
    columns: Callable[[Responses], Columns]
    start: Callable[[Responses], float]
    mean: Callable[[np.ndarray, dict[str, np.ndarray]], np.ndarray]
    draw: Callable[
        [np.random.Generator, np.ndarray, dict[str, np.ndarray], Any], np.ndarray
    ]
    good: Callable[[np.ndarray], np.ndarray]
    range: str
    intercept: str = "normal"
    aux: tuple[tuple[str, str], ...] = ()
    scaled: bool = False
    by_level: bool = False
    several: bool = False

    def log_density(self, eta: tf.Tensor, aux: Tensors, rows: Tensors) -> tf.Tensor:
        """Return the log density of each row, given its predictor and ``columns``."""
        return self.terms(eta - rows[AT] if AT in rows else eta, aux, rows)


def _special() -> Any:
    import scipy.special

    return scipy.special


def _identity(eta: np.ndarray, aux: Any = None) -> np.ndarray:
    return eta


def _exp(eta: np.ndarray, aux: Any = None) -> np.ndarray:
    return np.exp(eta)


def _log_sum(values: np.ndarray, weights: np.ndarray) -> float:
    """Return log Σ w exp(v)."""
    return float(_special().logsumexp(values, b=weights))


def _start_at_mean(responses: Responses) -> float:
    return float(np.average(responses.y - responses.offset, weights=responses.weights))


def _start_at_rate(responses: Responses) -> float:
    """Return the log of counts over exposures, half a count more, so that none has a rate."""
    counts = float(responses.weights @ responses.y) + 0.5
    return float(np.log(counts)) - _log_sum(responses.offset, responses.weights)


def _start_at_size(responses: Responses) -> float:
    return _log_sum(np.log(responses.y), responses.weights) - _log_sum(
        responses.offset, responses.weights
    )


def _start_at_time(responses: Responses) -> float:
    """Return the log of time over ends, half an end more."""
    ends = float(responses.weights @ (1.0 - responses.censored)) + 0.5
    return _log_sum(np.log(responses.y) - responses.offset, responses.weights) - float(
        np.log(ends)
    )


def _start_at_proportion(link: str) -> Callable[[Responses], float]:
    def start(responses: Responses) -> float:
        """Return the link of successes over trials, half of each kind more."""
        p = (responses.weights @ responses.y + 0.5) / (
            responses.weights @ responses.trials + 1.0
        )
        return float(_linked(link, p)) - float(
            np.average(responses.offset, weights=responses.weights)
        )

    return start


def _start_at_share(responses: Responses) -> float:
    mean, offset = (
        np.average(v, weights=responses.weights)
        for v in (responses.y, responses.offset)
    )
    return float(_linked("logit", mean) - offset)


def _no_start(responses: Responses) -> float:
    return 0.0


def _count(y: np.ndarray) -> np.ndarray:
    return (y >= 0) & (y == np.floor(y))


def _levels(responses: Responses) -> Columns:
    return {"y": responses.y}


def _values(responses: Responses) -> Columns:
    return {AT: responses.y}


def _counts(responses: Responses) -> Columns:
    """Return counts, the log of each (of ½ for none), and the log density of a Poisson count."""
    y = responses.y
    a = np.maximum(y, 0.5)
    density = y * np.log(a) - a - _special().gammaln(y + 1.0)
    return {"y": y, AT: np.log(a), "constant": density}


def _sizes(responses: Responses) -> Columns:
    return {AT: np.log(responses.y), "constant": -np.log(responses.y)}


def _times(responses: Responses) -> Columns:
    log_time = np.log(responses.y)
    return {
        AT: log_time,
        "censored": responses.censored,
        "constant": -(1.0 - responses.censored) * log_time,
    }


def _shares(responses: Responses) -> Columns:
    y = responses.y
    log_odds = np.log(y) - np.log1p(-y)
    return {
        "y": y,
        "log_odds": log_odds,
        AT: log_odds,
        "constant": -np.log(y) - np.log1p(-y),
    }


def _gaussian(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    sigma = aux["sigma"]
    return -0.5 * (d / sigma) ** 2 - tf.math.log(sigma) - 0.5 * _LOG_2PI


def _student(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    sigma, nu = aux["sigma"], 1.0 + aux["nu"]
    constant = _rest_of_gamma(0.5 * (nu + 1)) - _rest_of_gamma(0.5 * nu)
    constant += (
        0.5 * nu * tf.math.log1p(1.0 / nu) - 0.5 - 0.5 * _LOG_2PI - tf.math.log(sigma)
    )
    return constant - 0.5 * (nu + 1) * tf.math.log1p((d / sigma) ** 2 / nu)


# Number from which log Γ comes from its asymptotic series, whose next term is 6e-12 there.
_FAR_GAMMA = 8.0


def _rest_of_gamma(z: tf.Tensor) -> tf.Tensor:
    """Return log Γ(z) − (z − ½) log z + z − ½ log 2π, which is small."""
    small, inverse = tf.minimum(z, _FAR_GAMMA), 1.0 / tf.maximum(z, _FAR_GAMMA)
    square = inverse**2
    series = inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))
    )
    direct = (
        tf.math.lgamma(small)
        - (small - 0.5) * tf.math.log(small)
        + small
        - 0.5 * _LOG_2PI
    )
    return tf.where(z > _FAR_GAMMA, series, direct)


def _log_cdf(x: tf.Tensor) -> tf.Tensor:
    from tensorflow_probability import distributions as tfd

    return tfd.Normal(tf.zeros([], x.dtype), tf.ones([], x.dtype)).log_cdf(x)


def _log_p(link: str, eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return log p and log(1 − p)."""
    if link == "logit":
        return -tf.nn.softplus(-eta), -tf.nn.softplus(eta)
    if link == "probit":
        return _log_cdf(eta), _log_cdf(-eta)
    rate = tf.exp(tf.clip_by_value(eta, -80.0, 80.0))  # beyond, 0 × ∞ would be NaN
    return tf.math.log(-tf.math.expm1(-rate)), -rate


def _logistic(eta: np.ndarray, aux: Any = None) -> np.ndarray:
    """Return 1/(1 + exp(−η)), in less than half the time of ``scipy.special.expit``."""
    p = np.negative(eta)
    with np.errstate(over="ignore"):
        np.exp(p, out=p)
    p += 1.0
    return np.reciprocal(p, out=p)


def _log_ratio(d: tf.Tensor, p: tf.Tensor, log_odds: tf.Tensor) -> tf.Tensor:
    """Return log(1 − p + p exp(d)), of a probability p and its log odds."""
    small = tf.math.log1p(p * tf.math.expm1(tf.clip_by_value(d, -1.0, 1.0)))
    large = tf.nn.softplus(log_odds + d) - tf.nn.softplus(log_odds)
    return tf.where(tf.abs(d) < 1.0, small, large)


def _probability(link: str) -> Callable[..., np.ndarray]:
    if link == "logit":
        return _logistic
    if link == "probit":
        return lambda eta, aux=None: _special().ndtr(eta)
    return lambda eta, aux=None: -np.expm1(-np.exp(eta))


def _linked(link: str, p: Any) -> Any:
    if link == "logit":
        return np.log(p) - np.log1p(-p)
    return _special().ndtri(p) if link == "probit" else np.log(-np.log1p(-p))


def _bernoulli(link: str) -> Family:
    def terms(eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
        yes, no = _log_p(link, eta)
        return rows["y"] * yes + (1.0 - rows["y"]) * no

    p = _probability(link)
    return Family(
        "bernoulli",
        link,
        terms,
        _levels,
        _start_at_proportion(link),
        p,
        lambda rng, eta, aux, _: rng.binomial(1, p(eta)),
        lambda y: (y == 0) | (y == 1),
        "0 or 1",
        "probability",
    )


def _binomial(link: str) -> Family:
    def columns(responses: Responses) -> Columns:
        y, n, gammaln = responses.y, responses.trials, _special().gammaln
        p = (y + 0.5) / (n + 1.0)
        density = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
        density += y * np.log(p) + (n - y) * np.log1p(-p)
        columns = {
            "y": y,
            "trials": n,
            "p": p,
            "log_odds": _linked("logit", p),
            "constant": density,
        }
        at = _linked(link, p)
        return columns | ({AT: at} if link == "logit" else {AT: at, "link": at})

    def terms(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
        if link != "logit":
            # The log odds are known to the rounding of one number, whatever the number of trials.
            yes, no = _log_p(link, d + rows["link"])
            d = yes - no - rows["log_odds"]
        ratio = _log_ratio(d, rows["p"], rows["log_odds"])
        return rows["y"] * d - rows["trials"] * ratio + rows["constant"]

    p = _probability(link)
    return Family(
        "binomial",
        link,
        terms,
        columns,
        _start_at_proportion(link),
        p,
        lambda rng, eta, aux, trials: rng.binomial(
            np.asarray(trials).astype(int), p(eta)
        ),
        _count,
        "integers, 0 or more",
        "probability",
    )


def _poisson(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    y = rows["y"]
    return y * d - tf.maximum(y, 0.5) * tf.math.expm1(d) + rows["constant"]


def _negative_binomial(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    shape, y = aux["shape"], rows["y"]
    a = tf.maximum(y, 0.5)
    ratio = _log_ratio(d, a / (a + shape), tf.math.log(a) - tf.math.log(shape))
    more = (
        _rest_of_gamma(y + shape)
        - _rest_of_gamma(shape)
        - 0.5 * tf.math.log1p(y / shape)
    )
    best = tf.where(y > 0, more + rows["constant"], -shape * tf.math.log1p(a / shape))
    return y * d - (y + shape) * ratio + best


def _gamma(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    k = aux["shape"]
    best = 0.5 * (tf.math.log(k) - _LOG_2PI) - _rest_of_gamma(k)
    return best - k * (tf.math.expm1(-d) + d) + rows["constant"]


def _beta(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    phi, y = aux["phi"], rows["y"]
    log_odds = rows["log_odds"]
    eta = d + log_odds
    mean = tf.sigmoid(eta)
    best = 0.5 * (
        tf.math.log(phi) - _LOG_2PI - tf.nn.softplus(eta) - tf.nn.softplus(-eta)
    )
    best += _rest_of_gamma(phi) - _rest_of_gamma(mean * phi)
    best -= _rest_of_gamma(tf.sigmoid(-eta) * phi)
    return phi * (_log_ratio(d, y, log_odds) - mean * d) + best + rows["constant"]


def _exponential(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    return -(1.0 - rows["censored"]) * d - tf.exp(-d) + rows["constant"]


def _weibull(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    k = aux["shape"]
    power = k * (tf.math.lgamma(1.0 + 1.0 / k) - d)
    return (
        (1.0 - rows["censored"]) * (tf.math.log(k) + power)
        - tf.exp(power)
        + rows["constant"]
    )


def _zero_inflated(d: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    zi = aux["zi"]
    none, some = tf.math.log(zi), tf.math.log1p(-zi)
    at_zero = tf.reduce_logsumexp(tf.stack([none + 0.0 * d, some - 0.5 * tf.exp(d)]), 0)
    return tf.where(rows["y"] > 0, some + _poisson(d, aux, rows), at_zero)


_FAR = 1e6  # a cutpoint beyond all others, whose distribution function is 0 or 1 in any dtype


def _ordinal(eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    """Return log(F(c_y − η) − F(c_{y−1} − η)) of the logistic distribution function F."""
    far = tf.constant([_FAR], eta.dtype)
    cuts = tf.concat([-far, tf.cast(aux["cut"], eta.dtype), far], 0)
    level = tf.cast(rows["y"], tf.int32)
    # Products with indicators, not gathers: derivatives of any order stay dense.
    lower = (
        tf.linalg.matvec(tf.one_hot(level, cuts.shape[0], dtype=eta.dtype), cuts) - eta
    )
    upper = (
        tf.linalg.matvec(tf.one_hot(level + 1, cuts.shape[0], dtype=eta.dtype), cuts)
        - eta
    )
    # F(u) − F(l) = F(u) (1 − F(l)) (1 − exp(l − u)): no difference of numbers near 1.
    log_difference = tf.math.log(-tf.math.expm1(lower - upper))
    return log_difference - tf.nn.softplus(-upper) - tf.nn.softplus(lower)


def _ordinal_mean(eta: np.ndarray, aux: Any = None) -> np.ndarray:
    cumulative = _special().expit(aux["cut"] - eta[..., None])
    edge = np.zeros_like(cumulative[..., :1])
    return np.diff(np.concatenate([edge, cumulative, edge + 1.0], -1), axis=-1)


def _categorical(eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    indicator = tf.one_hot(
        tf.cast(rows["y"], tf.int32) - 1, eta.shape[-1], dtype=eta.dtype
    )
    all_levels = tf.concat([tf.zeros_like(eta[:, :1]), eta], 1)
    return tf.reduce_sum(indicator * eta, 1) - tf.reduce_logsumexp(all_levels, 1)


def _categorical_mean(eta: np.ndarray, aux: Any = None) -> np.ndarray:
    return _special().softmax(np.concatenate([0.0 * eta[..., :1], eta], -1), axis=-1)


def _level_draw(mean: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def draw(rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any) -> np.ndarray:
        cumulative = np.cumsum(mean(eta, aux)[..., :-1], -1)
        return (rng.uniform(size=(*cumulative.shape[:-1], 1)) > cumulative).sum(-1)

    return draw


def _positive(y: np.ndarray) -> np.ndarray:
    return y > 0


def _nb_draw(rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any) -> np.ndarray:
    shape = aux["shape"]
    return rng.poisson(rng.gamma(shape, np.exp(eta) / shape))


def _beta_draw(
    rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any
) -> np.ndarray:
    mean = _special().expit(eta)
    return rng.beta(mean * aux["phi"], (1 - mean) * aux["phi"])


def _weibull_draw(
    rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any
) -> np.ndarray:
    k = aux["shape"]
    scale = np.exp(eta - _special().gammaln(1 + 1 / k))
    return scale * rng.standard_exponential(eta.shape) ** (1 / k)


def _zip_draw(
    rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any
) -> np.ndarray:
    return np.where(
        rng.uniform(size=eta.shape) < aux["zi"], 0, rng.poisson(np.exp(eta))
    )


_SIGMA, _SHAPE = ("sigma", "positive"), ("shape", "positive")

# Families by name and link; the first link is the default.
FAMILIES: dict[str, dict[str, Family]] = {
    "gaussian": {
        "identity": Family(
            "gaussian", "identity", _gaussian, _values, _start_at_mean, _identity,
            lambda rng, eta, aux, _: rng.normal(eta, aux["sigma"]), np.isfinite, "finite numbers",
            aux=(_SIGMA,), scaled=True,
        )
    },
    "student": {
        "identity": Family(
            "student", "identity", _student, _values, _start_at_mean, _identity,
            lambda rng, eta, aux, _: eta + aux["sigma"] * rng.standard_t(1 + aux["nu"], eta.shape),
            np.isfinite, "finite numbers", aux=(_SIGMA, ("nu", "positive")), scaled=True,
        )
    },
    "bernoulli": {link: _bernoulli(link) for link in ("logit", "probit", "cloglog")},
    "binomial": {link: _binomial(link) for link in ("logit", "probit", "cloglog")},
    "poisson": {
        "log": Family(
            "poisson", "log", _poisson, _counts, _start_at_rate, _exp,
            lambda rng, eta, aux, _: rng.poisson(np.exp(eta)), _count, "integers, 0 or more",
            "rate",
        )
    },
    "negative_binomial": {
        "log": Family(
            "negative_binomial", "log", _negative_binomial, _counts, _start_at_rate, _exp,
            _nb_draw, _count, "integers, 0 or more", "rate", (_SHAPE,),
        )
    },
    "gamma": {
        "log": Family(
            "gamma", "log", _gamma, _sizes, _start_at_size, _exp,
            lambda rng, eta, aux, _: rng.gamma(aux["shape"], np.exp(eta) / aux["shape"]), _positive,
            "positive numbers", aux=(_SHAPE,),
        )
    },
    "beta": {
        "logit": Family(
            "beta", "logit", _beta, _shares, _start_at_share, _probability("logit"), _beta_draw,
            lambda y: (y > 0) & (y < 1), "numbers between 0 and 1", aux=(("phi", "positive"),),
        )
    },
    "exponential": {
        "log": Family(
            "exponential", "log", _exponential, _times, _start_at_time, _exp,
            lambda rng, eta, aux, _: rng.exponential(np.exp(eta)), _positive, "positive numbers",
            "time",
        )
    },
    "weibull": {
        "log": Family(
            "weibull", "log", _weibull, _times, _start_at_time, _exp, _weibull_draw, _positive,
            "positive numbers", "time", (_SHAPE,),
        )
    },
    "zero_inflated_poisson": {
        "log": Family(
            "zero_inflated_poisson", "log", _zero_inflated, _counts, _start_at_rate,
            lambda eta, aux: (1 - aux["zi"]) * np.exp(eta), _zip_draw, _count,
            "integers, 0 or more", "rate", (("zi", "unit"),),
        )
    },
    "ordinal": {
        "logit": Family(
            "ordinal", "logit", _ordinal, _levels, _no_start, _ordinal_mean,
            _level_draw(_ordinal_mean), _count, "levels", aux=(("cut", "ordered"),), by_level=True,
        )
    },
    "categorical": {
        "logit": Family(
            "categorical", "logit", _categorical, _levels, _no_start, _categorical_mean,
            _level_draw(_categorical_mean), _count, "levels", "simplex", by_level=True,
            several=True,
        )
    },
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


# Names of families in other packages.
_SYNONYMS = {
    "normal": "gaussian", "t": "student", "logistic": "bernoulli", "binary": "bernoulli",
    "nbinom": "negative_binomial", "negbinomial": "negative_binomial",
    "negbin": "negative_binomial",
    "cumulative": "ordinal", "multinomial": "categorical", "zip": "zero_inflated_poisson",
}  # fmt: skip
