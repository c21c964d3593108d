"""Sampling without constants from the user: a method is chosen, and run."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace

import numpy as np

from sgmcmc.dynamics import NUTS
from sgmcmc.interrupts import TimeUpError, limited, out_of_time
from sgmcmc.plan.choices import bind_request, choose
from sgmcmc.plan.latent_field import SMALLEST_FIELD
from sgmcmc.plan.methods.around_mode import AroundMode, run_on_disk
from sgmcmc.plan.methods.full_data import (
    FullDataPlan,
    cost_of_hmc,
    run_in_blocks,
    run_on_all_rows,
    run_with_effects,
    run_with_field,
)
from sgmcmc.plan.methods.local_minibatches import needs_mode, run_large
from sgmcmc.plan.methods.multimodal import run_in_modes
from sgmcmc.plan.mode import DENSE_UP_TO, MANY
from sgmcmc.plan.modes import alike
from sgmcmc.plan.stopping import Goal
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import (
    Request,
    all_parts_open,
    brief,
    on_machines,
    open_arguments,
)


@dataclass(frozen=True)
class _Settings:
    share_to_choose: float = 0.5  # of `max_seconds`, in which constants are chosen
    least_to_choose: float = 5.0  # at least: without them all that follows takes longer


_SETTINGS = _Settings()

# All chosen or all given, if no mode is searched for.
_CONSTANTS = ("gradient", "minibatches", "minibatch_size", "preconditioner", "stepsize")
_REASON_NO_CURVATURE = (
    "the log posterior has no finite curvature where its mode was looked for"
)
_REASON_NO_TIME = "the time to choose constants for minibatches was over"


@brief
@on_machines
def run_automatically(request: Request, goal: Goal) -> Samples:
    """Make the open choices, run the chains, and return draws with their report.

    Args:
        request: Request of the user; "auto" for open constants.
        goal: Requested precision and length of the draws.
    """
    goal = goal.checked(time.monotonic())
    keywords = {**request.keywords, "n_chains": goal.n_chains}
    request = replace(request, keywords=keywords)
    bound = bind_request(request)
    request, model = bound.request, bound.request.read
    options, d = model.options, model.target.size
    if options.store_params is not True:
        raise ValueError(
            "`store_params`: all parameters are stored if the length is chosen from their draws."
        )
    if options.store is None and all_parts_open(request):
        samples = None
        if request.groups is not None:
            samples = run_with_effects(request, goal)
        elif d >= SMALLEST_FIELD:
            samples = run_with_field(request, goal)
        if samples is None and d > MANY and goal.length_is_open:
            samples = run_in_blocks(request, goal)
        if samples is not None:
            return samples
    large = d > DENSE_UP_TO
    cost = cost_of_hmc(request, goal) if large else None
    if (large and not needs_mode(request, cost)) or _has_many_modes(request):
        is_open = open_arguments(request)
        for name in _CONSTANTS:
            if name not in is_open:
                raise ValueError(
                    f"`{name}`: there are {d} coordinates. Beyond {DENSE_UP_TO} give all of "
                    "`gradient`, `minibatches`, `minibatch_size`, `preconditioner`, `stepsize`, "
                    "`n_iters` and `burn_in`, or none of them."
                )
        if options.store is not None:
            raise ValueError(
                f"`store`: there are {d} coordinates. Beyond {DENSE_UP_TO} a chain on disk needs "
                "every constant given; `settings` of a call without a store have what was chosen."
            )
        return run_large(request, bound.dynamics, goal, cost)
    if options.store is not None:
        return run_on_disk(bound, goal)
    chosen = None
    share = _SETTINGS.share_to_choose * goal.seconds
    end_of_choice = goal.start_time + max(share, _SETTINGS.least_to_choose)
    try:
        with contextlib.suppress(TimeUpError), limited(end_of_choice):
            chosen = choose(bound, goal.tolerance, goal.verbose)
    except np.linalg.LinAlgError:
        if not all_parts_open(request):
            raise
        return run_on_all_rows(
            request, FullDataPlan(NUTS(), _REASON_NO_CURVATURE), goal
        )
    if chosen is None:
        return _run_without_tuning(request, goal)
    if chosen.plan.surveyed is not None and chosen.plan.surveyed.several:
        return run_in_modes(chosen, chosen.plan.surveyed, goal)
    return AroundMode(request, chosen, goal).run()


def _run_without_tuning(request: Request, goal: Goal) -> Samples:
    """Return draws by NUTS, when the time to choose constants is over.

    Raises:
        TimeoutError: The user has chosen another sampler, whose constants need that choice.
    """
    if not all_parts_open(request):
        constants = (
            "`minibatch_size`, `preconditioner`, `stepsize`, `n_iters` and `burn_in`"
        )
        raise out_of_time(
            "the constants of the sampler were chosen",
            goal.start_time,
            f", or all of {constants}",
        )
    plan = FullDataPlan(NUTS(), _REASON_NO_TIME)
    return run_on_all_rows(request, plan, replace(goal, hurried=True))


def _has_many_modes(request: Request) -> bool:
    """Return whether entries of parameters can change places, in a call that chooses constants."""
    model, is_open = request.read, open_arguments(request)
    if request.groups is not None or model.options.store is not None:
        return False
    start = model.starts[0].astype(np.float64)
    return set(_CONSTANTS) <= set(is_open) and bool(
        alike(model.target, model.data, start, model.seed)
    )
