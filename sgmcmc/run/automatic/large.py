"""Posteriors of very many coordinates without constants: networks, matrix factors, mixtures."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from sgmcmc.data.dataset import Data
from sgmcmc.data.numbers import Purpose, RunPhase, generator
from sgmcmc.dynamics import Dynamics
from sgmcmc.engine.scheduler import Progress
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples
from sgmcmc.run.automatic.warm_up import ascend, planned, spread_out, warm_up
from sgmcmc.run.automatic.watched import Watched
from sgmcmc.run.driver import run_lengths
from sgmcmc.run.lengths import Wishes, need_draws, with_smaller_steps
from sgmcmc.run.request import Request
from sgmcmc.target.target import Target
from sgmcmc.tuning.laws import LinearLaw
from sgmcmc.tuning.local import LocalPlan, Neighbourhood, choose_locally, look_around
from sgmcmc.tuning.mode import DENSE_UP_TO

_TRIES, _SMALLER = 4, 4.0
"""How often chains that diverge start anew, and with how much smaller a stepsize."""

_CHANGED = 2.0
"""By what factor the largest curvature may have grown until the chain's end."""


class _Clock:
    """Seconds by what was done."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def done(self, name: str) -> None:
        """Enter the time since the last entry."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


def run_large(
    request: Request, dynamics: Dynamics, wishes: Wishes, verbose: bool, began: float
) -> Samples:
    """Choose constants from what is found around the chains' starts, run them, and report.

    The chains go up the likelihood, each from a start of its own; scales, curvature and noise are
    measured there; the chains run for a while; everything is measured again, and frozen; and
    then comes what is kept.

    Args:
        request: Request, read.
        dynamics: Dynamics, bound.
        wishes: User's wishes for the draws.
        verbose: Whether to show progress.
        began: Time at which the clock of ``max_seconds`` was started.

    Raises:
        ValueError: The dynamics have no closed law, or too few draws would be kept.
    """
    model = request.read
    target, data, starts, seed = model.target, model.data, model.starts, model.seed
    thin = model.options.thin
    _need_linear(dynamics)
    need_draws(wishes, thin)
    clock = _Clock()
    first = request.tuned(dynamics=dynamics, seed=_derived(seed))
    around = _look(target, data, [starts[0].astype(np.float64)], seed, verbose)
    positions = spread_out(target.space, starts, wishes.n_chains, around, seed)
    clock.done("scales, curvature and noise")
    positions = ascend(first, positions, around, verbose)
    clock.done("ascent")
    plan, positions = _settled(first, positions, dynamics, wishes, verbose, clock)

    def chains(plan: LocalPlan) -> tuple[Watched, Samples]:
        lengths = Watched(wishes, plan, target, data, seed, thin, began)
        asked = planned(request, plan, positions).tuned(thin=lengths.thin)
        return lengths, run_lengths(asked, lengths, verbose)

    plan, (lengths, samples) = with_smaller_steps(plan, chains, _TRIES, _SMALLER)
    clock.done("chains")
    ends = [_unconstrained(samples, target, chain) for chain in range(wishes.n_chains)]
    after = _look(target, data, ends, seed + 1, verbose)
    clock.done("scales, curvature and noise")
    report = _report(samples, plan, lengths, wishes, after, thin)
    seconds = {**clock.seconds, "all": time.monotonic() - began}
    return samples.with_report(
        Report({**report, "Seconds": seconds, "warnings": report["warnings"]})
    )


def _need_linear(dynamics: Dynamics) -> None:
    """Raise an error where the law of the chain is not known."""
    try:
        LinearLaw(dynamics, 0.1)
    except ValueError as error:
        raise ValueError(
            f"`dynamics`: {error} Beyond {DENSE_UP_TO} coordinates take 'underdamped', 'sgld' or "
            "'sghmc', or give all constants."
        ) from None


def _settled(
    request: Request,
    positions: list[np.ndarray],
    dynamics: Dynamics,
    wishes: Wishes,
    verbose: bool,
    clock: _Clock,
) -> tuple[LocalPlan, list[np.ndarray]]:
    """Return the plan after a warm-up, and where that has led."""
    target, data, seed = request.read.target, request.read.data, request.read.seed
    around = _look(target, data, positions, seed, verbose)
    plan = choose_locally(around, dynamics, wishes.tolerance)
    clock.done("scales, curvature and noise")
    length = Watched(wishes, plan, target, data, seed, 1, time.monotonic()).burn_in
    plan, positions = with_smaller_steps(
        plan,
        lambda plan: warm_up(request, plan, positions, max(1, length or 0), verbose),
        _TRIES,
        _SMALLER,
    )
    clock.done("warm-up")
    around = _look(target, data, positions, seed + 1, verbose)
    clock.done("scales, curvature and noise")
    return choose_locally(around, dynamics, wishes.tolerance), positions


def _look(
    target: Target, data: Data, positions: list[np.ndarray], seed: int, verbose: bool
) -> Neighbourhood:
    with Progress("scales, curvature and noise", 1, verbose) as progress:
        found = look_around(target, data, positions, seed)
        progress.advance(1)
    return found


def _derived(seed: int) -> int:
    """Return a seed for what comes before the chains."""
    rng = generator(seed, 0, RunPhase.MODE, Purpose.SEEDS)
    return int(rng.integers(2**62))


def _unconstrained(samples: Samples, target: Target, chain: int) -> np.ndarray:
    """Return the last draw of a chain, flat and unconstrained."""
    last = {name: array[chain, -1] for name, array in samples.items()}
    return target.space.start(last, target.dtype).astype(np.float64)


def _report(
    samples: Samples,
    plan: LocalPlan,
    lengths: Watched,
    wishes: Wishes,
    after: Neighbourhood,
    thin: int,
) -> dict[str, Any]:
    """Return the facts and warnings of the report."""
    predictions, coordinates = lengths.predictions, lengths.coordinates
    assert predictions is not None and coordinates is not None
    n, N = plan.minibatch_size, plan.around.size
    kept = "all" if lengths.thin == 1 else f"1 in {lengths.thin} iterations"
    if lengths.thin > thin:
        kept += " (at most 2000 draws, 512 MB)"
    return {
        "method": samples.settings["method"],
        "Found around the chains": {
            "coordinates": len(plan.noise),
            "sds of single coordinates, all others held": _range(plan.around.whitening.root),
            "largest curvature, scaled coordinates": plan.around.curvature,
            "the same at the chains' ends": after.curvature,
            "part of the data in the information, mean": float(plan.around.share.mean()),
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
            "relative error of a coordinate's sd": _range(plan.error),
            "the same in the stiffest direction": plan.stiff_error,
            "iterations for an independent draw": plan.autocorrelation,
        },
        "Draws": {
            "chains, draws of each": f"{wishes.n_chains}, {predictions.draws}",
            "kept": kept,
            "burn-in": lengths.burn_in,
            f"log-likelihood of {lengths.rows} rows: ESS, bulk": predictions.bulk,
            f"log-likelihood of {lengths.rows} rows: ESS, tail": predictions.tail,
            f"log-likelihood of {lengths.rows} rows: R-hat": predictions.rhat,
            f"{len(coordinates.bulk)} coordinates: ESS, bulk": coordinates.bulk,
            f"{len(coordinates.tail)} coordinates: ESS, tail": coordinates.tail,
            f"{len(coordinates.rhat)} coordinates: R-hat": coordinates.rhat,
        },
        "warnings": _warnings(plan, lengths, wishes, after),
    }


def _range(values: np.ndarray) -> list[float]:
    return [float(values.min()), float(values.max())]


def _warnings(plan: LocalPlan, lengths: Watched, wishes: Wishes, after: Neighbourhood) -> list[str]:
    """Return what speaks against the draws."""
    found = []
    if not max(plan.stiff_error, plan.error.max()) <= 1.001 * wishes.tolerance:
        found.append(
            f"Gradient noise makes sds too large: by {plan.stiff_error:.1%} in the direction of "
            "the largest curvature (a local bound), where the tolerance is "
            f"{wishes.tolerance:.1%}. Larger minibatches have less noise."
        )
    if after.curvature > _CHANGED * plan.around.curvature:
        found.append(
            f"The largest curvature grew from {plan.around.curvature:.3g} to "
            f"{after.curvature:.3g} along the chains: their constants do not suit their ends."
        )
    assert lengths.predictions is not None and lengths.coordinates is not None
    found += [
        f"Of the log-likelihood of {lengths.rows} rows: {warning}"
        for warning in lengths.predictions.warnings(wishes.ess)
    ]
    found += [
        f"Of {len(lengths.coordinates.bulk)} coordinates drawn at random: {warning}"
        for warning in lengths.coordinates.warnings(wishes.ess)
    ]
    return found
