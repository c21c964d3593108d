"""Linear regressions with normal errors of unknown variance, on raw scales, coefficients flat."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from benchmarks.posteriors.base import (
    HALF_LOG_2PI,
    Posterior,
    columns,
    design,
    dummies,
    matvec,
    posterior,
)

tfb = tfp.bijectors

DIABETES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


def regression(
    about: str, X: np.ndarray, y: np.ndarray, dtype: tf.DType = tf.float32
) -> Posterior:
    """Return y ~ N(Xβ, σ²) with β flat and σ ~ Exponential(1/sd(y))."""
    rate = 1.0 / y.std()

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        z = (dataset["y"] - matvec(dataset, params["beta"])) / params["sigma"]
        return -0.5 * z**2 - tf.math.log(params["sigma"]) - HALF_LOG_2PI

    def log_prior(params: Mapping) -> tf.Tensor:
        return -rate * params["sigma"]

    return Posterior(
        about,
        {"X": X, "y": y},
        {"beta": np.zeros(X.shape[1]), "sigma": 1.0},
        log_lik,
        log_prior,
        {"sigma": tfb.Exp()},
        dtype,
    )


@posterior
def diabetes_linear() -> Posterior:
    data = columns("diabetes")
    return regression("disease progression", design(data, DIABETES), data["target"])


@posterior
def diabetes_laplace() -> Posterior:
    """A Laplace prior on the coefficients of standardised features."""
    data = columns("diabetes")
    X = design(data, DIABETES)
    plain = regression("disease progression, Laplace prior", X, data["target"])
    scale = 10.0 / X[:, 1:].std(0)

    def log_prior(params: Mapping) -> tf.Tensor:
        sizes = tf.abs(params["beta"][1:]) / tf.cast(scale, params["beta"].dtype)
        return plain.log_prior(params) - tf.reduce_sum(sizes)

    return Posterior(
        plain.about,
        plain.dataset,
        plain.params,
        plain.log_lik,
        log_prior,
        plain.bijectors,
    )


@posterior
def stackloss_linear() -> Posterior:
    data = columns("stackloss")
    X = design(data, ("AIRFLOW", "WATERTEMP", "ACIDCONC"))
    return regression("stack loss", X, data["STACKLOSS"])


@posterior
def longley_linear() -> Posterior:
    """The most ill-conditioned regression there is: 16 rows, the coefficients flat."""
    data = columns("longley")
    X = design(data, ("GNPDEFL", "GNP", "UNEMP", "ARMED", "POP", "YEAR"))
    return regression("employment, in float64", X, data["TOTEMP"], tf.float64)


@posterior
def statecrime_linear() -> Posterior:
    data = columns("statecrime")
    X = design(data, ("urban", "poverty", "hs_grad", "single", "white"))
    return regression("murders", X, data["murder"])


@posterior
def ccard_linear() -> Posterior:
    data = columns("ccard")
    X = design(data, ("AGE", "INCOME", "INCOMESQ", "OWNRENT"))
    return regression("credit card expenses", X, data["AVGEXP"])


@posterior
def copper_linear() -> Posterior:
    data = columns("copper")
    names = ("COPPERPRICE", "INCOMEINDEX", "ALUMPRICE", "INVENTORYINDEX", "TIME")
    return regression(
        "copper consumption", design(data, names), data["WORLDCONSUMPTION"]
    )


@posterior
def wine_linear() -> Posterior:
    data = columns("wine")
    names = [name for name in data if name not in ("alcohol", "target")]
    return regression(
        "alcohol by twelve properties", design(data, names), data["alcohol"]
    )


@posterior
def iris_linear() -> Posterior:
    data = columns("iris")
    names = [name for name in data if name.startswith(("sepal", "petal_length"))]
    X = np.column_stack([design(data, names), dummies(data["target"])])
    return regression("petal width by length and species", X, data["petal_width_(cm)"])


@posterior
def inflation_autoregression() -> Posterior:
    data = columns("macrodata")
    y = data["infl"]
    X = np.column_stack([np.ones(len(y) - 2), y[1:-1], y[:-2], data["unemp"][1:-1]])
    return regression("inflation by its own past and unemployment", X, y[2:])


@posterior
def engel_spread() -> Posterior:
    """The spread grows with income: log σ = γ₁ + γ₂ log income."""
    data = columns("engel")
    income = data["income"]
    dataset = {"income": income, "log_income": np.log(income), "y": data["foodexp"]}

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        mean = params["beta"][0] + params["beta"][1] * dataset["income"]
        log_sd = params["gamma"][0] + params["gamma"][1] * dataset["log_income"]
        return (
            -0.5 * ((dataset["y"] - mean) * tf.exp(-log_sd)) ** 2
            - log_sd
            - HALF_LOG_2PI
        )

    about = "food expenses, spread grows with income"
    return Posterior(
        about, dataset, {"beta": np.zeros(2), "gamma": np.zeros(2)}, log_lik
    )
