"""Hierarchical models: eight schools, eight cities, and random intercepts."""

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
    matvec,
    normal,
    posterior,
)
from benchmarks.posteriors.choices import FAIR

tfb = tfp.bijectors

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def _cauchy(x: tf.Tensor, scale: float) -> tf.Tensor:
    return -tf.math.log1p((x / scale) ** 2)


def _of(values: tf.Tensor, group: tf.Tensor) -> tf.Tensor:
    """Return the value of each row's group; columns of numbers come as floats."""
    return tf.gather(values, tf.cast(group, tf.int32))


def _groups(codes: np.ndarray) -> tuple[np.ndarray, int]:
    values, index = np.unique(codes, return_inverse=True)
    return index.astype(np.int32), len(values)


def _schools(centered: bool) -> Posterior:
    dataset = {"y": EFFECTS, "sd": ERRORS, "school": np.arange(8, dtype=np.int32)}

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        effect = _of(params["effect"], dataset["school"])
        mean = effect if centered else params["mu"] + params["tau"] * effect
        return -0.5 * ((dataset["y"] - mean) / dataset["sd"]) ** 2

    def log_prior(params: Mapping) -> tf.Tensor:
        value = normal(params["mu"], 5.0) + _cauchy(params["tau"], 5.0)
        if centered:
            away = (params["effect"] - params["mu"]) / params["tau"]
            return value + normal(away, 1.0) - 8.0 * tf.math.log(params["tau"])
        return value + normal(params["effect"], 1.0)

    start = {"mu": 0.0, "tau": 1.0, "effect": np.zeros(8)}
    about = f"eight schools, {'' if centered else 'not '}centered"
    return Posterior(
        about,
        dataset,
        start,
        log_lik,
        log_prior,
        {"tau": tfb.Exp()},
        like=("schools-not-centered", _center) if centered else None,
    )


def _center(params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return draws of the centered form."""
    mu, tau = params["mu"][..., np.newaxis], params["tau"][..., np.newaxis]
    return {**params, "effect": mu + tau * params["effect"]}


@posterior
def schools_not_centered() -> Posterior:
    return _schools(centered=False)


@posterior
def schools_centered() -> Posterior:
    """A funnel without a mode: what may be asked is that the report says so."""
    return _schools(centered=True)


@posterior
def cities_smoking() -> Posterior:
    """Log odds ratios of eight cities around a common one, not centered."""
    data = columns("china_smoking")

    def rows(smoking: str) -> tuple[np.ndarray, np.ndarray]:
        return data[f"smoking_{smoking}_cancer_yes"], data[
            f"smoking_{smoking}_cancer_no"
        ]

    (yes1, no1), (yes0, no0) = rows("yes"), rows("no")
    dataset = {
        "ill": np.concatenate([yes1, yes0]),
        "well": np.concatenate([no1, no0]),
        "smokes": np.repeat([1.0, 0.0], 8),
        "city": np.tile(np.arange(8, dtype=np.int32), 2),
    }

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        ratio = params["mu"] + params["tau"] * _of(params["effect"], dataset["city"])
        eta = _of(params["alpha"], dataset["city"]) + ratio * dataset["smokes"]
        return -dataset["ill"] * tf.nn.softplus(-eta) - dataset[
            "well"
        ] * tf.nn.softplus(eta)

    def log_prior(params: Mapping) -> tf.Tensor:
        return (
            normal(params["mu"], 10.0)
            + normal(params["tau"], 1.0)
            + normal(params["effect"], 1.0)
            + normal(params["alpha"], 10.0)
        )

    start = {"mu": 0.0, "tau": 1.0, "effect": np.zeros(8), "alpha": np.zeros(8)}
    about = "smoking and cancer in eight cities"
    return Posterior(about, dataset, start, log_lik, log_prior, {"tau": tfb.Exp()})


def _firms(centered: bool) -> Posterior:
    data = columns("grunfeld")
    firm, firms = _groups(data["firm"])
    dataset = {
        "X": design(data, ("value", "capital"))[:, 1:],
        "firm": firm,
        "y": data["invest"],
    }

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        own = _of(params["effect"], dataset["firm"])
        own = own if centered else params["mu"] + params["tau"] * own
        z = (dataset["y"] - own - matvec(dataset, params["beta"])) / params["sigma"]
        return -0.5 * z**2 - tf.math.log(params["sigma"]) - HALF_LOG_2PI

    def log_prior(params: Mapping) -> tf.Tensor:
        value = normal(params["mu"], 500.0) - (params["tau"] + params["sigma"]) / 100.0
        if centered:
            away = (params["effect"] - params["mu"]) / params["tau"]
            return value + normal(away, 1.0) - firms * tf.math.log(params["tau"])
        return value + normal(params["effect"], 1.0)

    start = {
        "mu": 0.0,
        "tau": 1.0,
        "effect": np.zeros(firms),
        "beta": np.zeros(2),
        "sigma": 1.0,
    }
    return Posterior(
        f"investments, random intercepts of 11 firms, {'' if centered else 'not '}centered",
        dataset,
        start,
        log_lik,
        log_prior,
        {"tau": tfb.Exp(), "sigma": tfb.Exp()},
        like=("firms-not-centered", _center) if centered else None,
    )


@posterior
def firms_not_centered() -> Posterior:
    return _firms(centered=False)


@posterior
def firms_centered() -> Posterior:
    """The data know each firm well; the density rises without bound as τ goes to 0 all the same."""
    return _firms(centered=True)


def _occupations(centered: bool) -> Posterior:
    data = columns("fair")
    job, jobs = _groups(data["occupation"])
    X = design(data, FAIR[:-2])
    scales = np.concatenate([[100.0], 2.5 / X[:, 1:].std(0)])
    dataset = {"X": X, "job": job, "y": 1.0 * (data["affairs"] > 0)}

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        own = _of(params["effect"], dataset["job"])
        eta = matvec(dataset, params["beta"]) + (
            own if centered else params["tau"] * own
        )
        return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], eta)

    def log_prior(params: Mapping) -> tf.Tensor:
        value = normal(params["beta"], scales) + normal(params["tau"], 1.0)
        if centered:
            away = params["effect"] / params["tau"]
            return value + normal(away, 1.0) - jobs * tf.math.log(params["tau"])
        return value + normal(params["effect"], 1.0)

    start = {"beta": np.zeros(X.shape[1]), "tau": 1.0, "effect": np.zeros(jobs)}
    return Posterior(
        "affairs or none, random intercepts of six occupations, "
        f"{'' if centered else 'not '}centered",
        dataset,
        start,
        log_lik,
        log_prior,
        {"tau": tfb.Exp()},
        like=None if centered else ("occupations-centered", _not_centered),
    )


def _not_centered(params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return draws of the form that is not centered."""
    return {**params, "effect": params["effect"] / params["tau"][..., np.newaxis]}


@posterior
def occupations_centered() -> Posterior:
    """The data know each occupation well: for this one the centered form is the easy one."""
    return _occupations(centered=True)


@posterior
def occupations_not_centered() -> Posterior:
    """Intercept, scale and effects of the occupations are tied by a curved ridge."""
    return _occupations(centered=False)


@posterior
def states_poisson() -> Posterior:
    """Executions with a random intercept for each of 17 states, not centered."""
    data = columns("cpunish")
    X = design(data, ("PERPOVERTY", "PERBLACK", "SOUTH"))
    scales = np.concatenate([[10.0], 2.5 / X[:, 1:].std(0)])
    dataset = {"X": X, "state": np.arange(17, dtype=np.int32), "y": data["EXECUTIONS"]}

    def log_lik(params: Mapping, dataset: Mapping) -> tf.Tensor:
        own = params["tau"] * _of(params["effect"], dataset["state"])
        eta = matvec(dataset, params["beta"]) + own
        return dataset["y"] * eta - tf.exp(eta)

    def log_prior(params: Mapping) -> tf.Tensor:
        return (
            normal(params["beta"], scales)
            + normal(params["tau"], 1.0)
            + normal(params["effect"], 1.0)
        )

    start = {"beta": np.zeros(X.shape[1]), "tau": 1.0, "effect": np.zeros(17)}
    about = "executions, random intercepts of 17 states"
    return Posterior(about, dataset, start, log_lik, log_prior, {"tau": tfb.Exp()})
