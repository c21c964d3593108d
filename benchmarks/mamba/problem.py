"""The logistic regression of Coullon, South & Nemeth (2023), and their scores; NumPy alone."""

from __future__ import annotations

import numpy as np

PRIOR_VARIANCE = 10.0
ROWS = 20_000
"""Rows in a piece of a sum over all of them."""


def make(N: int, d: int = 10, seed: int = 42) -> tuple[np.ndarray, np.ndarray]:
    """Return covariates with correlations u^|i−j|, u in (−0.4, 0.4), and zeros and ones."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=d) * np.sqrt(PRIOR_VARIANCE)
    lags = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    X = rng.normal(size=(N, d)) @ np.linalg.cholesky(rng.uniform(-0.4, 0.4) ** lags)
    y = rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-X @ theta))
    return X.astype(np.float32), y.astype(np.float32)


def gradients(X: np.ndarray, y: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return ∇ log p(θ | x) at each draw, over all rows."""
    total = -draws / PRIOR_VARIANCE
    for k in range(0, len(X), ROWS):
        rows = X[k : k + ROWS]
        p = 1.0 / (1.0 + np.exp(-(rows @ draws.T.astype(np.float32))))
        total = total + ((y[k : k + ROWS, None] - p).T @ rows).astype(float)
    return total


def laplace(
    X: np.ndarray, y: np.ndarray, steps: int = 30
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode and the inverse of the negative Hessian there, by Newton's method."""
    theta, prior = np.zeros(X.shape[1]), np.eye(X.shape[1]) / PRIOR_VARIANCE
    for _ in range(steps):
        precision = prior.copy()
        for k in range(0, len(X), ROWS):
            rows = X[k : k + ROWS].astype(float)
            p = 1.0 / (1.0 + np.exp(-rows @ theta))
            precision += (rows * (p * (1.0 - p))[:, None]).T @ rows
        move = np.linalg.solve(precision, gradients(X, y, theta[None])[0])
        theta = theta + move
        if np.abs(move).max() < 1e-6:
            break
    return theta, np.linalg.inv(precision)


def discrepancy(theta: np.ndarray, scores: np.ndarray) -> float:
    """Return the kernel Stein discrepancy with (1 + |x − y|²)^(−1/2), unwhitened, as published."""
    gaps = theta[:, None] - theta[None]
    square = (gaps**2).sum(-1)
    base = 1.0 + square
    inner = scores @ scores.T
    across = (gaps * (scores[:, None] - scores[None])).sum(-1)
    terms = (
        inner * base**-0.5
        + (across + theta.shape[1]) * base**-1.5
        - 3.0 * square * base**-2.5
    )
    return float(np.sqrt(terms.sum()) / len(theta))


def thinned(draws: np.ndarray, most: int = 1000) -> np.ndarray:
    """Return so many draws, evenly spaced."""
    return draws[np.linspace(0, len(draws) - 1, min(len(draws), most)).astype(int)]
