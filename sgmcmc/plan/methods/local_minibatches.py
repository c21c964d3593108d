"""Posteriors of very many coordinates without constants: networks, matrix factors, mixtures."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc.data.dataset import Data
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.engine.scheduler import Progress
from sgmcmc.interrupts import TimeUpError, limited, out_of_time
from sgmcmc.model.target import Target
from sgmcmc.plan.ascent import ascend, planned, spread_out, warm_up
from sgmcmc.plan.local import (
    LocalGeometry,
    LocalPlan,
    at_stepsize,
    choose_locally,
    local_geometry,
)
from sgmcmc.plan.methods.call import CONSTANTS, Call, Left
from sgmcmc.plan.mode import DENSE_UP_TO
from sgmcmc.plan.prediction import error_factor
from sgmcmc.plan.recursion import LinearRecursion
from sgmcmc.plan.reports.reporting import Sections, make_report, watched_facts
from sgmcmc.plan.reports.warnings import agreement_warnings, local_warnings
from sgmcmc.plan.stopping import (
    Goal,
    RowsWatched,
    Watched,
    lengths_of,
    need_draws,
    with_smaller_steps,
)
from sgmcmc.results.measured_error import MeasuredError, compared
from sgmcmc.results.report import Section, Timings
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run_until
from sgmcmc.run.request import Request, open_arguments
from sgmcmc.run.sampler_origin import origin_of


@dataclass(frozen=True)
class _Settings:
    # Of `max_seconds`, after which the ascent stops where it is.
    share_to_ascend: float = 0.25
    # The same for the warm-up, which ends the choice of constants.
    share_to_choose: float = 0.5
    halvings: int = 3  # of a stepsize, for its error
    # Of the error, in iterations of the first chains.
    longest_measurement: float = 4.0
    # Of the user's seconds, before the chains' error is measured.
    share_of_chains: float = 0.6


_SETTINGS = _Settings()


def local_minibatches(call: Call, left: Left | None) -> Samples | None:
    """Choose constants from measurements around the chains' starts, run them, and report.

    The chains go up the likelihood, each from its own start; scales, curvature and noise are
    measured there; the chains run for a while; everything is measured again, and frozen; and then
    draws are kept.

    Raises:
        ValueError: The dynamics have no closed form, some constants are given and some are not, or
            too few draws would be kept.
    """
    if not call.is_without_mode:
        return None
    request, goal, dynamics = call.request, call.goal, call.bound.dynamics
    _check_call(call)
    model = request.read
    target, data, starts, seed = model.target, model.data, model.starts, model.seed
    thin = model.options.thin
    need_draws(goal, thin)
    timings = Timings(goal.start_time)
    rng = generator(seed, 0, RunPhase.MODE, Purpose.SEEDS)
    first = request.tuned(dynamics=dynamics, seed=int(rng.integers(2**62)))
    try:
        with goal.limit(_SETTINGS.share_to_choose):
            geometry = _look(
                target, data, [starts[0].astype(np.float64)], seed, goal.verbose
            )
            positions = spread_out(target.space, starts, goal.n_chains, geometry, seed)
            timings.done("scales, curvature and noise")
    except TimeUpError:
        raise out_of_time(
            "scales, curvature and noise were known", goal.start_time
        ) from None
    with goal.limit(_SETTINGS.share_to_ascend):
        positions = ascend(first, positions, geometry, goal.verbose)
    timings.done("ascent")
    with goal.limit(_SETTINGS.share_to_choose):
        plan, positions = _warmed_up(first, positions, geometry, goal, timings)
    rows = RowsWatched(target, data, seed)
    measures_error, chain_goal = goal.n_iters is None, goal
    if measures_error and goal.max_seconds is not None:
        seconds = _SETTINGS.share_of_chains * goal.max_seconds
        chain_goal = replace(goal, max_seconds=seconds)

    def run_chains(factor: float) -> _SampledPlan:
        lowered = _lowered(plan, factor)
        lengths = Watched(chain_goal, lowered, target, rows.for_other_draws(), thin)
        chain_request = planned(request, lowered, positions).tuned(thin=lengths.thin)
        return _SampledPlan(
            lowered, lengths, run_until(chain_request, lengths, goal.verbose)
        )

    run = with_smaller_steps(run_chains)
    timings.done("chains")
    error = None
    if measures_error:
        run, error = _measure_error(request, run, rows, goal)
        timings.done("measured error")
    positions = _last_positions(run.samples, target, goal.n_chains)
    final_geometry = None
    deadline = max(goal.end_time, time.monotonic() + run.lengths.least_seconds)
    with contextlib.suppress(TimeUpError), limited(deadline):
        final_geometry = _look(target, data, positions, seed + 1, goal.verbose)
    timings.done("scales, curvature and noise")
    sections: Sections = {}
    if call.cost_of_hmc is not None:
        sections[Section.METHOD] = {
            "exact (HMC), predicted seconds": call.cost_of_hmc.seconds,
            "reason for stochastic gradients": "exact moves would need more time than there is",
        }
    sections |= _sections(run, thin, final_geometry) | _error_section(error)
    final_curvature = 0.0 if final_geometry is None else final_geometry.curvature
    warnings = local_warnings(run.plan, goal.tolerance, final_curvature)
    warnings += [] if error is None else error.warnings
    warnings += agreement_warnings(run.lengths, goal.ess)
    sampler, samples = origin_of(run.samples).sampler, run.samples
    report = make_report(sampler, samples, None, sections, warnings, timings)
    return samples.with_report(report)


def _check_call(call: Call) -> None:
    """Refuse a call with some of the constants, with a store, or with dynamics without a law."""
    is_open = open_arguments(call.request)
    for name in CONSTANTS:
        if name not in is_open:
            raise ValueError(
                f"`{name}`: there are {call.size} coordinates. Beyond {DENSE_UP_TO} give all of "
                "`gradient`, `minibatches`, `minibatch_size`, `preconditioner`, `stepsize`, "
                "`n_iters` and `burn_in`, or none of them."
            )
    if call.is_stored:
        raise ValueError(
            f"`store`: there are {call.size} coordinates. Beyond {DENSE_UP_TO} a chain on disk "
            "needs every constant given; `settings` of a call without a store have what was "
            "chosen."
        )
    try:
        LinearRecursion(call.bound.dynamics, 0.1)
    except ValueError as error:
        raise ValueError(
            f"`dynamics`: {error} Beyond {DENSE_UP_TO} coordinates use 'underdamped', 'sgld' or "
            "'sghmc', or give all constants."
        ) from None


def _lowered(plan: LocalPlan, factor: float) -> LocalPlan:
    return plan if factor == 1 else at_stepsize(plan, factor * plan.stepsize)


@dataclass(frozen=True)
class _SampledPlan:
    """Draws with the plan of their chains and its length."""

    plan: LocalPlan
    lengths: Watched
    samples: Samples

    @property
    def iterations(self) -> int:
        """Iterations of each chain."""
        draws = next(iter(self.samples.values())).shape[1]
        return self.lengths.thin * draws + self.samples.settings["burn_in"]


def _measure_error(
    request: Request,
    run: _SampledPlan,
    rows: RowsWatched,
    goal: Goal,
) -> tuple[_SampledPlan, MeasuredError]:
    """Return the chains whose error is within the tolerance, or the last, with that error.

    They run again at half the stepsize, from the ends of the others. If the difference is an error
    beyond the tolerance, these are the draws, and their error is what extrapolation leaves; if
    that is too large still, the stepsize is halved again.
    """
    target, thin = request.read.target, request.read.options.thin
    factor, iterations = error_factor(run.plan.dynamics), 0
    most_iterations = _SETTINGS.longest_measurement * run.iterations
    for halving in range(_SETTINGS.halvings):
        plan = at_stepsize(run.plan, run.plan.stepsize / 2)
        lengths = Watched(goal, plan, target, rows.for_other_draws(), thin)
        positions = _last_positions(run.samples, target, goal.n_chains)
        seed = request.read.seed + 1 + halving
        chain_request = planned(request, plan, positions).tuned(
            thin=lengths.thin, seed=seed
        )
        halved = _SampledPlan(
            plan, lengths, run_until(chain_request, lengths, goal.verbose)
        )
        series, halved_series = run.lengths.series, halved.lengths.series
        error = compared(series, halved_series, factor, goal.tolerance, halved.samples)
        if not error.certain:
            return run, error
        error = compared(
            series, halved_series, factor - 1.0, goal.tolerance, halved.samples
        )
        run, iterations = halved, iterations + halved.iterations
        is_last = iterations > most_iterations or goal.seconds_left < 0
        if not error.certain or is_last:
            return run, error
    return run, error


def _last_positions(
    samples: Samples, target: Target, n_chains: int
) -> list[np.ndarray]:
    """Return the ends of the chains, flat and unconstrained."""
    positions = []
    for chain in range(n_chains):
        last = {name: array[chain, -1] for name, array in samples.items()}
        positions.append(target.space.start(last, target.dtype).astype(np.float64))
    return positions


def _warmed_up(
    request: Request,
    positions: list[np.ndarray],
    geometry: LocalGeometry,
    goal: Goal,
    timings: Timings,
) -> tuple[LocalPlan, list[np.ndarray]]:
    """Return the plan after a warm-up, and the positions at its end.

    If time is up, the last geometry that was measured is used.
    """
    target, data, seed = request.read.target, request.read.data, request.read.seed
    with contextlib.suppress(TimeUpError):
        geometry = _look(target, data, positions, seed, goal.verbose)
    plan = choose_locally(geometry, request.dynamics, goal.tolerance)
    timings.done("scales, curvature and noise")
    length, _ = lengths_of(goal, plan, target.space.user_layout.size, 1)
    n_iters = max(1, length)
    positions = with_smaller_steps(
        lambda factor: warm_up(
            request, _lowered(plan, factor), positions, n_iters, goal.verbose
        )
    )
    timings.done("warm-up")
    with contextlib.suppress(TimeUpError):
        geometry = _look(target, data, positions, seed + 1, goal.verbose)
    timings.done("scales, curvature and noise")
    return choose_locally(geometry, request.dynamics, goal.tolerance), positions


def _look(
    target: Target, data: Data, positions: list[np.ndarray], seed: int, verbose: bool
) -> LocalGeometry:
    with Progress("scales, curvature and noise", 1, verbose) as progress:
        geometry = local_geometry(target, data, positions, seed)
        progress.advance(1)
    return geometry


def _sections(
    run: _SampledPlan, thin: int, final_geometry: LocalGeometry | None
) -> Sections:
    """Return the sections of the report on chains, without that on their measured error."""
    plan, lengths, samples = run.plan, run.lengths, run.samples
    n, N = plan.minibatch_size, plan.around.size
    kept_draws = (
        "every iteration" if lengths.thin == 1 else f"every {lengths.thin} iterations"
    )
    if lengths.thin > thin:
        kept_draws += " (at most 2000 draws, 512 MB)"
    return {
        "Found around the chains": {
            "coordinates": len(plan.noise),
            "conditional SDs of single coordinates": _range(plan.around.whitening.root),
            "largest curvature, scaled coordinates": plan.around.curvature,
            "largest curvature at the end of the chains": (
                "not measured: time was up"
                if final_geometry is None
                else final_geometry.curvature
            ),
            "likelihood share of the information, mean": float(
                plan.around.share.mean()
            ),
        },
        Section.CHAIN: {
            "dynamics": repr(plan.dynamics),
            "gradient": samples.settings["gradient"]["name"],
            "minibatch size": f"{n} of {N}",
            "rows": "all" if n >= N else "uniform",
            "preconditioner": "diagonal, from the warm-up's gradients, frozen",
            "stepsize, scaled coordinates": plan.stepsize,
        },
        "Predicted (local: around the chains only)": {
            "gradient noise, by coordinate": _range(plan.noise),
            "SD error, by coordinate": _range(plan.error),
            "SD error, stiffest direction": plan.stiff_error,
            "autocorrelation time, iterations": plan.autocorrelation,
        },
        Section.DRAWS: {"kept": kept_draws},
        Section.WATCHED: watched_facts(lengths.diagnostics),
    }


def _range(values: np.ndarray) -> list[float]:
    return [float(values.min()), float(values.max())]


def _error_section(error: MeasuredError | None) -> dict[str, Any]:
    if error is None:
        return {
            "Measured error": {
                "not measured": "`n_iters` is given; `samples.check()` has it"
            }
        }
    rows = {
        str(name): (
            f"mean {row.mean_error:+.2f} ± {row.mean_error_se:.2f} SD, "
            f"SD {100 * row.sd_error:+.1f} ± {100 * row.sd_error_se:.1f} %"
        )
        for name, row in error.table.iterrows()
    }
    return {"Measured error, by half the stepsize": rows}
