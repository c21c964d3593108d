"""Stationary variances of linear chains, by the stages of their updates: independent and in order.

The stages are those of the tests (`tests/ladder/laws.py`), written apart from the package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from tests.ladder import Array, Case, Law, LinearProblem


class WeightedLaw(Law):
    """The law of a chain whose rows are drawn with given probabilities, stratified.

    Args:
        p: probabilities of the rows.
    """

    def __init__(
        self,
        problem: LinearProblem,
        case: Case,
        n: int,
        stepsize: Any,
        p: Array,
        **others: Any,
    ) -> None:
        self._p = p
        super().__init__(problem, case, n, stepsize, **others)

    def _new_gradient(
        self,
        problem: LinearProblem,
        case: Case,
        n: int,
        replace: bool,
        ddof: int | None,
    ) -> Array:
        d, size = self.d, 1 + 3 * self.d
        A = self.matrix({"g": {"θ": -problem.precision}})
        A[self.place("g"), 0] = problem.precision @ problem.mean
        constant = case.estimator.noisy(
            problem.h, problem.h - problem.K @ problem.start
        )
        terms = np.concatenate([constant[:, :, None], -problem.K], 2).reshape(
            problem.size, -1
        )
        spread = stratified_covariance(terms, self._p, n)
        noise = np.zeros((size,) * 4)
        g = self.place("g")
        noise[g, g, : 1 + d, : 1 + d] = spread.reshape((d, 1 + d) * 2).transpose(
            0, 2, 1, 3
        )
        return np.kron(A, A) + noise.reshape(size**2, size**2)


def stratified_covariance(terms: Array, p: Array, n: int) -> Array:
    """Return the covariance of Σ_k t_{i_k}/(n p_{i_k}), row i_k drawn from the k-th n-th of p."""
    ends = np.cumsum(p) / p.sum()
    starts = ends - p / p.sum()
    weighted = terms / (n * (p / p.sum()))[:, None]
    total = np.zeros((terms.shape[1],) * 2)
    for k in range(n):
        share = (
            np.clip(np.minimum(ends, (k + 1) / n) - np.maximum(starts, k / n), 0, None)
            * n
        )
        mean = share @ weighted
        total += weighted.T @ (share[:, None] * weighted) - np.outer(mean, mean)
    return total


def variance_in_order(
    problem: LinearProblem, case: Case, n: int, stepsize: float
) -> float:
    """Return the variance of a coordinate with reshuffled rows, the mean over an epoch.

    For noise that does not depend on the position, one coordinate, and epochs of whole iterations:
    the noises of an epoch have the covariance V (R δ − 1)/(R − 1).
    """
    assert case.law is not None and problem.dimension == 1
    law = Law(problem, case, n, stepsize)
    stages = case.law(law, problem.spread(stepsize), case.tuning, problem)
    R, count = problem.size // n, stages.count
    assert R * n == problem.size and R % count == 0
    H = float(problem.precision.item())
    V = problem.size * (problem.size - n) / n * float(np.var(problem.h, ddof=1))
    gradient = law.matrix({"g": {"θ": -problem.precision}})
    kept = slice(1, 4)  # θ, ν, ĝ, less their means

    def part(matrix: Array) -> Array:
        return matrix[kept, kept]

    assert H > 0
    move, close, new = part(stages.move.A), part(stages.close.A), part(gradient)
    F, e = close @ new @ move, close @ np.array([0.0, 0.0, 1.0])
    injected = close @ new @ part(stages.move.Q) @ new.T @ close.T
    refresh, drawn = part(stages.refresh.A), part(stages.refresh.Q)
    # The state after j steps of an epoch is linear in that at its start, and in the noises. The
    # first minibatch of an epoch makes the gradient that its first step begins with.
    state, noises, other, ends = np.eye(3), np.zeros((3, R)), np.zeros((3, 3)), []
    for j in range(R):
        noises[:, j] += e  # of the gradient that the step begins with
        if j % count == 0:
            state, noises = refresh @ state, refresh @ noises
            other = refresh @ other @ refresh.T + drawn
        state, noises = F @ state, F @ noises
        other = F @ other @ F.T + injected
        if (j + 1) % count == 0:
            ends.append((state, noises.copy(), other))
    covariance = V * (R * np.eye(R) - 1.0) / (R - 1)

    def added(noises: Array, other: Array) -> Array:
        return noises @ covariance @ noises.T + other

    start = solve_discrete_lyapunov(ends[-1][0], added(*ends[-1][1:]))
    every = [
        state @ start @ state.T + added(noises, other) for state, noises, other in ends
    ]
    return float(np.mean([each[0, 0] for each in every]))


def published_sghmc(
    share: float,
    friction: float,
    steps: int,
    noise: float,
    once: bool = False,
    moves_first: bool = True,
    refreshed: float = 1.0,
) -> float:
    """Return variance over posterior variance of SGHMC's published update, momentum drawn anew.

    A step is θ' = θ + v, v' = (1 − friction) v + ε ĝ(θ) + √(2 friction ε) η, with ĝ where θ was.

    Args:
        share: ε in posterior variances.
        friction: of a step.
        steps: of an iteration, between new momenta.
        noise: variance of the gradient in units of the posterior precision.
        once: one minibatch for all steps of an iteration.
        moves_first: θ moves by v; else by v', as in the R package.
        refreshed: variance of new momenta over ε.
    """
    sources = 2 + steps + (1 if once else steps)
    unit = np.eye(sources)
    theta, momentum = unit[0], np.sqrt(refreshed * share) * unit[1]
    for k in range(steps):
        gradient = -theta + np.sqrt(noise) * unit[2 + steps + (0 if once else k)]
        before = momentum
        injected = np.sqrt(2 * friction * share) * unit[2 + k]
        momentum = (1 - friction) * momentum + share * gradient + injected
        theta = theta + (before if moves_first else momentum)
    return float((theta[1:] ** 2).sum() / (1 - theta[0] ** 2))
