"""The mode of the log posterior, by Newton's method on the data themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from sgmcmc.tuning.information import Information, mean_prior_gradient, observed_information
from sgmcmc.tuning.objective import Objective

DENSE_UP_TO = 2000
"""Coordinates up to which Hessians are made and inverted."""

_CLOSE, _CLOSE_ENOUGH = 0.1, 0.25
"""Posterior sds of a coordinate, in the root mean square, that the mode may still be off: to stop
looking, and to be called found."""

_STEPS, _HALVINGS = 40, 10
_QUICK = 0.3
"""By what a step should bring the distance down, lest the information be taken anew."""

_HIGHER = 0.1
"""By how much more a log posterior is clearly higher."""

_PATIENCE, _LITTLE = 3, 0.05
"""The first search ends when so many steps have raised the log posterior by less than that."""


@dataclass(frozen=True)
class Mode:
    """Where the log posterior is largest, as far as was found.

    Attributes:
        position: θ̂, flat and unconstrained, in float64.
        gradient: Gradient of the log posterior there, flat.
        information: Curvature there, and the covariance that it implies.
        distance: Length of the remaining Newton step: √(gᵀMg/d), in posterior SDs of a coordinate.
        evaluations: Number of passes over the whole dataset.
    """

    position: np.ndarray
    gradient: np.ndarray
    information: Information
    distance: float
    evaluations: int

    @property
    def converged(self) -> bool:
        """Whether the mode was found to a quarter of a posterior sd."""
        return self.distance <= _CLOSE_ENOUGH


def find_mode(objective: Objective, start: np.ndarray, part: Objective | None = None) -> Mode:
    """Return the mode.

    A part of a large dataset is maximised first, by trust-region Newton steps; from there Newton
    steps on all of it, with the information of the last point where it was taken, as long as they
    are quick. Where the prior has a kink, its gradient is the mean from one sd below to one above.

    Args:
        objective: Log posterior over the whole dataset.
        start: Starting position, flat and unconstrained.
        part: Log posterior over some of the rows; ``None`` to begin with all of them.
    """
    u = _trust_region(part or objective, np.asarray(start, np.float64))
    here = _look(objective, u, observed_information(objective, u))
    fresh = True
    for _ in range(_STEPS):
        if here.distance <= _CLOSE:
            break
        there = _step(objective, here)
        shrunk = 1.0 if there is None else there.distance / here.distance
        if there is None and fresh:
            break
        here, fresh = there or here, False
        if shrunk > _QUICK:
            here, fresh = _look(objective, here.u, observed_information(objective, here.u)), True
    if not fresh:
        here = _look(objective, here.u, observed_information(objective, here.u))
    return Mode(here.u, here.gradient, here.information, here.distance, objective.evaluations)


class _Point(NamedTuple):
    """A position on the way, what the log posterior is there, and the information to step by."""

    u: np.ndarray
    value: float
    gradient: np.ndarray
    information: Information

    @property
    def distance(self) -> float:
        """How far a Newton step goes, in posterior sds of a coordinate, in the root mean square."""
        step = self.information.covariance @ self.gradient
        return float(np.sqrt(max(0.0, self.gradient @ step) / len(self.u)))


def _look(objective: Objective, u: np.ndarray, information: Information) -> _Point:
    """Return what there is at a position; the gradient is smooth where the prior has kinks."""
    value, gradient = objective.value_and_gradient(u)
    kinked = information.held_up > 0
    if kinked.any():
        at = objective.prior_gradients(u[np.newaxis])[0]
        mean = mean_prior_gradient(objective, u, information.scale)
        gradient = np.where(kinked, gradient - at + mean, gradient)
    return _Point(u, value, gradient, information)


def _step(objective: Objective, here: _Point) -> _Point | None:
    """Return a point along a Newton step that is higher, or nearer to the mode; else ``None``.

    At the mode of a prior with kinks a nearer point may be lower, by no more than one for each
    coordinate. Farther below, a step that looks short is one of another, flatter place.
    """
    step, length = here.information.covariance @ here.gradient, 1.0
    for _ in range(_HALVINGS):
        there = _look(objective, here.u + length * step, here.information)
        if np.isfinite(there.value) and np.isfinite(there.gradient).all():
            nearer = there.distance < here.distance and there.value > here.value - len(step)
            if nearer or there.value > here.value + _HIGHER:
                return there
        length *= 0.5
    return None


def _trust_region(objective: Objective, start: np.ndarray) -> np.ndarray:
    """Return the maximum that SciPy's trust-region Newton method finds."""
    known: dict[bytes, tuple[float, np.ndarray]] = {}

    def both(u: np.ndarray) -> tuple[float, np.ndarray]:
        key = u.tobytes()
        if key not in known:
            value, gradient = objective.value_and_gradient(u)
            known[key] = (-value if np.isfinite(value) else np.inf), -gradient
        return known[key]

    best: list[float] = []

    def enough(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        best.append(float(intermediate_result.fun))
        if len(best) > _PATIENCE and best[-1 - _PATIENCE] - best[-1] < _LITTLE:
            raise StopIteration

    found = scipy.optimize.minimize(
        lambda u: both(u)[0],
        start,
        jac=lambda u: both(u)[1],
        hess=lambda u: -(objective.likelihood_hessian(u) + objective.prior_hessian(u)),
        method="trust-exact",
        callback=enough,
        options={"maxiter": 200, "gtol": 1e-9},
    )
    return found.x if np.isfinite(found.x).all() else start
