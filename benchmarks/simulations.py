"""The simulated data that all packages share, and where their chains start."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Arrays = dict[str, np.ndarray]

HIDDEN, CLASSES, PIXELS = 100, 10, 784
FEATURES = 54
USERS, ITEMS, RANK = 200, 100, 5


def simulate_logistic(
    N: int, rng: np.random.Generator, features: int = FEATURES
) -> tuple[Arrays, Arrays]:
    """Standard normal features; log-odds with a standard deviation of about two."""
    scale = 0.3 if features == FEATURES else 2.0 / features**0.5
    beta = rng.normal(0.0, scale, (features, 1)).astype(np.float32)
    bias = np.float32(0.2)
    X = rng.standard_normal((N, features), dtype=np.float32)
    y = rng.random(N, dtype=np.float32) < 1 / (1 + np.exp(-(bias + X @ beta)[:, 0]))
    return {"X": X, "y": y.astype(np.float32)}, {"bias": np.asarray(bias), "beta": beta}


def simulate_gaussian(N: int, rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Two standard normal columns; their mean is sought."""
    return {"x": rng.standard_normal((N, 2), dtype=np.float32)}, {
        "theta": np.zeros(2, np.float32)
    }


def simulate_network(N: int, rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Images like MNIST's, a fifth of the pixels lit, with labels drawn at random.

    Parameters: weights `B`, `A` and offsets `b`, `a` of the two layers, and the logarithms of
    the four precisions of their normal priors.
    """
    X = rng.random((N, PIXELS), dtype=np.float32)
    np.maximum(X - np.float32(0.8), 0, out=X)
    X *= 5
    y = np.zeros((N, CLASSES), np.float32)
    y[np.arange(N), rng.integers(CLASSES, size=N)] = 1
    params = {
        "A": rng.standard_normal((HIDDEN, CLASSES), dtype=np.float32),
        "B": rng.standard_normal((PIXELS, HIDDEN), dtype=np.float32),
        "a": rng.standard_normal(CLASSES, dtype=np.float32),
        "b": rng.standard_normal(HIDDEN, dtype=np.float32),
    }
    return {"X": X, "y": y}, params | {
        f"log_{k}": np.zeros((), np.float32) for k in params
    }


def simulate_wide(N: int, rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """A logistic regression with a thousand features."""
    return simulate_logistic(N, rng, 1000)


def simulate_poisson(N: int, rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Counts whose log rates have a standard deviation of about a half."""
    beta = rng.normal(0.0, 0.07, (FEATURES, 1)).astype(np.float32)
    bias = np.float32(0.5)
    X = rng.standard_normal((N, FEATURES), dtype=np.float32)
    y = rng.poisson(np.exp(bias + X @ beta)[:, 0])
    return {"X": X, "y": y.astype(np.float32)}, {"bias": np.asarray(bias), "beta": beta}


def simulate_factors(N: int, rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Ratings of items by users: products of five factors of either, with unit noise."""
    users, items = (
        rng.standard_normal((rows, RANK), dtype=np.float32) for rows in (USERS, ITEMS)
    )
    u, i = (rng.integers(0, rows, N, dtype=np.int32) for rows in (USERS, ITEMS))
    r = (users[u] * items[i]).sum(axis=1) + rng.standard_normal(N, dtype=np.float32)
    return {"i": i, "r": r, "u": u}, {"users": users, "items": items}


SIMULATIONS: dict[str, Callable[[int, np.random.Generator], tuple[Arrays, Arrays]]] = {
    "logistic": simulate_logistic,
    "ridge": simulate_logistic,
    "wide": simulate_wide,
    "poisson": simulate_poisson,
    "factors": simulate_factors,
    "gaussian": simulate_gaussian,
    "network": simulate_network,
}
"""What is simulated, by the name of the model."""
