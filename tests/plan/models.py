"""Regressions as a user writes them, and what the tuning is handed of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.reading import read_dataset
from sgmcmc.model.geometry import Bijected, Space
from sgmcmc.model.target import Target
from sgmcmc.plan.objective import Objective

Array = np.ndarray
Tensors = Mapping[str, tf.Tensor]


def make(
    log_lik: Callable[..., tf.Tensor],
    dataset: dict[str, Array],
    shapes: dict[str, tuple[int, ...]],
    log_prior: Callable[..., Any] | None = None,
    bijectors: Mapping[str, Any] | None = None,
    dtype: tf.DType = tf.float32,
) -> tuple[Target, Data]:
    """Return target and data as a sampler makes them."""
    geometries = {
        name: Bijected(b, shapes[name]) for name, b in (bijectors or {}).items()
    }
    target = Target(log_lik, log_prior, Space(shapes, geometries), dtype)
    return target, read_dataset(dataset, dtype)


def objective(*args: Any, rows: Array | None = None, **given: Any) -> Objective:
    """Return the log posterior of what :func:`make` makes."""
    return Objective(*make(*args, **given), rows)


def logistic_terms(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the terms of a logistic regression."""
    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return dataset["y"] * logits - tf.math.softplus(logits)


def logistic_sum(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return their sum."""
    return tf.reduce_sum(logistic_terms(params, dataset))


def gaussian_prior(sd: float) -> Callable[[Tensors], tf.Tensor]:
    """Return the log density of N(0, sd²), for every coordinate."""
    return lambda params: (
        -0.5 * sum(tf.reduce_sum(p**2) for p in params.values()) / sd**2
    )


def laplace_prior(b: float) -> Callable[[Tensors], tf.Tensor]:
    """Return the log density of the Laplace law of scale b, for every coordinate."""
    return lambda params: -sum(tf.reduce_sum(tf.abs(p)) for p in params.values()) / b


def logistic_data(X: Array, beta: Array, seed: int = 1) -> dict[str, Array]:
    """Return a dataset with labels drawn from the model."""
    chances = 1 / (1 + np.exp(-X @ beta))
    y = (np.random.default_rng(seed).random(len(X)) < chances).astype(float)
    return {"X": X, "y": y}


def weights(X: Array, beta: Array) -> Array:
    """Return q(1 − q) of every row."""
    q = 1 / (1 + np.exp(-X @ beta))
    return q * (1 - q)
