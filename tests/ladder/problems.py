"""The models: as a user writes them, and their gradients in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

Array = np.ndarray
Shapes = dict[str, tuple[int, ...]]
SHAPES: dict[int, Shapes] = {
    1: {"theta": ()},
    3: {"beta": (2,), "bias": ()},
    4: {"first": (2,), "second": (2,)},
    10: {"weights": (2, 3), "offsets": (4,)},
}
"""Named parameters for each dimension."""


@dataclass(frozen=True)
class Problem:
    """A model as a user writes it, its data, and where a chain starts.

    Attributes:
        log_lik: the log-likelihood.
        log_prior: the log-prior.
        dataset: the data.
        shapes: the parameters.
        start: where chains start, flat.
        gradients: the gradients of the observations at a flat position, (N, d), in NumPy.
        prior_gradient: the gradient of the log-prior at a flat position, in NumPy.
    """

    log_lik: Callable[..., tf.Tensor]
    log_prior: Callable[..., tf.Tensor]
    dataset: dict[str, Array]
    shapes: Shapes
    start: Array
    gradients: Callable[[Array], Array]
    prior_gradient: Callable[[Array], Array]

    @property
    def size(self) -> int:
        """N, the number of observations."""
        return len(next(iter(self.dataset.values())))

    @property
    def dimension(self) -> int:
        """The number of coordinates, d."""
        return self.start.size

    def gradient(self, position: Array) -> Array:
        """Return the gradient of the log posterior over the whole dataset."""
        return self.prior_gradient(position) + self.gradients(position).sum(0)

    def split(self, flat: Array) -> dict[str, Array]:
        """Return the named parameters at a flat position."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])[:-1]
        parts = np.split(flat, ends)
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def spread(self, values: Mapping[str, float] | float) -> Array:
        """Return one value per coordinate of a constant that may be given per parameter."""
        if not isinstance(values, Mapping):
            return np.full(self.dimension, float(values))
        return np.concatenate(
            [
                np.full(int(np.prod(shape)), values[name])
                for name, shape in self.shapes.items()
            ]
        )

    def blocks(self) -> list[slice]:
        """Return the places of the named parameters in a flat position."""
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes.values())])
        return [slice(a, b) for a, b in pairwise(ends)]


@dataclass(frozen=True)
class LinearProblem(Problem):
    """A model whose log posterior is quadratic: observation i has gradient h_i − K_i θ.

    Attributes:
        h: (N, d).
        K: (N, d, d).
        prior_precision: Λ, (d, d).
        prior_mean: (d,).
    """

    h: Array
    K: Array
    prior_precision: Array
    prior_mean: Array

    @property
    def precision(self) -> Array:
        """H, the precision of the posterior."""
        return self.prior_precision + self.K.sum(0)

    @property
    def covariance(self) -> Array:
        """The covariance of the posterior."""
        return np.linalg.inv(self.precision)

    @property
    def mean(self) -> Array:
        """The mean of the posterior."""
        return self.covariance @ (
            self.prior_precision @ self.prior_mean + self.h.sum(0)
        )


def flat(params: Mapping[str, Any], leading: int = 0) -> Any:
    """Return named parameters as vectors; tensors, or arrays with so many leading axes."""
    parts = list(params.values())
    if isinstance(parts[0], np.ndarray):
        return np.concatenate([p.reshape(*p.shape[:leading], -1) for p in parts], -1)
    return tf.concat([tf.reshape(part, [-1]) for part in parts], 0)


def _linear_problem(
    log_lik: Callable[..., tf.Tensor],
    dataset: dict[str, Array],
    h: Array,
    K: Array,
    rng: np.random.Generator,
) -> LinearProblem:
    """Return a linear problem with a correlated prior, started one posterior sd off the mode."""
    d = h.shape[1]
    prior_precision = 2.0 * _positive_matrix(rng, d)
    prior_mean = rng.normal(size=d)

    def log_prior(params: Mapping[str, tf.Tensor]) -> tf.Tensor:
        gap = flat(params) - tf.constant(prior_mean, next(iter(params.values())).dtype)
        return -0.5 * tf.reduce_sum(
            gap * tf.linalg.matvec(_like(prior_precision, gap), gap)
        )

    covariance = np.linalg.inv(prior_precision + K.sum(0))
    mean = covariance @ (prior_precision @ prior_mean + h.sum(0))
    return LinearProblem(
        log_lik=log_lik,
        log_prior=log_prior,
        dataset=dataset,
        shapes=SHAPES[d],
        start=mean + np.sqrt(np.diag(covariance)),
        gradients=lambda position: h - K @ position,
        prior_gradient=lambda position: prior_precision @ (prior_mean - position),
        h=h,
        K=K,
        prior_precision=prior_precision,
        prior_mean=prior_mean,
    )


def _positive_matrix(rng: np.random.Generator, d: int) -> Array:
    """Return a random positive definite matrix with eigenvalues from 0.6 to 1.6."""
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    matrix = basis @ np.diag(np.linspace(0.6, 1.6, d)) @ basis.T
    return (matrix + matrix.T) / 2


def _like(matrix: Array, tensor: tf.Tensor) -> tf.Tensor:
    return tf.constant(matrix, tensor.dtype)


def gaussian(d: int, N: int, *, isotropic_noise: bool = False) -> LinearProblem:
    """Return x_i ~ N(θ, Σ) with Σ known: minibatch noise that does not depend on θ.

    With ``isotropic_noise`` the per-observation gradients have unit sample covariance, as a
    thermostat needs that is shared by several coordinates.
    """
    rng = np.random.default_rng([d, N])
    sigma = _positive_matrix(rng, d)
    inverse = np.linalg.inv(sigma)
    x = rng.normal(size=(N, d))
    if isotropic_noise:
        x -= x.mean(0)
        root = np.linalg.cholesky(np.atleast_2d(np.cov(x.T)))
        x = x @ np.linalg.inv(root).T @ sigma
    x += rng.normal(size=d)

    def log_lik(
        params: Mapping[str, tf.Tensor], data: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        gap = data["x"] - flat(params)
        return -0.5 * tf.reduce_sum(gap * (gap @ _like(inverse, gap)))

    return _linear_problem(
        log_lik, {"x": x}, x @ inverse, np.tile(inverse, (N, 1, 1)), rng
    )


def regression(d: int, N: int) -> LinearProblem:
    """Return y_i ~ N(x_i θ, 1): minibatch noise that grows with the distance to the center."""
    rng = np.random.default_rng([d, N, 1])
    x = rng.normal(size=(N, d)) * rng.uniform(0.3, 1.7, size=(N, 1))
    y = x @ rng.normal(size=d) + rng.normal(size=N)

    def log_lik(
        params: Mapping[str, tf.Tensor], data: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        gap = data["y"] - tf.linalg.matvec(data["x"], flat(params))
        return -0.5 * tf.reduce_sum(gap**2)

    K = x[:, :, None] * x[:, None, :]
    return _linear_problem(log_lik, {"x": x, "y": y}, x * y[:, None], K, rng)


def logistic(d: int, N: int) -> Problem:
    """Return a logistic regression with a standard normal prior: gradients not linear in θ."""
    rng = np.random.default_rng([d, N, 2])
    x = rng.normal(size=(N, d))
    y = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-x.sum(1)))).astype(float)

    def log_lik(
        params: Mapping[str, tf.Tensor], data: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        logits = tf.linalg.matvec(data["x"], flat(params))
        return tf.reduce_sum(data["y"] * logits - tf.math.softplus(logits))

    def gradients(position: Array) -> Array:
        return (y - 1.0 / (1.0 + np.exp(-x @ position)))[:, None] * x

    return Problem(
        log_lik=log_lik,
        log_prior=lambda params: -0.5 * tf.reduce_sum(flat(params) ** 2),
        dataset={"x": x, "y": y},
        shapes=SHAPES[d],
        start=rng.normal(size=d),
        gradients=gradients,
        prior_gradient=lambda position: -position,
    )
