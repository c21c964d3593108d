"""The mode of the log posterior, by Newton's method on the data themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from sgmcmc.model.geometry import root_of
from sgmcmc.plan.curvature import Information, mean_prior_gradient, observed_information
from sgmcmc.plan.objective import Objective

MANY = 300  # coordinates up to which blocks of the information are not searched
DENSE_UP_TO = 2000  # coordinates up to which Hessians are made and inverted
DENSE_OF_PREDICTORS = 5000  # the same with linear predictors, whose Hessians are quick


@dataclass(frozen=True)
class _Settings:
    # Distances are in posterior SDs of a coordinate (RMS).
    close: float = 0.1  # distance from the mode at which the search stops
    converged: float = 0.25  # largest distance at which the mode counts as found
    # Distance at which the search on a sample of the rows stops.
    close_on_sample: float = 0.5
    steps_on_sample: int = 10  # Newton steps on a sample of the rows
    max_steps: int = 40  # Newton steps on all rows
    max_halvings: int = 20  # of a Newton step
    # Of the distance by a step; otherwise the Hessian is renewed.
    quick_reduction: float = 0.3
    clear_rise: float = 0.1  # of the log posterior that is not rounding
    patience: int = 3  # steps of small gain after which the first search ends
    small_gain: float = 0.05  # of the log posterior
    # Small gain on a sample of the rows, per coordinate and per row of the data that a sampled row
    # represents: the log posterior of all rows is lower at the sample's mode by half of one.
    small_gain_on_sample: float = 0.02
    # Random directions in which the error of curvature is measured.
    error_directions: int = 3
    max_saddles: int = 3  # saddles that are left
    # Relative error of curvature, root mean square over coordinates.
    max_error: float = 0.1


_SETTINGS = _Settings()


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
        """Whether the mode was found to a quarter of a posterior SD."""
        return self.distance <= _SETTINGS.converged


Sample = Callable[[np.ndarray, Information], Objective]
"""Makes the log posterior over rows that suit a position and the information there."""


def find_mode(
    objective: Objective,
    start: np.ndarray,
    subset: Objective | None = None,
    sample: Sample | None = None,
    known: np.ndarray | None = None,
) -> Mode:
    """Return the mode.

    A saddle, such as all factors of a product at zero, is left along its direction of most upward
    curvature, on the higher side, and the search begins again.

    With a large dataset the log posterior over a subset is maximized first, by trust-region Newton
    steps, then that over a sample that suits the position. From there Newton steps go on all rows,
    with the likelihood's curvature of the sample at the last point where it was computed, as long
    as they are quick, and with that of all rows if they are not. In the end the error of curvature
    that was not computed there, from all rows, is measured in some random directions; if it is
    large, the curvature is computed. If the prior has a kink, its gradient is the mean from one SD
    below to one above.

    Args:
        objective: Log posterior over the whole dataset.
        start: Starting position, flat and unconstrained.
        subset: Log posterior over some of the rows; ``None`` to begin with all of them.
        sample: Function that makes the same over rows that are worth more than those; ``None`` to
            go on with the subset.
        known: Hessian of the log-likelihood at a mode that the start is near; ``None`` if the start
            is anywhere. Steps begin on all rows, with this curvature.
    """
    start = np.asarray(start, np.float64)
    mode = _search(objective, start, subset, sample, known)
    for _ in range(_SETTINGS.max_saddles):
        upward = mode.information.upward
        if not mode.converged or upward is None:
            break
        ends = [mode.position + upward, mode.position - upward]
        values = [objective.value_and_gradient(u)[0] for u in ends]
        if not np.isfinite(values).any():
            break
        start_again = ends[int(np.nanargmax(values))]
        mode = _search(objective, start_again, subset, sample, None)
    return mode


def _search(
    objective: Objective,
    start: np.ndarray,
    subset: Objective | None,
    sample: Sample | None,
    known: np.ndarray | None,
) -> Mode:
    rough = objective if subset is None else objective.rough.over(None)
    if known is not None:
        end = _on_all_rows(objective, rough, start, subset or objective, known)
        mode = _finish(objective, rough, *end, measure=subset is not None)
        if mode.converged:
            return mode
    if subset is None:
        u, last_finite = _trust_region(
            objective, start, _SETTINGS.small_gain, _SETTINGS.patience
        )
        try:
            end = _climb(objective, u, objective)
        except np.linalg.LinAlgError:  # the last step led to a pole
            end = _climb(objective, last_finite, objective)
        return _finish(objective, rough, *end, measure=False)
    small_gain = _SETTINGS.small_gain_on_sample * len(start) * subset.weight
    u, _ = _trust_region(subset, start, max(_SETTINGS.small_gain, small_gain), 2)
    if sample is not None:
        hessian = subset.likelihood_hessian(u)
        subset = sample(u, observed_information(subset, u, hessian))
        u = _climb(
            subset, u, subset, _SETTINGS.close_on_sample, _SETTINGS.steps_on_sample
        )[0].u
    return _finish(
        objective, rough, *_on_all_rows(objective, rough, u, subset), measure=True
    )


class _Iterate(NamedTuple):
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
) -> tuple[_Iterate, bool]:
    """Return the end of Newton steps on all rows, as :func:`_climb` does.

    They go in the dtype of the chain as far as its rounding lets them, and on in float64 if that is
    not close enough.
    """
    if rough.target is objective.target:
        return _climb(objective, u, source, hessian=hessian)
    point, is_own_curvature = _climb(rough, u, source, hessian=hessian, whole=objective)
    exact_point = _evaluate(objective, point.u, point.hessian, point.information)
    if exact_point.distance <= _SETTINGS.close or is_own_curvature:
        return exact_point, is_own_curvature
    return _climb(objective, point.u, source, hessian=point.hessian)


def _finish(
    objective: Objective,
    rough: Objective,
    point: _Iterate,
    is_own_curvature: bool,
    measure: bool,
) -> Mode:
    """Return the mode at a point, with curvature that is good enough there.

    Args:
        objective: Log posterior over the whole dataset.
        rough: The same in the dtype of the chain.
        point: Point.
        is_own_curvature: Whether the curvature at the point was computed there, from all rows.
        measure: Whether other curvature is kept if its error is measured to be small.
    """
    error = 0.0
    if not is_own_curvature:
        error = _curvature_error(objective, rough, point) if measure else np.inf
    if error > _SETTINGS.max_error:
        hessian = objective.likelihood_hessian(point.u)
        point = _point_with_slope(
            objective, point.u, point.value, point.gradient, hessian
        )
        error = 0.0
    passes = objective.evaluations + (0 if rough is objective else rough.evaluations)
    return Mode(
        point.u,
        point.slope,
        point.information,
        point.distance,
        passes,
        error,
        point.hessian,
    )


def _evaluate(
    objective: Objective,
    u: np.ndarray,
    hessian: np.ndarray,
    information: Information | None = None,
) -> _Iterate:
    value, gradient = objective.value_and_gradient(u)
    return _point_with_slope(objective, u, value, gradient, hessian, information)


def _point_with_slope(
    objective: Objective,
    u: np.ndarray,
    value: float,
    gradient: np.ndarray,
    hessian: np.ndarray,
    information: Information | None = None,
) -> _Iterate:
    """Return a point, with the information of this Hessian unless there is another to step by."""
    if information is None:
        information = observed_information(objective, u, hessian)
    slope, kinked = gradient, information.held_up > 0
    if kinked.any():
        gradient_at_kinks = objective.prior_gradient(u)
        mean = mean_prior_gradient(objective, u, information.scale)
        kinked &= np.isfinite(mean)
        slope = gradient.copy()
        slope[kinked] += mean[kinked] - gradient_at_kinks[kinked]
    return _Iterate(u, value, gradient, hessian, information, slope)


def _climb(
    objective: Objective,
    u: np.ndarray,
    source: Objective,
    close: float = _SETTINGS.close,
    steps: int = _SETTINGS.max_steps,
    hessian: np.ndarray | None = None,
    whole: Objective | None = None,
) -> tuple[_Iterate, bool]:
    """Return the end of Newton steps, and whether its curvature is that of all rows.

    Args:
        objective: Log posterior.
        u: Position to begin at.
        source: Log posterior whose curvature is used, as long as steps with it are quick.
        close: Distance at which to stop.
        steps: Maximum number of steps.
        hessian: Curvature to begin with, instead of the source's.
        whole: Log posterior over all rows whose curvature is computed if they are not; the first
            argument by default.
    """
    is_fresh, whole = hessian is None, whole or objective
    point = _evaluate(
        objective, u, source.likelihood_hessian(u) if hessian is None else hessian
    )
    for _ in range(steps):
        if point.distance <= close:
            break
        proposal = _step(objective, point)
        reduction = 1.0 if proposal is None else proposal.distance / point.distance
        if proposal is None and is_fresh and source is whole:
            break
        proposal, slow = proposal or point, reduction > _SETTINGS.quick_reduction
        source = whole if slow and is_fresh else source
        # The prior's curvature costs no pass over the data.
        hessian = source.likelihood_hessian(proposal.u) if slow else proposal.hessian
        try:
            point = _point_with_slope(
                objective, proposal.u, proposal.value, proposal.gradient, hessian
            )
        except np.linalg.LinAlgError:  # a pole: the step before was the last
            break
        is_fresh = slow
    return point, is_fresh and source is whole


def _step(objective: Objective, point: _Iterate) -> _Iterate | None:
    """Return a point along a Newton step that is higher, or nearer to the mode; else ``None``.

    At the mode of a prior with kinks a nearer point may be lower, by no more than one for each
    coordinate. Farther below, a step that looks short is one of another, flatter region.
    """
    step = point.information.covariance @ point.slope
    length = 1.0
    for _ in range(_SETTINGS.max_halvings):
        u = point.u + length * step
        proposal = _evaluate(objective, u, point.hessian, point.information)
        if np.isfinite(proposal.value) and np.isfinite(proposal.slope).all():
            is_near_as_high = proposal.value > point.value - len(step)
            is_nearer = proposal.distance < point.distance and is_near_as_high
            if is_nearer or proposal.value > point.value + _SETTINGS.clear_rise:
                return proposal
        length *= 0.5
    return None


def _curvature_error(objective: Objective, rough: Objective, point: _Iterate) -> float:
    """Return the relative difference of the curvature at a point from the one used.

    It is estimated from products of the Hessian H with a few vectors. The error is
    ‖Cᵀ(H − H')Cz‖/‖z‖, with CCᵀ the covariance that is used: the root mean square over signs z, or
    infinite.
    """
    root = root_of(point.information.covariance)
    d = len(point.u)
    vectors = root @ np.random.default_rng(d).choice(
        [-1.0, 1.0], (d, _SETTINGS.error_directions)
    )
    products = (rough if rough.has_factors(point.u) else objective).times_hessians(
        point.u, vectors
    )
    squares = (root.T @ (products - point.hessian @ vectors)) ** 2
    error = float(np.sqrt(squares.sum() / (d * _SETTINGS.error_directions)))
    return error if np.isfinite(error) else np.inf


def _trust_region(
    objective: Objective, start: np.ndarray, small_gain: float, patience: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum that SciPy's trust-region Newton method finds, and the position before.

    The second is the last position whose Hessian it needed and found finite.

    Args:
        objective: Log posterior.
        start: Position to begin at.
        small_gain: Least rise by some steps that are not the last.
        patience: Number of these steps.
    """
    cache: dict[bytes, tuple[float, np.ndarray]] = {}

    def value_and_gradient(u: np.ndarray) -> tuple[float, np.ndarray]:
        key = u.tobytes()
        if key not in cache:
            value, gradient = objective.value_and_gradient(u)
            cache[key] = (-value if np.isfinite(value) else np.inf), -gradient
        return cache[key]

    values: list[float] = []
    last_finite = start.copy()

    def hessian(u: np.ndarray) -> np.ndarray:
        information = objective.information(u)
        if not np.isfinite(information).all():
            raise np.linalg.LinAlgError
        last_finite[:] = u
        return information

    def stop_early(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        values.append(float(intermediate_result.fun))
        if len(values) > patience and values[-1 - patience] - values[-1] < small_gain:
            raise StopIteration

    try:
        with np.errstate(invalid="ignore"):  # infinite values less infinite ones
            optimum = scipy.optimize.minimize(
                lambda u: value_and_gradient(u)[0],
                start,
                jac=lambda u: value_and_gradient(u)[1],
                hess=hessian,
                method="trust-exact",
                callback=stop_early,
                options={"maxiter": 200, "gtol": 1e-9},
            )
    except (np.linalg.LinAlgError, UnboundLocalError):
        # A pole of the log posterior: return the last position before it. SciPy 1.17 has no step if
        # no matrix that it tries is positive, and raises the error of an unbound name.
        return last_finite, last_finite
    return (optimum.x if np.isfinite(optimum.x).all() else start), last_finite
