"""HMC and NUTS in place of chains of minibatches: their cost, and models that they suit."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import outside
from sgmcmc.data.dataset import Data, Tensors
from sgmcmc.dynamics import HMC, NUTS, Dynamics
from sgmcmc.engine.prefetcher import available_cores
from sgmcmc.engine.scheduler import Progress
from sgmcmc.graphs.tracing import trace
from sgmcmc.inputs.options import without
from sgmcmc.interrupts import TimeUpError
from sgmcmc.model.target import Target
from sgmcmc.model.whole_posterior import WholePosterior
from sgmcmc.plan.fixed_nodes import with_more_nodes
from sgmcmc.plan.joint_mode import uncentered
from sgmcmc.plan.latent_field import find_latent_field, with_field_coordinates
from sgmcmc.plan.methods.hmc import run_exactly
from sgmcmc.plan.mode import MANY, Mode
from sgmcmc.plan.plan import Plan
from sgmcmc.plan.reports.reporting import (
    no_mode_warnings,
)
from sgmcmc.plan.stopping import Goal
from sgmcmc.plan.warm_up import LeftModeError
from sgmcmc.plan.whitening import DENSE, is_in_blocks
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request, all_parts_open


@dataclass(frozen=True)
class _Settings:
    quick: float = 60.0  # predicted seconds up to which HMC samples effects of groups
    # Of the user's seconds that must be left to start again.
    share_to_restart: float = 0.3
    # Seconds of an exact method, in which it says that they are over.
    shortest: float = 1e-3
    timed_rows: int = 50_000  # of a gradient that is timed
    timings: int = 3
    # Of each chain of HMC, before coordinates are known.
    gradients_before_warm_up: int = 600
    moves_of_warm_up: int = 200  # of each chain of HMC, until the first draw
    first_draws: int = 250  # least number of draws of HMC
    gradients_of_move: float = 0.9  # of HMC near N(0, I), in units of d^(1/4)
    # Largest multiple of the predicted seconds that an exact chain may run.
    overrun: float = 4.0
    # Of a matrix that a core reads for a product with a vector.
    bytes_a_second: float = 2e10
    nuts_warm_up: int = 320  # of each chain of NUTS before the first draw is kept
    # Observations × coordinates above which a full gradient is not timed before chains ran.
    timed_numbers: int = 2 * 10**7
    gradients_of_nuts: int = 25  # of a move of NUTS if the posterior is far from normal
    # Share of `max_seconds` in which coordinates are chosen.
    share_to_choose: float = 0.4


_SETTINGS = _Settings()


# Largest predicted seconds of an exact method, if the user sets no limit.
_AFFORDABLE = 900.0
_OF_THE_TIME = 0.8  # largest share of `max_seconds` that the prediction may be
# Predicted seconds above which a warning comes before the run begins.
WARN_SECONDS = 180.0
_BEFORE = "before these chains"  # name of the seconds until an exact method was chosen, in reports

# Keywords without a meaning if gradients use all rows and a step moves all parameters.
_OF_OTHERS = ("minibatches", "replace", "updates")


def seconds_of_gradient(target: Target, data: Data, position: np.ndarray) -> float:
    """Return the seconds that a gradient of the log posterior over all rows takes.

    Of very many rows it is timed on some.
    """
    size = min(data.size, max(1, _SETTINGS.timed_rows // target.row_terms))
    inputs = tf.constant(position, target.dtype), data.slice(0, size)
    graph = _gradient(target, *inputs)
    seconds = []
    for _ in range(_SETTINGS.timings):
        start = time.perf_counter()
        graph(*inputs).numpy()
        seconds.append(time.perf_counter() - start)
    return min(seconds) * data.size / size


def _gradient(target: Target, point: tf.Tensor, columns: Tensors) -> Any:
    """Return the compiled gradient, as chains have it, called once."""

    def gradient(u: tf.Tensor, columns: Tensors) -> tf.Tensor:
        return WholePosterior(target, columns)(u)[1]

    for jit_compile in (True, False):
        graph = trace(gradient, point, columns, jit_compile=jit_compile)
        try:
            graph(point, columns)
        except tf.errors.OpError:  # XLA cannot compile the model
            continue
        return graph
    raise AssertionError("not reached")


@dataclass(frozen=True)
class Cost:
    """Predicted cost of exact sampling.

    Args:
        gradient: Seconds of a gradient over all rows.
        gradients: Gradients of all chains.
        goal: Requested precision and length.
        whitening: Seconds of the products with a dense matrix that a gradient may need.
    """

    gradient: float
    gradients: float
    goal: Goal
    whitening: float = 0.0

    @classmethod
    def of(cls, gradient: float, d: int, goal: Goal) -> Cost:
        """Return the cost of HMC in d coordinates that are near N(0, I)."""
        steps = math.ceil(_SETTINGS.gradients_of_move * d**0.25)
        draws = max(_SETTINGS.first_draws, 2.0 * goal.ess / goal.n_chains)
        trajectories = _SETTINGS.moves_of_warm_up + draws
        gradients = goal.n_chains * (
            _SETTINGS.gradients_before_warm_up + trajectories * steps
        )
        whitening = 8.0 * d**2 / _SETTINGS.bytes_a_second if d <= DENSE else 0.0
        return cls(gradient, gradients, goal, whitening)

    @property
    def seconds(self) -> float:
        """Seconds, with chains side by side."""
        return self.gradient * self.gradients / self._at_once

    @property
    def most_seconds(self) -> float:
        """Seconds that the run may take if the user sets no limit, dense coordinates included."""
        whitening = self.whitening * self.gradients / self._at_once
        return max(WARN_SECONDS, _SETTINGS.overrun * self.seconds) + whitening

    @property
    def _at_once(self) -> int:
        return min(self.goal.n_chains, available_cores())

    @property
    def affordable(self) -> bool:
        """Whether that is within the user's time limit, or a few minutes."""
        limit = self.goal.max_seconds
        return self.seconds <= (_AFFORDABLE if limit is None else _OF_THE_TIME * limit)

    @property
    def quick(self) -> bool:
        """Whether that is within the user's time limit, and about a minute."""
        return self.seconds <= _SETTINGS.quick and self.affordable

    def warn(self, function: str) -> None:
        """Warn of a long run before it begins, if the user has set no limit."""
        if self.goal.max_seconds is None and self.seconds > WARN_SECONDS:
            warnings.warn(
                f"{function}() will take about {self.seconds / 60:.0f} minutes: a gradient over "
                f"all rows takes {self.gradient:.2g} s. `max_seconds` bounds it; effects of groups "
                "are integrated out by `groups=`, which takes a fraction of that.",
                UserWarning,
                stacklevel=outside(),
            )


def may_start_again(goal: Goal) -> bool:
    """Return whether enough of the user's time is left."""
    if goal.max_seconds is None:
        return True
    return goal.seconds_left >= _SETTINGS.share_to_restart * goal.max_seconds


@dataclass(frozen=True)
class FullDataPlan:
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


def run_exact(request: Request, plan: FullDataPlan, goal: Goal) -> Samples:
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
        goal = replace(goal, max_seconds=plan.cost.most_seconds)
    earlier = {_BEFORE: seconds_before}
    return run_exactly(exact, goal, plan.reason, plan.warnings, earlier)


# Observations × coordinates of a full gradient of about a millisecond at most.
_SURELY = 10**6


def may_be_exact(request: Request, plan: Plan, goal: Goal) -> bool:
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
    if plan.around.exact or numbers <= _SURELY:
        return True
    return (
        numbers <= _SETTINGS.timed_numbers
        and cost_of_nuts(request, plan, goal).affordable
    )


def cost_of_nuts(request: Request, plan: Plan, goal: Goal) -> Cost:
    """Return the predicted cost of NUTS for a posterior that is far from normal.

    Args:
        request: Request of the user.
        plan: Plan that was chosen.
        goal: Requested precision and length of the draws.
    """
    seconds = seconds_of_gradient(
        request.read.target, request.read.data, plan.mode.position
    )
    trajectories = goal.n_chains * (_SETTINGS.nuts_warm_up + 2.0 * goal.ess)
    return Cost(seconds, trajectories * _SETTINGS.gradients_of_nuts, goal)


def run_by_nuts(
    request: Request, plan: Plan, goal: Goal, reason: str, mode: Mode | None = None
) -> Samples:
    """Return draws by the No-U-Turn Sampler, with their report and the plan's warnings.

    Chains start around the mode if that is given; otherwise it is searched for.
    """
    extra_warnings = no_mode_warnings(plan.surveyed)
    nuts = FullDataPlan(NUTS(), reason, extra_warnings, mode=mode)
    return run_exact(request, nuts, goal)


def run_in_blocks(request: Request, goal: Goal) -> Samples | None:
    """Return draws by HMC of a posterior whose coordinates are mostly effects of groups.

    Returns ``None`` if it has no such blocks, or a gradient over all rows is not quick.
    """
    model = request.read
    if request.groups is not None or not is_in_blocks(model):
        return None
    cost = cost_of_hmc(request, goal)
    if cost is None or not cost.quick:
        return None
    return run_by_hmc(request, cost, goal)


def cost_of_hmc(request: Request, goal: Goal) -> Cost | None:
    """Return the predicted cost of HMC; ``None`` if it is ruled out by what the user has given."""
    if not all_parts_open(request) or not goal.length_is_open:
        return None
    model = request.read
    seconds = seconds_of_gradient(model.target, model.data, model.starts[0])
    return Cost.of(seconds, model.target.size, goal)


def run_by_hmc(request: Request, cost: Cost, goal: Goal) -> Samples:
    """Return draws by HMC whose predicted cost is that of a posterior near normal."""
    reason = (
        f"a gradient over all rows takes {cost.gradient:.2g} s, and the prediction was "
        f"{cost.seconds:.0f} s"
    )
    return run_exact(request, FullDataPlan(HMC(), reason, cost=cost), goal)


def run_with_effects(request: Request, goal: Goal) -> Samples | None:
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
        if len(request.groups.coordinates) == 1:
            return None
        predicted = cost_of_hmc(request, goal)
        if predicted is None or not predicted.quick:
            return None
    try:
        limit = goal.limit(_SETTINGS.share_to_choose)
        with limit, Progress("coordinates of effects", 1, goal.verbose) as progress:
            transformed = uncentered(request, request.read.seed)
            progress.advance(1)
    except TimeUpError:
        return None
    cost = _affordable_cost(transformed, goal)
    if cost is None:
        return None
    reason = "coordinates are effects of groups, whitened by what the data say of each"
    plan = FullDataPlan(HMC(), reason, cost=cost)
    current: Request | None = transformed
    while current is not None:
        try:
            return run_exact(current, plan, goal)
        except LeftModeError:
            current = with_more_nodes(current) if many else None
    unfixed = uncentered(request, request.read.seed, fix_nodes=False)
    return run_exact(unfixed, plan, goal)


def run_with_field(request: Request, goal: Goal) -> Samples | None:
    """Return draws by HMC of a posterior with a latent field; ``None`` if there is none.

    Also ``None`` if that would take too long.
    """
    try:
        with goal.limit(_SETTINGS.share_to_choose):
            field = find_latent_field(request)
            if field is None:
                return None
            untransformed_cost = cost_of_hmc(request, goal)
            if untransformed_cost is not None and not untransformed_cost.affordable:
                return None
            transformed = with_field_coordinates(request, field, goal.verbose)
    except TimeUpError:
        return None
    cost = _affordable_cost(transformed, goal)
    if cost is None:
        return None
    reason = "a latent field is whitened by prior and data, whatever its scale"
    return run_exact(transformed, FullDataPlan(HMC(), reason, cost=cost), goal)


def _affordable_cost(request: Request, goal: Goal) -> Cost | None:
    """Return the predicted cost of HMC around a mode; ``None`` if it is not, or too high."""
    if request.laplace is None:
        return None
    target = request.read.target
    seconds = seconds_of_gradient(
        target, request.read.data, request.laplace.whitening.origin
    )
    cost = Cost.of(seconds, target.size, goal)
    if not cost.affordable:
        return None
    cost.warn(request.function)
    return cost
