"""HMC and NUTS in place of chains of minibatches: their cost, and posteriors that they suit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sgmcmc.dynamics import HMC, NUTS, Dynamics
from sgmcmc.engine.scheduler import Progress
from sgmcmc.inputs.options import without
from sgmcmc.interrupts import TimeUpError
from sgmcmc.plan.cost import Cost, seconds_of_gradient
from sgmcmc.plan.fixed_nodes import with_more_nodes
from sgmcmc.plan.joint_mode import uncentered
from sgmcmc.plan.latent_field import (
    SMALLEST_FIELD,
    find_latent_field,
    with_field_coordinates,
)
from sgmcmc.plan.methods.call import Call, Left
from sgmcmc.plan.methods.hmc import run_hamiltonian
from sgmcmc.plan.mode import MANY, Mode
from sgmcmc.plan.plan import Plan
from sgmcmc.plan.stopping import Goal
from sgmcmc.plan.warm_up import LeftModeError
from sgmcmc.plan.whitening import is_in_blocks
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request, all_parts_open


@dataclass(frozen=True)
class _Settings:
    # Of the user's seconds that must be left to start again.
    share_to_restart: float = 0.3
    # Seconds of a full-data method, in which it says that they are over.
    shortest: float = 1e-3
    # Observations × coordinates of a full gradient of about a millisecond at most.
    surely_quick: int = 10**6
    # Observations × coordinates above which NUTS is not considered before chains ran.
    most_numbers: int = 2 * 10**7
    # Share of `max_seconds` in which coordinates are chosen.
    share_to_choose: float = 0.4


_SETTINGS = _Settings()

_BEFORE = "before these chains"  # name of the seconds until an exact method was chosen, in reports

# Keywords without a meaning if gradients use all rows and a step moves all parameters.
_OF_OTHERS = ("minibatches", "replace", "updates")


def may_start_again(goal: Goal) -> bool:
    """Return whether enough of the user's time is left."""
    if goal.max_seconds is None:
        return True
    return goal.seconds_left >= _SETTINGS.share_to_restart * goal.max_seconds


@dataclass(frozen=True)
class HamiltonianPlan:
    """HMC or NUTS on the whole dataset, in place of chains of minibatches.

    Attributes:
        dynamics: HMC or NUTS.
        reason: Reason for the choice of the sampler, shown in the report.
        warnings: Further warnings of the report.
        cost: Predicted cost, which bounds the run if the user sets no limit.
        mode: Mode, if it is known.
        stepsize: Stepsize; ``None`` to find one.
    """

    dynamics: Dynamics
    reason: str
    warnings: Sequence[str] = ()
    cost: Cost | None = None
    mode: Mode | None = None
    stepsize: float | None = None


def run_on_all_rows(request: Request, plan: HamiltonianPlan, goal: Goal) -> Samples:
    """Return draws by HMC or NUTS on the whole dataset, with their report.

    Args:
        request: The user's request, in which the choices made here are open.
        plan: Sampler, and what is known of its chains.
        goal: Requested precision and length of the draws.
    """
    options = without(request.read.options, _OF_OTHERS)
    exact = replace(
        request.tuned(
            method=plan.dynamics.name,
            dynamics=plan.dynamics,
            gradient=None,
            minibatch_size=None,
            stepsize=plan.stepsize,
            mode=plan.mode,
        ),
        model=replace(request.read, options=options),
        keywords={k: v for k, v in request.keywords.items() if k not in _OF_OTHERS},
    )
    seconds_before = time.monotonic() - goal.start_time
    if goal.max_seconds is not None:
        seconds_left = goal.max_seconds - seconds_before
        goal = replace(goal, max_seconds=max(seconds_left, _SETTINGS.shortest))
    elif plan.cost is not None:
        goal = replace(goal, max_gradients=plan.cost.max_gradients)
    earlier = {_BEFORE: seconds_before}
    return run_hamiltonian(exact, goal, plan.reason, plan.warnings, earlier)


def nuts_is_affordable(request: Request, plan: Plan, goal: Goal) -> bool:
    """Return whether the sampler is open, and NUTS on the whole dataset can be afforded.

    Args:
        request: Request of the user, whose nodes of groups are searched for.
        plan: Plan that was chosen.
        goal: Requested precision and length of the draws.
    """
    if not all_parts_open(request):
        return False
    target, data = request.read.target, request.read.data
    numbers = data.size * target.row_terms * len(plan.mode.position)
    if plan.around.is_noiseless or numbers <= _SETTINGS.surely_quick:
        return True
    return numbers <= _SETTINGS.most_numbers and cost_of_nuts(request, goal).affordable


def cost_of_nuts(request: Request, goal: Goal) -> Cost:
    """Return the predicted cost of NUTS for a posterior that is far from normal."""
    gradient = seconds_of_gradient(request.read.target, request.read.data)
    return Cost.of_nuts(gradient, goal)


def nuts(call: Call, left: Left | None) -> Samples:
    """Return draws by the No-U-Turn Sampler, around the mode that was left, or after a search."""
    assert left is not None
    plan = HamiltonianPlan(NUTS(), left.reason, left.warnings, mode=left.mode)
    goal = replace(call.goal, hurried=True) if left.hurried else call.goal
    return run_on_all_rows(call.request, plan, goal)


def hmc_in_blocks(call: Call, left: Left | None) -> Samples | Left | None:
    """Return draws by HMC of a posterior whose coordinates are mostly effects of groups."""
    if call.size <= MANY or not (call.any_sampler_will_do and call.goal.length_is_open):
        return None
    if call.request.groups is not None or not is_in_blocks(call.model):
        return None
    cost = call.cost_of_hmc
    assert cost is not None  # sampler and length are open
    if not cost.quick:
        return Left("a gradient over all rows is not quick")
    return _by_hmc(call, cost)


def hmc_of_many_coordinates(call: Call, left: Left | None) -> Samples | Left | None:
    """Return draws by HMC where no mode is searched for, if there is the time."""
    if call.is_stored or not call.is_without_mode:
        return None
    cost = call.cost_of_hmc
    if cost is None:
        return None
    if not cost.affordable:
        return Left(f"it would take {cost.seconds:.0f} s, more than there is")
    cost.warn(call.request.function)
    return _by_hmc(call, cost)


def _by_hmc(call: Call, cost: Cost) -> Samples:
    """Return draws by HMC whose predicted cost is that of a posterior near normal."""
    reason = (
        f"by its operations a gradient over all rows takes {cost.gradient:.2g} s, and the chains "
        f"{cost.seconds:.0f} s"
    )
    plan = HamiltonianPlan(HMC(), reason, cost=cost)
    return run_on_all_rows(call.request, plan, call.goal)


def hmc_with_effects(call: Call, left: Left | None) -> Samples | Left | None:
    """Return draws by HMC of a posterior with effects of groups among its coordinates.

    Chains that leave the region where fixed quadrature nodes suffice run again: with more nodes if
    coordinates are many, and in the end with nodes that are not fixed. Few coordinates are left to
    others, unless they are effects of several factors and HMC is quick.
    """
    request, goal = call.request, call.goal
    if not call.any_sampler_will_do or request.groups is None:
        return None
    if not request.groups.coordinates:
        return None
    many = call.size > MANY
    if not many:
        if len(request.groups.coordinates) == 1:
            return Left("effects of one factor, and few of them")
        if call.cost_of_hmc is None or not call.cost_of_hmc.quick:
            return Left("a gradient over all rows is not quick")
    try:
        limit = goal.limit(_SETTINGS.share_to_choose)
        with limit, Progress("coordinates of effects", 1, goal.verbose) as progress:
            transformed = uncentered(request, request.read.seed)
            progress.advance(1)
    except TimeUpError:
        return Left("the time to choose coordinates was over")
    cost = _affordable_cost(transformed, goal)
    if cost is None:
        return Left("around a mode of all coordinates it would take too long")
    reason = "coordinates are effects of groups, whitened by what the data say of each"
    plan = HamiltonianPlan(HMC(), reason, cost=cost)
    current: Request | None = transformed
    while current is not None:
        try:
            return run_on_all_rows(current, plan, goal)
        except LeftModeError:
            current = with_more_nodes(current) if many else None
    unfixed = uncentered(request, request.read.seed, fix_nodes=False)
    return run_on_all_rows(unfixed, plan, goal)


def hmc_with_field(call: Call, left: Left | None) -> Samples | Left | None:
    """Return draws by HMC of a posterior with a latent field."""
    request, goal = call.request, call.goal
    if not call.any_sampler_will_do or request.groups is not None:
        return None
    if call.size < SMALLEST_FIELD:
        return None
    try:
        with goal.limit(_SETTINGS.share_to_choose):
            field = find_latent_field(request)
            if field is None:
                return None
            cost = call.cost_of_hmc
            if cost is not None and not cost.affordable:
                return Left(f"it would take {cost.seconds:.0f} s, more than there is")
            transformed = with_field_coordinates(request, field, goal.verbose)
    except TimeUpError:
        return Left("the time to choose coordinates was over")
    cost = _affordable_cost(transformed, goal)
    if cost is None:
        return Left("around a mode of all coordinates it would take too long")
    reason = "a latent field is whitened by prior and data, whatever its scale"
    return run_on_all_rows(transformed, HamiltonianPlan(HMC(), reason, cost=cost), goal)


def _affordable_cost(request: Request, goal: Goal) -> Cost | None:
    """Return the predicted cost of HMC around a mode; ``None`` if it is not, or too high."""
    if request.laplace is None:
        return None
    target = request.read.target
    gradient = seconds_of_gradient(target, request.read.data)
    cost = Cost.of_hmc(gradient, target.size, goal)
    if not cost.affordable:
        return None
    cost.warn(request.function)
    return cost
