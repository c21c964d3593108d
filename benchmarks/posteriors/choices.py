"""Regressions of yes or no, of one of several, and of grades, on raw scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from benchmarks.posteriors.base import (
    Posterior,
    columns,
    design,
    matvec,
    normal,
    posterior,
    weak_scales,
)

tfb = tfp.bijectors

FAIR = ("rate_marriage", "age", "yrs_married", "children", "religious", "educ")
FAIR += ("occupation", "occupation_husb")
RAND = ("lncoins", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp")


def _logit(eta: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return -tf.nn.sigmoid_cross_entropy_with_logits(y, eta)


def _probit(eta: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    # 1 − Φ(η) = Φ(−η)
    standard = tfp.distributions.Normal(tf.zeros([], eta.dtype), 1.0)
    return standard.log_cdf((2.0 * y - 1.0) * eta)


def binary(
    about: str,
    X: np.ndarray,
    y: np.ndarray,
    link: Callable[..., tf.Tensor] = _logit,
    scales: np.ndarray | float | None = None,
) -> Posterior:
    """Return y ~ Bernoulli(F(Xβ)) with weak normal priors."""
    scales = weak_scales(X) if scales is None else scales

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        return link(matvec(dataset, params["beta"]), dataset["y"])

    def log_prior(params: Mapping) -> tf.Tensor:
        return normal(params["beta"], scales)

    start = {"beta": np.zeros(X.shape[1])}
    return Posterior(about, {"X": X, "y": y}, start, log_lik, log_prior)


@posterior
def spector_logit() -> Posterior:
    data = columns("spector")
    return binary(
        "grades improved", design(data, ("GPA", "TUCE", "PSI")), data["GRADE"]
    )


@posterior
def spector_probit() -> Posterior:
    data = columns("spector")
    X = design(data, ("GPA", "TUCE", "PSI"))
    return binary("grades improved, probit", X, data["GRADE"], _probit)


@posterior
def breast_cancer_logit() -> Posterior:
    """Thirty features that nearly separate the two kinds."""
    data = columns("breast_cancer")
    names = [name for name in data if name != "target"]
    return binary(
        "benign tumors, nearly separated", design(data, names), data["target"]
    )


@posterior
def iris_logit() -> Posterior:
    data = columns("iris")
    some = data["target"] > 0
    data = {name: column[some] for name, column in data.items()}
    names = [name for name in data if name != "target"]
    return binary("versicolor or virginica", design(data, names), data["target"] - 1.0)


@posterior
def digits_logit() -> Posterior:
    """Pixels that are never lit: coefficients that the prior alone knows."""
    data = columns("digits")
    names = [name for name in data if name != "target"]
    X = design(data, names)
    return binary(
        "is it an 8: 64 pixels, some never lit",
        X,
        1.0 * (data["target"] == 8),
        scales=1,
    )


@posterior
def fair_logit() -> Posterior:
    data = columns("fair")
    return binary("affairs or none", design(data, FAIR), 1.0 * (data["affairs"] > 0))


@posterior
def randhie_logit() -> Posterior:
    data = columns("randhie")
    return binary(
        "any visit to a doctor", design(data, RAND), 1.0 * (data["mdvis"] > 0)
    )


@posterior
def anes96_logit() -> Posterior:
    data = columns("anes96")
    names = (
        "popul",
        "TVnews",
        "selfLR",
        "ClinLR",
        "DoleLR",
        "PID",
        "age",
        "educ",
        "income",
    )
    return binary("vote for Dole", design(data, names), data["vote"])


@posterior
def star98_binomial() -> Posterior:
    """Counts above and below the median, in place of single answers."""
    data = columns("star98")
    names = (
        "LOWINC",
        "PERASIAN",
        "PERBLACK",
        "PERHISP",
        "AVYRSEXP",
        "AVSALK",
        "PERSPENK",
    )
    X = design(data, (*names, "PTRATIO", "PCTAF", "PCTCHRT", "PCTYRRND"))
    scales = weak_scales(X)

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        eta = matvec(dataset, params["beta"])
        return -dataset["above"] * tf.nn.softplus(-eta) - dataset[
            "below"
        ] * tf.nn.softplus(eta)

    def log_prior(params: Mapping) -> tf.Tensor:
        return normal(params["beta"], scales)

    dataset = {"X": X, "above": data["NABOVE"], "below": data["NBELOW"]}
    about = "pupils above the median, binomial"
    return Posterior(about, dataset, {"beta": np.zeros(X.shape[1])}, log_lik, log_prior)


@posterior
def wine_softmax() -> Posterior:
    """Three kinds that can be separated: the prior holds the coefficients."""
    data = columns("wine")
    names = ("alcohol", "malic_acid", "ash", "color_intensity", "hue", "proline")
    X = design(data, names)
    scales = weak_scales(X)[:, np.newaxis]

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        eta = tf.matmul(dataset["X"], params["beta"])
        eta = tf.concat([tf.zeros_like(eta[:, :1]), eta], 1)
        return tf.reduce_sum(dataset["kind"] * tf.nn.log_softmax(eta), 1)

    def log_prior(params: Mapping) -> tf.Tensor:
        return normal(params["beta"], scales)

    kind = 1.0 * (data["target"][:, np.newaxis] == np.arange(3))
    start = {"beta": np.zeros((len(names) + 1, 2))}
    return Posterior(
        "three cultivars, softmax", {"X": X, "kind": kind}, start, log_lik, log_prior
    )


@posterior
def modechoice_conditional() -> Posterior:
    """A conditional logit: 210 travellers, four ways to go."""
    data = columns("modechoice")

    def table(name: str) -> np.ndarray:
        return data[name].reshape(-1, 4)

    dataset = {
        "X": np.stack([table("ttme"), table("invc"), table("invt"), table("gc")], -1),
        "choice": table("choice"),
    }

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        own = tf.concat([params["alpha"], tf.zeros_like(params["alpha"][:1])], 0)
        eta = tf.linalg.matvec(dataset["X"], params["beta"]) + own
        return tf.reduce_sum(dataset["choice"] * tf.nn.log_softmax(eta), 1)

    def log_prior(params: Mapping) -> tf.Tensor:
        return normal(params["alpha"], 10.0) + normal(params["beta"], 1.0)

    start = {"alpha": np.zeros(3), "beta": np.zeros(4)}
    return Posterior(
        "ways to travel, conditional logit", dataset, start, log_lik, log_prior
    )


@posterior
def marriage_ordered() -> Posterior:
    """Grades 1 to 5 by an ordered logit; cut points ascend by a bijector."""
    data = columns("fair")
    X = design(data, FAIR[1:])[:, 1:]
    grade = 1.0 * (data["rate_marriage"][:, np.newaxis] == np.arange(1, 6))
    scales = 2.5 / X.std(0)

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        eta = matvec(dataset, params["beta"])[:, tf.newaxis]
        below = tf.concat(
            [
                tf.zeros_like(eta),
                tf.sigmoid(params["cuts"] - eta),
                tf.ones_like(eta),
            ],
            1,
        )
        share = tf.reduce_sum(dataset["grade"] * (below[:, 1:] - below[:, :-1]), 1)
        return tf.math.log(tf.maximum(share, 1e-30))

    def log_prior(params: Mapping) -> tf.Tensor:
        return normal(params["beta"], scales) + normal(params["cuts"], 10.0)

    start = {"beta": np.zeros(X.shape[1]), "cuts": np.arange(4.0)}
    about = "how a marriage is rated, ordered logit"
    bijectors = {"cuts": tfb.Ascending()}
    return Posterior(
        about, {"X": X, "grade": grade}, start, log_lik, log_prior, bijectors
    )
