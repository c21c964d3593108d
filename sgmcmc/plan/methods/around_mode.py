"""Chains of minibatches and of HMC around a mode, which start again, or give way to NUTS."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from sgmcmc import checks
from sgmcmc.dynamics import HMC
from sgmcmc.errors import DivergenceError
from sgmcmc.groups.marginal import Marginal
from sgmcmc.inputs.options import read_length
from sgmcmc.plan.choices import Chosen, choose
from sgmcmc.plan.cost import (
    WARN_SECONDS,
    Cost,
    seconds_of_gradient,
    seconds_of_minibatches,
)
from sgmcmc.plan.curvature import shrunk_covariance
from sgmcmc.plan.fixed_nodes import with_more_nodes
from sgmcmc.plan.methods.call import Call, Left, SuitsBetter
from sgmcmc.plan.methods.full_data import (
    HamiltonianPlan,
    cost_of_nuts,
    may_start_again,
    nuts_is_affordable,
    run_on_all_rows,
)
from sgmcmc.plan.methods.multimodal import in_modes
from sgmcmc.plan.mode import Mode
from sgmcmc.plan.plan import Plan
from sgmcmc.plan.reports import report_around_mode
from sgmcmc.plan.reports.judging import judge, unconstrained
from sgmcmc.plan.reports.warnings import WIDE, is_within_tolerance, no_mode_warnings
from sgmcmc.plan.stopping import (
    FEWEST,
    Goal,
    UntilEffective,
    with_smaller_steps,
)
from sgmcmc.plan.stored_constants import tune_once
from sgmcmc.plan.warm_up import LeftModeError
from sgmcmc.results.report import Fact, Section
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run_tuned, run_until
from sgmcmc.run.request import (
    AUTO,
    Request,
    all_parts_open,
    open_arguments,
)
from sgmcmc.run.sampler_origin import origin_of


@dataclass(frozen=True)
class _Settings:
    # Root mean square distance of starts from the mode, in posterior SDs.
    start_spread: float = 1.5
    attempts: int = 4  # of chains, each whitened by the draws of the one before
    # For an independent draw of HMC, in whitened coordinates.
    gradients_near_normal: float = 3.0
    # Predicted seconds of chains above which those of NUTS are compared.
    worth_timing: float = 30.0
    # Of trajectories; with no more a smaller stepsize is tried.
    rare_divergences: float = 0.01
    slowest: float = 1e5  # autocorrelation time above which a restart does not help
    patience: int = 6  # multiple of the predicted length after which NUTS takes over
    pilot: int = 5  # divisor of the first length: the noise along the chains is measured after that


_SETTINGS = _Settings()


class UntilFar(UntilEffective):
    """Runs until coordinates have their effective sample size, or are found far from normal.

    After a short first run it measures the noise of the gradients along the chains, and stops if
    that is too large for the stepsize: noise at draws of the Laplace approximation, from which the
    stepsize was chosen, may be smaller.

    Args:
        goal: Requested precision and length of the draws, and the clock.
        plan: Plan of the chains.
        chosen: Request with the constants that were chosen first.
        may_stop: Whether NUTS can follow, so that chains stop as soon as the posterior is found
            far from normal.
        may_lower: Whether there may be another run with a smaller stepsize.

    Attributes:
        covariance: Covariance of the draws in whitened coordinates, at the last look.
        variances: Eigenvalues of the covariance, ascending.
        reason: Evidence in the draws that their posterior is far from normal; empty if there is
            none.
        revised: Plan with a stepsize for the noise along the chains; ``None`` if the plan's own
            will do.
    """

    def __init__(
        self, goal: Goal, plan: Plan, chosen: Chosen, may_stop: bool, may_lower: bool
    ) -> None:
        request, d = chosen.request, chosen.target.size
        thin = request.read.options.thin
        pace = None if request.previous is None else request.previous.pace
        super().__init__(goal, plan, d, thin, pace)
        self._plan, self._space, self._thin = plan, chosen.target.space, thin
        self._may_stop = may_stop
        if may_stop and goal.n_iters is None:
            self.cap = min(self.cap, _SETTINGS.patience * self.first)
        self.covariance = np.eye(d)
        self.variances: np.ndarray = np.ones(d)
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
        pilot = max(FEWEST * self._thin, self.first_goal // _SETTINGS.pilot)
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
            plan, tolerance = self._plan, self._goal.tolerance
            sampler = origin_of(samples).sampler
            judgement = judge(sampler, samples, tolerance, plan.mode, plan.meter)
            if judgement.largest and not is_within_tolerance(judgement, tolerance):
                given, stepsize = plan.given, judgement.largest
                geometry = judgement.geometry
                prediction = geometry.predict(given.dynamics, stepsize, given.in_turn)
                self.revised = replace(
                    plan, stepsize=stepsize, around=geometry, prediction=prediction
                )
        super().see(samples)
        assert self.diagnostics is not None
        # The covariance of the draws in whitened coordinates, drawn toward the identity.
        u = unconstrained(samples, self._space)
        zeta = self._plan.whitening.into(u.reshape(-1, u.shape[-1]))
        self.covariance = shrunk_covariance(
            zeta, max(4.0, len(zeta) / max(1.0, self._plan.autocorrelation))
        )
        self.variances = np.linalg.eigvalsh(self.covariance)
        draws = self.diagnostics.draws
        if not self.normal:
            self.reason = (
                "the posterior is far from normal: in coordinates whitened at its mode, the "
                f"eigenvalues of the draws' covariance range from {self.variances[0]:.2g} to "
                f"{self.variances[-1]:.2g}"
            )
        elif (
            not self.reached
            and self._goal.n_iters is None
            and draws >= self.cap // self._thin
        ):
            short = self.diagnostics.smallest < self._goal.ess
            self.reason = f"after {draws} draws of each chain " + (
                f"the smallest effective sample size was {self.diagnostics.smallest:.0f}, far from "
                "what a normal posterior would give"
                if short
                else "the chains did not agree"
            )


# Gradients for an independent draw of HMC far from normal, twice: draws of minibatches must cost
# much more.
_FAR_GRADIENTS = 60.0


# Reasons for a method, in reports.
_REASON_INTEGRATED = (
    "effects of groups are integrated out, and it needs the fewest gradients"
)
_REASON_FAR = (
    "the posterior is far from normal, and chains of minibatches need very many "
    "iterations"
)


@dataclass(frozen=True)
class _Chains:
    """Chains that have run, with the plan and the scale of their starts."""

    plan: Plan
    start_scale: float
    lengths: UntilFar
    samples: Samples

    def reported(self, goal: Goal) -> Samples:
        """Return the draws with their report."""
        samples, lengths = self.samples, self.lengths
        report = report_around_mode(
            samples, self.plan, lengths, lengths.variances, goal
        )
        return samples.with_report(report)


def minibatches_around_mode(call: Call, left: Left | None) -> Samples | Left | None:
    """Return draws by chains of minibatches around the one mode of a posterior.

    They start again if necessary. Those of little data, far from normal, are left to NUTS.
    """
    chosen = call.chosen
    if isinstance(chosen, Left):
        return None
    may_use_nuts = nuts_is_affordable(call.request, chosen.plan, call.goal)
    if may_use_nuts and not chosen.plan.mode.converged:
        return _gave_way(chosen.plan, "no mode was found")
    suits_better = _why_hmc(call, chosen, may_use_nuts)
    if suits_better is not None:
        return replace(_gave_way(chosen.plan, suits_better.reason), hmc=suits_better)
    chains = AroundMode(call.request, chosen, call.goal)
    return chains.by_minibatches(may_use_nuts)


def hmc_around_mode(call: Call, left: Left | None) -> Samples | Left | None:
    """Return draws by HMC in the plan's coordinates, where that needs fewer gradients."""
    chosen = call.chosen
    if left is None or left.hmc is None or isinstance(chosen, Left):
        return None
    if left.hmc.cost is not None:
        left.hmc.cost.warn(call.request.function)
    chains = AroundMode(call.request, chosen, call.goal)
    return chains.by_hmc(left.hmc.reason, left.hmc.bound)


def _gave_way(
    plan: Plan,
    reason: str,
    mode: Mode | None = None,
    draws: Callable[[], Samples] | None = None,
) -> Left:
    """Return that chains gave way, with what the search of their plan for modes has found."""
    return Left(reason, no_mode_warnings(plan.surveyed), mode, draws=draws)


def _why_hmc(call: Call, chosen: Chosen, may_use_nuts: bool) -> SuitsBetter | None:
    """Return why HMC suits better than chains of minibatches; ``None`` if it does not."""
    request, goal, plan = call.request, call.goal, chosen.plan
    target, data = chosen.target, chosen.data
    is_near_normal_quicker = _hmc_is_quicker(
        plan, data.size, _SETTINGS.gradients_near_normal
    )
    if may_use_nuts and isinstance(target.log_lik, Marginal) and is_near_normal_quicker:
        return SuitsBetter(_REASON_INTEGRATED)
    all_open = all_parts_open(request) and goal.length_is_open
    if not (all_open and _hmc_is_quicker(plan, data.size, _FAR_GRADIENTS)):
        return None
    cost = Cost.of_hmc(seconds_of_gradient(target, data), target.size, goal)
    if not cost.affordable:
        return None
    return SuitsBetter(_REASON_FAR, cost, None if may_use_nuts else cost)


class AroundMode:
    """Chains around the one mode of a posterior.

    Args:
        request: Request of the user, whose nodes of groups are searched for.
        chosen: Request with the constants that were chosen.
        goal: Requested precision and length of the draws.
    """

    def __init__(self, request: Request, chosen: Chosen, goal: Goal) -> None:
        self.request, self.chosen, self.goal = request, chosen, goal

    def by_minibatches(self, may_use_nuts: bool) -> Samples | Left:
        """Return draws by chains of the plan, or why NUTS has to follow."""
        request, goal = self.request, self.goal
        plan, start_scale = self.chosen.plan, _SETTINGS.start_spread
        for attempts_left in reversed(range(_SETTINGS.attempts)):
            try:
                chains = self._run_chains(
                    plan, start_scale, may_use_nuts, attempts_left > 0
                )
            except DivergenceError:
                if not may_use_nuts:
                    raise
                return _gave_way(plan, "other chains diverged")
            plan, start_scale, lengths = chains.plan, chains.start_scale, chains.lengths
            if may_use_nuts and lengths.reason and may_start_again(goal):
                draws = partial(chains.reported, goal)
                return _gave_way(plan, lengths.reason, draws=draws)
            is_last = not attempts_left or lengths.left <= 0
            next_plan = None if is_last else self._next_plan(plan, lengths)
            if next_plan is None:
                break
            seconds = self._predicted(next_plan)
            if (
                not may_use_nuts
                and seconds > _SETTINGS.worth_timing
                and all_parts_open(request)
            ):
                cost = cost_of_nuts(request, goal)
                if cost.affordable and cost.seconds < seconds:
                    cost.warn(request.function)
                    mode = plan.mode if request.groups is None else None
                    return _gave_way(plan, _REASON_FAR, mode)
            if seconds > WARN_SECONDS and goal.max_seconds is None:
                warnings.warn(
                    f"{request.function}() will take about {seconds / 60:.0f} more minutes: "
                    f"{_REASON_FAR}. `max_seconds` bounds it; another form of the model may be "
                    "nearer to normal, such as one with effects of `groups=`.",
                    UserWarning,
                    stacklevel=checks.outside(),
                )
            plan = next_plan
        return chains.reported(goal)

    def _next_plan(self, plan: Plan, lengths: UntilFar) -> Plan | None:
        """Return a plan for chains that start again; ``None`` if those that have run will do."""
        if lengths.revised is not None:
            return lengths.revised
        if lengths.reached or lengths.normal:
            return None
        is_open = open_arguments(self.request)
        dense = self.request.keywords.get("preconditioner") in (AUTO, "dense")
        if not (dense and {"preconditioner", "stepsize"} <= set(is_open)):
            return None
        root = plan.whitening.root @ np.linalg.cholesky(lengths.covariance)
        target, data, seed = self.chosen.target, self.chosen.data, self.chosen.seed
        rewhitened = plan.rewhitened(target, data, root @ root.T, seed)
        return None if rewhitened.autocorrelation > _SETTINGS.slowest else rewhitened

    def _predicted(self, plan: Plan) -> float:
        """Return the predicted seconds of a plan's chains."""
        thin = self.request.read.options.thin
        lengths = UntilEffective(self.goal, plan, self.chosen.target.size, thin)
        iterations = self.goal.n_chains * (lengths.first + (lengths.burn_in or 0))
        share = plan.minibatch_size / self.chosen.data.size
        return seconds_of_minibatches(self._seconds_of_gradient, share, iterations)

    @cached_property
    def _seconds_of_gradient(self) -> float:
        return seconds_of_gradient(self.chosen.target, self.chosen.data)

    def by_hmc(self, reason: str, cost: Cost | None = None) -> Samples | Left:
        """Return draws by HMC in the plan's coordinates, or why NUTS has to follow.

        Chains that left the region of fixed quadrature nodes run again with more nodes, and chains
        with a few divergences with half the stepsize. NUTS has no nodes fixed around the mode, and
        starts at the same mode. If gradients have a cost that bounds the run, NUTS does not follow.
        """
        request, goal = self.request, self.goal
        plan, samples = self.chosen.plan, None
        structure = request.groups
        mode = None if structure is None or structure.coordinates else plan.mode
        surveyed = no_mode_warnings(plan.surveyed)
        hmc = HamiltonianPlan(HMC(), reason, surveyed, cost, plan.mode)
        current: Request | None = self.chosen.request
        while current is not None:
            try:
                samples = run_on_all_rows(current, hmc, goal)
            except TimeoutError:
                if samples is None:
                    raise
                return samples
            except LeftModeError:
                current = with_more_nodes(current) if may_start_again(goal) else None
                continue
            assert samples.report is not None
            of_hmc = [w for w in samples.report.warnings if w not in surveyed]
            if not of_hmc or not may_start_again(goal):
                return samples
            diverged = samples.report[Section.CHAIN][Fact.DIVERGENCES]
            draws = samples.report[Section.DRAWS]
            trajectories = draws[Fact.CHAINS] * draws[Fact.DRAWS_PER_CHAIN]
            if (
                hmc.stepsize is None
                and 0 < diverged <= _SETTINGS.rare_divergences * trajectories
            ):
                hmc = replace(hmc, stepsize=samples.settings["stepsize"] / 2)
                continue
            if cost is not None:
                return samples
            draws_so_far = partial(samples.with_report, samples.report)
            return _gave_way(plan, f"of HMC: {of_hmc[0]}", mode, draws_so_far)
        return _gave_way(
            plan,
            "the posterior is far from normal: HMC left the surroundings of the mode",
            mode,
        )

    def _run_chains(
        self, plan: Plan, start_scale: float, may_use_nuts: bool, may_lower: bool
    ) -> _Chains:
        """Return chains that start around the mode.

        Chains that diverge start again nearer to the mode, with smaller steps, unless NUTS can
        follow or the stepsize is the user's.
        """
        chosen, goal = self.chosen, self.goal

        def attempt(factor: float) -> _Chains:
            lowered = (
                plan if factor == 1 else replace(plan, stepsize=factor * plan.stepsize)
            )
            starts = _starts(chosen, plan, goal.n_chains, factor * start_scale)
            completed = chosen.completed(lowered, starts)
            lengths = UntilFar(goal, lowered, chosen, may_use_nuts, may_lower)
            samples = run_until(completed, lengths, goal.verbose)
            return _Chains(lowered, factor * start_scale, lengths, samples)

        fixed = may_use_nuts or plan.given.stepsize is not None
        return with_smaller_steps(attempt, 1 if fixed else _SETTINGS.attempts)


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
    if plan.around.is_noiseless:
        return gradients <= _SETTINGS.gradients_near_normal
    return 2 * plan.autocorrelation * plan.minibatch_size >= gradients * rows


def draws_on_disk(call: Call, left: Left | None) -> Samples | None:
    """Return draws that are written to disk, by constants that are chosen once and kept there."""
    if not call.is_stored:
        return None
    bound, goal = call.bound, call.goal
    if goal.n_iters is None:
        raise ValueError("`store`: a chain on disk has a fixed length. Give `n_iters`.")
    read_length(goal.n_iters, bound.request.read.options.thin)

    def tune(request: Request) -> Request:
        chosen = choose(bound, goal.tolerance, goal.verbose)
        plan, target = chosen.plan, chosen.target
        if not plan.mode.converged and nuts_is_affordable(request, plan, goal):
            raise ValueError(
                "`store`: no mode was found, so that no constants can be kept for a chain on disk. "
                "Use sgmcmc.nuts(..., store=...)."
            )
        if plan.surveyed is not None and plan.surveyed.several:
            plan, completed = in_modes(chosen, plan.surveyed, goal.n_chains)
        else:
            starts = _starts(chosen, plan, goal.n_chains, _SETTINGS.start_spread)
            completed = chosen.completed(plan, starts)
        thin = bound.request.read.options.thin
        lengths = UntilEffective(goal, plan, target.size, thin)
        return completed.tuned(burn_in=lengths.burn_in)

    request = tune_once(bound.request, tune, goal.tolerance)
    if goal.burn_in is not None:
        request = request.tuned(burn_in=goal.burn_in)
    return run_tuned(request, goal.n_iters, goal.verbose)


def _starts(chosen: Chosen, plan: Plan, n_chains: int, start_scale: float) -> list[Any]:
    target = chosen.target
    rng = np.random.default_rng([chosen.seed, 1])
    values, vectors = plan.around.axes
    steps = rng.standard_normal((n_chains, target.size)) / np.sqrt(values) @ vectors.T
    whitening = plan.whitening
    steps = steps @ whitening.root.T if whitening.dense else steps * whitening.root
    mode = plan.mode.position
    return [
        target.space.params(mode + start_scale * step, target.dtype) for step in steps
    ]
