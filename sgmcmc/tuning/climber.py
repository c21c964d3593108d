"""Searches for a local maximum, in coordinates whitened at one that is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from sgmcmc.target.geometry import root_of
from sgmcmc.tuning.mode import Mode
from sgmcmc.tuning.objective import Objective

_ITERATIONS, CLOSE = 40, 0.01
"""Iterations of one search, and the gradient, in posterior sds, at which it has arrived."""

_LOOK = 10
"""After how many iterations it is seen whether a search goes to a place that is known."""

DIP = 1.0
"""How much lower the log posterior is somewhere on the line between two modes."""

LINE = (0.5, 0.4, 0.6, 0.25, 0.75, 0.15, 0.85)
"""Where on that line it is looked for."""


class Climber:
    """The log posterior over a part of the data, in coordinates whitened at the mode."""

    def __init__(self, objective: Objective, mode: Mode) -> None:
        self.root = root_of(mode.information.covariance)
        self.objective, self._origin = objective, mode.position
        self._known: dict[bytes, tuple[float, np.ndarray]] = {}

    def into(self, u: np.ndarray) -> np.ndarray:
        """Return whitened coordinates."""
        return np.linalg.solve(self.root, u - self._origin)

    def out_of(self, zeta: np.ndarray) -> np.ndarray:
        """Return unconstrained coordinates."""
        return self._origin + self.root @ zeta

    def both(self, zeta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log posterior and its gradient; minus infinity and zero where it has none."""
        key = zeta.tobytes()
        if key not in self._known:
            value, gradient = self.objective.value_and_gradient(self.out_of(zeta))
            fine = np.isfinite(value) and np.isfinite(gradient).all()
            slope = self.root.T @ gradient if fine else np.zeros(len(zeta))
            self._known[key] = (value if fine else -np.inf, slope)
        return self._known[key]

    def value(self, zeta: np.ndarray) -> float:
        """Return the log posterior."""
        return self.both(zeta)[0]

    def arrived(self, zeta: np.ndarray) -> bool:
        """Tell whether the gradient is small."""
        value, slope = self.both(zeta)
        return np.isfinite(value) and float(np.abs(slope).max()) < 10 * CLOSE * np.sqrt(len(zeta))

    def dips(self, one: np.ndarray, other: np.ndarray) -> bool:
        """Tell whether the log posterior is lower somewhere between two places than at both."""
        least = min(self.value(one), self.value(other)) - DIP
        return any(not self.value(one + t * (other - one)) > least for t in LINE)

    @staticmethod
    def distance(zeta: np.ndarray, others: list[np.ndarray]) -> float:
        """Return how far the nearest of the others is, in posterior sds."""
        return min((float(np.linalg.norm(zeta - other)) for other in others), default=np.inf)

    def climb(self, start: np.ndarray, known: list[np.ndarray]) -> Any:
        """Return where L-BFGS ends; ``None`` if that is a place that is known."""
        if not np.isfinite(self.value(start)):
            return None
        floor = self.value(start) - 1e10
        last = start
        near = np.sqrt(len(start))
        iterations = 0

        def enough(intermediate_result: scipy.optimize.OptimizeResult) -> None:
            nonlocal last, iterations
            last, iterations = np.array(intermediate_result.x), iterations + 1
            if self.distance(last, known) < near:
                raise StopIteration
            # High up already, and no dip on the way to a place that is known: it goes there.
            if iterations % _LOOK == 0 and not all(self.dips(last, other) for other in known):
                raise StopIteration

        found = scipy.optimize.minimize(
            lambda zeta: -max(self.value(zeta), floor),
            start,
            jac=lambda zeta: -self.both(zeta)[1],
            method="L-BFGS-B",
            callback=enough,
            options={"maxiter": _ITERATIONS, "gtol": CLOSE, "ftol": 1e-13},
        )
        end = found.x if np.isfinite(found.x).all() else last
        return None if self.distance(end, known) < near else end
