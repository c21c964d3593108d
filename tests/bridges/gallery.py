"""What a model of another library must satisfy, for the galleries of models."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.bridges.models import ConvertedModel

N = 60
F8 = tf.float64
RELATIVE = 1e-9
"""Of log densities in double precision, which are sums of about a hundred terms."""

# Columns of all galleries.
rng = np.random.default_rng(4)
x = rng.normal(size=N)
X = rng.normal(size=(N, 3))
y = rng.normal(size=N)
Y = rng.normal(size=(N, 3))
p = rng.uniform(0.05, 0.95, N)
positive = np.exp(0.5 * y)
counts = rng.poisson(2.0, N)
binary = rng.integers(0, 2, N)
kinds = rng.integers(0, 3, N)
g = rng.integers(0, 5, N)
h = rng.integers(0, 4, N)
t = np.sort(rng.integers(0, 6, N))
trials = rng.integers(3, 9, N)
hits = rng.binomial(trials, 0.4)
parts = rng.multinomial(6, [0.2, 0.3, 0.5], N)


def generator() -> np.random.Generator:
    """Return what drew the columns, as it was after them, for what a gallery has besides."""
    return copy.deepcopy(rng)


def positions(
    model: ConvertedModel, count: int = 2
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield random positions, unconstrained and constrained."""
    rng = np.random.default_rng(7)
    for k in range(count):
        free, params = {}, {}
        for name, start in model.params.items():
            bijector = model.bijectors.get(name)
            value = tf.constant(start)
            u = value if bijector is None else bijector.inverse(tf.identity(value))
            free[name] = u + 0.3 * (k + 1) * tf.constant(rng.normal(size=u.shape), F8)
            params[name] = (
                free[name] if bijector is None else bijector.forward(free[name])
            )
        yield free, params


def log_jacobian(model: ConvertedModel, free: dict[str, Any]) -> float:
    """Return the log determinant of the map from unconstrained parameters."""
    return sum(
        float(
            bijector.forward_log_det_jacobian(
                tf.identity(free[name]), free[name].shape.rank
            )
        )
        for name, bijector in model.bijectors.items()
    )


def assert_densities(
    model: ConvertedModel,
    theirs: Callable[[dict[str, Any], dict[str, Any]], float],
    jacobian: bool = True,
) -> None:
    """Assert that prior, terms of rows and Jacobian are the log density of the other library.

    Args:
        model: Model in double precision.
        theirs: Log density of unconstrained and constrained parameters.
        jacobian: Whether it has the Jacobian.
    """
    rng = np.random.default_rng(8)
    tensors = {
        name: tf.convert_to_tensor(values) for name, values in model.dataset.items()
    }
    for free, params in positions(model):
        terms = model.log_lik(params, tensors).numpy()
        assert terms.shape == (model.N,) and terms.dtype == np.float64
        total = float(model.log_prior(params)) + terms.sum()
        total += log_jacobian(model, free) if jacobian else 0.0
        expected = theirs(free, params)
        assert np.isfinite(expected)
        scale = np.abs(terms).sum() + abs(expected) + 1.0
        assert abs(total - expected) < RELATIVE * scale, (total, expected)
        rows = rng.integers(0, model.N, 7)
        part = {name: tf.gather(values, rows) for name, values in tensors.items()}
        np.testing.assert_allclose(
            model.log_lik(params, part), terms[rows], rtol=1e-8, atol=1e-8
        )
