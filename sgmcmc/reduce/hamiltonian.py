"""Hamiltonian moves of coordinates that are nearly standard normal, for few numbers in NumPy.

Source: Neal, *MCMC using Hamiltonian dynamics*, Handbook of MCMC (2011), section 5.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

ValueAndSlope = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Log density of positions, (c, d), as (c,), and its gradient along the last of them, (c, m)."""


@dataclass(frozen=True)
class _Settings:
    time: float = 1.5  # of a trajectory: a quarter of a turn of a standard normal
    most_steps: int = 12  # of a trajectory
    jitter: float = 0.2  # of the stepsize, to each side
    first_stepsize: float = 0.5
    acceptance: float = 0.8
    # Steps of the search for the stepsize are those of Robbins and Monro.
    delay: float = 5.0
    power: float = 0.6


_SETTINGS = _Settings()


class HamiltonianMoves:
    """Moves of the last coordinates of positions, given the first.

    Args:
        slope: Log density and its gradient.
        size: Number of coordinates that are moved.

    Attributes:
        gradients: Number of gradients that were computed.
        stepsize: Stepsize.
    """

    def __init__(self, slope: ValueAndSlope, size: int) -> None:
        self._slope, self.size = slope, size
        self.gradients, self.stepsize = 0, _SETTINGS.first_stepsize
        self._tuned: int | None = 0

    def end_tuning(self) -> None:
        """Keep the stepsize, and count gradients, from now on."""
        self._tuned, self.gradients = None, 0

    def __call__(
        self, x: np.ndarray, normals: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return positions after a trajectory, and the changes of the log density.

        Args:
            x: Positions, (c, d).
            normals: Standard normals, (c, size).
            u: Uniform numbers, (c, 2).
        """
        moved, momentum, first = x.copy(), normals, x.shape[1] - self.size
        jitter = 1.0 + _SETTINGS.jitter * (2.0 * u[:, 1:] - 1.0)
        step = self.stepsize * jitter
        number = int(np.ceil(_SETTINGS.time / self.stepsize))
        number = min(number, _SETTINGS.most_steps)
        before, gradient = self._slope(x)
        values = before
        for _ in range(number):
            momentum = momentum + 0.5 * step * gradient
            moved[:, first:] += step * momentum
            values, gradient = self._slope(moved)
            momentum = momentum + 0.5 * step * gradient
        self.gradients += (number + 1) * len(x)
        change = values - before
        kinetic = 0.5 * ((momentum**2).sum(1) - (normals**2).sum(1))
        log_ratio = np.nan_to_num(change - kinetic, nan=-np.inf)
        accepted = np.log(u[:, 0]) < log_ratio
        if self._tuned is not None:
            self._tuned += 1
            rate = float(np.exp(np.minimum(log_ratio, 0.0)).mean())
            gain = (self._tuned + _SETTINGS.delay) ** -_SETTINGS.power
            self.stepsize *= float(np.exp(gain * (rate - _SETTINGS.acceptance)))
        moved = np.where(accepted[:, np.newaxis], moved, x)
        return moved, np.where(accepted, change, 0.0)
