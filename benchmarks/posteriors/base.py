"""What a posterior of the collection is, its data, and priors that several have."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import environments

ENVIRONMENT = "statistics"
HALF_LOG_2PI = 0.9189385332046727


@dataclass(frozen=True)
class Posterior:
    """A model with its data and a start, as a user would write them.

    Attributes:
        about: the model in a few words.
        dataset: arrays with one row for each observation.
        params: the start, at 0 and 1.
        log_lik: log-likelihood, one term for each observation.
        log_prior: log-prior.
        bijectors: by parameter.
        dtype: of the chain.
        like: the name of another posterior whose draws give those of this one, and how: the
            reference is its.
    """

    about: str
    dataset: Mapping[str, np.ndarray]
    params: Mapping[str, Any]
    log_lik: Callable[..., tf.Tensor]
    log_prior: Callable[..., tf.Tensor] | None = None
    bijectors: Mapping[str, Any] = field(default_factory=dict)
    dtype: tf.DType = tf.float32
    like: (
        tuple[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] | None
    ) = None

    @property
    def rows(self) -> int:
        """The number of observations."""
        return len(next(iter(self.dataset.values())))


POSTERIORS: dict[str, Callable[[], Posterior]] = {}
"""Functions that make the posteriors, by name; `families` fills it."""


def posterior(make: Callable[[], Posterior]) -> Callable[[], Posterior]:
    """Enter a function in the collection, under its own name."""
    POSTERIORS[make.__name__.replace("_", "-")] = make
    return make


@cache
def columns(name: str) -> dict[str, np.ndarray]:
    """Return the columns of a dataset that scikit-learn or statsmodels ships."""
    python = environments.interpreter(ENVIRONMENT)
    folder = environments.FOLDER / ENVIRONMENT / "data"
    if not (folder / f"{name}.npz").exists():
        folder.mkdir(exist_ok=True)
        script = environments.HERE / "posteriors" / "extract.py"
        subprocess.run([str(python), str(script), str(folder)], check=True)
    with np.load(folder / f"{name}.npz") as arrays:
        return dict(arrays)


def design(data: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """Return a design matrix on raw scales, an intercept first."""
    return np.column_stack(
        [np.ones(len(data[names[0]])), *(data[name] for name in names)]
    )


def dummies(codes: np.ndarray) -> np.ndarray:
    """Return an indicator for each value but the first."""
    values = np.unique(codes)[1:]
    return (codes[:, np.newaxis] == values).astype(np.float64)


def weak_scales(X: np.ndarray) -> np.ndarray:
    """Return SDs of weak priors where there is a link: 100 for the intercept, else 2.5/sd."""
    return np.concatenate([[100.0], 2.5 / X[:, 1:].std(0)])


def normal(x: tf.Tensor, scale: Any) -> tf.Tensor:
    """Return the log density of N(0, scale²), summed, but for a constant."""
    return -0.5 * tf.reduce_sum((x / tf.cast(scale, x.dtype)) ** 2)


def matvec(dataset: Mapping[str, tf.Tensor], beta: tf.Tensor) -> tf.Tensor:
    """Return the linear predictor."""
    return tf.linalg.matvec(dataset["X"], beta)
