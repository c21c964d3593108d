"""An exact chain for counts whose log rate is a random walk.

With Q(τ) the precision of the walk's levels, W and s the information and the score of the data at
their mode ŵ, and L Lᵀ = Q(τ) + W, the chain moves

    v = Lᵀ (level − (Q + W)⁻¹ (s + W ŵ)),

which is near N(0, I) whatever τ is: v by Hamiltonian moves, log τ given v by slice sampling. Both
leave the posterior invariant. L has two diagonals, so that a gradient costs O(T).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.linalg.lapack import dtbtrs

from benchmarks.large.base import Large
from benchmarks.large.gibbs import by_slice, side_by_side

CHAINS, MOVES, BURN_IN = 4, 3000, 200
ANGLE, STEPS = np.pi / 2, 10
FIRST = 3.0
"""SD of the first level."""


def walk(posterior: Large) -> dict[str, np.ndarray]:
    """Return draws of level and τ."""
    y, time = (np.asarray(posterior.dataset[name]) for name in ("y", "time"))
    T = int(time.max()) + 1
    data = _Counts(np.bincount(time, y, T), np.bincount(time, minlength=T))
    chains = [_chain(data, np.random.default_rng([20261125, c])) for c in range(CHAINS)]
    return side_by_side(chains)


class _Counts:
    """The model: sums of counts and numbers of rows at each time."""

    def __init__(self, sums: np.ndarray, rows: np.ndarray) -> None:
        self.sums, self.rows = sums, rows
        level = np.log((sums + 0.5) / rows)
        for _ in range(
            50
        ):  # Newton steps at a guess of τ: any value keeps the chain exact
            whole = self.precision(0.05)
            whole[0] += rows * np.exp(level)
            level = cho_solve_banded(
                (cholesky_banded(whole, lower=True), True),
                sums - rows * np.exp(level) * (1.0 - level),
            )
        self.information = rows * np.exp(level)
        self.score = sums - self.information + self.information * level

    def precision(self, tau: float) -> np.ndarray:
        """Return Q(τ): its diagonal and the one below."""
        found = np.zeros((2, len(self.rows)))
        found[0] = 2.0 / tau**2
        found[0, -1] = 1.0 / tau**2
        found[0, 0] = 1.0 / tau**2 + 1.0 / FIRST**2
        found[1, :-1] = -1.0 / tau**2
        return found

    def center(self, tau: float) -> tuple[np.ndarray, np.ndarray]:
        """Return L and the center of the levels given τ."""
        whole = self.precision(tau)
        whole[0] += self.information
        root = cholesky_banded(whole, lower=True)
        return root, cho_solve_banded((root, True), self.score)

    def log_density(self, level: np.ndarray, tau: float) -> float:
        """Return log p(level, log τ | y)."""
        steps = np.diff(level) / tau
        return float(
            self.sums @ level - self.rows @ np.exp(level) - 0.5 * steps @ steps
            - (len(level) - 1) * np.log(tau) - 0.5 * (level[0] / FIRST) ** 2
            - 10.0 * tau + np.log(tau)
        )  # fmt: skip

    def slope(self, level: np.ndarray, tau: float) -> np.ndarray:
        """Return its gradient in the levels."""
        pull = self.sums - self.rows * np.exp(level)
        steps = np.diff(level) / tau**2
        pull[0] -= level[0] / FIRST**2
        pull[1:] -= steps
        pull[:-1] += steps
        return pull


def _solved(root: np.ndarray, v: np.ndarray, transposed: bool) -> np.ndarray:
    return dtbtrs(root, v, uplo="L", trans="T" if transposed else "N")[0]


def _chain(data: _Counts, rng: np.random.Generator) -> dict[str, np.ndarray]:
    tau, v = 0.05, rng.standard_normal(len(data.rows))
    root, center = data.center(tau)
    levels, taus = [], []
    for move in range(BURN_IN + MOVES):
        v = _moved(data, v, tau, root, center, rng)

        def of_tau(x: float, v: np.ndarray = v) -> float:
            root, center = data.center(np.exp(x))
            level = center + _solved(root, v, True)
            return data.log_density(level, np.exp(x)) - float(np.log(root[0]).sum())

        tau = float(np.exp(by_slice(of_tau, np.log(tau), 0.3, rng)))
        root, center = data.center(tau)
        if move >= BURN_IN:
            levels.append((center + _solved(root, v, True)).astype(np.float32))
            taus.append(tau)
    return {"level": np.asarray(levels), "tau": np.asarray(taus)}


def _moved(
    data: _Counts,
    v: np.ndarray,
    tau: float,
    root: np.ndarray,
    center: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return v after a Hamiltonian move."""
    step = ANGLE / STEPS * rng.uniform(0.8, 1.2)

    def at(v: np.ndarray) -> tuple[float, np.ndarray]:
        level = center + _solved(root, v, True)
        return data.log_density(level, tau), _solved(
            root, data.slope(level, tau), False
        )

    momentum = rng.standard_normal(len(v))
    value, pull = at(v)
    before, new = value - 0.5 * momentum @ momentum, v
    for _ in range(STEPS):
        momentum = momentum + step / 2 * pull
        new = new + step * momentum
        value, pull = at(new)
        momentum = momentum + step / 2 * pull
    after = value - 0.5 * momentum @ momentum
    return new if np.log(rng.random()) < after - before else v
