"""Chains by HMC, MALA and NUTS: prepared, warmed up, run, reported."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sgmcmc.dynamics import HMC
from sgmcmc.dynamics.hamiltonian import STEPS, Hamiltonian
from sgmcmc.engine.scheduler import Progress
from sgmcmc.gradients import FullGradient
from sgmcmc.inputs import parts
from sgmcmc.inputs.options import Options, read_length, without
from sgmcmc.inputs.parts import JOINT, need_steps
from sgmcmc.interrupts import TimeUpError
from sgmcmc.plan.joint_mode import uncentered
from sgmcmc.plan.latent_field import find_latent_field, with_field_coordinates
from sgmcmc.plan.mode import DENSE_UP_TO, Mode
from sgmcmc.plan.modes import exchangeable_parameters
from sgmcmc.plan.reports.reporting import (
    Sections,
    make_report,
    mode_facts,
    quadrature_error,
    watched_facts,
)
from sgmcmc.plan.reports.robust import robust_section
from sgmcmc.plan.reports.warnings import (
    COARSE,
    NO_TIME_WARNING,
    acceptance_warnings,
    divergence_warnings,
    exchangeable_warning,
    rounding_warnings_of_draws,
)
from sgmcmc.plan.start import (
    Start,
    find_start,
    start_at_params,
    start_without_curvature,
    with_tried_model,
)
from sgmcmc.plan.stopping import (
    SHARE_OF_WARM_UP,
    Goal,
    RowsWatched,
    UntilEffective,
)
from sgmcmc.plan.stored_constants import tune_once
from sgmcmc.plan.warm_up import (
    AROUND_MODE,
    LAST,
    SHORT,
    WHITENED,
    WINDOWS,
    LeftModeError,
    WarmedUp,
    WarmUp,
    first_stepsize,
    gradients_of,
)
from sgmcmc.plan.whitening import Whitener, is_in_blocks
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.diagnostics import Diagnostics, diagnose
from sgmcmc.results.measured_error import watched
from sgmcmc.results.report import Fact, Report, Section, Timings
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run_tuned, run_until
from sgmcmc.run.request import (
    LaplaceApproximation,
    Request,
    brief,
    is_open,
    on_machines,
)
from sgmcmc.run.sampler import make_sampler
from sgmcmc.run.sampler_origin import origin_of

# Largest number of gradients over all rows of small data, all chains: a minute or a few.
_MOST_GRADIENTS = 2e6


@dataclass(frozen=True)
class _Settings:
    burn_in: int = 20  # iterations dropped after a warm-up
    burn_in_without_warm_up: int = 100
    leapfrog_steps: int = 12  # of a move while directions of curvature are not known
    # Iterations at most before the draws are checked, if seconds are limited.
    first_look: int = 1000
    extra_rounds: int = 8  # of curvature and warm-up, while chains have not converged
    # Of the seconds, after which the warm-up begins as it is.
    share_to_choose: float = 0.35
    # Rows × coordinates for which gradients are bounded by default.
    small_data: int = 10**6


_SETTINGS = _Settings()

# Keywords that mean nothing to a warm-up.
_KEYWORDS_OF_THE_CHAIN = (
    "burn_in",
    "thin",
    "store",
    "store_gradients",
    "store_params",
    "test_functions",
    "reductions",
)


@dataclass
class ChoiceLog:
    """Log of how the constants were chosen.

    Attributes:
        timings: Seconds, by task.
        reason: Reason for the dynamics; empty if the user chose them.
        mode: Mode; ``None`` if none was searched for, or none was useful.
        warmed_up: Result of the warm-up; ``None`` if there was none.
        whitener: Whitening by the information; ``None`` if that was not computed.
        exchangeable: Parameters whose entries can change places.
        predicted: Diagnostics of the log-likelihood of rows, by which draws are judged if there
            are such parameters.
        warnings: Sentences on problems.
    """

    timings: Timings = field(default_factory=Timings)
    reason: str = ""
    mode: Mode | None = None
    warmed_up: WarmedUp | None = None
    whitener: Whitener | None = None
    exchangeable: tuple[str, ...] = ()
    predicted: Diagnostics | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Quick:
    """A chain whose draws are nearly independent, for the choice of its length."""

    autocorrelation: float = 1.0


class _UntilCostly(UntilEffective):
    """Runs until every coordinate has its effective sample size, or costs more than it may.

    Without a time limit the number of gradients is bounded. It is counted, not timed, so that the
    same seed gives the same draws on every machine.

    Args:
        rows: Rows whose log-likelihood is watched instead of coordinates, where entries can change
            places so that chains need not agree on them; ``None`` for coordinates.
        arguments: Arguments of :class:`UntilEffective`.
    """

    def __init__(self, rows: RowsWatched | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rows = rows

    def see(self, samples: Samples) -> None:
        """Look at the draws so far."""
        if self._rows is None:
            super().see(samples)
        else:
            draws = by_chain(samples.settings, samples)
            self.diagnostics = self._rows.diagnosed(draws)
        if self._goal.n_iters is not None or self._goal.max_seconds is not None:
            return
        assert self.diagnostics is not None
        origin = origin_of(samples)
        gradients = gradients_of(origin.facts)
        limit = self._goal.max_gradients
        if (
            origin.sampler.data.size * origin.sampler.target.size
            <= _SETTINGS.small_data
        ):
            limit = min(limit, _MOST_GRADIENTS)
        if math.isfinite(limit):
            done = self.diagnostics.draws * origin.sampler.options.thin
            self.cap = min(self.cap, int(done * max(1.0, limit / max(1.0, gradients))))


class _UntilCoarse(_UntilCostly):
    """Runs until every coordinate has its effective sample size, near where nodes are fixed.

    Farther away the density by these nodes may be any, even higher than at the mode.
    """

    def see(self, samples: Samples) -> None:
        """Look at the draws so far.

        Raises:
            LeftModeError: The quadrature over effects is too coarse for them.
        """
        super().see(samples)
        if quadrature_error(origin_of(samples).sampler, samples) > COARSE:
            raise LeftModeError


def _is_right_near_mode_only(request: Request) -> bool:
    return request.fixed_nodes is not None and request.fixed_nodes.near_center_only


def _with_whole_dataset(request: Request) -> Request:
    """Return the request with dynamics that are known, and the whole dataset for every gradient."""
    dynamics = parts.read_dynamics(request.dynamics)
    keywords = dict(request.keywords)
    if not is_open(request.gradient):
        parts.read_gradient(request.gradient, dynamics)
    need_steps(keywords.get("updates", JOINT), dynamics)
    minibatches = keywords.pop("minibatches", None)
    if not (is_open(minibatches) or minibatches == "uniform"):
        raise ValueError("`minibatches`: every move uses the whole dataset; omit it.")
    if not is_open(request.minibatch_size):
        raise ValueError(
            "`minibatch_size`: every move uses the whole dataset; omit it."
        )
    return replace(
        request,
        dynamics=dynamics,
        gradient=FullGradient(),
        minibatch_size=None,
        keywords=keywords,
    )


@brief
@on_machines
def run_hamiltonian(
    request: Request,
    goal: Goal,
    reason: str = "",
    extra_warnings: Sequence[str] = (),
    earlier_seconds: Mapping[str, float] | None = None,
) -> Samples:
    """Make the open choices, run the chains, and return draws with their report.

    Args:
        request: Request of the user, with a :class:`Hamiltonian` for its dynamics, ``None`` or
            "auto" for each open constant, and the whole dataset for its gradient.
        goal: Requested precision and length of the draws.
        reason: Reason for the dynamics, if the user did not choose them.
        extra_warnings: Further warnings for the report.
        earlier_seconds: Seconds of the call before this one, by what was done.

    Raises:
        LeftModeError: Quadrature nodes of the request are fixed around the mode, and the chains
            leave it. Nodes that are fixed here are not, the second time.
    """

    def new_log() -> ChoiceLog:
        timings = Timings(earlier=earlier_seconds)
        return ChoiceLog(timings, reason=reason, warnings=list(extra_warnings))

    try:
        return _run(request, goal, new_log(), fix_nodes=True)
    except LeftModeError:
        if request.fixed_nodes is not None:
            raise
    return _run(request, goal, new_log(), fix_nodes=False)


def _run(request: Request, goal: Goal, log: ChoiceLog, fix_nodes: bool) -> Samples:
    """Return draws with their report; ``fix_nodes`` allows nodes that are fixed at the mode."""
    goal = goal.checked(log.timings.began)
    doubt = next(iter(log.warnings), "")
    request = _with_whole_dataset(request)
    keywords = {**request.keywords, "n_chains": goal.n_chains}
    request = with_tried_model(replace(request, keywords=keywords))
    options, d = request.read.options, request.read.target.size
    _need_fixed_length(options, goal)
    dynamics = _dynamics(request)
    length_is_open = isinstance(dynamics, HMC) and dynamics is not request.dynamics
    request = replace(request, dynamics=dynamics)
    target, data, seed = request.read.target, request.read.data, request.read.seed
    log.exchangeable = exchangeable_parameters(
        target, data, request.read.starts[0].astype(np.float64), seed
    )
    rows = RowsWatched(target, data, seed) if log.exchangeable else None
    coordinates_are_open = _coordinates_are_open(keywords.get("preconditioner"))
    has_open_constants = coordinates_are_open or is_open(request.stepsize)
    burn_in = goal.burn_in
    if burn_in is None:
        burn_in = (
            _SETTINGS.burn_in
            if has_open_constants
            else _SETTINGS.burn_in_without_warm_up
        )
    goal = replace(goal, burn_in=burn_in)

    def tune(request: Request) -> Request:
        request = _with_constants(request, goal, log, fix_nodes)
        if length_is_open and log.whitener is not None:
            request = request.tuned(dynamics=log.whitener.suited(request.dynamics))
        return request

    if options.store is None:
        request = tune(request) if has_open_constants else request
        until = _UntilCoarse if _is_right_near_mode_only(request) else _UntilCostly
        lengths = until(rows, goal, _Quick(), d, options.thin)
        lengths.first_look = _iterations_in_half_the_time(goal, log)
        lengths.doubt = doubt
        samples = run_until(request, lengths, goal.verbose)
        log.predicted = None if rows is None else lengths.diagnostics
        return _reported(samples, goal, log)
    request = tune_once(request, tune) if has_open_constants else request
    request = request.tuned(burn_in=burn_in)
    with goal.limit(1.0):
        samples = run_tuned(request, goal.n_iters, goal.verbose)
    if rows is not None:
        log.predicted = rows.diagnosed(by_chain(samples.settings, samples))
    return _reported(samples, goal, log)


def _need_fixed_length(options: Options, goal: Goal) -> None:
    if options.store is not None and goal.n_iters is None:
        raise ValueError("`store`: a chain on disk has a fixed length. Give `n_iters`.")
    if options.store_params is not True:
        raise ValueError(
            "`store_params`: all parameters are kept, because the draws are judged by them."
        )
    if goal.n_iters is not None:
        read_length(goal.n_iters, options.thin)


def _iterations_in_half_the_time(goal: Goal, log: ChoiceLog) -> int:
    """Return the number of iterations in half of the remaining time, at the warm-up's pace."""
    if goal.max_seconds is None or log.warmed_up is None:
        return _SETTINGS.first_look
    seconds_left = goal.seconds_left
    seconds_per_iteration = log.warmed_up.seconds / max(1, log.warmed_up.iterations)
    iterations = 0.5 * seconds_left / max(seconds_per_iteration, 1e-6)
    return int(max(1, min(_SETTINGS.first_look, iterations)))


def _coordinates_are_open(preconditioner: Any) -> bool:
    return (
        preconditioner is None
        or isinstance(preconditioner, str)
        and preconditioner != "none"
    )


def _dynamics(request: Request) -> Hamiltonian:
    dynamics: Hamiltonian = request.dynamics
    if (
        isinstance(dynamics, HMC)
        and dynamics.length is None
        and dynamics.n_leapfrog is None
    ):
        preconditioner = request.keywords.get("preconditioner")
        if isinstance(preconditioner, str) and preconditioner == "none":
            return replace(dynamics, n_leapfrog=STEPS)
        return replace(dynamics, length=math.pi / 2)
    return dynamics


def _reported(samples: Samples, goal: Goal, log: ChoiceLog) -> Samples:
    log.timings.done("chain")
    return samples.with_report(report_on_moves(samples, log, goal.ess))


def _with_constants(
    request: Request,
    goal: Goal,
    log: ChoiceLog,
    fix_nodes: bool,
) -> Request:
    """Return the request with everything given that was left open.

    If the time for that is over, chains start at the user's values, in coordinates of the warm-up.
    """
    if not goal.hurried:
        with contextlib.suppress(TimeUpError):
            return _tuned_at_mode(request, goal, log, fix_nodes)
        log.mode = log.whitener = None
    log.warnings.append(NO_TIME_WARNING)
    log.timings.done("mode and information")
    start = start_without_curvature(
        request.read, request.keywords.get("preconditioner")
    )
    return _with_warm_up(request, _run_warm_up(request, start, goal, log), log)


def _tuned_at_mode(
    request: Request,
    goal: Goal,
    log: ChoiceLog,
    fix_nodes: bool,
) -> Request:
    """Return the request with everything given, from the mode or the curvature if there is any.

    Raises:
        TimeUpError: The time for that is over.
    """
    preconditioner = request.keywords.get("preconditioner")
    has_effects = request.groups is not None and request.groups.coordinates
    if _coordinates_are_open(preconditioner):
        if has_effects:
            limit = goal.limit(_SETTINGS.share_to_choose)
            with limit, Progress("coordinates of effects", 1, goal.verbose) as progress:
                request = uncentered(request, request.read.seed, fix_nodes)
                progress.advance(1)
        elif is_open(preconditioner) and not log.reason and not log.exchangeable:
            # `sample` has looked for a field before it chose exact moves for some reason.
            with goal.limit(_SETTINGS.share_to_choose):
                field = find_latent_field(request)
                if field is not None:
                    request = with_field_coordinates(request, field, goal.verbose)
    if request.laplace is not None:
        return _with_effects(request, request.laplace, goal, log)
    model, start = request.read, Start(None, None, None, "none")
    chosen = _coordinates_are_open(preconditioner)
    no_mode = model.target.size > DENSE_UP_TO or bool(log.exchangeable)
    if not no_mode and preconditioner != "diagonal" and request.mode is None:
        with goal.limit(_SETTINGS.share_to_choose):
            no_mode = is_in_blocks(model)
    large = chosen and no_mode
    if chosen:
        with goal.limit(_SETTINGS.share_to_choose):
            start = find_start(request, preconditioner, goal, large)
        log.mode = start.mode
        log.warnings += start.warnings
        log.timings.done("mode and information")
    if large and not log.exchangeable and preconditioner != "diagonal":
        warmed_up = _with_curvature(request, start, goal, log)
    else:
        warmed_up = _run_warm_up(request, start, goal, log)
    if warmed_up.lost and _is_right_near_mode_only(request):
        raise LeftModeError
    if warmed_up.lost and start.mode is not None:
        # The mode may be far from the bulk of the posterior, as in the neck of a funnel.
        start, log.mode = start_at_params(model, preconditioner), None
        log.warnings += start.warnings
        warmed_up = _run_warm_up(request, start, goal, log)
    return _with_warm_up(request, warmed_up, log)


def _with_warm_up(request: Request, warmed_up: WarmedUp, log: ChoiceLog) -> Request:
    log.warmed_up = warmed_up
    log.timings.done("warm-up")
    dynamics = replace(request.dynamics, metric=warmed_up.metric)
    if hasattr(dynamics, "frequency"):
        dynamics = replace(dynamics, frequency=warmed_up.frequency)
    return request.tuned(
        warmed_up.positions,
        dynamics=dynamics,
        stepsize=request.stepsize if warmed_up.stepsize is None else warmed_up.stepsize,
        preconditioner=warmed_up.preconditioner or "none",
        mode=log.mode,
    )


def _with_effects(
    request: Request,
    laplace: LaplaceApproximation,
    goal: Goal,
    log: ChoiceLog,
) -> Request:
    """Return the request with everything given, for coordinates that the approximation whitens."""
    target, seed = request.read.target, request.read.seed
    log.timings.done("mode and information")
    rng = np.random.default_rng([seed, 2])
    steps = laplace.whitening.times(rng.standard_normal((goal.n_chains, target.size)))
    positions = laplace.whitening.origin + steps
    params = [target.space.params(position, target.dtype) for position in positions]
    start = Start(laplace.whitening, params, None, "diagonal", scaled=laplace.others)
    warmed_up = _run_warm_up(request, start, goal, log, WHITENED)
    return _with_warm_up(request, warmed_up, log)


def _with_curvature(
    request: Request,
    start: Start,
    goal: Goal,
    log: ChoiceLog,
) -> WarmedUp:
    """Return the result of a warm-up whose coordinates come from the curvature at the chains.

    Before coordinates are known, trajectories of a given length would have very many steps.
    """
    with (
        goal.limit(_SETTINGS.share_to_choose),
        Progress("curvature", 1, goal.verbose) as progress,
    ):
        whitener = log.whitener = Whitener(request.read, goal.seconds)
        starts = whitener.starts_at_mode(goal.n_chains)
        progress.advance(1)
    log.timings.done("curvature")
    if starts is not None:
        start = Start(whitener.whitening, starts, None, "none")
        warmed_up = _run_warm_up(request, start, goal, log, SHORT)
        rounds: list[tuple[int, ...]] = [AROUND_MODE]
    else:
        short_request = replace(request, dynamics=HMC(_SETTINGS.leapfrog_steps))
        start = replace(
            start, preconditioner=whitener.slowed(start.preconditioner), metric="none"
        )
        warmed_up = _run_warm_up(short_request, start, goal, log, SHORT)
        rounds = [SHORT, LAST] if whitener.whitens else [SHORT, SHORT, LAST]
    extra_rounds = _SETTINGS.extra_rounds if whitener.whitens else 0
    while rounds:
        windows = rounds.pop(0)
        log.timings.done("warm-up")
        seconds_left = goal.seconds_left
        try:
            limit = goal.limit(SHARE_OF_WARM_UP)
            with limit, Progress("curvature", 1, goal.verbose) as progress:
                preconditioner = whitener.at(warmed_up, seconds_left, last=not rounds)
                progress.advance(1)
        except TimeUpError:
            return warmed_up
        log.timings.done("curvature")
        scaled = whitener.scaled
        metric = "none" if scaled is None else "diagonal"
        start = Start(preconditioner, warmed_up.positions, None, metric, scaled=scaled)
        windows = SHORT if preconditioner is warmed_up.preconditioner else windows
        further = _run_warm_up(request, start, goal, log, windows)
        warmed_up = warmed_up.continued(further)
        if extra_rounds and not warmed_up.settled:
            extra_rounds -= 1
            rounds.insert(0, windows)
    return warmed_up


def _run_warm_up(
    request: Request,
    start: Start,
    goal: Goal,
    log: ChoiceLog,
    windows: Sequence[int] = WINDOWS,
) -> WarmedUp:
    """Return the result of a warm-up from a start."""
    dynamics, stepsize_is_open = request.dynamics, is_open(request.stepsize)
    size = request.read.target.size
    warm_up_request = request.tuned(
        start.params,
        dynamics=replace(dynamics, metric=start.metric),
        stepsize=first_stepsize(size) if stepsize_is_open else request.stepsize,
        preconditioner=start.preconditioner or request.keywords.get("preconditioner"),
    )
    model = warm_up_request.read
    options = without(model.options, _KEYWORDS_OF_THE_CHAIN)
    warm_up_request = replace(warm_up_request, model=replace(model, options=options))
    acceptance = dynamics.acceptance if stepsize_is_open else None
    warm_up = WarmUp(make_sampler(warm_up_request), start, acceptance, goal, windows)
    return warm_up.run()


def report_on_moves(samples: Samples, log: ChoiceLog, ess: float) -> Report:
    """Return the report on draws.

    Args:
        samples: Draws.
        log: Log of how the constants were chosen.
        ess: Requested effective sample size.
    """
    settings = samples.settings
    diagnostics = diagnose(samples)
    origin = origin_of(samples)
    facts = origin.facts
    rates = [chain["acceptance rate"] for chain in facts]
    divergences = sum(chain[Fact.DIVERGENCES] for chain in facts)
    warnings = [*log.warnings, *acceptance_warnings(facts)]
    warnings += divergence_warnings(facts, samples, diagnostics)
    warnings += rounding_warnings_of_draws(samples, origin.sampler.target.space)
    sections: Sections = {}
    predicted = log.predicted
    if predicted is None:
        warnings += diagnostics.warnings(ess)
    else:
        warnings += [exchangeable_warning(log.exchangeable), *predicted.warnings(ess)]
        sections[Section.PREDICTIONS] = {
            "rows": len(predicted.names),
            **predicted.facts,
        }
    if log.reason:
        sections[Section.DYNAMICS] = {
            f"reason for {settings['dynamics']['name']}": log.reason
        }
    if log.mode is not None:
        sections[Section.MODE] = mode_facts(log.mode)
    if log.warmed_up is not None:
        sections[Section.WARM_UP] = {
            "iterations": log.warmed_up.iterations,
            "metric updates": log.warmed_up.metric_updates,
            "full gradients, all chains": log.warmed_up.gradients,
        }
    if log.whitener is not None:
        sections[Section.WARM_UP] |= log.whitener.facts()
    sections[Section.CHAIN] = {
        "observations (full gradient)": settings["N"],
        "stepsize": settings["stepsize"],
        "acceptance rate": rates,
        Fact.DIVERGENCES: int(divergences),
        "gradients per trajectory": float(
            np.mean([chain["gradients of a move"] for chain in facts])
        ),
        "trajectories cut short": int(sum(chain["moves cut short"] for chain in facts)),
    }
    sections[Section.DRAWS] = {}
    if origin.sampler.target.size > DENSE_UP_TO:
        sections[Section.WATCHED] = watched_facts(
            {
                name: diagnose({name: series})
                for name, series in watched(samples).items()
            }
        )
    if log.reason and log.mode is not None:
        sections |= robust_section(origin.sampler, log.mode)
    return make_report(
        origin.sampler, samples, diagnostics, sections, warnings, log.timings
    )
