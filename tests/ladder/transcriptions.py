"""The update equations, transcribed in NumPy independently of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from tests.ladder.problems import Array, Problem


@dataclass(frozen=True)
class Inputs:
    """What a chain consumes, in float64.

    Attributes:
        start: θ at the start.
        gradient: called once for each new position; it may draw a minibatch each time.
        stepsize: ε, one for each coordinate.
        tuning: the tuning constants; each one number, or one for each coordinate.
        noise: standard normals, (iterations, vectors, d).
        start_noise: standard normals, (d,), for a momentum that is drawn at the start.
        blocks: the places of the named parameters.
    """

    start: Array
    gradient: Callable[[Array], Array]
    stepsize: Array
    tuning: Mapping[str, Any]
    noise: Array
    start_noise: Array
    blocks: list[slice]


class State(NamedTuple):
    """The state at the end of an iteration; ν is zero where there is none."""

    theta: Array
    nu: Array


@dataclass(frozen=True)
class Recorded:
    """A chain of a public function, from its first iteration on; SGHMC's with a single step.

    Attributes:
        problem: what was sampled.
        stepsize: ε, one for each coordinate.
        tuning: the tuning constants.
        draws: (chains, draws, d).
        g: the gradient estimates at the draws.
    """

    problem: Problem
    stepsize: Array
    tuning: Mapping[str, Any]
    draws: Array
    g: Array

    @property
    def steps(self) -> Array:
        """The increments between draws."""
        return np.diff(self.draws, axis=1)


@dataclass(frozen=True)
class Transcription:
    """An update equation in NumPy.

    Attributes:
        states: the states of a chain, one for each iteration.
        recovered: what the update equation says that the noise of a chain was, scaled to variance
            1, (chains, draws less one, d); ``None`` where the draws do not tell.
        steps: the name of the constant that says how many steps, each with a vector of noise,
            come after one vector with which an iteration begins; ``None`` for a single step.
        forgets: whether an iteration knows only the position and gradient of the one before.
        single: how many vectors of noise an iteration of a single step takes.
    """

    states: Callable[[Inputs], Iterator[State]]
    recovered: Callable[[Recorded], Array] | None = None
    steps: str | None = None
    forgets: bool = True
    single: int = 1

    def vectors(self, tuning: Mapping[str, Any]) -> int:
        """Return how many vectors of standard normals an iteration takes."""
        return self.single if self.steps is None else 1 + tuning[self.steps]

    def one_step(self) -> dict[str, int]:
        """Return the tuning with which an iteration is a single step."""
        return {} if self.steps is None else {self.steps: 1}

    def chain(self, inputs: Inputs) -> Array:
        """Return the draws of a chain."""
        return np.array([state.theta for state in self.states(inputs)])


# ------------------------------------------------------------------------------------ SGLD


def _sgld(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    for normals in at.noise:
        theta = theta + at.stepsize / 2 * g + np.sqrt(at.stepsize) * normals[0]
        g = at.gradient(theta)
        yield State(theta, 0 * theta)


def _noise_of_sgld(of: Recorded) -> Array:
    return (of.steps - of.stepsize / 2 * of.g[:, :-1]) / np.sqrt(of.stepsize)


SGLD = Transcription(_sgld, _noise_of_sgld)


# ----------------------------------------------------------------------------------- SGHMC


def _sghmc(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    for normals in at.noise:
        nu = np.sqrt(at.stepsize) * normals[0]
        for zeta in normals[1 : at.tuning["L"] + 1]:
            V = at.tuning.get("noise_variance", 0.0)
            theta, nu, g = _baoab(
                at, theta, nu, g, np.asarray(at.tuning["alpha"]), zeta, V
            )
        yield State(theta, nu)


def _baoab(
    at: Inputs,
    theta: Array,
    nu: Array,
    g: Array,
    friction: Array,
    zeta: Array,
    V: float = 0.0,
) -> tuple[Array, Array, Array]:
    c = np.exp(-friction)
    nu = nu + at.stepsize / 2 * g
    theta = theta + nu / 2
    variance = at.stepsize * (1 - c**2) - (at.stepsize * (1 + c) / 2) ** 2 * V
    nu = c * nu + np.sqrt(variance) * zeta
    theta = theta + nu / 2
    g = at.gradient(theta)
    nu = nu + at.stepsize / 2 * g
    return theta, nu, g


def _noise_of_sghmc(of: Recorded) -> Array:
    c = np.exp(-of.tuning["alpha"])
    drift = (1 + c) / 2 * of.stepsize / 2 * of.g[:, :-1]
    return (of.steps - drift) / np.sqrt(of.stepsize * (1 + c) / 2)


SGHMC = Transcription(_sghmc, _noise_of_sghmc, steps="L")


def _euler(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    alpha = np.asarray(at.tuning["alpha"])
    for normals in at.noise:
        nu = np.sqrt(at.stepsize) * normals[0]
        for zeta in normals[1 : at.tuning["L"] + 1]:
            beta = at.stepsize * at.tuning.get("noise_variance", 0.0) / 2
            zeta = np.sqrt(2 * (alpha - beta) * at.stepsize) * zeta
            nu = (1 - alpha) * nu + at.stepsize * g + zeta
            theta = theta + nu
            g = at.gradient(theta)
        yield State(theta, nu)


def _noise_of_euler(of: Recorded) -> Array:
    variance = (1 - of.tuning["alpha"]) ** 2 + 2 * of.tuning["alpha"]
    return (of.steps - of.stepsize * of.g[:, :-1]) / np.sqrt(of.stepsize * variance)


EULER = Transcription(_euler, _noise_of_euler, steps="L")


# ------------------------------------------------------------------------------------ SGNHT


def _sgnht(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    a = np.broadcast_to(at.tuning["a"], theta.shape)
    nu, xi = np.sqrt(at.stepsize) * at.start_noise, a.copy()
    for normals in at.noise:
        nu = (1 - xi) * nu + at.stepsize * g + np.sqrt(2 * a * at.stepsize) * normals[0]
        theta = theta + nu
        for block in at.blocks:
            xi[block] += (
                nu[block] @ nu[block] / nu[block].size - at.stepsize[block].mean()
            )
        g = at.gradient(theta)
        yield State(theta, nu)


def _noise_of_sgnht(of: Recorded) -> Array:
    first = of.draws[:, :1] - of.problem.start
    nu = np.concatenate([first, of.steps], 1)
    xi = np.empty_like(nu)
    for block in of.problem.blocks():
        excess = (nu[..., block] ** 2 - of.stepsize[block]).mean(-1, keepdims=True)
        xi[..., block] = of.tuning["a"] + np.cumsum(excess, 1)
    drift = (1 - xi[:, :-1]) * nu[:, :-1] + of.stepsize * of.g[:, :-1]
    return (nu[:, 1:] - drift) / np.sqrt(2 * of.tuning["a"] * of.stepsize)


SGNHT = Transcription(_sgnht, _noise_of_sgnht, forgets=False)


# ----------------------------------------------------------------------------- underdamped


def _underdamped(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    nu = np.sqrt(at.stepsize) * at.start_noise
    for normals in at.noise:
        theta, nu, g = _baoab(
            at, theta, nu, g, np.asarray(at.tuning["friction"]), normals[0]
        )
        yield State(theta, nu)


def _noise_of_underdamped(of: Recorded) -> Array:
    """Two increments and the gradient between them tell the noise, but for ν at the first draw.

    From one increment to the next its part in the noise changes sign and nothing else, so it is
    what makes the noise orthogonal to +1, −1, +1, ...; that takes one of thousands of degrees of
    freedom.
    """
    c = np.exp(-of.tuning["friction"])
    kicks = of.stepsize / 2 * of.g
    # With ν = 0 at the first draw: after the half kick, and then at the end of each iteration.
    nu = np.zeros_like(of.draws)
    for k, step in enumerate(np.moveaxis(of.steps, 1, 0)):
        nu[:, k + 1] = 2 * step - (nu[:, k] + kicks[:, k]) + kicks[:, k + 1]
    noise = 2 * of.steps - (1 + c) * (nu + kicks)[:, :-1]
    noise = noise / np.sqrt(of.stepsize * (1 - c**2))
    signs = (-1.0) ** np.arange(noise.shape[1])[:, None]
    return noise - signs * (signs * noise).mean(1, keepdims=True)


UNDERDAMPED = Transcription(_underdamped, _noise_of_underdamped, forgets=False)


# -------------------------------------------------------------------------- the field's others


def _psgld(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    V, weight, until = g**2, at.tuning["alpha"], at.tuning["until"]
    for k, normals in enumerate(at.noise):
        if until is None or k < until:
            V = weight * V + (1 - weight) * g**2
        epsilon = at.stepsize / (at.tuning["damping"] + np.sqrt(V))
        theta = theta + epsilon / 2 * g + np.sqrt(epsilon) * normals[0]
        g = at.gradient(theta)
        yield State(theta, 0 * theta)


PSGLD = Transcription(_psgld, forgets=False)


def _badodab(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    a = np.broadcast_to(at.tuning["a"], theta.shape)
    nu, xi = np.sqrt(at.stepsize) * at.start_noise, a.copy()
    for normals in at.noise:
        nu = nu + at.stepsize / 2 * g
        theta = theta + nu / 2
        _half_a_thermostat(at, nu, xi)
        variance = a * at.stepsize * (1 - np.exp(-2 * xi)) / xi
        nu = np.exp(-xi) * nu + np.sqrt(variance) * normals[0]
        _half_a_thermostat(at, nu, xi)
        theta = theta + nu / 2
        g = at.gradient(theta)
        nu = nu + at.stepsize / 2 * g
        yield State(theta, nu)


def _half_a_thermostat(at: Inputs, nu: Array, xi: Array) -> None:
    for block in at.blocks:
        xi[block] += (nu[block] ** 2 - at.stepsize[block]).mean() / 2


BADODAB = Transcription(_badodab, forgets=False)


def _barker(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    V = np.asarray(at.tuning["noise_variance"])
    for normals in at.noise:
        z = np.sqrt(at.stepsize) * normals[0]
        if at.tuning["increments"] == "bimodal":
            z = np.sqrt(at.stepsize) * (np.sqrt(0.99) + 0.1 * normals[0])
        known = 1.702**2 > V * z**2
        corrected = 1.702 * z * g / np.sqrt(np.where(known, 1.702**2 - V * z**2, 1))
        p = np.where(known, 1 / (1 + np.exp(-corrected)), z * g > 0)
        theta = theta + np.where(stats.norm.cdf(normals[1]) < p, 1, -1) * z
        g = at.gradient(theta)
        yield State(theta, 0 * theta)


BARKER = Transcription(_barker, single=2)


def _sglrw(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    for normals in at.noise:
        p = np.clip((1 + np.sqrt(at.stepsize) * g / 2) / 2, 0, 1)
        theta = theta + np.where(stats.norm.cdf(normals[0]) < p, 1, -1) * np.sqrt(
            at.stepsize
        )
        g = at.gradient(theta)
        yield State(theta, 0 * theta)


SGLRW = Transcription(_sglrw)


def _smile(at: Inputs) -> Iterator[State]:
    theta, g = at.start, at.gradient(at.start)
    d, lengths = theta.size, np.sqrt(theta.size * at.stepsize)
    u = at.start_noise / np.linalg.norm(at.start_noise)
    eta = np.sqrt((np.exp(2 * at.tuning["friction"]) - 1) / d)
    for normals in at.noise:
        u = _turned(u, lengths * g)
        theta = theta + lengths * u / 2
        u = u + eta * normals[0]
        u = u / np.linalg.norm(u)
        theta = theta + lengths * u / 2
        g = at.gradient(theta)
        u = _turned(u, lengths * g)
        yield State(theta, u)


def _turned(u: Array, slope: Array) -> Array:
    """Return u half a step on, by the closed form of Robnik & Seljak."""
    delta = np.linalg.norm(slope) / 2 / (slope.size - 1)
    e = slope / np.linalg.norm(slope)
    turned = u + e * (np.sinh(delta) + (e @ u) * (np.cosh(delta) - 1))
    return turned / (np.cosh(delta) + (e @ u) * np.sinh(delta))


SMILE = Transcription(_smile, forgets=False)


# ------------------------------------------------------------------------- the noise itself


@dataclass(frozen=True)
class Noise:
    """The noise of the first iterations of chain 0, made again from its streams in float64.

    Attributes:
        noise: (iterations, vectors, d).
        start: (d,), of the momentum at the start.
    """

    noise: Array
    start: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def remade(cls, seed: int, iterations: int, vectors: int, d: int) -> Noise:
        """Return the noise of a seed."""
        chain = generator(seed, 0, RunPhase.CHAIN, Purpose.NOISE, 0)
        start = generator(seed, 0, RunPhase.CHAIN, Purpose.START_NOISE)
        return cls(
            chain.standard_normal((iterations, vectors, d)), start.standard_normal(d)
        )
