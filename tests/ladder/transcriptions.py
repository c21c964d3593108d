"""The update equations, transcribed in NumPy independently of the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ladder.problems import Array
from sgmcmc.data.rng import Phase, Purpose, generator

Gradient = Callable[[Array], Array]


def reference_chain(
    kind: str,
    start: Array,
    gradient: Gradient,
    stepsize: Array,
    tuning: Mapping[str, Any],
    noise: Array,
    start_noise: Array,
    blocks: list[slice],
) -> Array:
    """Return the draws of a chain that is handed its random numbers, in float64.

    Args:
        kind: the update equation.
        start: θ at the start.
        gradient: called once for each new position; it may draw a minibatch each time.
        stepsize: ε, one for each coordinate.
        tuning: α and L, or a; one number or one for each coordinate.
        noise: standard normals, (iterations, vectors, d).
        start_noise: standard normals, (d,), for the momentum that SGNHT starts with.
        blocks: the places of the named parameters.
    """
    theta, g = start.copy(), gradient(start)
    if kind == "sgnht":
        return _reference_sgnht(theta, g, gradient, stepsize, tuning, noise, start_noise, blocks)
    draws = []
    for normals in noise:
        if kind == "sgld":
            theta = theta + stepsize / 2 * g + np.sqrt(stepsize) * normals[0]
            g = gradient(theta)
        else:
            one_iteration = _reference_euler if kind == "euler" else _reference_sghmc
            theta, g = one_iteration(theta, g, gradient, stepsize, tuning, normals)
        draws.append(theta)
    return np.array(draws)


def _reference_sghmc(
    theta: Array,
    g: Array,
    gradient: Gradient,
    stepsize: Array,
    tuning: Mapping[str, Any],
    normals: Array,
) -> tuple[Array, Array]:
    nu = np.sqrt(stepsize) * normals[0]
    c = np.exp(-np.asarray(tuning["alpha"]))
    for zeta in normals[1 : tuning["L"] + 1]:
        nu = nu + stepsize / 2 * g
        theta = theta + nu / 2
        nu = c * nu + np.sqrt(stepsize * (1 - c**2)) * zeta
        theta = theta + nu / 2
        g = gradient(theta)
        nu = nu + stepsize / 2 * g
    return theta, g


def _reference_euler(
    theta: Array,
    g: Array,
    gradient: Gradient,
    stepsize: Array,
    tuning: Mapping[str, Any],
    normals: Array,
) -> tuple[Array, Array]:
    nu = np.sqrt(stepsize) * normals[0]
    alpha = np.asarray(tuning["alpha"])
    for zeta in normals[1 : tuning["L"] + 1]:
        nu = (1 - alpha) * nu + stepsize * g + np.sqrt(2 * alpha * stepsize) * zeta
        theta = theta + nu
        g = gradient(theta)
    return theta, g


def _reference_sgnht(
    theta: Array,
    g: Array,
    gradient: Gradient,
    stepsize: Array,
    tuning: Mapping[str, Any],
    noise: Array,
    start_noise: Array,
    blocks: list[slice],
) -> Array:
    a = np.broadcast_to(tuning["a"], theta.shape)
    nu, xi, draws = np.sqrt(stepsize) * start_noise, a.copy(), []
    for normals in noise:
        nu = (1 - xi) * nu + stepsize * g + np.sqrt(2 * a * stepsize) * normals[0]
        theta = theta + nu
        for block in blocks:
            xi[block] += nu[block] @ nu[block] / nu[block].size - stepsize[block]
        g = gradient(theta)
        draws.append(theta)
    return np.array(draws)


def vectors_per_iteration(kind: str, tuning: Mapping[str, Any]) -> int:
    """Return how many vectors of standard normals an iteration takes."""
    return 1 + tuning["L"] if kind in ("sghmc", "euler") else 1


def remade_noise(seed: int, shape: tuple[int, int, int]) -> tuple[Array, Array]:
    """Return the noise of the first iterations of chain 0 in float64, and that of its start."""
    noise = generator(seed, 0, Phase.CHAIN, Purpose.NOISE, 0).standard_normal(shape)
    start = generator(seed, 0, Phase.CHAIN, Purpose.START_NOISE).standard_normal(shape[-1])
    return noise, start
