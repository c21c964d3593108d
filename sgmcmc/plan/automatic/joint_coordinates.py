"""Effects of groups and latent fields, which HMC moves in coordinates of their own."""

from __future__ import annotations

from sgmcmc.dynamics import HMC
from sgmcmc.engine.scheduler import Progress
from sgmcmc.interrupts import TimeUpError, limited
from sgmcmc.plan.anchored import with_more_nodes
from sgmcmc.plan.automatic.large import cost_of_hmc
from sgmcmc.plan.automatic.methods import Cost, run_exact, seconds_of_gradient
from sgmcmc.plan.exact.adaptation import LeftModeError
from sgmcmc.plan.latent_field import find_latent_field, with_field_coordinates
from sgmcmc.plan.lengths import Requirements
from sgmcmc.plan.mode import MANY
from sgmcmc.plan.uncentered import uncentered
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request

_TO_CHOOSE = 0.4  # share of `max_seconds` in which coordinates are chosen


def run_with_effects(
    request: Request, required: Requirements, verbose: bool, start_time: float
) -> Samples | None:
    """Return draws by HMC of a posterior with effects of groups among its coordinates.

    Chains that leave the region where fixed quadrature nodes suffice run again: with more nodes if
    coordinates are many, and in the end with nodes that are not fixed. Returns
    ``None`` if there are no such effects, or that would take too long; and of few coordinates,
    unless they are effects of several factors and HMC is quick.
    """
    assert request.groups is not None
    if not request.groups.coordinates:
        return None
    many = request.read.target.size > MANY
    if not many:
        predicted = (
            cost_of_hmc(request, required)
            if len(request.groups.coordinates) > 1
            else None
        )
        if predicted is None or not predicted.quick:
            return None
    try:
        limit = limited(start_time + _TO_CHOOSE * required.seconds)
        with limit, Progress("coordinates of effects", 1, verbose) as progress:
            transformed = uncentered(request, request.read.seed)
            progress.advance(1)
    except TimeUpError:
        return None
    cost = _affordable_cost(transformed, required)
    if cost is None:
        return None
    reason = "coordinates are effects of groups, whitened by what the data say of each"
    current: Request | None = transformed
    while current is not None:
        try:
            return run_exact(
                current, HMC(), required, verbose, start_time, reason, [], cost
            )
        except LeftModeError:
            current = with_more_nodes(current) if many else None
    unfixed = uncentered(request, request.read.seed, fix_nodes=False)
    return run_exact(unfixed, HMC(), required, verbose, start_time, reason, [], cost)


def run_with_field(
    request: Request, required: Requirements, verbose: bool, start_time: float
) -> Samples | None:
    """Return draws by HMC of a posterior with a latent field; ``None`` if there is none.

    Also ``None`` if that would take too long.
    """
    try:
        with limited(start_time + _TO_CHOOSE * required.seconds):
            field = find_latent_field(request)
            if field is None:
                return None
            untransformed_cost = cost_of_hmc(request, required)
            if untransformed_cost is not None and not untransformed_cost.affordable:
                return None
            transformed = with_field_coordinates(request, field, verbose)
    except TimeUpError:
        return None
    cost = _affordable_cost(transformed, required)
    if cost is None:
        return None
    reason = "a latent field is whitened by prior and data, whatever its scale"
    return run_exact(
        transformed, HMC(), required, verbose, start_time, reason, [], cost
    )


def _affordable_cost(request: Request, required: Requirements) -> Cost | None:
    """Return the predicted cost of HMC around a mode; ``None`` if it is not, or too high."""
    if request.laplace is None:
        return None
    target = request.read.target
    seconds = seconds_of_gradient(
        target, request.read.data, request.laplace.whitening.origin
    )
    cost = Cost.of(seconds, target.size, required)
    if not cost.affordable:
        return None
    cost.warn(request.function)
    return cost
