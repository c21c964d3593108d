"""Regressions with Student's errors, on raw scales, coefficients flat."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from benchmarks.posteriors.base import Posterior, columns, design, matvec, posterior
from benchmarks.posteriors.normal import DIABETES

tfb, tfd = tfp.bijectors, tfp.distributions


def robust(
    about: str, X: np.ndarray, y: np.ndarray, nu: float | None = 4.0
) -> Posterior:
    """Return y ~ t(ν, Xβ, σ²) with β flat, σ ~ Exponential(1/sd(y)), ν given or Gamma(2, 0.1)."""
    rate = 1.0 / y.std()
    start = {"beta": np.zeros(X.shape[1]), "sigma": 1.0}
    bijectors = {"sigma": tfb.Exp()}
    if nu is None:
        start["nu"], bijectors["nu"] = 1.0, tfb.Exp()

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        df = params["nu"] if nu is None else nu
        mean = matvec(dataset, params["beta"])
        return tfd.StudentT(df, mean, params["sigma"]).log_prob(dataset["y"])

    def log_prior(params: Mapping) -> tf.Tensor:
        value = -rate * params["sigma"]
        return value if nu else value + tf.math.log(params["nu"]) - 0.1 * params["nu"]

    return Posterior(about, {"X": X, "y": y}, start, log_lik, log_prior, bijectors)


@posterior
def stackloss_robust() -> Posterior:
    data = columns("stackloss")
    X = design(data, ("AIRFLOW", "WATERTEMP", "ACIDCONC"))
    return robust("stack loss, t with 4 degrees of freedom", X, data["STACKLOSS"])


@posterior
def statecrime_robust() -> Posterior:
    data = columns("statecrime")
    X = design(data, ("urban", "poverty", "hs_grad", "single", "white"))
    return robust("murders, t with unknown degrees of freedom", X, data["murder"], None)


@posterior
def engel_robust() -> Posterior:
    data = columns("engel")
    X = design(data, ("income",))
    return robust(
        "food expenses, t with unknown degrees of freedom", X, data["foodexp"], None
    )


@posterior
def diabetes_robust() -> Posterior:
    data = columns("diabetes")
    X = design(data, DIABETES)
    return robust("disease progression, t with 4 degrees of freedom", X, data["target"])
