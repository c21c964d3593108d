"""Nested and crossed groups of 5, 10 and 100 rows, and more: not centered and centered."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from benchmarks.large.base import Large, large

EXP = {"tau": tfp.bijectors.Exp()}
BETA = np.array([-0.5, 0.5, -0.3, 0.2, 0.8])


def normal(x: tf.Tensor, scale: float = 1.0) -> tf.Tensor:
    """Return the log density of N(0, scale²), summed, but for a constant."""
    return -0.5 * tf.reduce_sum((x / scale) ** 2)


def terms(
    family: str, y: tf.Tensor, eta: tf.Tensor, params: Mapping[str, Any]
) -> tf.Tensor:
    """Return the log-likelihood of each row."""
    if family == "logistic":
        return y * eta - tf.math.softplus(eta)
    if family == "Poisson":
        return y * eta - tf.exp(eta)
    return -0.5 * ((y - eta) / params["sigma"]) ** 2 - tf.math.log(params["sigma"])


def drawn(family: str, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return responses."""
    if family == "logistic":
        return (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(np.float32)
    if family == "Poisson":
        return rng.poisson(np.exp(eta)).astype(np.float32)
    return (eta + rng.normal(size=len(eta))).astype(np.float32)


def nested(family: str, groups: int, each: int, centered: bool, seed: int = 1) -> Large:
    """Return a regression with five coefficients and an effect for each group.

    Args:
        family: "logistic", "Poisson" or "normal".
        groups: Number of groups.
        each: Rows of each.
        centered: Whether the effects, and not their multiples of tau, are the parameters.
        seed: Seed of the data.
    """
    rng = np.random.default_rng(seed)
    N = groups * each
    group = np.repeat(np.arange(groups), each).astype(np.int32)
    X = rng.normal(size=(N, 5)).astype(np.float32)
    X[:, 0] = 1.0
    eta = X @ BETA + 0.8 * rng.normal(size=groups)[group]
    y = drawn(family, eta, rng)
    scaled = family == "normal"

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        effects = params["z"] if centered else params["tau"] * params["z"]
        eta = tf.linalg.matvec(data["X"], params["beta"]) + tf.gather(
            effects, data["group"]
        )
        return terms(family, data["y"], eta, params)

    def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
        value = normal(params["beta"], 2.0) - params["tau"]
        if scaled:
            value -= params["sigma"]
        if not centered:
            return value + normal(params["z"])
        return (
            value
            + normal(params["z"] / params["tau"])
            - groups * tf.math.log(params["tau"])
        )

    start: dict[str, Any] = {"beta": np.zeros(5), "tau": 1.0, "z": np.zeros(groups)}
    bijectors = dict(EXP)
    if scaled:
        start["sigma"], bijectors["sigma"] = 1.0, tfp.bijectors.Exp()
    form = "centered" if centered else "not centered"
    about = f"{family}, {groups} groups of {each}, {form}"
    dataset = {"X": X, "y": y, "group": tf.constant(group)}
    return Large(about, N, dataset, start, log_lik, log_prior, bijectors)


large("nested-normal-5")(lambda: nested("normal", 3000, 5, False))
large("nested-normal-5-centered")(lambda: nested("normal", 3000, 5, True))
large("nested-normal-100")(lambda: nested("normal", 1000, 100, False))
large("nested-normal-50-million")(lambda: nested("normal", 20_000, 50, False))
large("nested-logistic-10")(lambda: nested("logistic", 3000, 10, False))
large("nested-logistic-10-centered")(lambda: nested("logistic", 3000, 10, True))
large("nested-logistic-10-many")(lambda: nested("logistic", 30_000, 10, False))
large("nested-logistic-50-million")(lambda: nested("logistic", 20_000, 50, False))
large("nested-poisson-5")(lambda: nested("Poisson", 3000, 5, False))
large("nested-poisson-100-centered")(lambda: nested("Poisson", 600, 100, True))


def insteval(centered: bool) -> Large:
    """Return ratings of lecturers by students, both crossed effects."""
    folder = Path(os.environ.get("SGMCMC_DATA", "."))
    with open(folder / "insteval.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    s, d = (
        np.unique([int(row[name]) for row in rows], return_inverse=True)[1].astype(
            np.int32
        )
        for name in ("s", "d")
    )
    y = np.array([float(row["y"]) for row in rows], np.float32)
    sizes = {"s": int(s.max()) + 1, "d": int(d.max()) + 1}

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        mean = params["mu"]
        for name in sizes:
            effects = params[name] if centered else params[f"tau_{name}"] * params[name]
            mean += tf.gather(effects, data[name])
        return -0.5 * ((data["y"] - mean) / params["sigma"]) ** 2 - tf.math.log(
            params["sigma"]
        )

    def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
        value = normal(params["mu"] - 3.0, 10.0) - params["sigma"]
        for name, size in sizes.items():
            tau = params[f"tau_{name}"]
            value += normal(params[name] / tau if centered else params[name]) - tau
            if centered:
                value -= size * tf.math.log(tau)
        return value

    scales = ("sigma", "tau_s", "tau_d")
    start: dict[str, Any] = {name: np.zeros(size) for name, size in sizes.items()}
    start |= {"mu": 3.0, **dict.fromkeys(scales, 1.0)}
    form = "centered" if centered else "not centered"
    return Large(
        f"InstEval: crossed students and lecturers, {form}",
        len(y),
        {"y": y, "s": tf.constant(s), "d": tf.constant(d)},
        start,
        log_lik,
        log_prior,
        dict.fromkeys(scales, tfp.bijectors.Exp()),
    )


large("insteval")(lambda: insteval(False))
large("insteval-centered")(lambda: insteval(True))


@large("crossed-logistic")
def crossed() -> Large:
    """Return a logistic regression with 2000 and 500 crossed effects."""
    rng = np.random.default_rng(3)
    N, sizes = 40_000, {"a": 2000, "b": 500}
    columns = {
        name: rng.integers(0, size, N).astype(np.int32) for name, size in sizes.items()
    }
    eta = 0.3 + sum(
        scale * rng.normal(size=sizes[name])[columns[name]]
        for name, scale in (("a", 0.7), ("b", 0.5))
    )
    y = drawn("logistic", np.asarray(eta), rng)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        eta = params["mu"]
        for name in sizes:
            eta += params[f"tau_{name}"] * tf.gather(params[name], data[name])
        return terms("logistic", data["y"], eta, params)

    def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
        value = normal(params["mu"], 3.0)
        return value + tf.add_n([normal(params[n]) - params[f"tau_{n}"] for n in sizes])

    start: dict[str, Any] = {name: np.zeros(size) for name, size in sizes.items()}
    start |= {"mu": 0.0, "tau_a": 1.0, "tau_b": 1.0}
    dataset = {"y": y, **{name: tf.constant(a) for name, a in columns.items()}}
    bijectors = {f"tau_{name}": tfp.bijectors.Exp() for name in sizes}
    about = "logistic, 2000 and 500 crossed groups, not centered"
    return Large(about, N, dataset, start, log_lik, log_prior, bijectors)


@large("classes-in-schools")
def schools() -> Large:
    """Return a logistic regression with 3000 classes in 300 schools."""
    rng = np.random.default_rng(4)
    classes, schools, each = 3000, 300, 15
    N = classes * each
    klass = np.repeat(np.arange(classes), each).astype(np.int32)
    school = (klass // (classes // schools)).astype(np.int32)
    x = rng.normal(size=N).astype(np.float32)
    eta = (
        0.2
        + 0.5 * x
        + 0.6 * rng.normal(size=classes)[klass]
        + 0.9 * rng.normal(size=300)[school]
    )
    y = drawn("logistic", eta, rng)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        eta = params["mu"] + params["slope"] * data["x"]
        eta += params["tau_class"] * tf.gather(params["class"], data["class"])
        eta += params["tau_school"] * tf.gather(params["school"], data["school"])
        return terms("logistic", data["y"], eta, params)

    def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
        value = normal(params["mu"], 2.0) + normal(params["slope"], 2.0)
        value += normal(params["class"]) + normal(params["school"])
        return value - params["tau_class"] - params["tau_school"]

    start: dict[str, Any] = {
        "mu": 0.0,
        "slope": 0.0,
        "tau_class": 1.0,
        "tau_school": 1.0,
    }
    start |= {"class": np.zeros(classes), "school": np.zeros(schools)}
    dataset = {
        "y": y,
        "x": x,
        "class": tf.constant(klass),
        "school": tf.constant(school),
    }
    bijectors = dict.fromkeys(("tau_class", "tau_school"), tfp.bijectors.Exp())
    about = "logistic, 3000 classes of 15 in 300 schools"
    return Large(about, N, dataset, start, log_lik, log_prior, bijectors)


@large("slopes-poisson")
def slopes() -> Large:
    """Return a Poisson regression with an intercept and a slope for each of 1500 groups."""
    rng = np.random.default_rng(5)
    groups, each = 1500, 12
    N = groups * each
    group = np.repeat(np.arange(groups), each).astype(np.int32)
    x = rng.normal(size=N).astype(np.float32)
    effects = np.array([0.6, 0.3]) * rng.normal(size=(groups, 2))
    y = drawn("Poisson", 0.5 + 0.2 * x + effects[group, 0] + effects[group, 1] * x, rng)

    def log_lik(params: Mapping[str, Any], data: Mapping[str, Any]) -> tf.Tensor:
        own = params["beta"] + params["tau"] * tf.gather(params["z"], data["group"])
        return terms("Poisson", data["y"], own[:, 0] + own[:, 1] * data["x"], params)

    def log_prior(params: Mapping[str, Any]) -> tf.Tensor:
        value = normal(params["beta"], 2.0) + normal(params["z"])
        return value - tf.reduce_sum(params["tau"])

    start = {"beta": np.zeros(2), "tau": np.ones(2), "z": np.zeros((groups, 2))}
    dataset = {"y": y, "x": x, "group": tf.constant(group)}
    about = "Poisson, intercepts and slopes of 1500 groups of 12"
    return Large(about, N, dataset, start, log_lik, log_prior, dict(EXP))
