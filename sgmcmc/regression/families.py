"""Families of responses: log-likelihood, link, priors, checks and draws of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

Tensors = dict[str, tf.Tensor]
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Family:
    """A distribution of the response given the linear predictor η.

    Attributes:
        name, link: Names of the family and the link.
        terms: Log-likelihood of each row, a function of response, η, auxiliary parameters and
            columns.
        mean: Expected response, a function of η and auxiliary parameters, in NumPy.
        draw: Draws of the response, a function of a generator, η, auxiliary parameters and trials.
        good: Whether each response is in range.
        range: Description of that range.
        aux: Auxiliary parameters, each with its kind: "positive", "unit" (between 0 and 1) or
            "ordered" (cutpoints, one fewer than levels).
        scaled: Whether the response's standard deviation scales the default priors.
        linked: Link applied to the mean response, for a starting value of the intercept.
        by_level: Whether responses are places of levels, and their mean has an entry, the
            probability, for each level.
        several: Whether η has an entry for each level except the first.
    """

    name: str
    link: str
    terms: Callable[[tf.Tensor, tf.Tensor, Tensors, Tensors], tf.Tensor]
    mean: Callable[[np.ndarray, dict[str, np.ndarray]], np.ndarray]
    draw: Callable[[np.random.Generator, np.ndarray, dict[str, np.ndarray], Any], np.ndarray]
    good: Callable[[np.ndarray], np.ndarray]
    range: str
    linked: Callable[[float], float]
    aux: tuple[tuple[str, str], ...] = ()
    scaled: bool = False
    by_level: bool = False
    several: bool = False


def _special() -> Any:
    """Return SciPy's special functions, which are loaded when they are first needed."""
    import scipy.special

    return scipy.special


def _identity(x: Any) -> Any:
    return x


def _same(eta: np.ndarray, aux: Any = None) -> np.ndarray:
    return eta


def _exp(eta: np.ndarray, aux: Any = None) -> np.ndarray:
    return np.exp(eta)


def _log(mean: float) -> float:
    return float(np.log(max(mean, 1e-8)))


def _logit(mean: float) -> float:
    p = min(max(mean, 1e-4), 1 - 1e-4)
    return float(np.log(p / (1 - p)))


def _count(y: np.ndarray) -> np.ndarray:
    return (y >= 0) & (y == np.floor(y))


def _gaussian(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    sigma = aux["sigma"]
    return -0.5 * ((y - eta) / sigma) ** 2 - tf.math.log(sigma) - 0.5 * _LOG_2PI


def _student(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    sigma, nu = aux["sigma"], 1.0 + aux["nu"]
    u = (y - eta) / sigma
    constant = tf.math.lgamma(0.5 * (nu + 1)) - tf.math.lgamma(0.5 * nu)
    constant -= 0.5 * tf.math.log(nu * np.pi) + tf.math.log(sigma)
    return constant - 0.5 * (nu + 1) * tf.math.log1p(u**2 / nu)


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
    found = np.negative(eta)
    with np.errstate(over="ignore"):
        np.exp(found, out=found)
    found += 1.0
    return np.reciprocal(found, out=found)


def _probability(link: str) -> Callable[..., np.ndarray]:
    if link == "logit":
        return _logistic
    if link == "probit":
        return lambda eta, aux=None: _special().ndtr(eta)
    return lambda eta, aux=None: -np.expm1(-np.exp(eta))


def _unlinked(link: str) -> Callable[[float], float]:
    if link == "logit":
        return _logit
    if link == "probit":
        return lambda mean: float(_special().ndtri(min(max(mean, 1e-4), 1 - 1e-4)))
    return lambda mean: float(np.log(-np.log1p(-min(max(mean, 1e-4), 1 - 1e-4))))


def _bernoulli(link: str) -> Family:
    def terms(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
        yes, no = _log_p(link, eta)
        return y * yes + (1.0 - y) * no

    p = _probability(link)
    return Family(
        "bernoulli", link, terms, p, lambda rng, eta, aux, _: rng.binomial(1, p(eta)),
        lambda y: (y == 0) | (y == 1), "0 or 1", _unlinked(link),
    )  # fmt: skip


def _binomial(link: str) -> Family:
    def terms(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
        yes, no = _log_p(link, eta)
        n = rows["trials"]
        ways = tf.math.lgamma(n + 1) - tf.math.lgamma(y + 1) - tf.math.lgamma(n - y + 1)
        return y * yes + (n - y) * no + ways

    p = _probability(link)
    return Family(
        "binomial", link, terms, p,
        lambda rng, eta, aux, trials: rng.binomial(np.asarray(trials).astype(int), p(eta)), _count,
        "integers, 0 or more", _unlinked(link),
    )  # fmt: skip


def _poisson(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    return y * eta - tf.exp(eta) - tf.math.lgamma(y + 1.0)


def _negative_binomial(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    shape = aux["shape"]
    far = tf.nn.softplus(eta - tf.math.log(shape))
    ways = tf.math.lgamma(y + shape) - tf.math.lgamma(shape) - tf.math.lgamma(y + 1.0)
    return ways + y * (eta - tf.math.log(shape)) - (y + shape) * far


def _gamma(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    k = aux["shape"]
    height = k * (tf.math.log(k) - eta) - tf.math.lgamma(k)
    return height + (k - 1.0) * tf.math.log(y) - k * y * tf.exp(-eta)


def _beta(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    phi, mean = aux["phi"], tf.sigmoid(eta)
    a, b = mean * phi, (1.0 - mean) * phi
    height = tf.math.lgamma(phi) - tf.math.lgamma(a) - tf.math.lgamma(b)
    return height + (a - 1.0) * tf.math.log(y) + (b - 1.0) * tf.math.log1p(-y)


def _exponential(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    return -(1.0 - rows["censored"]) * eta - y * tf.exp(-eta)


def _weibull(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    k = aux["shape"]
    log_ratio = tf.math.log(y) - eta + tf.math.lgamma(1.0 + 1.0 / k)
    seen = tf.math.log(k) + k * log_ratio - tf.math.log(y)
    return (1.0 - rows["censored"]) * seen - tf.exp(k * log_ratio)


def _zero_inflated(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    zi = aux["zi"]
    none, some = tf.math.log(zi), tf.math.log1p(-zi)
    at_zero = tf.reduce_logsumexp(tf.stack([none + 0.0 * eta, some - tf.exp(eta)]), 0)
    return tf.where(y > 0, some + _poisson(y, eta, aux, rows), at_zero)


_FAR = 1e6
"""A cutpoint beyond all others, whose distribution function is 0 or 1 in any dtype."""


def _ordinal(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    """Return log(F(c_y − η) − F(c_{y−1} − η)) of the logistic distribution function F."""
    far = tf.constant([_FAR], eta.dtype)
    cuts = tf.concat([-far, tf.cast(aux["cut"], eta.dtype), far], 0)
    place = tf.cast(y, tf.int32)
    # Products with indicators, not gathers: derivatives of any order stay dense.
    lower = tf.linalg.matvec(tf.one_hot(place, cuts.shape[0], dtype=eta.dtype), cuts) - eta
    upper = tf.linalg.matvec(tf.one_hot(place + 1, cuts.shape[0], dtype=eta.dtype), cuts) - eta
    # F(u) − F(l) = F(u) (1 − F(l)) (1 − exp(l − u)): no difference of numbers near 1.
    apart = tf.math.log(-tf.math.expm1(lower - upper))
    return apart - tf.nn.softplus(-upper) - tf.nn.softplus(lower)


def _ordinal_mean(eta: np.ndarray, aux: Any = None) -> np.ndarray:
    below = _special().expit(aux["cut"] - eta[..., None])
    edge = np.zeros_like(below[..., :1])
    return np.diff(np.concatenate([edge, below, edge + 1.0], -1), axis=-1)


def _categorical(y: Any, eta: Any, aux: Tensors, rows: Tensors) -> tf.Tensor:
    place = tf.one_hot(tf.cast(y, tf.int32) - 1, eta.shape[-1], dtype=eta.dtype)
    all_levels = tf.concat([tf.zeros_like(eta[:, :1]), eta], 1)
    return tf.reduce_sum(place * eta, 1) - tf.reduce_logsumexp(all_levels, 1)


def _categorical_mean(eta: np.ndarray, aux: Any = None) -> np.ndarray:
    return _special().softmax(np.concatenate([0.0 * eta[..., :1], eta], -1), axis=-1)


def _level_draw(mean: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def draw(rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any) -> np.ndarray:
        below = np.cumsum(mean(eta, aux)[..., :-1], -1)
        return (rng.uniform(size=(*below.shape[:-1], 1)) > below).sum(-1)

    return draw


def _positive(y: np.ndarray) -> np.ndarray:
    return y > 0


def _nb_draw(rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any) -> np.ndarray:
    shape = aux["shape"]
    return rng.poisson(rng.gamma(shape, np.exp(eta) / shape))


def _beta_draw(rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any) -> np.ndarray:
    mean = _special().expit(eta)
    return rng.beta(mean * aux["phi"], (1 - mean) * aux["phi"])


def _weibull_draw(rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any) -> np.ndarray:
    k = aux["shape"]
    scale = np.exp(eta - _special().gammaln(1 + 1 / k))
    return scale * rng.standard_exponential(eta.shape) ** (1 / k)


def _zip_draw(rng: np.random.Generator, eta: np.ndarray, aux: Any, _: Any) -> np.ndarray:
    return np.where(rng.uniform(size=eta.shape) < aux["zi"], 0, rng.poisson(np.exp(eta)))


_SIGMA, _SHAPE = ("sigma", "positive"), ("shape", "positive")

FAMILIES: dict[str, dict[str, Family]] = {
    "gaussian": {
        "identity": Family(
            "gaussian", "identity", _gaussian, _same,
            lambda rng, eta, aux, _: rng.normal(eta, aux["sigma"]), np.isfinite, "finite numbers",
            _identity, (_SIGMA,), True,
        )
    },
    "student": {
        "identity": Family(
            "student", "identity", _student, _same,
            lambda rng, eta, aux, _: eta + aux["sigma"] * rng.standard_t(1 + aux["nu"], eta.shape),
            np.isfinite, "finite numbers", _identity, (_SIGMA, ("nu", "positive")), True,
        )
    },
    "bernoulli": {link: _bernoulli(link) for link in ("logit", "probit", "cloglog")},
    "binomial": {link: _binomial(link) for link in ("logit", "probit", "cloglog")},
    "poisson": {
        "log": Family(
            "poisson", "log", _poisson, _exp, lambda rng, eta, aux, _: rng.poisson(np.exp(eta)),
            _count, "integers, 0 or more", _log,
        )
    },
    "negative_binomial": {
        "log": Family(
            "negative_binomial", "log", _negative_binomial, _exp, _nb_draw, _count,
            "integers, 0 or more", _log, (_SHAPE,),
        )
    },
    "gamma": {
        "log": Family(
            "gamma", "log", _gamma, _exp,
            lambda rng, eta, aux, _: rng.gamma(aux["shape"], np.exp(eta) / aux["shape"]), _positive,
            "positive numbers", _log, (_SHAPE,),
        )
    },
    "beta": {
        "logit": Family(
            "beta", "logit", _beta, _probability("logit"), _beta_draw,
            lambda y: (y > 0) & (y < 1), "numbers between 0 and 1", _logit, (("phi", "positive"),),
        )
    },
    "exponential": {
        "log": Family(
            "exponential", "log", _exponential, _exp,
            lambda rng, eta, aux, _: rng.exponential(np.exp(eta)), _positive, "positive numbers",
            _log,
        )
    },
    "weibull": {
        "log": Family(
            "weibull", "log", _weibull, _exp, _weibull_draw, _positive, "positive numbers", _log,
            (_SHAPE,),
        )
    },
    "zero_inflated_poisson": {
        "log": Family(
            "zero_inflated_poisson", "log", _zero_inflated,
            lambda eta, aux: (1 - aux["zi"]) * np.exp(eta), _zip_draw, _count,
            "integers, 0 or more", _log, (("zi", "unit"),),
        )
    },
    "ordinal": {
        "logit": Family(
            "ordinal", "logit", _ordinal, _ordinal_mean, _level_draw(_ordinal_mean), _count,
            "levels", lambda mean: 0.0, (("cut", "ordered"),), by_level=True,
        )
    },
    "categorical": {
        "logit": Family(
            "categorical", "logit", _categorical, _categorical_mean,
            _level_draw(_categorical_mean), _count, "levels", lambda mean: 0.0, by_level=True,
            several=True,
        )
    },
}  # fmt: skip
"""Families by name and link; the first link is the default."""
