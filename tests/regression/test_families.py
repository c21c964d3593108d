"""The log-likelihood of each family against SciPy's densities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats as st
import tensorflow as tf

from sgmcmc.regression.families import FAMILIES, Responses

ETA = np.array([-1.3, -0.2, 0.0, 0.4, 1.1])
COUNTS = np.array([0.0, 1.0, 0.0, 3.0, 2.0])
TIMES = np.array([0.3, 1.2, 0.7, 2.5, 0.9])
CENSORED = np.array([0.0, 1.0, 0.0, 0.0, 1.0])
P = {
    "logit": scipy.special.expit(ETA),
    "probit": st.norm.cdf(ETA),
    "cloglog": 1 - np.exp(-np.exp(ETA)),
}
MU, K = np.exp(ETA), 1.7
SCALE = MU / scipy.special.gamma(1 + 1 / K)


def _zero_inflated() -> np.ndarray:
    p = 0.7 * st.poisson.pmf(COUNTS, MU) + 0.3 * (COUNTS == 0)
    return np.log(p)


def _seen(density: np.ndarray, survival: np.ndarray) -> np.ndarray:
    return np.where(CENSORED == 1, survival, density)


LEVELS = np.array([0.0, 1.0, 2.0, 3.0, 1.0])
CUTS = np.array([-1.0, 0.2, 1.5])
SEVERAL = np.column_stack([ETA, ETA**2, -ETA])


def _ordinal() -> np.ndarray:
    below = st.logistic.cdf(
        np.concatenate([[-np.inf], CUTS, [np.inf]])[None] - ETA[:, None]
    )
    return np.log(np.diff(below)[np.arange(5), LEVELS.astype(int)])


def _categorical() -> np.ndarray:
    every = np.column_stack([np.zeros(5), SEVERAL])
    return scipy.special.log_softmax(every, 1)[np.arange(5), LEVELS.astype(int)]


CASES: list[tuple[str, str, np.ndarray, dict[str, Any], np.ndarray]] = [
    ("gaussian", "identity", TIMES, {"sigma": 0.7}, st.norm.logpdf(TIMES, ETA, 0.7)),
    ("student", "identity", TIMES, {"sigma": 0.7, "nu": 3.0}, st.t.logpdf(TIMES, 4.0, ETA, 0.7)),
    ("poisson", "log", COUNTS, {}, st.poisson.logpmf(COUNTS, MU)),
    (
        "negative_binomial", "log", COUNTS, {"shape": K},
        st.nbinom.logpmf(COUNTS, K, K / (K + MU)),
    ),
    ("gamma", "log", TIMES, {"shape": K}, st.gamma.logpdf(TIMES, K, scale=MU / K)),
    (
        "beta", "logit", TIMES / 3, {"phi": 5.0},
        st.beta.logpdf(TIMES / 3, 5 * P["logit"], 5 * (1 - P["logit"])),
    ),
    (
        "exponential", "log", TIMES, {},
        _seen(st.expon.logpdf(TIMES, scale=MU), st.expon.logsf(TIMES, scale=MU)),
    ),
    (
        "weibull", "log", TIMES, {"shape": K},
        _seen(
            st.weibull_min.logpdf(TIMES, K, scale=SCALE),
            st.weibull_min.logsf(TIMES, K, scale=SCALE),
        ),
    ),
    ("zero_inflated_poisson", "log", COUNTS, {"zi": 0.3}, _zero_inflated()),
    ("ordinal", "logit", LEVELS, {"cut": CUTS}, _ordinal()),
    ("categorical", "logit", LEVELS, {}, _categorical()),
    *(
        ("bernoulli", link, CENSORED, {}, st.bernoulli.logpmf(CENSORED, P[link])) for link in P
    ),
    *(("binomial", link, COUNTS, {}, st.binom.logpmf(COUNTS, 4, P[link])) for link in P),
]  # fmt: skip


def _terms(
    name: str,
    link: str,
    y: np.ndarray,
    eta: np.ndarray,
    aux: dict[str, Any],
    **more: Any,
) -> Any:
    """Return the log density of each row, in NumPy's dtype of ``eta``."""
    family = FAMILIES[name][link]
    given = {} if name != "binomial" else {"trials": np.full(len(y), 4.0)} | more
    if name in ("exponential", "weibull"):
        given = {"censored": CENSORED[: len(y)]} | more
    columns = family.columns(Responses.of(y, **given))
    dtype = eta.dtype
    return np.asarray(
        family.log_density(
            tf.constant(eta),
            {key: tf.constant(value, dtype) for key, value in aux.items()},
            {key: tf.constant(value, dtype) for key, value in columns.items()},
        )
    )


@pytest.mark.parametrize(("name", "link", "y", "aux", "exact"), CASES)
def test_terms_are_those_of_scipy(
    name: str, link: str, y: np.ndarray, aux: dict[str, Any], exact: np.ndarray
) -> None:
    eta = SEVERAL if FAMILIES[name][link].several else ETA
    np.testing.assert_allclose(_terms(name, link, y, eta, aux), exact, rtol=1e-9)


@pytest.mark.parametrize("name", ["ordinal", "categorical"])
def test_probabilities_and_draws_of_levels_are_those_of_the_terms(name: str) -> None:
    family, aux = FAMILIES[name]["logit"], {"cut": CUTS}
    eta = SEVERAL if family.several else ETA
    p = family.mean(eta, aux)
    exact = [
        np.exp(_terms(name, "logit", np.full(5, float(k)), eta, aux)) for k in range(4)
    ]
    np.testing.assert_allclose(p, np.transpose(exact), rtol=1e-9)
    drawn = family.draw(
        np.random.default_rng(1), np.repeat(eta[None], 20000, 0), aux, None
    )
    share = np.stack([(drawn == k).mean(0) for k in range(4)], 1)
    assert (np.abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / 20000)).all()


@pytest.mark.parametrize("eta", [-200.0, 200.0])
def test_ordinal_terms_far_away_are_finite_with_finite_slopes(eta: float) -> None:
    at = tf.Variable(np.full(4, eta))
    with tf.GradientTape() as tape:
        rows = {"y": tf.constant([0.0, 1.0, 2.0, 3.0], tf.float64)}
        found = FAMILIES["ordinal"]["logit"].terms(at, {"cut": tf.constant(CUTS)}, rows)
    assert np.isfinite(found).all() and np.isfinite(tape.gradient(found, at)).all()


def test_every_family_is_here() -> None:
    assert {(case[0], case[1]) for case in CASES} == {
        (name, link) for name, links in FAMILIES.items() for link in links
    }


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_sure_rows_are_finite(link: str) -> None:
    found = _terms(
        "bernoulli", link, np.array([0.0, 1.0]), np.array([-200.0, 200.0]), {}
    )
    np.testing.assert_allclose(found, 0.0, atol=1e-12)


M = 1e6
"""Counts, trials and shapes that float32 must hold."""
NEAR = np.linspace(-3.0, 3.0, 7) / np.sqrt(M)
"""Distances of predictors from the best one, about three SDs of a row."""

LARGE: list[tuple[str, str, float, float, dict[str, Any], dict[str, Any], Any]] = [
    ("poisson", "log", M, np.log(M), {}, {}, lambda eta, aux: st.poisson.logpmf(M, np.exp(eta))),
    (
        "negative_binomial", "log", M, np.log(M), {"shape": 1e7}, {},
        lambda eta, aux: st.nbinom.logpmf(M, 1e7, 1e7 / (1e7 + np.exp(eta))),
    ),
    (
        "zero_inflated_poisson", "log", M, np.log(M), {"zi": 0.25}, {},
        lambda eta, aux: np.log(0.75) + st.poisson.logpmf(M, np.exp(eta)),
    ),
    (
        "gamma", "log", 3e6, np.log(3e6), {"shape": M}, {},
        lambda eta, aux: st.gamma.logpdf(3e6, M, scale=np.exp(eta) / M),
    ),
    (
        "beta", "logit", 0.3, np.log(3 / 7), {"phi": M}, {},
        lambda eta, aux: st.beta.logpdf(
            0.3, M * scipy.special.expit(eta), M * scipy.special.expit(-eta)
        ),
    ),
    *[
        (
            "binomial", link, 3e5, z, {}, {"trials": M},
            lambda eta, aux, p=p: st.binom.logpmf(3e5, M, p(eta)),
        )
        for link, z, p in (
            ("logit", scipy.special.logit(0.3), scipy.special.expit),
            ("probit", st.norm.ppf(0.3), st.norm.cdf),
            ("cloglog", np.log(-np.log(0.7)), lambda eta: -np.expm1(-np.exp(eta))),
        )
    ],
    (
        "weibull", "log", 1e6, np.log(1e6), {"shape": 1e3}, {"censored": 0.0},
        lambda eta, aux: st.weibull_min.logpdf(
            1e6, 1e3, scale=np.exp(eta) / scipy.special.gamma(1 + 1e-3)
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "link", "y", "z", "aux", "given", "exact"), LARGE)
def test_large_numbers_keep_their_digits_in_float32(
    name: str,
    link: str,
    y: float,
    z: float,
    aux: dict[str, Any],
    given: dict[str, Any],
    exact: Any,
) -> None:
    """Distances from a reference are exact; so are densities, to the rounding of small numbers."""
    wanted = exact(z + NEAR, aux)
    found = _terms(name, link, np.full(7, y), z + NEAR, aux, **given)
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    family = FAMILIES[name][link]
    columns = family.columns(Responses.of(np.full(7, y), **given))
    d = (z + NEAR - columns.pop("at")).astype(np.float32)
    single = {key: tf.constant(value, tf.float32) for key, value in aux.items()}
    rows = {key: tf.constant(value, tf.float32) for key, value in columns.items()}
    # Products with d are 3000 or less; log odds of other links have a slope of 3000 or less.
    np.testing.assert_allclose(
        family.terms(tf.constant(d), single, rows), wanted, atol=2e-3
    )


@pytest.mark.parametrize(
    "name", ["poisson", "negative_binomial", "zero_inflated_poisson"]
)
@pytest.mark.parametrize("shape", [1e-3, 1.0, 1e5])
def test_counts_far_from_their_reference(name: str, shape: float) -> None:
    y = np.array([0.0, 0.0, 1.0, 7.0, 7.0])
    eta = np.array([-20.0, 4.0, -6.0, 5.0, -3.0])
    p = 1.0 if name == "poisson" else 0.6
    exact = np.log(p * st.poisson.pmf(y, np.exp(eta)) + (1 - p) * (y == 0))
    if name == "negative_binomial":
        exact = st.nbinom.logpmf(y, shape, 1 / (1 + np.exp(eta) / shape))
    found = _terms(name, "log", y, eta, {"zi": 0.4, "shape": shape})
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6)
