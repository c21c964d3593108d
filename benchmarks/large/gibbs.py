"""Gibbs sampling of crossed normal effects, with scales and intercept drawn without the effects."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.large.base import Large

CHAINS, SWEEPS, BURN_IN = 4, 4000, 200


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
    chains = [_chain(y, columns, np.random.default_rng([20261124, c])) for c in range(CHAINS)]
    draws = {name: np.stack([chain[name] for chain in chains]) for name in chains[0]}
    if not centered:
        for name in columns:
            draws[name] = draws[name] / draws[f"tau_{name}"][..., np.newaxis]
    return draws


def _chain(
    y: np.ndarray, columns: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    sizes = {name: int(column.max()) + 1 for name, column in columns.items()}
    counts = {name: np.bincount(column, minlength=sizes[name]) for name, column in columns.items()}
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
            tau[name] = _scale(tau[name], sizes[name], float((effects[name] ** 2).sum()), rng)
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

    return float(np.exp(by_slice(log_density, np.log(now), 3.0 / np.sqrt(2.0 * count), rng)))


def by_slice(
    log_density: Callable[[float], float], x: float, width: float, rng: np.random.Generator
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
