"""Chains of minibatches around a mode, which start again, or give way to HMC and NUTS."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc import checks
from sgmcmc.bars import Clock
from sgmcmc.dynamics import HMC
from sgmcmc.errors import DivergenceError
from sgmcmc.groups.marginal import Marginal
from sgmcmc.inputs.options import read_length
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.plan.choices import Chosen, Reading, choose
from sgmcmc.plan.curvature import shrunk_covariance
from sgmcmc.plan.fixed_nodes import with_more_nodes
from sgmcmc.plan.kept_choices import tune_once
from sgmcmc.plan.methods.full_data import (
    WARN_SECONDS,
    Cost,
    cost_of_nuts,
    may_be_exact,
    may_start_again,
    run_by_nuts,
    run_exact,
    seconds_of_gradient,
)
from sgmcmc.plan.methods.multimodal import in_modes
from sgmcmc.plan.plan import Plan
from sgmcmc.plan.reports import report_on
from sgmcmc.plan.reports.judging import judge, unconstrained
from sgmcmc.plan.reports.reporting import WIDE, no_mode_warnings
from sgmcmc.plan.reports.warnings import is_within_tolerance
from sgmcmc.plan.stopping import (
    FEWEST,
    Requirements,
    UntilEffective,
    with_smaller_steps,
)
from sgmcmc.plan.warm_up import LeftModeError
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run_lengths, run_tuned
from sgmcmc.run.request import (
    AUTO,
    Request,
    all_parts_open,
    open_arguments,
)
from sgmcmc.run.sampler_origin import origin_of

_PATIENCE = 6  # multiple of the predicted length after which NUTS takes over
_PILOT = (
    5  # divisor of the first length: the noise along the chains is measured after that
)


class UntilFar(UntilEffective):
    """Runs until coordinates have their effective sample size, or are found far from normal.

    After a short first run it measures the noise of the gradients along the chains, and stops if
    that is too large for the stepsize: noise at draws of the Laplace approximation, from which the
    stepsize was chosen, may be smaller.

    Args:
        required: Requested precision and length of the draws.
        plan: Plan that was chosen.
        target: Target, without a preconditioner.
        thin: Number of iterations between kept draws.
        start_time: Time at which the clock of ``max_seconds`` was started.
        may_stop: Whether NUTS can follow, so that chains stop as soon as the posterior is found
            far from normal.
        pace: Same as in :class:`UntilEffective`.
        may_lower: Whether there may be another run with a smaller stepsize.

    Attributes:
        spread: Covariance of the draws in whitened coordinates, at the last look.
        variances: Eigenvalues of the spread, ascending.
        reason: Evidence in the draws that their posterior is far from normal; empty if there is
            none.
        revised: Plan with a stepsize for the noise along the chains; ``None`` if the plan's own
            will do.
    """

    def __init__(
        self,
        required: Requirements,
        plan: Plan,
        target: Target,
        thin: int,
        start_time: float,
        may_stop: bool,
        pace: float | None = None,
        may_lower: bool = True,
    ) -> None:
        super().__init__(required, plan, target.size, thin, start_time, pace=pace)
        self._plan, self._space, self._thin, self._may_stop = (
            plan,
            target.space,
            thin,
            may_stop,
        )
        if may_stop and required.n_iters is None:
            self.cap = min(self.cap, _PATIENCE * self.first)
        self.spread = np.eye(target.size)
        self.variances: np.ndarray = np.ones(target.size)
        self.reason = ""
        self.revised: Plan | None = None
        is_open = (
            plan.meter is not None
            and plan.given.stepsize is None
            and plan.prediction.known
        )
        self._unmeasured = may_lower and is_open

    @property
    def normal(self) -> bool:
        """Whether the variances are those of a posterior that is near normal."""
        return bool(self.variances[-1] <= WIDE and self.variances[0] >= 1 / WIDE)

    def goals(self) -> Iterator[int]:
        """Yield the numbers of iterations after burn-in at which to stop."""
        pilot = max(FEWEST * self._thin, self.first_goal // _PILOT)
        if self._unmeasured and pilot < self.first_goal:
            self.started = time.monotonic()
            yield pilot
            if self.revised is not None:
                return
        for goal in super().goals():
            yield goal
            if self.reason and self._may_stop:
                return

    def see(self, samples: Samples) -> None:
        """Look at the draws so far."""
        if self._unmeasured:
            self._unmeasured = False
            self.revised = _with_suitable_stepsize(
                samples, self._plan, self._required.tolerance
            )
        super().see(samples)
        assert self.diagnostics is not None
        self.spread = _spread(samples, self._plan, self._space)
        self.variances = np.linalg.eigvalsh(self.spread)
        draws = self.diagnostics.draws
        if not self.normal:
            self.reason = (
                "the posterior is far from normal: in coordinates whitened at its mode, the "
                f"eigenvalues of the draws' covariance range from {self.variances[0]:.2g} to "
                f"{self.variances[-1]:.2g}"
            )
        elif (
            not self.reached
            and self._required.n_iters is None
            and draws >= self.cap // self._thin
        ):
            short = self.diagnostics.smallest < self._required.ess
            self.reason = f"after {draws} draws of each chain " + (
                f"the smallest effective sample size was {self.diagnostics.smallest:.0f}, far from "
                "what a normal posterior would give"
                if short
                else "the chains did not agree"
            )


def _with_suitable_stepsize(
    samples: Samples, plan: Plan, tolerance: float
) -> Plan | None:
    """Return the plan with a stepsize for the noise along the chains, if that is too large."""
    judgement = judge(
        origin_of(samples).sampler, samples, tolerance, plan.mode, plan.meter
    )
    if is_within_tolerance(judgement, tolerance) or not judgement.largest:
        return None
    stepsize, geometry = judgement.largest, judgement.geometry
    prediction = geometry.predict(plan.given.dynamics, stepsize, plan.given.in_turn)
    return replace(plan, stepsize=stepsize, around=geometry, prediction=prediction)


def _spread(samples: Samples, plan: Plan, space: Space) -> np.ndarray:
    """Return the covariance of the draws in whitened coordinates, drawn toward the identity."""
    u = unconstrained(samples, space)
    zeta = plan.whitening.into(u.reshape(-1, u.shape[-1]))
    return shrunk_covariance(zeta, max(4.0, len(zeta) / max(1.0, plan.autocorrelation)))


# Gradients for an independent draw of HMC far from normal, twice: draws of minibatches must cost
# much more.
_FAR_GRADIENTS = 60.0


@dataclass(frozen=True)
class _Settings:
    start_spread: float = (
        1.5  # root mean square distance of starts from the mode, in posterior SDs
    )
    attempts: int = 4  # of chains, each whitened by the draws of the one before
    gradients_near_normal: float = (
        3.0  # for an independent draw of HMC, in whitened coordinates
    )
    worth_timing: float = (
        30.0  # predicted seconds of chains above which a gradient is timed
    )
    rare_divergences: float = (
        0.01  # of trajectories; with no more a smaller stepsize is tried
    )
    slowest: float = 1e5  # autocorrelation time above which a restart does not help


_SETTINGS = _Settings()

# Reasons for a method, in reports.
_REASON_INTEGRATED = (
    "effects of groups are integrated out, and it needs the fewest gradients"
)
_REASON_FAR = (
    "the posterior is far from normal, and chains of minibatches need very many "
    "iterations"
)


def run_around_mode(
    request: Request,
    chosen: Chosen,
    required: Requirements,
    verbose: bool,
    start_time: float,
) -> Samples:
    """Return draws of a posterior with one mode, from chains that start again if necessary.

    Those of little data, far from normal, go on by NUTS.
    """
    plan, spread = chosen.plan, _SETTINGS.start_spread
    may_use_nuts = may_be_exact(request, plan, required)
    if may_use_nuts and not plan.mode.converged:
        return run_by_nuts(
            request, plan, required, verbose, start_time, "no mode was found"
        )
    gradients_of_hmc = _SETTINGS.gradients_near_normal
    integrated = isinstance(chosen.target.log_lik, Marginal)
    if (
        may_use_nuts
        and integrated
        and _hmc_is_quicker(plan, chosen.data.size, gradients_of_hmc)
    ):
        return _by_hmc(
            request, chosen, required, verbose, start_time, _REASON_INTEGRATED
        )
    all_open = (
        all_parts_open(request)
        and required.n_iters is None
        and required.burn_in is None
    )
    if all_open and _hmc_is_quicker(plan, chosen.data.size, _FAR_GRADIENTS):
        seconds = seconds_of_gradient(chosen.target, chosen.data, plan.mode.position)
        cost = Cost.of(seconds, chosen.target.size, required)
        if cost.affordable:
            cost.warn(request.function)
            bound = None if may_use_nuts else cost
            return _by_hmc(
                request, chosen, required, verbose, start_time, _REASON_FAR, bound
            )
    for attempts_left in reversed(range(_SETTINGS.attempts)):
        started = time.monotonic()
        try:
            plan, spread, lengths, samples = _run_chains(
                chosen,
                plan,
                required,
                spread,
                may_use_nuts,
                attempts_left > 0,
                verbose,
                start_time,
            )
        except DivergenceError:
            if may_use_nuts:
                reason = "other chains diverged"
                return run_by_nuts(request, plan, required, verbose, start_time, reason)
            raise
        if may_use_nuts and lengths.reason and may_start_again(required, lengths.left):
            try:
                return run_by_nuts(
                    request, plan, required, verbose, start_time, lengths.reason
                )
            except TimeoutError:
                break
        is_last = not attempts_left or lengths.left <= 0
        next_plan = None if is_last else _next_plan(request, chosen, plan, lengths)
        if next_plan is None:
            break
        seconds = _predicted(request, next_plan, required, started, lengths, samples)
        if (
            not may_use_nuts
            and seconds > _SETTINGS.worth_timing
            and all_parts_open(request)
        ):
            cost = cost_of_nuts(request, plan, required)
            if cost.affordable and cost.seconds < seconds:
                cost.warn(request.function)
                mode = plan.mode if request.groups is None else None
                return run_by_nuts(
                    request, plan, required, verbose, start_time, _REASON_FAR, mode
                )
        if seconds > WARN_SECONDS and required.max_seconds is None:
            _warn_of_duration(seconds, request.function)
        plan = next_plan
    sampler, clock = origin_of(samples).sampler, Clock(start_time, plan.seconds)
    report = report_on(
        samples, plan, lengths, required, lengths.variances, sampler, clock
    )
    return samples.with_report(report)


def _next_plan(
    request: Request, chosen: Chosen, plan: Plan, lengths: UntilFar
) -> Plan | None:
    """Return a plan for chains that start again; ``None`` if those that have run will do."""
    if lengths.revised is not None:
        return lengths.revised
    if lengths.reached or lengths.normal or not _may_rewhiten(request):
        return None
    root = plan.whitening.root @ np.linalg.cholesky(lengths.spread)
    rewhitened = plan.rewhitened(chosen.target, chosen.data, root @ root.T, chosen.seed)
    return None if rewhitened.autocorrelation > _SETTINGS.slowest else rewhitened


def _warn_of_duration(seconds: float, function: str) -> None:
    warnings.warn(
        f"{function}() will take about {seconds / 60:.0f} more minutes: {_REASON_FAR}. "
        "`max_seconds` bounds it; another form of the model may be nearer to normal, such as one "
        "with effects of `groups=`.",
        UserWarning,
        stacklevel=checks.outside(),
    )


def _predicted(
    request: Request,
    plan: Plan,
    required: Requirements,
    started: float,
    lengths: UntilFar,
    samples: Samples,
) -> float:
    """Return the predicted seconds of a plan's chains, by the pace of those before.

    Args:
        request: Request of the user.
        plan: Plan of further chains.
        required: Requested precision and length of the draws.
        started: Time at which the chains before were started.
        lengths: Their length.
        samples: Their draws.
    """
    thin = request.read.options.thin
    draws = next(iter(samples.values())).shape[1]
    next_lengths = UntilEffective(required, plan, request.read.target.size, thin, 0.0)
    iterations_done = thin * draws + (lengths.burn_in or 0)
    iterations_ahead = next_lengths.first + (next_lengths.burn_in or 0)
    return (time.monotonic() - started) * iterations_ahead / iterations_done


def _hmc_is_quicker(plan: Plan, rows: int, gradients: float) -> bool:
    """Return whether HMC needs fewer seconds than the plan, and gives a smaller error.

    Two gradients of a minibatch for each of the plan's iterations are compared with some of all
    rows. The decision depends on counts alone, not on a clock, so that the same seed gives the same
    draws on every machine.

    Args:
        plan: Plan that was chosen.
        rows: Number of observations, or of packs of groups that are integrated out.
        gradients: Gradients over all of them that an independent draw of HMC takes.
    """
    if not plan.mode.converged:
        return False
    if plan.around.exact:
        return gradients <= _SETTINGS.gradients_near_normal
    return 2 * plan.autocorrelation * plan.minibatch_size >= gradients * rows


def _by_hmc(
    request: Request,
    chosen: Chosen,
    required: Requirements,
    verbose: bool,
    start_time: float,
    reason: str,
    cost: Cost | None = None,
) -> Samples:
    """Return draws by HMC in the plan's coordinates; by NUTS if the report of HMC has a warning.

    Chains that left the region of fixed quadrature nodes run again with more nodes, and chains with
    a few divergences with half the stepsize. NUTS has no nodes fixed around the mode, and starts at
    the same mode. If gradients have a cost that bounds the run, NUTS does not follow.
    """
    plan, samples = chosen.plan, None
    structure = request.groups
    mode = None if structure is None or structure.coordinates else plan.mode
    extra_warnings = no_mode_warnings(plan.surveyed)

    def may_go_on() -> bool:
        limit = required.max_seconds
        seconds_left = (
            np.inf if limit is None else start_time + limit - time.monotonic()
        )
        return may_start_again(required, seconds_left)

    current: Request | None = chosen.request
    stepsize: float | None = None
    while current is not None:
        try:
            samples = run_exact(
                current,
                HMC(),
                required,
                verbose,
                start_time,
                reason,
                extra_warnings,
                cost,
                plan.mode,
                stepsize,
            )
        except TimeoutError:
            if samples is None:
                raise
            return samples
        except LeftModeError:
            current = with_more_nodes(current) if may_go_on() else None
            continue
        assert samples.report is not None
        warnings_of_hmc = samples.report.warnings[len(extra_warnings) :]
        if not warnings_of_hmc or not may_go_on():
            return samples
        diverged, draws = (
            samples.report["Chain"]["divergences"],
            samples.report["Draws"],
        )
        few_divergences = (
            _SETTINGS.rare_divergences * draws["chains"] * draws["draws per chain"]
        )
        if stepsize is None and 0 < diverged <= few_divergences:
            stepsize = samples.settings["stepsize"] / 2
            continue
        if cost is not None:
            return samples
        try:
            reason = f"of HMC: {warnings_of_hmc[0]}"
            return run_by_nuts(
                request, plan, required, verbose, start_time, reason, mode
            )
        except TimeoutError:
            return samples
    lost_mode = (
        "the posterior is far from normal: HMC left the surroundings of the mode"
    )
    return run_by_nuts(request, plan, required, verbose, start_time, lost_mode, mode)


def _run_chains(
    chosen: Chosen,
    plan: Plan,
    required: Requirements,
    spread: float,
    may_use_nuts: bool,
    may_lower: bool,
    verbose: bool,
    start_time: float,
) -> tuple[Plan, float, UntilFar, Samples]:
    """Return draws of chains that start around the mode, with their plan, spread and lengths.

    Chains that diverge start again nearer to the mode, with smaller steps, unless NUTS can follow
    or the stepsize is the user's.
    """

    def attempt(factor: float) -> tuple[Plan, float, UntilFar, Samples]:
        lowered = (
            plan if factor == 1 else replace(plan, stepsize=factor * plan.stepsize)
        )
        starts = _starts(chosen, plan, required, factor * spread)
        completed = chosen.completed(lowered, starts)
        thin = chosen.request.read.options.thin
        previous = chosen.request.previous
        pace = None if previous is None else previous.pace
        lengths = UntilFar(
            required,
            lowered,
            chosen.target,
            thin,
            start_time,
            may_use_nuts,
            pace,
            may_lower,
        )
        return (
            lowered,
            factor * spread,
            lengths,
            run_lengths(completed, lengths, verbose),
        )

    fixed = may_use_nuts or plan.given.stepsize is not None
    return with_smaller_steps(attempt, 1 if fixed else _SETTINGS.attempts)


def run_on_disk(reading: Reading, required: Requirements, verbose: bool) -> Samples:
    """Return draws that are written to disk, by constants that are chosen once and kept there."""
    if required.n_iters is None:
        raise ValueError("`store`: a chain on disk has a fixed length. Give `n_iters`.")
    read_length(required.n_iters, reading.request.read.options.thin)

    def tune(request: Request) -> Request:
        chosen = choose(reading, required.tolerance, verbose)
        plan, target = chosen.plan, chosen.target
        if not plan.mode.converged and may_be_exact(request, plan, required):
            raise ValueError(
                "`store`: no mode was found, so that no constants can be kept for a chain on disk. "
                "Use sgmcmc.nuts(..., store=...)."
            )
        if plan.surveyed is not None and plan.surveyed.several:
            plan, completed = in_modes(chosen, plan.surveyed, required.n_chains)
        else:
            starts = _starts(chosen, plan, required, _SETTINGS.start_spread)
            completed = chosen.completed(plan, starts)
        thin = reading.request.read.options.thin
        lengths = UntilEffective(required, plan, target.size, thin, 0.0)
        return completed.tuned(burn_in=lengths.burn_in)

    request = tune_once(reading.request, tune)
    if required.burn_in is not None:
        request = request.tuned(burn_in=required.burn_in)
    return run_tuned(request, required.n_iters, verbose)


def _may_rewhiten(request: Request) -> bool:
    is_open = open_arguments(request)
    dense = request.keywords.get("preconditioner") in (AUTO, "dense")
    return "preconditioner" in is_open and dense and "stepsize" in is_open


def _starts(
    chosen: Chosen, plan: Plan, required: Requirements, spread: float
) -> list[Any]:
    target = chosen.target
    rng = np.random.default_rng([chosen.seed, 1])
    values, vectors = plan.around.axes
    steps = (
        rng.standard_normal((required.n_chains, target.size))
        / np.sqrt(values)
        @ vectors.T
    )
    whitening = plan.whitening
    steps = steps @ whitening.root.T if whitening.dense else steps * whitening.root
    mode = plan.mode.position
    return [target.space.params(mode + spread * step, target.dtype) for step in steps]
