"""HMC and NUTS in place of chains of minibatches: their cost, and models that they suit."""

from __future__ import annotations

import math
import time
import warnings
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
from sgmcmc.interrupts import TimeUpError, limited
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
from sgmcmc.plan.stopping import (
    Requirements,
)
from sgmcmc.plan.warm_up import LeftModeError
from sgmcmc.plan.whitening import DENSE, is_in_blocks
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request, all_parts_open

_AFFORDABLE = (
    900.0  # largest predicted seconds of an exact method, if the user sets no limit
)
_OF_THE_TIME = 0.8  # largest share of `max_seconds` that the prediction may be
WARN_SECONDS = (
    180.0  # predicted seconds above which a warning comes before the run begins
)
NUTS_WARM_UP_MOVES = 320  # of each chain of NUTS before the first draw is kept
_BEFORE = "before these chains"  # name of the seconds until an exact method was chosen, in reports

# Keywords without a meaning if gradients use all rows and a step moves all parameters.
_OF_OTHERS = ("minibatches", "replace", "updates")


@dataclass(frozen=True)
class _Settings:
    quick: float = 60.0  # predicted seconds up to which HMC samples effects of groups
    share_to_restart: float = (
        0.3  # of the user's seconds that must be left to start again
    )
    shortest: float = (
        1e-3  # seconds of an exact method, in which it says that they are over
    )
    timed_rows: int = 50_000  # of a gradient that is timed
    timings: int = 3
    gradients_before_warm_up: int = (
        600  # of each chain of HMC, before coordinates are known
    )
    moves_of_warm_up: int = 200  # of each chain of HMC, until the first draw
    first_draws: int = 250  # least number of draws of HMC
    gradients_of_move: float = 0.9  # of HMC near N(0, I), in units of d^(1/4)
    overrun: float = (
        4.0  # largest multiple of the predicted seconds that an exact chain may run
    )
    bytes_a_second: float = (
        2e10  # of a matrix that a core reads for a product with a vector
    )


_SETTINGS = _Settings()


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
        required: Requested precision and length.
        whitening: Seconds of the products with a dense matrix that a gradient may need.
    """

    gradient: float
    gradients: float
    required: Requirements
    whitening: float = 0.0

    @classmethod
    def of(cls, gradient: float, d: int, required: Requirements) -> Cost:
        """Return the cost of HMC in d coordinates that are near N(0, I)."""
        steps = math.ceil(_SETTINGS.gradients_of_move * d**0.25)
        draws = max(_SETTINGS.first_draws, 2.0 * required.ess / required.n_chains)
        trajectories = _SETTINGS.moves_of_warm_up + draws
        gradients = required.n_chains * (
            _SETTINGS.gradients_before_warm_up + trajectories * steps
        )
        whitening = 8.0 * d**2 / _SETTINGS.bytes_a_second if d <= DENSE else 0.0
        return cls(gradient, gradients, required, whitening)

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
        return min(self.required.n_chains, available_cores())

    @property
    def affordable(self) -> bool:
        """Whether that is within the user's time limit, or a few minutes."""
        limit = self.required.max_seconds
        return self.seconds <= (_AFFORDABLE if limit is None else _OF_THE_TIME * limit)

    @property
    def quick(self) -> bool:
        """Whether that is within the user's time limit, and about a minute."""
        return self.seconds <= _SETTINGS.quick and self.affordable

    def warn(self, function: str) -> None:
        """Warn of a long run before it begins, if the user has set no limit."""
        if self.required.max_seconds is None and self.seconds > WARN_SECONDS:
            warnings.warn(
                f"{function}() will take about {self.seconds / 60:.0f} minutes: a gradient over "
                f"all rows takes {self.gradient:.2g} s. `max_seconds` bounds it; effects of groups "
                "are integrated out by `groups=`, which takes a fraction of that.",
                UserWarning,
                stacklevel=outside(),
            )


def may_start_again(required: Requirements, seconds_left: float) -> bool:
    """Return whether enough of the user's time is left."""
    if required.max_seconds is None:
        return True
    return seconds_left >= _SETTINGS.share_to_restart * required.max_seconds


def run_exact(
    request: Request,
    dynamics: Dynamics,
    required: Requirements,
    verbose: bool,
    start_time: float,
    reason: str,
    extra_warnings: list[str],
    cost: Cost | None = None,
    mode: Mode | None = None,
    stepsize: float | None = None,
) -> Samples:
    """Return draws by HMC or NUTS on the whole dataset, with their report.

    Args:
        request: The user's request, in which the choices made here are open.
        dynamics: HMC or NUTS.
        required: Requested precision and length.
        verbose: Whether to show progress.
        start_time: Time at which the clock of ``max_seconds`` was started.
        reason: Reason for the choice of the sampler, shown in the report.
        extra_warnings: Further warnings of the report.
        cost: Predicted cost, which bounds the run if the user sets no limit.
        mode: Mode, if it is known.
        stepsize: Stepsize; ``None`` to find one.
    """
    options = without(request.read.options, _OF_OTHERS)
    exact = replace(
        request.tuned(
            method=dynamics.name,
            dynamics=dynamics,
            gradient=None,
            minibatch_size=None,
            stepsize=stepsize,
            mode=mode,
        ),
        model=replace(request.read, options=options),
        keywords={k: v for k, v in request.keywords.items() if k not in _OF_OTHERS},
    )
    seconds_before = time.monotonic() - start_time
    if required.max_seconds is not None:
        seconds_left = required.max_seconds - seconds_before
        required = replace(required, max_seconds=max(seconds_left, _SETTINGS.shortest))
    elif cost is not None:
        required = replace(required, max_seconds=cost.most_seconds)
    return run_exactly(
        exact, required, verbose, reason, extra_warnings, {_BEFORE: seconds_before}
    )


_SURELY = (
    10**6
)  # observations × coordinates of a full gradient of about a millisecond at most

# Observations × coordinates above which a full gradient is not timed before chains ran.
_PERHAPS = 2 * 10**7
_GRADIENTS = 25  # of a move of NUTS if the posterior is far from normal


def may_be_exact(request: Request, plan: Plan, required: Requirements) -> bool:
    """Return whether the sampler is open, and NUTS on the whole dataset can be afforded.

    Args:
        request: Request of the user, whose nodes of groups are searched for.
        plan: Plan that was chosen.
        required: Requested precision and length of the draws.
    """
    if not all_parts_open(request):
        return False
    target, data = request.read.target, request.read.data
    numbers = data.size * target.row_terms * len(plan.mode.position)
    if plan.around.exact or numbers <= _SURELY:
        return True
    return numbers <= _PERHAPS and cost_of_nuts(request, plan, required).affordable


def cost_of_nuts(request: Request, plan: Plan, required: Requirements) -> Cost:
    """Return the predicted cost of NUTS for a posterior that is far from normal.

    Args:
        request: Request of the user.
        plan: Plan that was chosen.
        required: Requested precision and length of the draws.
    """
    seconds = seconds_of_gradient(
        request.read.target, request.read.data, plan.mode.position
    )
    trajectories = required.n_chains * (NUTS_WARM_UP_MOVES + 2.0 * required.ess)
    return Cost(seconds, trajectories * _GRADIENTS, required)


def run_by_nuts(
    request: Request,
    plan: Plan,
    required: Requirements,
    verbose: bool,
    start_time: float,
    reason: str,
    mode: Mode | None = None,
) -> Samples:
    """Return draws by the No-U-Turn Sampler, with their report and the plan's warnings.

    Chains start around the mode if that is given; otherwise it is searched for.
    """
    extra_warnings = no_mode_warnings(plan.surveyed)
    return run_exact(
        request,
        NUTS(),
        required,
        verbose,
        start_time,
        reason,
        extra_warnings,
        mode=mode,
    )


def run_in_blocks(
    request: Request, required: Requirements, verbose: bool, start_time: float
) -> Samples | None:
    """Return draws by HMC of a posterior whose coordinates are mostly effects of groups.

    Returns ``None`` if it has no such blocks, or a gradient over all rows is not quick.
    """
    model = request.read
    if request.groups is not None or not is_in_blocks(model):
        return None
    cost = cost_of_hmc(request, required)
    if cost is None or not cost.quick:
        return None
    return run_by_hmc(request, cost, required, verbose, start_time)


def cost_of_hmc(request: Request, required: Requirements) -> Cost | None:
    """Return the predicted cost of HMC; ``None`` if it is ruled out by what the user has given."""
    if (
        not all_parts_open(request)
        or required.n_iters is not None
        or required.burn_in is not None
    ):
        return None
    model = request.read
    seconds = seconds_of_gradient(model.target, model.data, model.starts[0])
    return Cost.of(seconds, model.target.size, required)


def run_by_hmc(
    request: Request,
    cost: Cost,
    required: Requirements,
    verbose: bool,
    start_time: float,
) -> Samples:
    """Return draws by HMC whose predicted cost is that of a posterior near normal."""
    reason = (
        f"a gradient over all rows takes {cost.gradient:.2g} s, and the prediction was "
        f"{cost.seconds:.0f} s"
    )
    return run_exact(request, HMC(), required, verbose, start_time, reason, [], cost)


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
