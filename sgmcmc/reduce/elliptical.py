"""Draws of a density of a few dimensions: elliptical slices, and inversion in one dimension.

Source: Nishihara, Murray & Adams, *Parallel MCMC with generalized elliptical slice sampling*,
Journal of Machine Learning Research 15 (2014); Murray, Adams & MacKay (2010) for the slice;
Yeo & Johnson, *A new family of power transformations*, Biometrika 87 (2000).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize

from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.reduce.hamiltonian import HamiltonianMoves

LogDensity = Callable[[np.ndarray], np.ndarray]
"""Log density of positions, (c, d), as (c,)."""

BLOCK = 100
"""Iterations whose random numbers come from one stream."""


@dataclass(frozen=True)
class _Settings:
    degrees: float = 6.0  # of the t: its tails are wider than exponential ones
    # Of a slice, after which a chain stays: (2/3)^60 of an ellipse
    shrinkages: int = 60
    pilot_chains: int = 8  # from whose draws the t is fitted again
    pilot_chains_with_moves: int = 4  # the same where an iteration is several slices
    pilot_rounds: int = 2
    pilot_dropped: int = 20  # draws of each
    first_step: float = 1e-3  # of differences, before the curvature is known
    step: float = 0.2  # of differences, in standard deviations
    # Of a position along an axis at the mode: flat ones have no curvature
    largest_sd: float = 3.0
    nodes: int = 4097  # of the distribution function
    zooms: int = 12  # on the mode, each by a factor of about 20
    # That are tried, of the transform
    powers: tuple[float, float, int] = (0.0, 2.0, 21)
    slices: int = (
        3  # before each of the moves of further coordinates, which take longer
    )
    fall: float = 45.0  # of the log density, beyond which there is no probability
    reach: float = 30.0  # from the start to the mode, at most


_SETTINGS = _Settings()


@dataclass(frozen=True)
class PowerTransform:
    """Yeo and Johnson's transform of each coordinate, which takes skewness away.

    With u = (x − center) / scale it is ((1 + u)^λ − 1)/λ for u ≥ 0, and
    −((1 − u)^(2 − λ) − 1)/(2 − λ) below.

    Attributes:
        center, scale: Center and scale, (d,).
        power: Power λ from 0 to 2, (d,); 1 changes nothing.
    """

    center: np.ndarray
    scale: np.ndarray
    power: np.ndarray

    @classmethod
    def of(cls, draws: np.ndarray) -> PowerTransform:
        """Return that after which draws, (draws, d), are closest to normal ones."""
        center, scale = np.median(draws, 0), draws.std(0)
        powers = np.linspace(*_SETTINGS.powers)
        log_densities = []
        for power in powers:
            transform = cls(center, scale, np.full(len(center), power))
            v = transform.forward(draws)
            slope = transform.log_slope(v).mean(0)
            log_densities.append(-np.log(v.std(0)) - slope)
        return cls(center, scale, powers[np.argmax(log_densities, axis=0)])

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return transformed coordinates, (..., d)."""
        u = (x - self.center) / self.scale
        exponent = np.where(u < 0.0, 2.0 - self.power, self.power)
        logs = np.log1p(np.abs(u))
        sizes = np.where(exponent > 0.0, np.expm1(exponent * logs), logs)
        return np.sign(u) * sizes / np.where(exponent > 0.0, exponent, 1.0)

    def back(self, v: np.ndarray) -> np.ndarray:
        """Return the coordinates of transformed ones, (..., d)."""
        logs = self._logs(v)
        return self.center + self.scale * np.sign(v) * np.expm1(logs)

    def log_slope(self, v: np.ndarray) -> np.ndarray:
        """Return log dx/dv, but for the scale, at transformed coordinates, (..., d)."""
        exponent = np.where(v < 0.0, 2.0 - self.power, self.power)
        return (1.0 - exponent) * self._logs(v)

    def _logs(self, v: np.ndarray) -> np.ndarray:
        """Return log(1 + |u|)."""
        exponent = np.where(v < 0.0, 2.0 - self.power, self.power)
        is_power = exponent > 0.0
        divisor = np.where(is_power, exponent, 1.0)
        return np.where(is_power, np.log1p(exponent * np.abs(v)) / divisor, np.abs(v))


@dataclass(frozen=True)
class StudentApproximation:
    """A multivariate t near a density, in coordinates of their own.

    Attributes:
        mean: Its mean, (d,).
        root: Triangular root of its scale matrix, (d, d).
        transform: Transform of positions; ``None`` for none.
    """

    mean: np.ndarray
    root: np.ndarray
    transform: PowerTransform | None = None

    @classmethod
    def of(cls, draws: np.ndarray) -> StudentApproximation:
        """Return that with the moments of transformed draws, (draws, d)."""
        transform = PowerTransform.of(draws)
        moved = transform.forward(draws)
        covariance = np.cov(moved.T).reshape(moved.shape[1], -1)
        covariance *= (_SETTINGS.degrees - 2.0) / _SETTINGS.degrees
        return cls(moved.mean(0), np.linalg.cholesky(covariance), transform)

    def positions(self, z: np.ndarray) -> np.ndarray:
        """Return positions of standardized ones, (..., d)."""
        v = self.mean + z @ self.root.T
        return v if self.transform is None else self.transform.back(v)

    def log_slopes(self, z: np.ndarray) -> np.ndarray | float:
        """Return the log-Jacobian of positions, but for a constant, (...)."""
        if self.transform is None:
            return 0.0
        v = self.mean + z @ self.root.T
        return np.asarray(self.transform.log_slope(v).sum(-1))


# Far out, infinities less others, and slopes whose product is too large.
@np.errstate(invalid="ignore", over="ignore")
def at_mode(
    log_density: LogDensity, start: np.ndarray, slope: float = 1e-5
) -> StudentApproximation:
    """Return the t with the mode of a log density, and its curvature there.

    Args:
        log_density: Log density.
        start: Position where the search for the mode starts.
        slope: Largest entry of the gradient with which it ends.
    """

    def loss(x: np.ndarray) -> float:
        return -float(log_density(x[np.newaxis])[0])

    def gradient(x: np.ndarray) -> np.ndarray:
        steps = _SETTINGS.first_step * np.eye(len(x))
        up, down = np.split(log_density(np.concatenate([x + steps, x - steps])), 2)
        slope = (up - down) / (2.0 * _SETTINGS.first_step)
        return -np.nan_to_num(slope)  # beyond the numbers there is no slope

    result = scipy.optimize.minimize(
        loss, start, jac=gradient, method="BFGS", options={"gtol": slope}
    )
    mode = result.x if np.isfinite(result.fun) else start
    d = len(mode)
    steps = np.full(d, _SETTINGS.first_step)
    for _ in range(2):  # with steps by the curvature along each axis
        axes = np.diag(steps)
        values = log_density(np.concatenate([[mode], mode + axes, mode - axes]))
        curvature = (2 * values[0] - values[1 : d + 1] - values[d + 1 :]) / steps**2
        curvature = np.where(np.isfinite(curvature), curvature, 0.0)
        sds = np.maximum(curvature, _SETTINGS.largest_sd**-2) ** -0.5
        steps = _SETTINGS.step * sds
    pairs = np.array([(i, j) for i in range(d) for j in range(i)], int).reshape(-1, 2)
    i, j = pairs.T
    axes = np.diag(steps)
    corners = [mode + a * axes[i] + b * axes[j] for a in (1, -1) for b in (1, -1)]
    signs = np.repeat([1.0, -1.0, -1.0, 1.0], len(pairs))
    values = signs * log_density(np.concatenate(corners)) if len(pairs) else signs
    mixed = values.reshape(4, -1).sum(0) / (4.0 * steps[i] * steps[j])
    correlated = np.eye(d)
    correlated[i, j] = correlated[j, i] = np.nan_to_num(-mixed * sds[i] * sds[j])
    eigenvalues, vectors = np.linalg.eigh(correlated)
    eigenvalues = np.maximum(np.abs(eigenvalues), _SETTINGS.first_step)
    covariance = (vectors / eigenvalues) @ vectors.T * np.outer(sds, sds)
    return StudentApproximation(mode, np.linalg.cholesky(covariance))


def fitted(
    log_density: LogDensity,
    approximation: StudentApproximation,
    seed: int,
    ahead: int = 1,
    moves: HamiltonianMoves | None = None,
) -> StudentApproximation:
    """Return a t near a log density: that at its mode, fitted again to draws of a pilot.

    The stepsize of further moves is tuned on the way.
    """
    with_moves = moves is not None
    chains = _SETTINGS.pilot_chains_with_moves if with_moves else _SETTINGS.pilot_chains
    for number in range(_SETTINGS.pilot_rounds):
        # A chain's streams depend on the seed, and not on the number of chains.
        pilot = EllipticalChains(
            log_density,
            approximation,
            seed + number,
            chains,
            RunPhase.MODE,
            ahead,
            moves,
        )
        after = pilot.block(0)[:, _SETTINGS.pilot_dropped :]
        draws = after.reshape(-1, after.shape[-1])
        try:
            approximation = StudentApproximation.of(draws[:, : pilot.size])
        except np.linalg.LinAlgError:
            break
    if moves is not None:
        moves.end_tuning()
    return approximation


class EllipticalChains:
    """Chains of generalized elliptical slice sampling.

    Given a position x, with z = R⁻¹(x − m) in the coordinates of a t with ν degrees of freedom, its
    scale s ~ InverseGamma((d + ν)/2, (ν + |z|²)/2) makes the t a normal distribution. On the
    ellipse through z and a draw of N(0, s I), a point is drawn from the slice on which the density
    over the t's exceeds a uniform part of that at x. Further coordinates, if there are any, have
    moves of their own after a few slices.

    Args:
        log_density: Log density.
        approximation: The t, m and R, of the first coordinates.
        seed: Seed.
        chains: Number of chains.
        phase: Phase whose random numbers are used.
        ahead: Points of a slice whose densities are computed together, the next ones among them
            should the first be outside. It changes no draw: it pays where a call takes long
            for a single position.
        moves: Moves of all coordinates but those of the t; ``None`` if there are no others.

    Attributes:
        moves: As given.
        size: Number of coordinates of the t.
        evaluations: Number of log densities that were computed.
    """

    burn_in = BLOCK

    def __init__(
        self,
        log_density: LogDensity,
        approximation: StudentApproximation,
        seed: int,
        chains: int,
        phase: RunPhase = RunPhase.CHAIN,
        ahead: int = 1,
        moves: HamiltonianMoves | None = None,
    ) -> None:
        self._log_density, self._t, self._ahead = log_density, approximation, ahead
        self._seed, self._chains, self._phase = seed, chains, phase
        self.moves, self.size = moves, len(approximation.mean)
        self.evaluations = 0
        self._z = self._starts()
        self._log_ratio = self._log_ratios(self._z)

    def _starts(self) -> np.ndarray:
        """Return positions drawn from the t, nearer to its mean where there is no density."""
        degrees = _SETTINGS.degrees
        starts = []
        for chain in range(self._chains):
            rng = generator(self._seed, chain, self._phase, Purpose.START)
            normals = rng.standard_normal(self.size)
            chi_square = 2.0 * rng.standard_gamma(0.5 * degrees)
            start = normals * np.sqrt(degrees / chi_square)
            if self.moves is not None:
                start = np.append(start, rng.standard_normal(self.moves.size))
            starts.append(start)
        z = np.array(starts)
        for _ in range(_SETTINGS.shrinkages):
            outside = ~np.isfinite(self._log_ratios(z))
            if not outside.any():
                break
            z[outside] *= 0.5
        return z

    def _log_ratios(self, z: np.ndarray) -> np.ndarray:
        """Return the log density less that of the t, at standardized positions."""
        self.evaluations += len(z)
        degrees, first = _SETTINGS.degrees, z[:, : self.size]
        log_t = -0.5 * (degrees + self.size) * np.log1p((first**2).sum(1) / degrees)
        log_density = self._log_density(self._positions(z))
        return log_density + self._t.log_slopes(first) - log_t

    def _positions(self, z: np.ndarray) -> np.ndarray:
        """Return positions of standardized ones, (..., d)."""
        first = self._t.positions(z[..., : self.size])
        if self.moves is None:
            return first
        return np.concatenate([first, z[..., self.size :]], -1)

    def block(self, number: int) -> np.ndarray:
        """Return the positions of the next block, (chains, BLOCK, d)."""
        z, log_ratio = self._z, self._log_ratio
        degrees, moves = _SETTINGS.degrees, self.moves
        shape = 0.5 * (self.size + degrees)
        each = self._chains, BLOCK, 1 if moves is None else _SETTINGS.slices
        normals, gammas = np.empty((*each, self.size)), np.empty(each)
        uniforms = np.empty((*each, 2 + _SETTINGS.shrinkages))
        further = 0 if moves is None else moves.size
        momenta = np.empty((self._chains, BLOCK, further))
        of_moves = np.empty((self._chains, BLOCK, 2 if further else 0))
        for chain in range(self._chains):
            rng = generator(self._seed, chain, self._phase, Purpose.NOISE, number)
            rng.standard_normal(out=normals[chain])
            rng.standard_gamma(shape, out=gammas[chain])
            rng.random(out=uniforms[chain])
            rng.standard_normal(out=momenta[chain])
            rng.random(out=of_moves[chain])
        positions = np.empty((self._chains, BLOCK, z.shape[1]))
        for iteration in range(BLOCK):
            for k in range(each[-1]):
                squares = (z[:, : self.size] ** 2).sum(1)
                scale = 0.5 * (degrees + squares) / gammas[:, iteration, k]
                across = np.zeros_like(z)
                normal = normals[:, iteration, k]
                across[:, : self.size] = np.sqrt(scale)[:, np.newaxis] * normal
                # 1 − u is never 0.
                u = 1.0 - uniforms[:, iteration, k]
                z, log_ratio = self._slice(z, log_ratio, across, u)
            if moves is not None:
                x = self._positions(z)
                x, change = moves(
                    x, momenta[:, iteration], 1.0 - of_moves[:, iteration]
                )
                z[:, self.size :], log_ratio = x[:, self.size :], log_ratio + change
            positions[:, iteration] = z
        self._z, self._log_ratio = z, log_ratio
        return self._positions(positions)

    def _slice(
        self, z: np.ndarray, log_ratio: np.ndarray, across: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a point of each chain's ellipse on its slice, and the log ratio there."""
        level = log_ratio + np.log(u[:, 0])
        angle = 2.0 * np.pi * u[:, 1]
        low, high = angle - 2.0 * np.pi, angle.copy()
        z, log_ratio, old = z.copy(), log_ratio.copy(), z
        left = np.arange(len(z))
        for first in range(0, _SETTINGS.shrinkages, self._ahead):
            angles = []
            for part in u[left, 2 + first : 2 + first + self._ahead].T:
                angles.append(angle[left])
                negative = angle[left] < 0.0
                low[left] = np.where(negative, angle[left], low[left])
                high[left] = np.where(negative, high[left], angle[left])
                angle[left] = low[left] + part * (high[left] - low[left])
            cosine, sine = np.cos(angles), np.sin(angles)
            proposed = np.repeat(old[np.newaxis, left], len(angles), 0)
            proposed[..., : self.size] *= cosine[..., np.newaxis]
            proposed += sine[..., np.newaxis] * across[left]
            values = self._log_ratios(proposed.reshape(-1, z.shape[1]))
            values = values.reshape(len(angles), -1)
            inside = values > level[left]
            is_done = inside.any(0)
            chosen = np.argmax(inside, 0)[is_done], np.flatnonzero(is_done)
            z[left[is_done]] = proposed[chosen]
            log_ratio[left[is_done]] = values[chosen]
            left = left[~is_done]
            if not len(left):
                break
        return z, log_ratio


class InvertedChains:
    """Independent draws of a density of one dimension, by its distribution function on a grid.

    Args:
        log_density: Log density, with a single mode.
        start: A position.
        seed: Seed.
        chains: Number of chains.
    """

    burn_in = 0

    def __init__(
        self, log_density: LogDensity, start: float, seed: int, chains: int
    ) -> None:
        self._seed, self._chains = seed, chains
        self.mode, width = mode_and_width(log_density, start)
        top = log_density(np.array([[self.mode]]))[0]
        low = _end(log_density, self.mode, top, -width)
        high = _end(log_density, self.mode, top, width)
        self._nodes = np.linspace(low, high, _SETTINGS.nodes)
        density = np.exp(log_density(self._nodes[:, np.newaxis]) - top)
        masses = 0.5 * (density[1:] + density[:-1])
        self._masses = np.append(0.0, np.cumsum(masses)) / masses.sum()
        self.evaluations = _SETTINGS.nodes

    def block(self, number: int) -> np.ndarray:
        """Return the positions of a block, (chains, BLOCK, 1)."""
        rngs = [
            generator(self._seed, chain, RunPhase.CHAIN, Purpose.NOISE, number)
            for chain in range(self._chains)
        ]
        u = np.stack([rng.random(BLOCK) for rng in rngs])
        return np.interp(u, self._masses, self._nodes)[..., np.newaxis]


def mode_and_width(log_density: LogDensity, start: float) -> tuple[float, float]:
    """Return the mode of a log density of one dimension, and the scale of its curvature there."""
    mode, reach, width = start, _SETTINGS.reach, np.inf
    for _ in range(_SETTINGS.zooms):
        nodes = np.linspace(mode - reach, mode + reach, 81)
        values = log_density(nodes[:, np.newaxis])
        mode = float(nodes[np.argmax(values)])
        step = nodes[1] - nodes[0]
        around = log_density(np.array([[mode - step], [mode], [mode + step]]))
        curvature = (2.0 * around[1] - around[0] - around[2]) / step**2
        if np.isfinite(curvature) and curvature > 0:
            width = curvature**-0.5
        if step < 0.25 * width:
            return mode, min(width, 1.0)
        reach = 2.0 * step
    return mode, min(width, 1.0)


def _end(log_density: LogDensity, mode: float, top: float, step: float) -> float:
    """Return the position in a direction beyond which there is no probability."""
    steps = step * 1.1 ** np.arange(200)
    nodes = mode + np.cumsum(steps)
    low = log_density(nodes[:, np.newaxis]) < top - _SETTINGS.fall
    return float(nodes[np.argmax(low)] if low.any() else nodes[-1])
