"""Rung 1 for the geodesic dynamics: steps against the equations in NumPy, and invariance.

Great circles are transcribed as rotations, frames by the matrix exponential. Then a step from exact
draws has to leave their law as it is, up to the order of the integrator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import block_diag, expm

from sgmcmc.dynamics import GSGNHT, SGGMC, Dynamics, Underdamped
from sgmcmc.manifolds import Sphere, Stiefel
from sgmcmc.model.geometry import Space

Array = np.ndarray
SPACE = Space({"b": (2,), "v": (2, 3), "X": (4, 2)}, {"v": Sphere(), "X": Stiefel()})
STEPSIZE = {"b": 0.3, "v": 0.05, "X": 0.02}
DIMENSIONS = {"b": 2, "v": 4, "X": 5}
PULL = np.random.default_rng(5).normal(size=(2, SPACE.layout.size))


def gradient(position: Array) -> Array:
    """Return a gradient that has a part across the manifolds too."""
    return 3.0 * PULL[0] - 2.0 * PULL[1] ** 2 * position


def tangent(name: str, u: Array, w: Array) -> Array:
    if name == "v":
        return np.stack(
            [(np.eye(3) - np.outer(x, x)) @ y for x, y in zip(u, w, strict=True)]
        )
    if name == "X":
        return w - u @ (u.T @ w + w.T @ u) / 2
    return w


def flow(name: str, u: Array, v: Array, t: float) -> tuple[Array, Array]:
    if name == "v":
        turns = [
            expm(t * (np.outer(y, x) - np.outer(x, y)))
            for x, y in zip(u, v, strict=True)
        ]
        return tuple(
            np.stack([r @ x for r, x in zip(turns, p, strict=True)]) for p in (u, v)
        )  # type: ignore[return-value]
    if name == "X":
        A, S = u.T @ v, v.T @ v
        exponent = np.block([[A, -S], [np.eye(2), A]])
        ends = (
            np.hstack([u, v])
            @ expm(t * exponent)
            @ block_diag(expm(-t * A), expm(-t * A))
        )
        return ends[:, :2], ends[:, 2:]
    return u + t * v, v


def each(function: Any, *flats: Array, **more: Any) -> Array:
    """Apply a function of name and arrays to each parameter, and return what it gives, flat."""
    parts = [SPACE.layout.split(flat) for flat in flats]
    found = [
        function(name, *(p[name] for p in parts), **more) for name in SPACE.layout.names
    ]
    if isinstance(found[0], tuple):
        return np.array([np.concatenate([f[i].ravel() for f in found]) for i in (0, 1)])
    return np.concatenate([f.ravel() for f in found])


def spread(values: dict[str, float]) -> Array:
    return np.concatenate(
        [np.full(SPACE.layout.sizes[n], values[n]) for n in SPACE.layout.names]
    )


class Run(NamedTuple):
    """Where a few steps lead; ξ is nothing where there is none."""

    position: Array
    momentum: Array
    thermostat: Any = None


def started(seed: int = 1) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    raw = tf.constant(rng.normal(size=SPACE.layout.size))
    return SPACE.retracted(raw).numpy(), rng.normal(size=(6, SPACE.layout.size))


def taken(dynamics: Dynamics, epsilon: Array) -> Run:
    """Take steps by the package."""
    position, normals = started()
    bound, stepsize = dynamics.bind(SPACE), tf.constant(epsilon)
    slope = tf.constant(gradient(position))
    state = bound.init(tf.constant(position), slope, stepsize, tf.constant(normals[:1]))
    for zeta in normals[1:]:
        state = bound.step(state, slope, stepsize, tf.constant(zeta[np.newaxis]))
        slope = tf.constant(gradient(state.position.numpy()))
        state = bound.finish_step(state, slope, stepsize)
    return Run(*(leaf.numpy() for leaf in state))


NOISE = {"b": 3.0, "v": 0.0, "X": 40.0}


@pytest.mark.parametrize(
    "given", [0.0, NOISE, lambda params: NOISE], ids=["0", "V", "V(x)"]
)
def test_steps_of_sggmc(given: Any) -> None:
    alpha = {"b": 0.2, "v": 0.3, "X": 0.5}
    epsilon, c = spread(STEPSIZE), np.exp(-spread(alpha))
    V = spread(NOISE) if given else 0.0
    # r² = √(1 + β̂²) − β̂, β̂ = εV/2, is what r⁴ + εVr² = 1 has for a solution.
    r = np.sqrt(np.sqrt(1 + (epsilon * V / 2) ** 2) - epsilon * V / 2)
    x, normals = started()
    nu, g = np.sqrt(epsilon) * each(tangent, x, normals[0]), gradient(x)
    for zeta in normals[1:]:
        nu = r * (nu + epsilon / 2 * each(tangent, x, g))
        x, nu = each(flow, x, nu, t=0.5)
        nu = c * nu + np.sqrt(epsilon * (1 - c**2)) * each(tangent, x, zeta)
        x, nu = each(flow, x, nu, t=0.5)
        nu, g = r * nu, gradient(x)
        nu = nu + epsilon / 2 * each(tangent, x, g)
    found = taken(SGGMC(alpha, given), epsilon)
    np.testing.assert_allclose(found.position, x, atol=1e-10)
    np.testing.assert_allclose(found.momentum, nu, atol=1e-10)


def test_steps_of_gsgnht() -> None:
    a = {"b": 0.2, "v": 0.3, "X": 0.5}
    epsilon, A = spread(STEPSIZE), spread(a)
    blocks = SPACE.layout.slices

    def excess(nu: Array) -> Array:
        return np.concatenate(
            [
                np.full(
                    p.stop - p.start, nu[p] @ nu[p] / DIMENSIONS[name] - STEPSIZE[name]
                )
                for name, p in blocks.items()
            ]
        )

    x, normals = started()
    nu, g, xi = np.sqrt(epsilon) * each(tangent, x, normals[0]), gradient(x), A.copy()
    for zeta in normals[1:]:
        nu = nu + epsilon / 2 * each(tangent, x, g)
        x, nu = each(flow, x, nu, t=0.5)
        xi = xi + excess(nu) / 2
        variance = A * epsilon * (1 - np.exp(-2 * xi)) / xi
        nu = np.exp(-xi) * nu + np.sqrt(variance) * each(tangent, x, zeta)
        x, nu = each(flow, x, nu, t=0.5)
        xi, g = xi + excess(nu) / 2, gradient(x)
        nu = nu + epsilon / 2 * each(tangent, x, g)
    found = taken(GSGNHT(a), epsilon)
    np.testing.assert_allclose(found.position, x, atol=1e-10)
    np.testing.assert_allclose(found.momentum, nu, atol=1e-10)
    np.testing.assert_allclose(
        found.thermostat, [xi[p.start] for p in blocks.values()], atol=1e-10
    )


def test_a_thermostat_at_zero_injects_all_of_its_noise() -> None:
    """√(aε (1 − e^(−2ξ))/ξ) is √(2aε) at ξ = 0, and near it."""
    space = Space({"b": (1,)})
    bound, one = GSGNHT(0.1).bind(space), tf.ones([1], tf.float64)
    found = []
    for xi in (-1e-7, 0.0, 1e-9, 1e-7):
        state = bound.init(one, one, tf.constant(0.2, tf.float64), 0 * one[tf.newaxis])
        # The half step before O takes ε/2 from the thermostat.
        state = state._replace(thermostat=xi + 0.1 * one)
        moved = bound.step(
            state, 0 * one, tf.constant(0.2, tf.float64), one[tf.newaxis]
        )
        found.append(float(moved.momentum[0]))
    np.testing.assert_allclose(found, np.sqrt(2 * 0.1 * 0.2), rtol=1e-6)


def test_in_flat_space_sggmc_is_baoab() -> None:
    """The same numbers as the underdamped dynamics, to rounding."""
    space, ends = Space({"b": (3,)}), []
    rng = np.random.default_rng(1)
    x, normals = (
        tf.constant(rng.normal(size=3)),
        tf.constant(rng.normal(size=(4, 1, 3))),
    )
    epsilon = tf.constant(0.2, tf.float64)
    for dynamics in (SGGMC(0.4), Underdamped(0.4)):
        bound = dynamics.bind(space)
        state = bound.init(x, -x, epsilon, normals[0])
        for zeta in normals[1:]:
            state = bound.step(state, -state.position, epsilon, zeta)
            state = bound.finish_step(state, -state.position, epsilon)
        ends.append(np.concatenate([state.position, state.momentum]))
    np.testing.assert_allclose(*ends, rtol=1e-13)


COPIES, KAPPA = 200_000, 3.0


def stationary(epsilon: float) -> tuple[Array, Array, Array]:
    """Return exact draws of von Mises–Fisher laws on S², velocities, and noise, flat."""
    rng = np.random.default_rng(2)
    t = 1 + np.log1p((1 - rng.random(COPIES)) * np.expm1(-2 * KAPPA)) / KAPPA
    angle = rng.uniform(0, 2 * np.pi, COPIES)
    s = np.sqrt(1 - t**2)
    x = np.stack([s * np.cos(angle), s * np.sin(angle), t], 1)
    w, zeta = rng.normal(size=(2, COPIES, 3))
    nu = np.sqrt(epsilon) * (w - x * (x * w).sum(1, keepdims=True))
    return x.ravel(), nu.ravel(), zeta.reshape(1, -1)


@pytest.mark.parametrize("dynamics", [SGGMC(0.2), GSGNHT(0.2)], ids=lambda d: d.name)
@pytest.mark.parametrize("wrong", ["", "speed", "force"])
def test_a_step_leaves_the_law_as_it_is(dynamics: Dynamics, wrong: str) -> None:
    """E[f(z') − f(z)] is zero within 4.5 standard errors and h³, for draws z of the law.

    h = √ε = 0.1; an integrator of first order would be off by h², and a wrong constant by more.
    """
    epsilon = 0.01
    x, nu, zeta = stationary(epsilon)
    if wrong == "speed":
        nu = nu * np.sqrt(1.5)  # as noise that is not projected has it
    space = Space({"v": (COPIES, 3)}, {"v": Sphere()})
    bound, stepsize = dynamics.bind(space), tf.constant(epsilon, tf.float64)
    force = 0.5 * KAPPA if wrong == "force" else KAPPA
    g = tf.constant(np.tile([0.0, 0.0, force], COPIES))
    state = bound.init(tf.constant(x), g, stepsize, tf.constant(zeta))
    state = state._replace(momentum=tf.constant(nu))
    after = bound.finish_step(
        bound.step(state, g, stepsize, tf.constant(zeta)), g, stepsize
    )

    def functions(x: Array, nu: Array) -> Array:
        x, nu = x.reshape(-1, 3), nu.reshape(-1, 3) / np.sqrt(epsilon)
        columns = (
            x[:, 2],
            x[:, 2] ** 2,
            (nu**2).sum(1),
            nu[:, 2],
            x[:, 2] * nu[:, 2],
            nu[:, 0] ** 2,
        )
        return np.stack(columns, 1)

    change = functions(after.position.numpy(), after.momentum.numpy()) - functions(
        x, nu
    )
    errors = change.std(0) / np.sqrt(COPIES)
    off = np.abs(change.mean(0)) > 4.5 * errors + epsilon**1.5
    assert off.any() if wrong else not off.any(), change.mean(0)
