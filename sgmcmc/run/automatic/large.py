"""Posteriors of very many coordinates without constants: networks, matrix factors, mixtures."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc.bars import Clock
from sgmcmc.data.dataset import Data
from sgmcmc.data.numbers import Purpose, RunPhase, generator
from sgmcmc.dynamics import HMC, Dynamics
from sgmcmc.engine.scheduler import Progress
from sgmcmc.interrupts import TimeUpError, limited, out_of_time
from sgmcmc.results.diagnostics import RHAT
from sgmcmc.results.measured_error import MeasuredError, compared
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples
from sgmcmc.run.automatic.methods import (
    SAID,
    Cost,
    run_exact,
    seconds_of_gradient,
)
from sgmcmc.run.automatic.warm_up import ascend, planned, spread_out, warm_up
from sgmcmc.run.automatic.watched import Watched, lengths_of
from sgmcmc.run.choices import has_dense_information
from sgmcmc.run.driver import run_lengths
from sgmcmc.run.exact.shape import is_in_blocks
from sgmcmc.run.lengths import Requirements, RowsWatched, need_draws, with_smaller_steps
from sgmcmc.run.origin import error_factor, origin_of
from sgmcmc.run.reports.reporting import Sections, make_report, watched_facts
from sgmcmc.run.request import Model, Request, all_parts_open
from sgmcmc.target.target import Target
from sgmcmc.tuning.laws import LinearRecursion
from sgmcmc.tuning.local import (
    LocalPlan,
    Neighbourhood,
    at_stepsize,
    choose_locally,
    look_around,
)
from sgmcmc.tuning.mode import DENSE_UP_TO
from sgmcmc.tuning.objective import Objective

_TO_ASCEND = 0.25
"""Part of ``max_seconds`` at whose end the ascent stops where it is."""

_TO_CHOOSE = 0.5
"""The same of the warm-up; the chain's constants are chosen by then."""

_HALVINGS = 3
"""Largest number of halvings of a stepsize for its error."""

_MOST_TIME = 4.0
"""Largest multiple of the seconds until then that these may need."""

_NAMED = 3
"""Watched quantities that a warning names."""

_FIRST = 0.6
"""Part of the user's seconds that the chains may use before their error is measured."""

_TIMES = 10
"""Coordinates for each number of a row from which rows have few numbers."""

_CHANGED = 2.0
"""Factor by which the largest curvature may grow until the chain's end."""


def run_large(
    request: Request,
    dynamics: Dynamics,
    required: Requirements,
    verbose: bool,
    began: float,
    cost: Cost | None = None,
) -> Samples:
    """Choose constants from measurements around the chains' starts, run them, and report.

    The chains go up the likelihood, each from its own start; scales, curvature and noise are
    measured there; the chains run for a while; everything is measured again, and frozen; and then
    draws are kept.

    Args:
        request: Request, read.
        dynamics: Dynamics, bound.
        required: Requested precision and length of the draws.
        verbose: Whether to show progress.
        began: Time at which the clock of ``max_seconds`` was started.
        cost: Predicted cost of HMC, if it is known.

    Raises:
        ValueError: The dynamics have no closed form, or too few draws would be kept.
    """
    model = request.read
    target, data, starts, seed = model.target, model.data, model.starts, model.seed
    thin = model.options.thin
    _need_linear(dynamics)
    need_draws(required, thin)
    cost = cost or cost_of_hmc(request, required)
    if cost is not None and cost.affordable:
        cost.warn(request.function)
        return _by_hmc(request, cost, required, verbose, began)
    clock = Clock(began)
    first = request.tuned(dynamics=dynamics, seed=_derived(seed))
    try:
        with limited(began + _TO_CHOOSE * required.seconds):
            around = _look(target, data, [starts[0].astype(np.float64)], seed, verbose)
            positions = spread_out(target.space, starts, required.n_chains, around, seed)
            clock.done("scales, curvature and noise")
    except TimeUpError:
        raise out_of_time("scales, curvature and noise were known", began) from None
    with limited(began + _TO_ASCEND * required.seconds):
        positions = ascend(first, positions, around, verbose)
    clock.done("ascent")
    with limited(began + _TO_CHOOSE * required.seconds):
        plan, positions = _settled(first, positions, around, dynamics, required, verbose, clock)
    rows = RowsWatched(target, data, seed)
    measures, mine = required.n_iters is None, required
    if measures and required.max_seconds is not None:
        mine = replace(required, max_seconds=_FIRST * required.max_seconds)

    def chains(factor: float) -> _Ran:
        lowered = _lowered(plan, factor)
        lengths = Watched(mine, lowered, target, rows.again(), thin, began)
        asked = planned(request, lowered, positions).tuned(thin=lengths.thin)
        return _Ran(lowered, lengths, run_lengths(asked, lengths, verbose))

    ran = with_smaller_steps(chains)
    clock.done("chains")
    error = None
    if measures:
        ran, error = _measured(request, ran, rows, required, verbose, began)
        clock.done("measured error")
    ends = _ends(ran.samples, target, required.n_chains)
    after = None
    until = max(began + required.seconds, time.monotonic() + ran.lengths.least_seconds)
    with contextlib.suppress(TimeUpError), limited(until):
        after = _look(target, data, ends, seed + 1, verbose)
    clock.done("scales, curvature and noise")
    return ran.samples.with_report(_report(ran, required, after, thin, error, cost, clock))


def run_in_blocks(
    request: Request, required: Requirements, verbose: bool, began: float
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
    return _by_hmc(request, cost, required, verbose, began)


def cost_of_hmc(request: Request, required: Requirements) -> Cost | None:
    """Return the predicted cost of HMC; ``None`` if it is ruled out by what the user has given."""
    if not all_parts_open(request) or required.n_iters is not None or required.burn_in is not None:
        return None
    model = request.read
    seconds = seconds_of_gradient(model.target, model.data, model.starts[0])
    return Cost.of(seconds, model.target.size, required)


def needs_mode(request: Request, cost: Cost | None) -> bool:
    """Return whether only chains around a mode are quick, and the information there can be had.

    Where a row has few numbers, gradients of minibatches cost next to nothing. Where it has many,
    the products of HMC with all rows, for all chains at once, are as quick.

    Args:
        request: Request, read.
        cost: Predicted cost of HMC.
    """
    if cost is None or (cost.affordable and cost.seconds <= SAID):
        return False
    model = request.read
    return has_dense_information(model) and (not cost.affordable or _has_few_numbers(model))


def _has_few_numbers(model: Model) -> bool:
    """Return whether a row of the data has far fewer numbers than there are coordinates."""
    width = Objective(model.target, model.data).width
    return width is not None and _TIMES * width <= model.target.size


def _lowered(plan: LocalPlan, factor: float) -> LocalPlan:
    return plan if factor == 1 else at_stepsize(plan, factor * plan.stepsize)


@dataclass(frozen=True)
class _Ran:
    """Chains that ran, by which plan, and how long."""

    plan: LocalPlan
    lengths: Watched
    samples: Samples


def _by_hmc(
    request: Request, cost: Cost, required: Requirements, verbose: bool, began: float
) -> Samples:
    """Return draws by HMC on the whole dataset."""
    reason = (
        f"a gradient over all rows takes {cost.gradient:.2g} s, and the prediction was "
        f"{cost.seconds:.0f} s"
    )
    return run_exact(request, HMC(), required, verbose, began, reason, [], cost)


def _measured(
    request: Request,
    ran: _Ran,
    rows: RowsWatched,
    required: Requirements,
    verbose: bool,
    began: float,
) -> tuple[_Ran, MeasuredError]:
    """Return the chains whose error is within the tolerance, or the last, with that error.

    They run again at half the stepsize, from the ends of the others. If the difference is an error
    beyond the tolerance, these are the draws, and their error is what extrapolation leaves; if
    that is too large still, the stepsize is halved again.
    """
    target, thin = request.read.target, request.read.options.thin
    first, factor = time.monotonic() - began, error_factor(ran.plan.dynamics)
    until = began + (_MOST_TIME * first if required.max_seconds is None else required.max_seconds)
    for number in range(_HALVINGS):
        plan = at_stepsize(ran.plan, ran.plan.stepsize / 2)
        lengths = Watched(required, plan, target, rows.again(), thin, began)
        positions = _ends(ran.samples, target, required.n_chains)
        seed = request.read.seed + 1 + number
        asked = planned(request, plan, positions).tuned(thin=lengths.thin, seed=seed)
        half = _Ran(plan, lengths, run_lengths(asked, lengths, verbose))
        one, other = ran.lengths.series, half.lengths.series
        error = compared(one, other, factor, required.tolerance, half.samples)
        if not error.certain:
            return ran, error
        left = compared(one, other, factor - 1.0, required.tolerance, half.samples)
        ran = half
        if not left.certain or time.monotonic() > until:
            return ran, left
    return ran, left


def _ends(samples: Samples, target: Target, n_chains: int) -> list[np.ndarray]:
    return [_unconstrained(samples, target, chain) for chain in range(n_chains)]


def _need_linear(dynamics: Dynamics) -> None:
    """Raise an error if the chain has no closed form."""
    try:
        LinearRecursion(dynamics, 0.1)
    except ValueError as error:
        raise ValueError(
            f"`dynamics`: {error} Beyond {DENSE_UP_TO} coordinates use 'underdamped', 'sgld' or "
            "'sghmc', or give all constants."
        ) from None


def _settled(
    request: Request,
    positions: list[np.ndarray],
    around: Neighbourhood,
    dynamics: Dynamics,
    required: Requirements,
    verbose: bool,
    clock: Clock,
) -> tuple[LocalPlan, list[np.ndarray]]:
    """Return the plan after a warm-up, and the positions at its end.

    What was last found around the chains is used if there is no time to look again.
    """
    target, data, seed = request.read.target, request.read.data, request.read.seed
    with contextlib.suppress(TimeUpError):
        around = _look(target, data, positions, seed, verbose)
    plan = choose_locally(around, dynamics, required.tolerance)
    clock.done("scales, curvature and noise")
    length, _ = lengths_of(required, plan, target.space.user_layout.size, 1)
    positions = with_smaller_steps(
        lambda factor: warm_up(request, _lowered(plan, factor), positions, max(1, length), verbose)
    )
    clock.done("warm-up")
    with contextlib.suppress(TimeUpError):
        around = _look(target, data, positions, seed + 1, verbose)
    clock.done("scales, curvature and noise")
    return choose_locally(around, dynamics, required.tolerance), positions


def _look(
    target: Target, data: Data, positions: list[np.ndarray], seed: int, verbose: bool
) -> Neighbourhood:
    with Progress("scales, curvature and noise", 1, verbose) as progress:
        found = look_around(target, data, positions, seed)
        progress.advance(1)
    return found


def _derived(seed: int) -> int:
    """Return a seed for the phases before the chains."""
    rng = generator(seed, 0, RunPhase.MODE, Purpose.SEEDS)
    return int(rng.integers(2**62))


def _unconstrained(samples: Samples, target: Target, chain: int) -> np.ndarray:
    """Return the last draw of a chain, flat and unconstrained."""
    last = {name: array[chain, -1] for name, array in samples.items()}
    return target.space.start(last, target.dtype).astype(np.float64)


def _report(
    ran: _Ran,
    required: Requirements,
    after: Neighbourhood | None,
    thin: int,
    error: MeasuredError | None,
    cost: Cost | None,
    clock: Clock,
) -> Report:
    """Return the report."""
    plan, lengths, samples = ran.plan, ran.lengths, ran.samples
    n, N = plan.minibatch_size, plan.around.size
    kept = "every iteration" if lengths.thin == 1 else f"every {lengths.thin} iterations"
    if lengths.thin > thin:
        kept += " (at most 2000 draws, 512 MB)"
    sections: Sections = {}
    if cost is not None:
        sections["Method"] = {
            "exact (HMC), predicted seconds": cost.seconds,
            "reason for stochastic gradients": "exact moves would need more time than there is",
        }
    sections |= {
        "Found around the chains": {
            "coordinates": len(plan.noise),
            "conditional SDs of single coordinates": _range(plan.around.whitening.root),
            "largest curvature, scaled coordinates": plan.around.curvature,
            "largest curvature at the end of the chains": (
                "not measured: time was up" if after is None else after.curvature
            ),
            "likelihood share of the information, mean": float(plan.around.share.mean()),
        },
        "Chain": {
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
        "Draws": {
            "kept": kept,
        },
        "Watched": watched_facts(lengths.diagnostics),
        **_of_error(error),
    }
    warnings = _warnings(plan, lengths, required, after, error)
    return make_report(origin_of(samples).sampler, samples, None, sections, warnings, clock)


def _range(values: np.ndarray) -> list[float]:
    return [float(values.min()), float(values.max())]


def _of_error(error: MeasuredError | None) -> dict[str, Any]:
    """Return the section on the measured error."""
    if error is None:
        return {"Measured error": {"not measured": "`n_iters` is given; `samples.check()` has it"}}
    rows = {
        str(name): (
            f"mean {row.mean_error:+.2f} ± {row.mean_error_se:.2f} SD, "
            f"SD {100 * row.sd_error:+.1f} ± {100 * row.sd_error_se:.1f} %"
        )
        for name, row in error.table.iterrows()
    }
    return {"Measured error, by half the stepsize": rows}


def _warnings(
    plan: LocalPlan,
    lengths: Watched,
    required: Requirements,
    after: Neighbourhood | None,
    error: MeasuredError | None,
) -> list[str]:
    """Return warnings about the draws."""
    found = []
    if not max(plan.stiff_error, plan.error.max()) <= 1.001 * required.tolerance:
        found.append(
            f"Gradient noise makes SDs too large: by {plan.stiff_error:.1%} in the direction of "
            f"the largest curvature (a local bound); the tolerance is {required.tolerance:.1%}. "
            "Larger minibatches have less noise."
        )
    if after is not None and after.curvature > _CHANGED * plan.around.curvature:
        found.append(
            f"The largest curvature grew from {plan.around.curvature:.3g} to "
            f"{after.curvature:.3g} along the chains: the constants chosen at their start are not "
            "suitable at their end."
        )
    found += [] if error is None else error.warnings
    ess = {name: each.smallest for name, each in lengths.diagnostics.items()}
    few = sorted((name for name in ess if ess[name] < required.ess), key=ess.__getitem__)
    if few:
        named = ", ".join(f"{ess[name]:.0f} for {name}" for name in _told(few, lengths))
        found.append(f"Effective sample sizes are below {required.ess:g}: {named}{_others(few)}.")
    rhat = {name: max(each.rhat) for name, each in lengths.diagnostics.items()}
    apart = sorted((name for name in rhat if rhat[name] > RHAT), key=rhat.__getitem__, reverse=True)
    if apart:
        named = ", ".join(f"{rhat[name]:.3f} for {name}" for name in _told(apart, lengths))
        found.append(f"The chains do not agree; R-hat is {named}{_others(apart)}.")
    return found


def _told(names: list[str], lengths: Watched) -> list[str]:
    """Return the log-likelihood of rows if it is among the names, and the first of the others."""
    first = [name for name in names if name == lengths.rows.name]
    return [*first, *(name for name in names if name not in first)][:_NAMED]


def _others(names: list[str]) -> str:
    """Return the number of those that are not named."""
    more = len(names) - _NAMED
    return f", and {more} other watched quantities fall short" if more > 0 else ""
