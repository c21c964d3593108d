"""The mode of the log posterior, by Newton's method on the data themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from sgmcmc.target.geometry import root_of
from sgmcmc.tuning.information import Information, mean_prior_gradient, observed_information
from sgmcmc.tuning.objective import Objective

MANY = 300
"""Number of coordinates up to which nobody looks for blocks of the information."""

DENSE_UP_TO = 2000
"""Largest number of coordinates for which Hessians are made and inverted."""

DENSE_OF_PREDICTORS = 5000
"""The same where the data meet the parameters in linear predictors, so that making them is quick.
"""

_CLOSE = 0.1
"""Distance from the mode, in posterior SDs of a coordinate (RMS), at which the search stops."""

_CLOSE_ENOUGH = 0.25
"""Largest such distance at which the mode counts as found."""

_STEPS, _HALVINGS = 40, 20
_ROUGHLY = 0.5
"""Distance at which to stop on a sample of the rows."""

_FEW_STEPS = 10
"""Largest number of steps on a sample of the rows."""

_QUICK = 0.3
"""Factor by which a step must reduce the distance; otherwise the information is computed again."""

_HIGHER = 0.1
"""Difference from which on a log posterior is clearly higher."""

_PATIENCE = 3
"""Steps of small gain after which the first search ends."""

_LITTLE = 0.05
"""Gain of the log posterior that is small."""

_PART = 0.02
"""The same for a sample of the rows, per coordinate and per row of the data that a sampled row
represents: the log posterior of all rows is lower at the sample's mode by half of one."""

_DIRECTIONS = 3
"""Random directions in which curvature is measured."""

_SADDLES = 3
"""Largest number of saddles that are left."""

_GOOD = 0.1
"""Largest accepted relative error of curvature, root mean square over coordinates."""


@dataclass(frozen=True)
class Mode:
    """The mode of the log posterior, as far as it was found.

    Attributes:
        position: θ̂, flat and unconstrained, in float64.
        gradient: Gradient of the log posterior at the position, flat.
        information: Curvature there, and the covariance that it implies.
        distance: Length of the remaining Newton step: √(gᵀMg/d), in posterior SDs of a coordinate.
        evaluations: Number of passes over the whole dataset.
        error: Relative error of the information, in the root mean square over coordinates, as it
            was measured; zero if it was computed from all rows there.
        hessian: Hessian of the log-likelihood that the information is made of, (d, d).
    """

    position: np.ndarray
    gradient: np.ndarray
    information: Information
    distance: float
    evaluations: int
    error: float
    hessian: np.ndarray

    @property
    def converged(self) -> bool:
        """Whether the mode was found to a quarter of a posterior sd."""
        return self.distance <= _CLOSE_ENOUGH


Sample = Callable[[np.ndarray, Information], Objective]
"""Makes the log posterior over rows that suit a position and the information there."""


def find_mode(
    objective: Objective,
    start: np.ndarray,
    part: Objective | None = None,
    sample: Sample | None = None,
    known: np.ndarray | None = None,
) -> Mode:
    """Return the mode.

    A saddle, such as all factors of a product at zero, is left along its direction of most upward
    curvature, on the higher side, and the search begins again.

    A part of a large dataset is maximized first, by trust-region Newton steps, and a sample that
    suits that place after it. From there Newton steps go on all rows, with the likelihood's
    curvature of the sample at the last point where it was computed, as long as they are quick, and
    with that of all rows if they are not. In the end curvature that was not computed there, from
    all rows, is measured in some random directions, and computed if it is off. If the prior has a
    kink, its gradient is the mean from one SD below to one above.

    Args:
        objective: Log posterior over the whole dataset.
        start: Starting position, flat and unconstrained.
        part: Log posterior over some of the rows; ``None`` to begin with all of them.
        sample: Function that makes the same over rows that are worth more than those; ``None`` to
            go on with the part.
        known: Hessian of the log-likelihood at a mode that the start is near; ``None`` if the start
            is anywhere. Steps begin on all rows, with this curvature.
    """
    start = np.asarray(start, np.float64)
    found = _search(objective, start, part, sample, known)
    for _ in range(_SADDLES):
        upward = found.information.upward
        if not found.converged or upward is None:
            break
        sides = [found.position + upward, found.position - upward]
        values = [objective.value_and_gradient(u)[0] for u in sides]
        if not np.isfinite(values).any():
            break
        higher = sides[int(np.nanargmax(values))]
        found = _search(objective, higher, part, sample, None)
    return found


def _search(
    objective: Objective,
    start: np.ndarray,
    part: Objective | None,
    sample: Sample | None,
    known: np.ndarray | None,
) -> Mode:
    """Return the mode at the end of one search of :func:`find_mode`."""
    rough = objective if part is None else objective.rough.over(None)
    if known is not None:
        here = _on_all_rows(objective, rough, start, part or objective, known)
        found = _mode(objective, rough, *here, measured=part is not None)
        if found.converged:
            return found
    if part is None:
        u, before = _trust_region(objective, start, _LITTLE, _PATIENCE)
        try:
            here = _climb(objective, u, objective)
        except np.linalg.LinAlgError:  # the last step led to a pole
            here = _climb(objective, before, objective)
        return _mode(objective, rough, *here, measured=False)
    u = _trust_region(part, start, max(_LITTLE, _PART * len(start) * part.weight), 2)[0]
    if sample is not None:
        hessian = part.likelihood_hessian(u)
        part = sample(u, observed_information(part, u, hessian))
        u = _climb(part, u, part, _ROUGHLY, _FEW_STEPS)[0].u
    return _mode(objective, rough, *_on_all_rows(objective, rough, u, part), measured=True)


class _Point(NamedTuple):
    """A position on the way, with the log posterior and the information for the next step.

    Attributes:
        u: Position.
        value: Log posterior.
        gradient: Gradient of it.
        hessian: Hessian of the log-likelihood, there or near.
        information: Information that follows from it.
        slope: Gradient, smoothed if the prior has kinks.
    """

    u: np.ndarray
    value: float
    gradient: np.ndarray
    hessian: np.ndarray
    information: Information
    slope: np.ndarray

    @property
    def distance(self) -> float:
        """Length of a Newton step, in posterior SDs of a coordinate, root mean square."""
        with np.errstate(over="ignore", invalid="ignore"):
            square = self.slope @ self.information.covariance @ self.slope
        return float(np.sqrt(max(0.0, square) / len(self.u)))


def _on_all_rows(
    objective: Objective,
    rough: Objective,
    u: np.ndarray,
    source: Objective,
    hessian: np.ndarray | None = None,
) -> tuple[_Point, bool]:
    """Return the end of Newton steps on all rows, as :func:`_climb` does.

    They go in the dtype of the chain as far as its rounding lets them, and on in float64 if that is
    not close enough.
    """
    if rough.target is objective.target:
        return _climb(objective, u, source, hessian=hessian)
    here, exact = _climb(rough, u, source, hessian=hessian, whole=objective)
    there = _look(objective, here.u, here.hessian, here.information)
    if there.distance <= _CLOSE or exact:
        return there, exact
    return _climb(objective, here.u, source, hessian=here.hessian)


def _mode(
    objective: Objective, rough: Objective, here: _Point, exact: bool, measured: bool
) -> Mode:
    """Return the mode at a point, with curvature that is good enough there.

    Args:
        objective: Log posterior over the whole dataset.
        rough: The same in the dtype of the chain.
        here: Point.
        exact: Whether the curvature at the point was computed there, from all rows.
        measured: Whether other curvature is kept if its error is measured to be small.
    """
    error = 0.0
    if not exact:
        error = _error(objective, rough, here) if measured else np.inf
    if error > _GOOD:
        here, error = _renewed(objective, here), 0.0
    passes = objective.evaluations + (0 if rough is objective else rough.evaluations)
    return Mode(here.u, here.slope, here.information, here.distance, passes, error, here.hessian)


def _look(
    objective: Objective, u: np.ndarray, hessian: np.ndarray, information: Information | None = None
) -> _Point:
    """Return the point at a position, with value and gradient."""
    value, gradient = objective.value_and_gradient(u)
    return _judged(objective, u, value, gradient, hessian, information)


def _judged(
    objective: Objective,
    u: np.ndarray,
    value: float,
    gradient: np.ndarray,
    hessian: np.ndarray,
    information: Information | None = None,
) -> _Point:
    """Return a point, with the information of this Hessian unless there is another to step by."""
    if information is None:
        information = observed_information(objective, u, hessian)
    slope, kinked = gradient, information.held_up > 0
    if kinked.any():
        at = objective.prior_gradient(u)
        mean = mean_prior_gradient(objective, u, information.scale)
        kinked &= np.isfinite(mean)
        slope = gradient.copy()
        slope[kinked] += mean[kinked] - at[kinked]
    return _Point(u, value, gradient, hessian, information, slope)


def _renewed(objective: Objective, here: _Point) -> _Point:
    """Return a point with the curvature that there is at it."""
    hessian = objective.likelihood_hessian(here.u)
    return _judged(objective, here.u, here.value, here.gradient, hessian)


def _climb(
    objective: Objective,
    u: np.ndarray,
    source: Objective,
    close: float = _CLOSE,
    steps: int = _STEPS,
    hessian: np.ndarray | None = None,
    whole: Objective | None = None,
) -> tuple[_Point, bool]:
    """Return the end of Newton steps, and whether its curvature is that of all rows.

    Args:
        objective: Log posterior.
        u: Position to begin at.
        source: Log posterior whose curvature is used, as long as steps with it are quick.
        close: Distance at which to stop.
        steps: Maximum number of steps.
        hessian: Curvature to begin with, in place of the source's.
        whole: Log posterior over all rows whose curvature is computed if they are not; the first
            argument by default.
    """
    fresh, whole = hessian is None, whole or objective
    here = _look(objective, u, source.likelihood_hessian(u) if hessian is None else hessian)
    for _ in range(steps):
        if here.distance <= close:
            break
        there = _step(objective, here)
        shrunk = 1.0 if there is None else there.distance / here.distance
        if there is None and fresh and source is whole:
            break
        there, slow = there or here, shrunk > _QUICK
        source = whole if slow and fresh else source
        # The prior's curvature costs no pass over the data.
        hessian = source.likelihood_hessian(there.u) if slow else there.hessian
        try:
            here, fresh = _judged(objective, there.u, there.value, there.gradient, hessian), slow
        except np.linalg.LinAlgError:  # a pole: the step before was the last
            break
    return here, fresh and source is whole


def _step(objective: Objective, here: _Point) -> _Point | None:
    """Return a point along a Newton step that is higher, or nearer to the mode; else ``None``.

    At the mode of a prior with kinks a nearer point may be lower, by no more than one for each
    coordinate. Farther below, a step that looks short is one of another, flatter place.
    """
    step, length = here.information.covariance @ here.slope, 1.0
    for _ in range(_HALVINGS):
        u = here.u + length * step
        there = _look(objective, u, here.hessian, here.information)
        if np.isfinite(there.value) and np.isfinite(there.slope).all():
            nearer = there.distance < here.distance and there.value > here.value - len(step)
            if nearer or there.value > here.value + _HIGHER:
                return there
        length *= 0.5
    return None


def _error(objective: Objective, rough: Objective, here: _Point) -> float:
    """Return the relative difference of the curvature at a point from the one used.

    It is estimated from products of the Hessian H with a few vectors. The error is
    ‖Cᵀ(H − H')Cz‖/‖z‖, with CCᵀ the covariance that is used: the root mean square over signs z, or
    infinite.
    """
    root, d = root_of(here.information.covariance), len(here.u)
    moves = root @ np.random.default_rng(d).choice([-1.0, 1.0], (d, _DIRECTIONS))
    exact = (rough if rough.has_factors(here.u) else objective).times_hessians(here.u, moves)
    squares = (root.T @ (exact - here.hessian @ moves)) ** 2
    error = float(np.sqrt(squares.sum() / (d * _DIRECTIONS)))
    return error if np.isfinite(error) else np.inf


def _trust_region(
    objective: Objective, start: np.ndarray, little: float, patience: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum that SciPy's trust-region Newton method finds, and the place before.

    The second is the last place at which it asked for a Hessian, and this was finite.

    Args:
        objective: Log posterior.
        start: Position to begin at.
        little: Least rise by some steps that are not the last.
        patience: Number of these steps.
    """
    known: dict[bytes, tuple[float, np.ndarray]] = {}

    def both(u: np.ndarray) -> tuple[float, np.ndarray]:
        key = u.tobytes()
        if key not in known:
            value, gradient = objective.value_and_gradient(u)
            known[key] = (-value if np.isfinite(value) else np.inf), -gradient
        return known[key]

    best: list[float] = []
    at = start.copy()

    def hessian(u: np.ndarray) -> np.ndarray:
        found = objective.information(u)
        if not np.isfinite(found).all():
            raise np.linalg.LinAlgError
        at[:] = u
        return found

    def enough(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        best.append(float(intermediate_result.fun))
        if len(best) > patience and best[-1 - patience] - best[-1] < little:
            raise StopIteration

    try:
        with np.errstate(invalid="ignore"):  # infinite values less infinite ones
            found = scipy.optimize.minimize(
                lambda u: both(u)[0],
                start,
                jac=lambda u: both(u)[1],
                hess=hessian,
                method="trust-exact",
                callback=enough,
                options={"maxiter": 200, "gtol": 1e-9},
            )
    except (np.linalg.LinAlgError, UnboundLocalError):
        # The log posterior has a pole: the last place before it. SciPy 1.17 has no step to return
        # if no matrix that it tries is positive, and says so by an unbound name.
        return at, at
    return (found.x if np.isfinite(found.x).all() else start), at
