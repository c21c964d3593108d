"""Predicted errors and autocorrelation times, and the largest stepsize within a tolerance.

They follow from curvature and noise around a position, by the moments of linear chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sgmcmc.dynamics import SGLD, SGNHT, Dynamics
from sgmcmc.plan.recursion import (
    LinearRecursion,
    RecursionInTurn,
    at_rest,
)


@dataclass(frozen=True)
class _Settings:
    min_curvature: float = 1e-12  # of a direction, relative to the largest
    usual_time: float = 50.0  # iterations per independent draw if nothing is known
    min_stepsize: float = 1e-6  # of the search, times the largest curvature
    max_stepsize: float = 1.0  # of the search, times the largest curvature
    # Coordinates for which moments of parameters that move in turn take less than a second: the
    # time grows with the cube of their number.
    max_size_in_turn: int = 300
    coarse_divisor: float = 4.0  # of the stepsize in the first part of the search
    interval: float = 1e-8  # relative width at which the second part of the search ends
    max_evaluations: int = 60  # in the second part of the search
    white_rounding: float = 1e-6  # of a whitened information, relative to the identity


_SETTINGS = _Settings()


# Noise in two directions: from it follows what variances and covariances become.
_TWO = np.array([[1.0, 0.5], [0.5, 1.0]])


@dataclass(frozen=True)
class ChainPrediction:
    """Predictions of the closed form for a chain.

    Attributes:
        ratio: SD of the chain over that of the posterior, of each coordinate, (d,).
        times: Autocorrelation time of each coordinate, in iterations, (d,).
        stable: Whether the chain has a stationary distribution; otherwise the others are infinite.
    """

    ratio: np.ndarray
    times: np.ndarray
    stable: bool

    @property
    def error(self) -> np.ndarray:
        """Relative error of the SD of each coordinate, (d,)."""
        return self.ratio - 1.0

    @classmethod
    def unknown(cls, d: int) -> ChainPrediction:
        """Return the prediction if there is no closed form: no error, and a usual speed."""
        return cls(np.full(d, np.nan), np.full(d, _SETTINGS.usual_time), True)

    @property
    def known(self) -> bool:
        """Whether there is a closed form."""
        return not np.isnan(self.ratio).any()

    @property
    def worst(self) -> float:
        """The largest error, up or down."""
        return float(np.abs(self.error).max())


@dataclass(frozen=True)
class NoisyQuadratic:
    """The posterior's curvature and the gradient's noise, in the coordinates of a chain.

    Args:
        information: J, the negative Hessian in the chain's coordinates, (d, d).
        noise: V, the covariance of the gradient noise in them, (d, d).
        root: C, which maps them to the unconstrained coordinates: (d, d), or (d,) if diagonal.
        epoch: R = N/n, if minibatches come in order; ``None`` if they are independent.
        known_axes: Eigenvalues and eigenvectors of J, if they are known.
    """

    information: np.ndarray
    noise: np.ndarray
    root: np.ndarray
    epoch: float | None = None
    known_axes: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of the information, with no curvature below zero."""
        if self.known_axes is not None:
            return self.known_axes
        if self._white:
            return np.ones(len(self.root)), np.eye(len(self.root))
        values, vectors = np.linalg.eigh(self.information)
        return np.maximum(
            values, _SETTINGS.min_curvature * max(values[-1], 1e-300)
        ), vectors

    @cached_property
    def _white(self) -> bool:
        """Whether the information is the identity, as it is in coordinates that whiten it."""
        return bool(
            np.abs(self.information - np.eye(len(self.root))).max()
            <= _SETTINGS.white_rounding
        )

    @cached_property
    def noise_along_axes(self) -> np.ndarray:
        """V in the coordinates of the eigenvectors."""
        if self._white:
            return self.noise
        vectors = self.axes[1]
        return vectors.T @ self.noise @ vectors

    @property
    def is_noiseless(self) -> bool:
        """Whether gradients have no noise."""
        return not self.noise.any()

    def with_noise(
        self, noise: np.ndarray, epoch: float | None = None
    ) -> NoisyQuadratic:
        """Return the same with another covariance of the noise, independent or in epochs."""
        return replace(self, noise=noise, epoch=epoch, known_axes=self.axes)

    def scaled(self, scale: np.ndarray) -> NoisyQuadratic:
        """Return the same for a chain in other units, ζ = scale · φ."""
        return NoisyQuadratic(
            scale[:, np.newaxis] * self.information * scale,
            scale[:, np.newaxis] * self.noise * scale,
            self.root * scale,
            self.epoch,
        )

    @property
    def noise_by_coordinate(self) -> np.ndarray:
        """Variance of the noise in the direction of each unconstrained coordinate, in its SDs."""
        values, _ = self.axes
        rows = self._shares / np.sqrt(values)
        sizes = np.linalg.norm(rows, axis=1, keepdims=True)
        directions = rows / np.where(sizes > 0, sizes, 1.0)
        whitened = self.noise_along_axes / np.sqrt(np.outer(values, values))
        return np.einsum("ij,jk,ik->i", directions, whitened, directions)

    @cached_property
    def _shares(self) -> np.ndarray:
        """The rows that make each unconstrained coordinate of those of the eigenvectors."""
        if self._white and self.root.ndim == 2:
            return self.root
        vectors = self.axes[1]
        return (
            self.root @ vectors
            if self.root.ndim == 2
            else self.root[:, np.newaxis] * vectors
        )

    def predict(
        self,
        dynamics: Dynamics,
        stepsize: float | np.ndarray,
        in_turn: Sequence[slice] | None = None,
    ) -> ChainPrediction:
        """Return the predictions from the moments of a dynamics.

        Args:
            dynamics: Dynamics, bound to its constants.
            stepsize: ε; an array has one for each coordinate of the chain.
            in_turn: Slices of parameters that move one after the other.

        Raises:
            ValueError: There is no closed form for it.
        """
        stepsizes = np.asarray(stepsize, float)
        if in_turn is not None:
            d = len(self.root)
            need_law_in_turn(dynamics, d)
            stepsizes = np.broadcast_to(stepsizes, d)
            by_turns = RecursionInTurn(self.information, stepsizes, in_turn)
            if not by_turns.stable:
                return self._unstable
            rows = self.root if self.root.ndim == 2 else np.diag(self.root)
            return self._prediction(rows, *by_turns.covariance(self.noise))
        if stepsizes.ndim and (stepsizes != stepsizes.flat[0]).any():
            # θ with its own stepsize is θ in other units with ε = 1.
            return self.scaled(np.sqrt(stepsizes)).predict(dynamics, 1.0)
        epsilon, (values, _) = float(stepsizes.flat[0]), self.axes
        noise = self.noise_along_axes
        if isinstance(dynamics, SGNHT):
            dynamics = at_rest(dynamics, epsilon, values, np.diag(noise))
        recursion = LinearRecursion(
            dynamics, epsilon, np.ones(2) if self._white else values
        )
        if not recursion.stable:
            return self._unstable
        if self._white:
            # A moment where all curvatures are 1 is a I + b V, a and b the same for all directions.
            moments = []
            for moment in recursion.covariance(_TWO, self.epoch):
                per_noise = moment[0, 1] / _TWO[0, 1]
                constant = moment[0, 0] - per_noise * _TWO[0, 0]
                of_noise = per_noise * self._noise_of_coordinates
                moments.append(constant * self._variances + of_noise)
            return self._predicted(*moments)
        return self._prediction(self._shares, *recursion.covariance(noise, self.epoch))

    @property
    def _unstable(self) -> ChainPrediction:
        none = np.full(len(self.root), np.inf)
        return ChainPrediction(none, none, False)

    @cached_property
    def _variances(self) -> np.ndarray:
        return (self._shares**2 / self.axes[0]).sum(1)

    @cached_property
    def _noise_of_coordinates(self) -> np.ndarray:
        """Variance of the noise of each unconstrained coordinate, (d,)."""
        return ((self._shares @ self.noise_along_axes) * self._shares).sum(1)

    def _prediction(
        self, shares: np.ndarray, covariance: np.ndarray, sums: np.ndarray
    ) -> ChainPrediction:
        """Return the prediction for each unconstrained coordinate.

        Args:
            shares: Rows that compute them from those of the covariance.
            covariance: Stationary covariance of the chain.
            sums: Sums of its autocovariances.
        """
        return self._predicted(
            *(((shares @ matrix) * shares).sum(1) for matrix in (covariance, sums))
        )

    def _predicted(self, variance: np.ndarray, summed: np.ndarray) -> ChainPrediction:
        times = np.maximum(1.0, 2 * summed / variance - 1)
        return ChainPrediction(
            np.sqrt(np.maximum(variance, 0.0) / self._variances), times, True
        )


def need_law_in_turn(dynamics: Dynamics, d: int) -> None:
    """Raise an error if parameters that move in turn have no closed form."""
    if type(dynamics) is not SGLD:
        raise ValueError(
            f"There is no closed form for {type(dynamics).__name__} with parameters that move in "
            "turn."
        )
    if d > _SETTINGS.max_size_in_turn:
        raise ValueError(
            "The distribution of parameters that move in turn is computed for up to "
            f"{_SETTINGS.max_size_in_turn} coordinates; there are {d}."
        )


def largest_stepsize(
    dynamics: Dynamics,
    quadratic: NoisyQuadratic,
    tolerance: float,
    largest: float = _SETTINGS.max_stepsize,
    in_turn: Sequence[slice] | None = None,
) -> float:
    """Return the largest ε at which every SD is off by at most ``tolerance``.

    Args:
        dynamics: Dynamics, bound to its constants.
        quadratic: Curvature and noise.
        tolerance: Largest relative error of an SD.
        largest: Largest ε times the largest curvature.
        in_turn: Slices of parameters that move one after the other.
    """
    unit = 1.0 / quadratic.axes[0][-1]

    def excess(stepsize: float) -> float:
        return quadratic.predict(dynamics, stepsize, in_turn).worst - tolerance

    return largest_good(excess, _SETTINGS.min_stepsize * unit, largest * unit)


def largest_good(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return the largest number between two that is good, if all below it are.

    The zero of the excess is found by false position, each end's value halved if the other end has
    moved twice: three times fewer evaluations than by halving the interval.

    Args:
        excess: Function that is positive, or not finite, for a number that is not good.
        low: Value returned if nothing is good.
        high: Largest value that may be returned.
    """
    below, excess_below = high, excess(high)
    if excess_below <= 0:
        return high
    while not excess_below <= 0:
        if below <= low:
            return low
        # Not straight to the middle: far below, rounding would spoil what is predicted.
        high, excess_high = below, excess_below
        below = max(low, below / _SETTINGS.coarse_divisor)
        excess_below = excess(below)
    last_moved = 0
    for _ in range(_SETTINGS.max_evaluations):
        if excess_below == 0 or high <= below * (1 + _SETTINGS.interval):
            break
        share = (
            excess_below / (excess_below - excess_high)
            if np.isfinite(excess_high)
            else 0.5
        )
        between = float(below * (high / below) ** min(max(share, 1e-9), 1 - 1e-9))
        value = excess(between)
        if value <= 0:
            excess_high *= 0.5 if last_moved == -1 else 1.0
            below, excess_below, last_moved = between, value, -1
        else:
            excess_below *= 0.5 if last_moved == 1 else 1.0
            high, excess_high, last_moved = between, value, 1
    return below


def error_factor(dynamics: Dynamics) -> float:
    """Return ε's error over its difference to that of ε/2: 2 of errors in proportion to ε."""
    noise, stepsize = (
        1.0,
        0.01,
    )  # in units of the curvature; they show the order of an error
    geometry = NoisyQuadratic(np.eye(1), np.full((1, 1), noise), np.ones(1))
    try:
        error, error_at_half = (
            float(geometry.predict(dynamics, size).error[0])
            for size in (stepsize, stepsize / 2)
        )
    except ValueError:  # there is no closed form
        return 2.0
    return error / (error - error_at_half)
