"""Regressions of counts: Poisson and negative binomial, on raw scales."""

from __future__ import annotations

from collections.abc import Mapping

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
from benchmarks.posteriors.choices import RAND

tfb, tfd = tfp.bijectors, tfp.distributions


def poisson(about: str, X: np.ndarray, y: np.ndarray) -> Posterior:
    """Return y ~ Poisson(exp(Xβ)) with weak normal priors."""
    scales = weak_scales(X)

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        eta = matvec(dataset, params["beta"])
        return dataset["y"] * eta - tf.exp(eta)

    def log_prior(params: Mapping) -> tf.Tensor:
        return normal(params["beta"], scales)

    start = {"beta": np.zeros(X.shape[1])}
    return Posterior(about, {"X": X, "y": y}, start, log_lik, log_prior)


def negative_binomial(about: str, X: np.ndarray, y: np.ndarray) -> Posterior:
    """Return counts with mean μ = exp(Xβ) and variance μ + μ²/φ, φ ~ Exponential(0.2)."""
    scales = weak_scales(X)

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        eta, phi = matvec(dataset, params["beta"]), params["phi"]
        return tfd.NegativeBinomial(phi, logits=eta - tf.math.log(phi)).log_prob(
            dataset["y"]
        )

    def log_prior(params: Mapping) -> tf.Tensor:
        return normal(params["beta"], scales) - 0.2 * params["phi"]

    start = {"beta": np.zeros(X.shape[1]), "phi": 1.0}
    return Posterior(
        about, {"X": X, "y": y}, start, log_lik, log_prior, {"phi": tfb.Exp()}
    )


@posterior
def randhie_poisson() -> Posterior:
    data = columns("randhie")
    return poisson("visits to a doctor", design(data, RAND), data["mdvis"])


@posterior
def randhie_negative_binomial() -> Posterior:
    data = columns("randhie")
    X = design(data, RAND)
    return negative_binomial("visits to a doctor, negative binomial", X, data["mdvis"])


@posterior
def cpunish_poisson() -> Posterior:
    data = columns("cpunish")
    names = ("INCOME", "PERPOVERTY", "PERBLACK", "VC100k96", "SOUTH", "DEGREE")
    return poisson("executions in 17 states", design(data, names), data["EXECUTIONS"])


@posterior
def committee_negative_binomial() -> Posterior:
    data = columns("committee")
    X = design(data, ("SIZE", "SUBS", "STAFF", "PRESTIGE", "BILLS103"))
    return negative_binomial(
        "bills in committees, negative binomial", X, data["BILLS104"]
    )


@posterior
def cancer_negative_binomial() -> Posterior:
    data = columns("cancer")
    X = np.column_stack([np.ones(len(data["cancer"])), np.log(data["population"])])
    about = "deaths by population, negative binomial"
    return negative_binomial(about, X, data["cancer"])
