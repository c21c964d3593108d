"""Gibbs sampling of linear models: nested and crossed effects, and the regularized horseshoe.

Scales are drawn with the coefficients or effects integrated out, as far as that is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, log, log1p, sqrt
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from benchmarks.large.base import Large

CHAINS, SWEEPS, BURN_IN = 4, 4000, 200
SWEEPS_OF_HORSESHOE = 2500
SLAB = 2.0
"""Width of the horseshoe's slab."""


def collapsed_gibbs(posterior: Large, centered: bool) -> dict[str, np.ndarray]:
    """Return draws of the model of InstEval.

    The intercept and one factor's effects are drawn together given the other's; the scales by
    slice sampling given the sums of squares.

    Args:
        posterior: Posterior.
        centered: Whether effects, and not their multiples of a scale, are the parameters.
    """
    y = np.asarray(posterior.dataset["y"], float)
    columns = {name: np.asarray(posterior.dataset[name]) for name in ("s", "d")}
    chains = [
        _chain(y, columns, np.random.default_rng([20261124, c])) for c in range(CHAINS)
    ]
    draws = side_by_side(chains)
    if not centered:
        for name in columns:
            draws[name] = draws[name] / draws[f"tau_{name}"][..., np.newaxis]
    return draws


def _chain(
    y: np.ndarray, columns: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    sizes = {name: int(column.max()) + 1 for name, column in columns.items()}
    counts = {
        name: np.bincount(column, minlength=sizes[name])
        for name, column in columns.items()
    }
    effects = {name: np.zeros(size) for name, size in sizes.items()}
    mu, sigma = float(y.mean()), float(y.std())
    tau = dict.fromkeys(sizes, 0.5)
    kept: dict[str, list] = {n: [] for n in ("mu", "sigma", "tau_s", "tau_d", "s", "d")}
    for sweep in range(BURN_IN + SWEEPS):
        for name, column in columns.items():
            (other,) = set(columns) - {name}
            rest = y - effects[other][columns[other]]
            mu, effects[name] = _drawn(
                rest, column, counts[name], sigma, tau[name], rng, sizes[name]
            )
            tau[name] = _scale(
                tau[name], sizes[name], float((effects[name] ** 2).sum()), rng
            )
        left = y - mu - sum(effects[name][column] for name, column in columns.items())
        sigma = _scale(sigma, len(y), float((left**2).sum()), rng)
        if sweep >= BURN_IN:
            for name, value in {
                "mu": mu, "sigma": sigma, "tau_s": tau["s"], "tau_d": tau["d"],
                "s": effects["s"].astype(np.float32), "d": effects["d"].astype(np.float32),
            }.items():  # fmt: skip
                kept[name].append(value)
    return {name: np.asarray(values) for name, values in kept.items()}


def _drawn(
    rest: np.ndarray,
    column: np.ndarray,
    counts: np.ndarray,
    sigma: float,
    tau: float,
    rng: np.random.Generator,
    size: int,
) -> tuple[float, np.ndarray]:
    """Return the intercept without one factor's effects, and these given it."""
    sums = np.bincount(column, rest, size)
    precision = counts / sigma**2 + 1.0 / tau**2
    # y of a group ~ N(mu 1, sigma² I + tau² 11'): the effects are integrated out.
    shrunk = 1.0 / (tau**2 * precision)
    of_mu = float((counts * shrunk).sum()) / sigma**2 + 1e-2
    mean = (float((sums * shrunk).sum()) / sigma**2 + 3.0 * 1e-2) / of_mu
    mu = mean + rng.standard_normal() / np.sqrt(of_mu)
    own = (sums - counts * mu) / sigma**2 / precision
    return mu, own + rng.standard_normal(size) / np.sqrt(precision)


def _scale(now: float, count: int, square: float, rng: np.random.Generator) -> float:
    """Return a scale by slice sampling of its logarithm, prior Exp(1)."""

    def log_density(x: float) -> float:
        scale = np.exp(x)
        return -(count - 1) * x - 0.5 * square / scale**2 - scale

    return float(
        np.exp(by_slice(log_density, np.log(now), 3.0 / np.sqrt(2.0 * count), rng))
    )


def side_by_side(chains: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the draws of several chains by name, (chain, draw, …)."""
    return {name: np.stack([chain[name] for chain in chains]) for name in chains[0]}


def by_slice(
    log_density: Callable[[float], float],
    x: float,
    width: float,
    rng: np.random.Generator,
) -> float:
    """Return the next draw of one number by slice sampling, with steps out and shrinkage."""
    level = log_density(x) - rng.exponential()
    low = x - width * rng.random()
    high = low + width
    while log_density(low) > level:
        low -= width
    while log_density(high) > level:
        high += width
    while True:
        there = rng.uniform(low, high)
        if log_density(there) > level:
            return there
        low, high = (there, high) if there < x else (low, there)


def nested(posterior: Large) -> dict[str, np.ndarray]:
    """Return draws of normal nested groups of one size, not centered.

    With n rows a group, y ~ N(X β, σ² I + τ² 1 1') in each: in the group's mean the variance is
    σ²/n + τ², and σ² in the n − 1 differences from it. The scales are drawn without β and the
    effects, and these given the scales.
    """
    X, y, group = (
        np.asarray(posterior.dataset[n], np.float64) for n in ("X", "y", "group")
    )
    groups = int(group.max()) + 1
    both = np.column_stack([X, y]).reshape(groups, -1, X.shape[1] + 1)
    model = _Nested(both)
    chains = [model.chain(np.random.default_rng([20261126, c])) for c in range(CHAINS)]
    return side_by_side(chains)


class _Nested:
    """The model: sums of squares of the groups' means, and of the differences from them."""

    def __init__(self, both: np.ndarray) -> None:
        self.means = both.mean(1)
        self.groups, self.each = both.shape[:2]
        apart = (both - self.means[:, np.newaxis]).reshape(-1, both.shape[2])
        self.between, self.within = self.means.T @ self.means, apart.T @ apart

    def _coefficients(
        self, tau: float, sigma: float
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the precision of β, its product with the mean, and log p(y | τ, σ)."""
        of_mean, p = sigma**2 / self.each + tau**2, len(self.within) - 1
        whole = self.between / of_mean + self.within / sigma**2
        precision, pull = whole[:p, :p] + np.eye(p) / 4.0, whole[:p, p]
        value = -0.5 * self.groups * (log(of_mean) + 2.0 * (self.each - 1) * log(sigma))
        value += 0.5 * float(pull @ np.linalg.solve(precision, pull) - whole[p, p])
        return precision, pull, value - 0.5 * float(np.linalg.slogdet(precision)[1])

    def chain(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        tau, sigma = 1.0, 1.0
        kept: dict[str, list] = {name: [] for name in ("beta", "tau", "sigma", "z")}

        def log_density(log_tau: float, log_sigma: float) -> float:
            tau, sigma = exp(log_tau), exp(log_sigma)
            return self._coefficients(tau, sigma)[2] - tau - sigma + log_tau + log_sigma

        for sweep in range(BURN_IN + SWEEPS // 4):
            was = log(sigma)
            tau = exp(
                by_slice(lambda x, was=was: log_density(x, was), log(tau), 0.02, rng)
            )
            now = log(tau)
            sigma = exp(
                by_slice(lambda x, now=now: log_density(now, x), was, 0.005, rng)
            )
            if sweep < BURN_IN:
                continue
            precision, pull, _ = self._coefficients(tau, sigma)
            root = np.linalg.cholesky(precision)
            noise = np.linalg.solve(root.T, rng.standard_normal(len(pull)))
            beta = np.linalg.solve(precision, pull) + noise
            left = self.means[:, -1] - self.means[:, :-1] @ beta
            of_effects = 1.0 + self.each * (tau / sigma) ** 2
            z = self.each * tau / sigma**2 * left / of_effects
            z += rng.standard_normal(self.groups) / sqrt(of_effects)
            for name, value in zip(
                kept, (beta, tau, sigma, z.astype(np.float32)), strict=True
            ):
                kept[name].append(value)
        return {name: np.asarray(values) for name, values in kept.items()}


def horseshoe(posterior: Large) -> dict[str, np.ndarray]:
    """Return draws of the regularized horseshoe of `others.horseshoe`, its parameters by name."""
    X, y = (np.asarray(posterior.dataset[name], float) for name in ("X", "y"))
    chains = [
        _Horseshoe(X, y, np.random.default_rng([20261126, c])).run()
        for c in range(CHAINS)
    ]
    return side_by_side(chains)


class _Horseshoe:
    """A chain: β_j ~ N(0, ω_j²), 1/ω_j² = 1/(τ λ_j)² + 1/c², λ_j and τ/0.01 half-Cauchy.

    τ and σ are drawn without β, then β given all; then each (λ_j, β_j), λ_j without β_j.
    """

    def __init__(self, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> None:
        self.gram, self.inner, self.square = X.T @ X, X.T @ y, float(y @ y)
        self.rows, self.rng = len(y), rng
        self.log_tau, self.log_sigma = np.log(0.01), 0.0
        self.log_local = rng.normal(size=X.shape[1])
        self.beta = np.zeros(X.shape[1])

    def run(self) -> dict[str, np.ndarray]:
        kept: dict[str, list] = {name: [] for name in ("z", "local", "tau", "sigma")}
        for sweep in range(BURN_IN + SWEEPS_OF_HORSESHOE):
            self.log_tau = by_slice(self._of_tau, self.log_tau, 0.5, self.rng)
            self.log_sigma = by_slice(self._of_sigma, self.log_sigma, 0.05, self.rng)
            self.beta = self._coefficients()
            self._locals()
            if sweep >= BURN_IN:
                kept["z"].append(self.beta / self._width(self.log_local, self.log_tau))
                kept["local"].append(np.exp(self.log_local))
                kept["tau"].append(np.exp(self.log_tau))
                kept["sigma"].append(np.exp(self.log_sigma))
        return {name: np.asarray(values) for name, values in kept.items()}

    @staticmethod
    def _width(log_local: Any, log_tau: float) -> Any:
        """Return ω."""
        return 1.0 / np.sqrt(np.exp(-2.0 * (log_local + log_tau)) + 1.0 / SLAB**2)

    def _root(
        self, log_tau: float, log_sigma: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ω, the root R of I + ω X'X ω / σ², and R⁻¹ ω X'y / σ²."""
        width, precision = (
            self._width(self.log_local, log_tau),
            np.exp(-2.0 * log_sigma),
        )
        scaled = precision * width[:, np.newaxis] * self.gram * width
        scaled.flat[:: len(scaled) + 1] += 1.0
        root = cholesky(scaled, lower=True, overwrite_a=True, check_finite=False)
        pull = solve_triangular(
            root, precision * width * self.inner, lower=True, check_finite=False
        )
        return width, root, pull

    def _without_coefficients(self, log_tau: float, log_sigma: float) -> float:
        """Return log p(y, log τ, log σ | λ)."""
        _, root, pull = self._root(log_tau, log_sigma)
        value = 0.5 * pull @ pull - np.log(np.diag(root)).sum()
        value -= self.rows * log_sigma + 0.5 * self.square * np.exp(-2.0 * log_sigma)
        value += log_sigma - np.exp(log_sigma)
        return float(value + log_tau - np.logaddexp(0.0, 2.0 * (log_tau - log(0.01))))

    def _of_tau(self, log_tau: float) -> float:
        return self._without_coefficients(log_tau, self.log_sigma)

    def _of_sigma(self, log_sigma: float) -> float:
        return self._without_coefficients(self.log_tau, log_sigma)

    def _coefficients(self) -> np.ndarray:
        width, root, pull = self._root(self.log_tau, self.log_sigma)
        noise = self.rng.standard_normal(len(width))
        return width * solve_triangular(root, pull + noise, lower=True, trans=1)

    def _locals(self) -> None:
        precision = np.exp(-2.0 * self.log_sigma)
        left = self.inner - self.gram @ self.beta
        for j in range(len(self.beta)):
            information = precision * self.gram[j, j]
            pull = precision * (left[j] + self.gram[j, j] * self.beta[j])

            def of_local(
                x: float, pull: float = pull, information: float = information
            ) -> float:
                before = exp(-2.0 * (x + self.log_tau)) + 1.0 / SLAB**2
                whole = before + information
                value = 0.5 * (log(before) - log(whole) + pull**2 / whole)
                return value + x - log1p(exp(2.0 * x))

            self.log_local[j] = by_slice(of_local, self.log_local[j], 2.0, self.rng)
            whole = (
                exp(-2.0 * (self.log_local[j] + self.log_tau))
                + 1.0 / SLAB**2
                + information
            )
            new = pull / whole + self.rng.standard_normal() / sqrt(whole)
            left -= self.gram[j] * (new - self.beta[j])
            self.beta[j] = new
