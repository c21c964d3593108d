"""Positive numbers: gamma regression, and lifetimes by Weibull's distribution, some censored."""

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

tfb = tfp.bijectors


@posterior
def scotland_gamma() -> Posterior:
    """y ~ Gamma with mean exp(Xβ) and shape a ~ Exponential(0.001)."""
    data = columns("scotland")
    names = ("COUTAX", "UNEMPF", "MOR", "ACT", "GDP", "AGE", "COUTAX_FEMALEUNEMP")
    X = design(data, names)
    scales = weak_scales(X)

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        a, eta = params["shape"], matvec(dataset, params["beta"])
        z = dataset["log_y"] - eta
        return (
            a * (tf.math.log(a) + z - tf.exp(z)) - tf.math.lgamma(a) - dataset["log_y"]
        )

    def log_prior(params: Mapping) -> tf.Tensor:
        return normal(params["beta"], scales) - 0.001 * params["shape"]

    start = {"beta": np.zeros(X.shape[1]), "shape": 1.0}
    dataset = {"X": X, "log_y": np.log(data["YES"])}
    about = "votes for a parliament, gamma"
    return Posterior(about, dataset, start, log_lik, log_prior, {"shape": tfb.Exp()})


def weibull(about: str, X: np.ndarray, y: np.ndarray, seen: np.ndarray) -> Posterior:
    """Return log y = Xβ + σε with ε Gumbel's, σ ~ Exponential(1); some y are censored."""
    scales = weak_scales(X)

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        sigma = params["sigma"]
        z = (dataset["log_y"] - matvec(dataset, params["beta"])) / sigma
        return dataset["seen"] * (z - tf.math.log(sigma)) - tf.exp(z)

    def log_prior(params: Mapping) -> tf.Tensor:
        return normal(params["beta"], scales) - params["sigma"]

    start = {"beta": np.zeros(X.shape[1]), "sigma": 1.0}
    dataset = {"X": X, "log_y": np.log(y), "seen": seen}
    return Posterior(about, dataset, start, log_lik, log_prior, {"sigma": tfb.Exp()})


@posterior
def heart_weibull() -> Posterior:
    data = columns("heart")
    X = design(data, ("age",))
    return weibull(
        "survival with a new heart, censored", X, data["survival"], data["censors"]
    )


@posterior
def strikes_weibull() -> Posterior:
    data = columns("strikes")
    X = design(data, ("iprod",))
    return weibull("how long strikes last", X, data["duration"], np.ones(len(X)))
