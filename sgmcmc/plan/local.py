"""Local scales, curvature and noise of a posterior, if d is too large for matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgmcmc.data.dataset import PIECE_BYTES, Data
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.dynamics import Dynamics
from sgmcmc.minibatches import Uniform
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.model.target import Target
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.plan import LARGEST, WHOLE_UP_TO
from sgmcmc.plan.prediction import largest_good
from sgmcmc.plan.recursion import LinearRecursion

# Pairs of minibatches, over all positions, whose gradients measure the noise.
PAIRS = 128


@dataclass(frozen=True)
class _Settings:
    prior_probes: int = 4  # of the prior's curvature, for each parameter
    power_iterations: int = 20
    # The last power iterations, whose mean is the curvature.
    settled_iterations: int = 10
    # Fewer gradients over rows say little of the curvature: it is probed.
    few_rows: int = 16
    information_floor: float = 1e-4  # of a coordinate, relative to the mean over all
    # Rows of a minibatch. If noise limits the stepsize, twice the rows allow twice the stepsize,
    # so that nothing is gained by more.
    minibatch_sizes: tuple[int, ...] = (500, 1000)
    min_stepsize: float = 1e-6  # relative to the largest
    noise_rows: int = 500  # of the minibatches that measure noise
    curvature_rows: int = 2000  # of the minibatches for Hessian-vector products


_SETTINGS = _Settings()


@dataclass(frozen=True)
class LocalGeometry:
    """Scales, curvature and noise around some positions, in coordinates scaled by information.

    Attributes:
        whitening: √M, with M the reciprocal of each coordinate's information, and its origin.
        share: Likelihood's part of that information, (d,).
        curvature: Largest curvature in the scaled coordinates.
        noise: Variance of the gradient noise of one minibatch in each scaled coordinate, (d,).
        stiff_noise: Variance of the gradient noise in the direction of the largest curvature.
        rows: n of those minibatches.
        size: Number of observations.
    """

    whitening: Preconditioner
    share: np.ndarray
    curvature: float
    noise: np.ndarray
    stiff_noise: float
    rows: int
    size: int

    def noise_factor(self, n: int) -> float:
        """Return the factor of the noise for minibatches of n rows."""
        if n >= self.size:
            return 0.0
        return (1 / n - 1 / self.size) / (1 / self.rows - 1 / self.size)


def local_geometry(
    target: Target, data: Data, positions: list[np.ndarray], seed: int
) -> LocalGeometry:
    """Return scales, curvature and noise around some positions.

    The information on a coordinate is N times the variance of its score over the observations,
    which in a model that fits is its curvature, and the prior's own. M, the reciprocal, is the
    variance that the coordinate would have with all others fixed.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        positions: Positions of chains, flat and unconstrained; the first becomes the origin.
        seed: Seed of the rows and directions.
    """
    probe = Probe(target, data, seed)
    draws = [
        probe.noise(u) for u in positions for _ in range(-(-PAIRS // len(positions)))
    ]
    square = np.mean([draw**2 for draw in draws], 0)
    prior = np.mean([prior_information(probe, target, u) for u in positions], 0)
    if data.size >= _SETTINGS.few_rows:
        # The noise's variance is N²(1/n − 1/N) times that of a term's gradient.
        from_data = square / (data.size / probe.rows - 1.0)
    else:
        power_iterations = range(_SETTINGS.power_iterations)
        signs = [(u, probe.signs()) for u in positions for _ in power_iterations]
        diagonal = np.mean([z * probe.times_hessian(u, z) for u, z in signs], 0)
        from_data = np.maximum(np.abs(diagonal) - prior, 0.0)
    information = from_data + prior
    floor = (
        _SETTINGS.information_floor * information.mean() if information.any() else 1.0
    )
    information = np.maximum(information, floor)
    root = 1.0 / np.sqrt(information)
    curvature, direction_of_largest = 0.0, np.zeros(0)
    for u in positions:
        estimate, direction = largest_curvature(probe, u, root)
        if estimate > curvature or not direction_of_largest.size:
            curvature, direction_of_largest = estimate, direction
    stiff_noise = float(
        np.mean([(draw @ (root * direction_of_largest)) ** 2 for draw in draws])
    )
    return LocalGeometry(
        Preconditioner(root, positions[0]),
        from_data / information,
        curvature,
        square * root**2,
        stiff_noise,
        probe.rows,
        data.size,
    )


def prior_information(probe: Probe, target: Target, u: np.ndarray) -> np.ndarray:
    """Return the curvature of the prior in each coordinate, (d,).

    Exact if the components of a parameter are independent given all others. If it is not
    positive, as with a prior that has a kink, the mean square of the parameter's gradient is used
    in for it.
    """
    diagonal = np.zeros(target.size)
    gradient = probe.objective.prior_gradient(u)
    for entries in target.space.layout.slices.values():
        for _ in range(_SETTINGS.prior_probes):
            z = np.zeros(target.size)
            z[entries] = probe.signs()[entries]
            product = z * probe.objective.times_prior_hessian(u, z)
            diagonal[entries] += product[entries] / _SETTINGS.prior_probes
        diagonal[entries] = np.where(
            diagonal[entries] > 0, diagonal[entries], (gradient[entries] ** 2).mean()
        )
    return diagonal


def largest_curvature(
    probe: Probe, u: np.ndarray, root: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the largest curvature in scaled coordinates and its direction, by power iteration.

    Each product has a new minibatch; the mean of the last ten quotients counts.
    """
    vector = probe.rng.standard_normal(len(u))
    quotients = []
    for _ in range(_SETTINGS.power_iterations):
        vector /= max(float(np.linalg.norm(vector)), np.finfo(float).tiny)
        product = root * probe.times_hessian(u, root * vector)
        quotients.append(abs(float(vector @ product)))
        if not product.any() or not np.isfinite(product).all():
            break
        vector = product
    size = max(float(np.linalg.norm(vector)), np.finfo(float).tiny)
    return float(np.mean(quotients[-_SETTINGS.settled_iterations :])), vector / size


@dataclass(frozen=True)
class LocalPlan:
    """Constants of a large model, and curvature and noise around the positions they were chosen at.

    Attributes:
        around: Scales, curvature and noise there.
        minibatch_size: n; N if every gradient uses all rows.
        dynamics: Dynamics of the phase.
        stepsize: ε, in scaled coordinates.
        noise: Variance of the gradient noise in each scaled coordinate, (d,).
        error: Predicted relative error of the SD of each coordinate given all others, (d,).
        stiff_error: Predicted relative error of the SD in the direction of the largest curvature.
        autocorrelation: Autocorrelation time of a single coordinate, in iterations.
    """

    around: LocalGeometry
    minibatch_size: int
    dynamics: Dynamics
    stepsize: float
    noise: np.ndarray
    error: np.ndarray
    stiff_error: float
    autocorrelation: float


def choose_locally(
    geometry: LocalGeometry, dynamics: Dynamics, tolerance: float
) -> LocalPlan:
    """Return the plan with the fewest rows that let curvature, not noise, limit the stepsize.

    The stepsize is a quarter of the reciprocal of the largest curvature, or less, so that the SD of
    every single coordinate, with all others fixed, is within the tolerance. In directions across
    the coordinates curvature and noise may be larger, and the error too; it is predicted for the
    direction of the largest curvature.

    Args:
        geometry: Scales, curvature and noise.
        dynamics: Dynamics, which must be linear.
        tolerance: Largest relative error of an SD.
    """
    largest = LARGEST / max(1.0, geometry.curvature)
    uses_all = geometry.size <= WHOLE_UP_TO
    sizes = (
        [geometry.size]
        if uses_all
        else [n for n in _SETTINGS.minibatch_sizes if n <= geometry.size]
    )
    noisiest = float(geometry.noise.max())
    for n in sizes:
        factor = geometry.noise_factor(n)
        stepsize = _largest_stepsize(dynamics, noisiest * factor, tolerance, largest)
        if stepsize >= largest:
            break
    return _predict_errors(geometry, n, dynamics, stepsize)


def at_stepsize(plan: LocalPlan, stepsize: float) -> LocalPlan:
    """Return the plan with another stepsize."""
    return _predict_errors(plan.around, plan.minibatch_size, plan.dynamics, stepsize)


def _predict_errors(
    geometry: LocalGeometry, n: int, dynamics: Dynamics, stepsize: float
) -> LocalPlan:
    factor = geometry.noise_factor(n)
    recursion = LinearRecursion(dynamics, stepsize)
    noise = factor * geometry.noise
    noiseless = recursion.variance(0.0)
    error = np.sqrt(noiseless + (recursion.variance(1.0) - noiseless) * noise) - 1.0
    # A direction of curvature λ is one of curvature 1 in coordinates √λ times as long.
    curvature = max(1.0, geometry.curvature)
    stiff = LinearRecursion(dynamics, stepsize * curvature)
    variance = stiff.variance(factor * geometry.stiff_noise / curvature)
    return LocalPlan(
        geometry,
        n,
        dynamics,
        stepsize,
        noise,
        error,
        float(np.sqrt(variance)) - 1.0 if stiff.stable else np.inf,
        recursion.autocorrelation_time(0.0),
    )


def _largest_stepsize(
    dynamics: Dynamics, noise: float, tolerance: float, largest: float
) -> float:
    """Return the largest ε, up to ``largest``, at which an SD is off by at most the tolerance."""

    def excess(stepsize: float) -> float:
        recursion = LinearRecursion(dynamics, stepsize)
        if not recursion.stable:
            return np.inf
        return float(abs(np.sqrt(recursion.variance(noise)) - 1)) - tolerance

    return largest_good(excess, _SETTINGS.min_stepsize * largest, largest)


class Probe:
    """Gradients of minibatches, and products with their Hessians, at any position.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        seed: Seed of the rows and directions.

    Attributes:
        objective: Log posterior over the whole dataset, in the dtype of the chain.
    """

    def __init__(self, target: Target, data: Data, seed: int) -> None:
        self.objective = Objective(target, data, double=False)
        self._data = data
        self.rng = generator(seed, 0, RunPhase.MODE, Purpose.PROBES)
        # Fewer than all, or there would be no noise to measure.
        self.rows = min(_SETTINGS.noise_rows, max(1, data.size // 2))

    def _minibatch(self, n: int) -> Objective:
        rows = Uniform().bind(self._data.size, n).draw(self.rng, 1)[0]
        return self.objective.over([(rows, self._data.size / n)])

    def noise(self, u: np.ndarray) -> np.ndarray:
        """Return one draw of the gradient noise of a minibatch, (d,)."""
        first = self._minibatch(self.rows)
        second = self._minibatch(self.rows)
        return (first.likelihood_gradient(u) - second.likelihood_gradient(u)) / np.sqrt(
            2.0
        )

    def times_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of a minibatch's log posterior times a vector."""
        rows_that_fit = max(1, PIECE_BYTES // max(1, self._data.row_bytes))
        n = min(self._data.size, _SETTINGS.curvature_rows, rows_that_fit)
        return self._minibatch(n).times_hessian(u, vector)

    def signs(self) -> np.ndarray:
        """Return a random direction of signs."""
        return self.rng.choice([-1.0, 1.0], self.objective.size)
