"""Hamiltonian Monte Carlo of a softmax regression, whitened by its whole information matrix.

With ŵ the mode and L Lᵀ the information there, v = Lᵀ (w − ŵ) is near N(0, I). All chains move
together, so that a step costs two triangular solves and two products with the images. Weights of
pixels that are dark in every image keep their prior and are drawn from it.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import logsumexp

from benchmarks.large.base import Large

CHAINS, MOVES, BURN_IN = 8, 250, 30
ANGLE, ACCEPTED = 1.5, 0.8


def softmax(posterior: Large) -> dict[str, np.ndarray]:
    """Return draws of W and b."""
    images, labels = (
        np.asarray(posterior.dataset[n], np.float64) for n in ("images", "labels")
    )
    lit = np.flatnonzero(images.any(0))
    model = _Softmax(np.column_stack([images[:, lit], np.ones(len(images))]), labels)
    drawn = _chains(model, np.random.default_rng(20261126))
    weights = drawn.reshape(*drawn.shape[:2], len(lit) + 1, labels.shape[1])
    W = np.random.default_rng(1).standard_normal(
        (*drawn.shape[:2], images.shape[1], 10)
    )
    W[:, :, lit] = weights[:, :, :-1]
    return {"W": W.astype(np.float32), "b": weights[:, :, -1].astype(np.float32)}


class _Softmax:
    """The log posterior of weights with prior N(0, 1), its mode and the root of its information."""

    def __init__(self, features: np.ndarray, labels: np.ndarray) -> None:
        self.features, self.labels = features, labels
        self.d, self.K = features.shape[1], labels.shape[1]
        found = minimize(
            self._down, np.zeros(self.d * self.K), jac=True, method="L-BFGS-B",
            options={"maxiter": 2000, "gtol": 1e-3, "maxcor": 30},
        )  # fmt: skip
        self.mode = found.x
        self.root = cholesky(self._information(), lower=True, overwrite_a=True)

    def _down(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = self.log_density(w[np.newaxis])
        return -float(value[0]), -slope[0]

    def log_density(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values and gradients at the weights of every chain, (chain, d K)."""
        chains = len(w)
        sides = w.reshape(chains, self.d, self.K).transpose(1, 0, 2).reshape(self.d, -1)
        scores = (self.features @ sides).reshape(-1, chains, self.K)
        whole = logsumexp(scores, 2, keepdims=True)
        value = np.einsum("nck,nk->c", scores, self.labels) - whole.sum((0, 2))
        left = self.labels[:, np.newaxis] - np.exp(scores - whole)
        slope = (self.features.T @ left.reshape(len(left), -1)).reshape(
            self.d, chains, self.K
        )
        slope = slope.transpose(1, 0, 2).reshape(chains, -1)
        return value - 0.5 * (w**2).sum(1), slope - w

    def _information(self) -> np.ndarray:
        scores = self.features @ self.mode.reshape(self.d, self.K)
        p = np.exp(scores - logsumexp(scores, 1, keepdims=True))
        found = np.zeros((self.d, self.K, self.d, self.K))
        for k in range(self.K):
            for m in range(k + 1):
                weight = p[:, k] * ((k == m) - p[:, m])
                part = self.features.T @ (weight[:, np.newaxis] * self.features)
                found[:, k, :, m] = found[:, m, :, k] = part
        found = found.reshape(self.d * self.K, -1)
        found.flat[:: len(found) + 1] += 1.0
        return found

    def at(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return weights, values and gradients in v, (chain, …)."""
        away = solve_triangular(self.root, v.T, lower=True, trans=1, check_finite=False)
        w = self.mode + away.T
        value, slope = self.log_density(w)
        return (
            w,
            value,
            solve_triangular(self.root, slope.T, lower=True, check_finite=False).T,
        )


def _chains(model: _Softmax, rng: np.random.Generator) -> np.ndarray:
    """Return draws of the weights, (chain, draw, d K)."""
    v = rng.standard_normal((CHAINS, model.d * model.K))
    w, value, slope = model.at(v)
    step, kept = 1.0 / v.shape[1] ** 0.25, []
    for move in range(BURN_IN + MOVES):
        steps = max(1, round(rng.uniform(0.8, 1.2) * ANGLE / step))
        momentum = rng.standard_normal(v.shape)
        before = value - 0.5 * (momentum**2).sum(1)
        new, pull = v, slope
        for _ in range(steps):
            momentum = momentum + step / 2 * pull
            new = new + step * momentum
            there, reached, pull = model.at(new)
            momentum = momentum + step / 2 * pull
        chance = np.exp(np.minimum(0.0, reached - 0.5 * (momentum**2).sum(1) - before))
        taken = rng.random(CHAINS) < chance
        v, slope, w = (
            np.where(taken[:, np.newaxis], one, other)
            for one, other in ((new, v), (pull, slope), (there, w))
        )
        value = np.where(taken, reached, value)
        if move < BURN_IN:
            step *= np.exp(0.3 * (chance.mean() - ACCEPTED))
        else:
            kept.append(w.astype(np.float32))
    return np.stack(kept, 1)
