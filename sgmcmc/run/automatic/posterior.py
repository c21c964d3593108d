"""Sampling without constants from the user: constants chosen, chains run, draws reported."""

from __future__ import annotations

import contextlib
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from sgmcmc import checks
from sgmcmc.bars import Clock
from sgmcmc.dynamics import HMC, NUTS
from sgmcmc.errors import DivergenceError
from sgmcmc.groups.marginal import Marginal
from sgmcmc.inputs.options import read_length
from sgmcmc.interrupts import TimeUpError, limited, out_of_time
from sgmcmc.results.samples import Samples
from sgmcmc.run.anchored import with_more_nodes
from sgmcmc.run.automatic.far_from_normal import (
    UntilFar,
    cost_of_nuts,
    may_be_exact,
    run_by_nuts,
)
from sgmcmc.run.automatic.large import cost_of_hmc, needs_mode, run_in_blocks, run_large
from sgmcmc.run.automatic.methods import (
    SAID,
    Cost,
    may_start_again,
    run_exact,
    seconds_of_gradient,
)
from sgmcmc.run.automatic.moved import run_with_effects, run_with_field
from sgmcmc.run.automatic.multimodal import in_modes, run_in_modes
from sgmcmc.run.choices import Chosen, Reading, choose, read
from sgmcmc.run.driver import run_lengths, run_tuned
from sgmcmc.run.exact.adaptation import LostError
from sgmcmc.run.kept_choices import chosen_once
from sgmcmc.run.lengths import Requirements, UntilEffective, with_smaller_steps
from sgmcmc.run.origin import origin_of
from sgmcmc.run.reports import report_on
from sgmcmc.run.reports.reporting import of_rising
from sgmcmc.run.request import AUTO, Request, all_parts_open, brief, on_machines, open_arguments
from sgmcmc.tuning.fields import SMALLEST_FIELD
from sgmcmc.tuning.mode import DENSE_UP_TO, MANY
from sgmcmc.tuning.plan import Plan
from sgmcmc.tuning.symmetries import alike

_SPREAD = 1.5
"""Root mean square distance of starts from the mode, in posterior SDs."""

_ROUNDS = 4
"""Largest number of restarts of a chain, whitened by its own draws."""

_HMC_GRADIENTS = 3.0
"""Gradients that an independent draw of HMC takes, in whitened coordinates, near to normal."""

_FAR_GRADIENTS = 60.0
"""The same far from it, and as much again, because draws of minibatches must be much dearer."""

_INTEGRATED = "effects of groups are integrated out, and it needs the fewest gradients"

_FAR = "the posterior is far from normal, and chains of minibatches need very many iterations"

_NO_CURVATURE = "the log posterior has no finite curvature where its mode was looked for"

_NO_TIME = "the time to choose constants for minibatches was over"

_TO_CHOOSE = 0.5
"""Part of ``max_seconds`` in which constants are chosen."""

_LEAST_TO_CHOOSE = 5.0
"""Seconds that this has at least: without it all that follows takes longer."""

_WORTH_TIMING = 30.0
"""Predicted seconds of chains above which a gradient over all rows is timed."""

_SELDOM = 0.01
"""Part of the trajectories of HMC that may diverge for a smaller stepsize to be tried."""

_CONSTANTS = ("gradient", "minibatches", "minibatch_size", "preconditioner", "stepsize")
"""Constants that are all chosen or all given, where no mode is searched for."""

_SLOWEST = 1e5
"""Autocorrelation time above which a restart does not help."""


@brief
@on_machines
def run_automatically(request: Request, required: Requirements, verbose: bool) -> Samples:
    """Make the open choices, run the chains, and return draws with their report.

    Args:
        request: Request of the user; "auto" for open constants.
        required: Requested precision and length of the draws.
        verbose: Whether to show progress.
    """
    began = time.monotonic()
    verbose, required = checks.flag("verbose", verbose), required.checked()
    request = replace(request, keywords={**request.keywords, "n_chains": required.n_chains})
    reading = read(request)
    request, model = reading.request, reading.request.read
    options, d, thin = model.options, model.target.size, model.options.thin
    if options.store_params is not True:
        raise ValueError(
            "`store_params`: all parameters are stored if the length is chosen from their draws."
        )
    if options.store is None and all_parts_open(request):
        found = None
        if request.groups is not None:
            found = run_with_effects(request, required, verbose, began)
        elif d >= SMALLEST_FIELD:
            found = run_with_field(request, required, verbose, began)
        if found is None and d > MANY and required.n_iters is None and required.burn_in is None:
            found = run_in_blocks(request, required, verbose, began)
        if found is not None:
            return found
    large = d > DENSE_UP_TO
    cost = cost_of_hmc(request, required) if large else None
    if (large and not needs_mode(request, cost)) or _has_many_modes(request):
        _need_all_open(request, d)
        if options.store is not None:
            raise ValueError(
                f"`store`: there are {d} coordinates. Beyond {DENSE_UP_TO} a chain on disk needs "
                "every constant given; `settings` of a call without a store have what was chosen."
            )
        return run_large(request, reading.dynamics, required, verbose, began, cost)
    if options.store is not None:
        return _run_on_disk(reading, required, verbose)
    chosen = None
    most = max(_TO_CHOOSE * required.seconds, _LEAST_TO_CHOOSE)
    try:
        with contextlib.suppress(TimeUpError), limited(began + most):
            chosen = choose(reading, required.tolerance, verbose)
    except np.linalg.LinAlgError:
        if not all_parts_open(request):
            raise
        return run_exact(request, NUTS(), required, verbose, began, _NO_CURVATURE, [])
    if chosen is None:
        return _in_a_hurry(request, required, verbose, began)
    if chosen.plan.surveyed is not None and chosen.plan.surveyed.several:
        return run_in_modes(chosen, chosen.plan.surveyed, required, thin, verbose, began)
    return _run_around_mode(request, chosen, required, verbose, began)


def _in_a_hurry(request: Request, required: Requirements, verbose: bool, began: float) -> Samples:
    """Return draws by NUTS, when the time to choose constants is over.

    Raises:
        TimeoutError: The user has chosen another sampler, whose constants need that choice.
    """
    if not all_parts_open(request):
        constants = "`minibatch_size`, `preconditioner`, `stepsize`, `n_iters` and `burn_in`"
        raise out_of_time(
            "the constants of the sampler were chosen", began, f", or all of {constants}"
        )
    hurried = replace(required, hurried=True)
    return run_exact(request, NUTS(), hurried, verbose, began, _NO_TIME, [])


def _run_around_mode(
    request: Request, chosen: Chosen, required: Requirements, verbose: bool, began: float
) -> Samples:
    """Return draws of a posterior with one mode, from chains that start again if necessary.

    Those of little data, far from normal, go on by NUTS.
    """
    plan, apart = chosen.plan, _SPREAD
    exact = may_be_exact(request, plan, required)
    if exact and not plan.mode.converged:
        return run_by_nuts(request, plan, required, verbose, began, "no mode was found")
    integrated = isinstance(chosen.target.log_lik, Marginal)
    if exact and integrated and _hmc_is_quicker(plan, chosen.data.size, _HMC_GRADIENTS):
        return _by_hmc(request, chosen, required, verbose, began, _INTEGRATED)
    open_ = all_parts_open(request) and required.n_iters is None and required.burn_in is None
    if open_ and _hmc_is_quicker(plan, chosen.data.size, _FAR_GRADIENTS):
        seconds = seconds_of_gradient(chosen.target, chosen.data, plan.mode.position)
        cost = Cost.of(seconds, chosen.target.size, required)
        if cost.affordable:
            cost.warn(request.function)
            bound = None if exact else cost
            return _by_hmc(request, chosen, required, verbose, began, _FAR, bound)
    for further in reversed(range(_ROUNDS)):
        started = time.monotonic()
        try:
            plan, apart, lengths, samples = _around(
                chosen, plan, required, apart, exact, further > 0, verbose, began
            )
        except DivergenceError:
            if exact:
                return run_by_nuts(request, plan, required, verbose, began, "other chains diverged")
            raise
        if exact and lengths.against and may_start_again(required, lengths.left):
            try:
                return run_by_nuts(request, plan, required, verbose, began, lengths.against)
            except TimeoutError:
                break
        last = not further or lengths.left <= 0
        other = None if last else _other_plan(request, chosen, plan, lengths)
        if other is None:
            break
        seconds = _predicted(request, other, required, started, lengths, samples)
        if not exact and seconds > _WORTH_TIMING and all_parts_open(request):
            cost = cost_of_nuts(request, plan, required)
            if cost.affordable and cost.seconds < seconds:
                cost.warn(request.function)
                mode = plan.mode if request.groups is None else None
                return run_by_nuts(request, plan, required, verbose, began, _FAR, mode)
        if seconds > SAID and required.max_seconds is None:
            _warn_of(seconds, request.function)
        plan = other
    sampler, clock = origin_of(samples).sampler, Clock(began, plan.seconds)
    report = report_on(samples, plan, lengths, required, lengths.variances, sampler, clock)
    return samples.with_report(report)


def _other_plan(request: Request, chosen: Chosen, plan: Plan, lengths: UntilFar) -> Plan | None:
    """Return a plan for chains that start again; ``None`` if those that have run will do."""
    if lengths.quieter is not None:
        return lengths.quieter
    if lengths.reached or lengths.normal or not _may_rewhiten(request):
        return None
    root = plan.whitening.root @ np.linalg.cholesky(lengths.spread)
    other = plan.rewhitened(chosen.target, chosen.data, root @ root.T, chosen.seed)
    return None if other.autocorrelation > _SLOWEST else other


def _warn_of(seconds: float, function: str) -> None:
    """Warn of chains that take long, before they begin."""
    warnings.warn(
        f"{function}() will take about {seconds / 60:.0f} more minutes: {_FAR}. `max_seconds` "
        "bounds it; another form of the model may be nearer to normal, such as one with effects "
        "of `groups=`.",
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
    further = UntilEffective(required, plan, request.read.target.size, thin, 0.0)
    done, ahead = thin * draws + (lengths.burn_in or 0), further.first + (further.burn_in or 0)
    return (time.monotonic() - started) * ahead / done


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
        return gradients <= _HMC_GRADIENTS
    return 2 * plan.autocorrelation * plan.minibatch_size >= gradients * rows


def _by_hmc(
    request: Request,
    chosen: Chosen,
    required: Requirements,
    verbose: bool,
    began: float,
    reason: str,
    cost: Cost | None = None,
) -> Samples:
    """Return draws by HMC in the plan's coordinates; by NUTS if the report of HMC has a warning.

    Chains that went where nodes that are held do not serve run again with more, and those with a
    few divergences with half the stepsize. NUTS has no nodes that are held around the mode, and
    begins at the same mode. Where gradients have a cost that bounds the run, HMC is the last.
    """
    plan, samples = chosen.plan, None
    structure = request.groups
    mode = None if structure is None or structure.coordinates else plan.mode
    doubts = of_rising(plan.surveyed)

    def may_go_on() -> bool:
        most = required.max_seconds
        left = np.inf if most is None else began + most - time.monotonic()
        return may_start_again(required, left)

    asked: Request | None = chosen.request
    stepsize: float | None = None
    while asked is not None:
        try:
            samples = run_exact(
                asked, HMC(), required, verbose, began, reason, doubts, cost, plan.mode, stepsize
            )  # fmt: skip
        except TimeoutError:
            if samples is None:
                raise
            return samples
        except LostError:
            asked = with_more_nodes(asked) if may_go_on() else None
            continue
        assert samples.report is not None
        against = samples.report.warnings[len(doubts) :]
        if not against or not may_go_on():
            return samples
        diverged, draws = samples.report["Chain"]["divergences"], samples.report["Draws"]
        seldom = _SELDOM * draws["chains"] * draws["draws per chain"]
        if stepsize is None and 0 < diverged <= seldom:
            stepsize = samples.settings["stepsize"] / 2
            continue
        if cost is not None:
            return samples
        try:
            reason = f"of HMC: {against[0]}"
            return run_by_nuts(request, plan, required, verbose, began, reason, mode)
        except TimeoutError:
            return samples
    lost = "the posterior is far from normal: HMC left the surroundings of the mode"
    return run_by_nuts(request, plan, required, verbose, began, lost, mode)


def _around(
    chosen: Chosen,
    plan: Plan,
    required: Requirements,
    apart: float,
    exact: bool,
    again: bool,
    verbose: bool,
    began: float,
) -> tuple[Plan, float, UntilFar, Samples]:
    """Return draws of chains that start around the mode, and by which plan they were made.

    Chains that diverge start again nearer to the mode, with smaller steps, unless there is another
    way or the stepsize is the user's.
    """

    def attempt(factor: float) -> tuple[Plan, float, UntilFar, Samples]:
        lowered = plan if factor == 1 else replace(plan, stepsize=factor * plan.stepsize)
        asked = chosen.completed(lowered, _starts(chosen, plan, required, factor * apart))
        thin = chosen.request.read.options.thin
        near = chosen.request.near
        pace = None if near is None else near.pace
        lengths = UntilFar(required, lowered, chosen.target, thin, began, exact, pace, again)
        return lowered, factor * apart, lengths, run_lengths(asked, lengths, verbose)

    return with_smaller_steps(attempt, 1 if exact or plan.given.stepsize is not None else _ROUNDS)


def _run_on_disk(reading: Reading, required: Requirements, verbose: bool) -> Samples:
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
            plan, asked = in_modes(chosen, plan.surveyed, required.n_chains)
        else:
            asked = chosen.completed(plan, _starts(chosen, plan, required, _SPREAD))
        lengths = UntilEffective(
            required, plan, target.size, reading.request.read.options.thin, 0.0
        )
        return asked.tuned(burn_in=lengths.burn_in)

    request = chosen_once(reading.request, tune)
    if required.burn_in is not None:
        request = request.tuned(burn_in=required.burn_in)
    return run_tuned(request, required.n_iters, verbose)


def _has_many_modes(request: Request) -> bool:
    """Return whether entries of parameters can change places, in a call that chooses constants."""
    model, is_open = request.read, open_arguments(request)
    if request.groups is not None or model.options.store is not None:
        return False
    start = model.starts[0].astype(np.float64)
    return set(_CONSTANTS) <= set(is_open) and bool(
        alike(model.target, model.data, start, model.seed)
    )


def _need_all_open(request: Request, d: int) -> None:
    """Raise an error if some constants are given, of a model that is too large for that."""
    is_open = open_arguments(request)
    for name in _CONSTANTS:
        if name not in is_open:
            raise ValueError(
                f"`{name}`: there are {d} coordinates. Beyond {DENSE_UP_TO} give all of "
                "`gradient`, `minibatches`, `minibatch_size`, `preconditioner`, `stepsize`, "
                "`n_iters` and `burn_in`, or none of them."
            )


def _may_rewhiten(request: Request) -> bool:
    """Return whether coordinates and stepsize are open."""
    is_open = open_arguments(request)
    dense = request.keywords.get("preconditioner") in (AUTO, "dense")
    return "preconditioner" in is_open and dense and "stepsize" in is_open


def _starts(chosen: Chosen, plan: Plan, required: Requirements, apart: float) -> list[Any]:
    """Return over-dispersed starts around the mode."""
    target = chosen.target
    rng = np.random.default_rng([chosen.seed, 1])
    values, vectors = plan.around.axes
    moves = rng.standard_normal((required.n_chains, target.size)) / np.sqrt(values) @ vectors.T
    whitening = plan.whitening
    moves = moves @ whitening.root.T if whitening.dense else moves * whitening.root
    middle = plan.mode.position
    return [target.space.params(middle + apart * move, target.dtype) for move in moves]
