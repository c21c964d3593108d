"""Sampling without constants from the user: constants chosen, chains run, draws reported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from sgmcmc import checks
from sgmcmc.bars import Clock
from sgmcmc.data.dataset import Data
from sgmcmc.dynamics import HMC, NUTS
from sgmcmc.errors import DivergenceError
from sgmcmc.groups.marginal import Marginal
from sgmcmc.inputs.options import read_length
from sgmcmc.results.samples import Samples
from sgmcmc.run.automatic.large import run_large
from sgmcmc.run.automatic.methods import (
    MOVES,
    Foretold,
    may_begin_anew,
    run_exact,
    seconds_of_gradient,
)
from sgmcmc.run.automatic.multimodal import in_modes, run_in_modes
from sgmcmc.run.calls import brief, on_machines
from sgmcmc.run.choices import Chosen, Reading, all_parts_open, choose, open_arguments, read
from sgmcmc.run.driver import run_lengths, run_tuned
from sgmcmc.run.kept_choices import chosen_once
from sgmcmc.run.lengths import UntilEffective, Wishes, with_smaller_steps
from sgmcmc.run.origin import origin_of
from sgmcmc.run.reports import report_on
from sgmcmc.run.reports.judging import unconstrained
from sgmcmc.run.reports.reporting import WIDE, of_rising
from sgmcmc.run.request import AUTO, Request
from sgmcmc.target.geometry import Space
from sgmcmc.target.target import Target
from sgmcmc.tuning.information import shrunk_covariance
from sgmcmc.tuning.mode import DENSE_UP_TO
from sgmcmc.tuning.plan import Plan

_SPREAD = 1.5
"""Root mean square distance of starts from the mode, in posterior SDs."""

_ROUNDS = 4
"""Largest number of restarts of a chain, whitened by its own draws."""

_SLOWEST = 1e5
"""Autocorrelation time beyond which a restart does not help."""

_PATIENCE = 6
"""Multiple of the predicted length after which we switch to NUTS."""

_GRADIENTS = 25
"""Gradients of a move of NUTS where the posterior is far from normal."""

_SURELY, _PERHAPS = 10**6, 2 * 10**7
"""Observations times coordinates up to which a gradient of them all takes about a millisecond, and
beyond which it takes too long to be worth timing."""


@brief
@on_machines
def run_automatically(request: Request, wishes: Wishes, verbose: bool) -> Samples:
    """Choose what the request leaves open, run the chains, and return draws with their report.

    Args:
        request: Request of the user; "auto" for open constants.
        wishes: User's wishes for the draws.
        verbose: Whether to show progress.
    """
    began = time.monotonic()
    verbose, wishes = checks.flag("verbose", verbose), wishes.checked()
    request = replace(request, keywords={**request.keywords, "n_chains": wishes.n_chains})
    reading = read(request)
    request, model = reading.request, reading.request.read
    options, d, thin = model.options, model.target.size, model.options.thin
    if options.store_params is not True:
        raise ValueError(
            "`store_params`: all parameters are stored if the length is chosen from their draws."
        )
    if d > DENSE_UP_TO:
        _need_all_open(request, d)
        if options.store is not None:
            raise ValueError(
                f"`store`: there are {d} coordinates. Beyond {DENSE_UP_TO} a chain on disk needs "
                "every constant given; `settings` of a call without a store have what was chosen."
            )
        return run_large(request, reading.dynamics, wishes, verbose, began)
    if options.store is not None:
        return _run_on_disk(reading, wishes, verbose)
    chosen = choose(reading, wishes.tolerance, verbose)
    if chosen.plan.surveyed is not None and chosen.plan.surveyed.several:
        return run_in_modes(chosen, chosen.plan.surveyed, wishes, thin, verbose, began)
    return _run_around_mode(request, chosen, wishes, verbose, began)


def _run_around_mode(
    request: Request, chosen: Chosen, wishes: Wishes, verbose: bool, began: float
) -> Samples:
    """Return draws of a posterior with one mode, from chains that start again if necessary.

    Those of little data, far from normal, go on by NUTS.
    """
    plan, apart = chosen.plan, _SPREAD
    exact = may_be_exact(request, plan, chosen.data, wishes)
    if exact and not plan.mode.converged:
        return run_by_nuts(request, plan, wishes, verbose, began, "no mode was found")
    if exact and _hmc_is_quicker(plan, chosen.target):
        return _by_hmc(request, chosen, wishes, verbose, began)
    for rounds in range(_ROUNDS):
        try:
            plan, apart, lengths, samples = _around(
                chosen, plan, wishes, apart, exact, verbose, began
            )
        except DivergenceError:
            if exact:
                return run_by_nuts(request, plan, wishes, verbose, began, "other chains diverged")
            raise
        if exact and lengths.against and may_begin_anew(wishes, lengths.left):
            return run_by_nuts(request, plan, wishes, verbose, began, lengths.against)
        last = rounds == _ROUNDS - 1 or lengths.left <= 0
        if lengths.reached or lengths.normal or last or not _may_rewhiten(request):
            break
        root = plan.whitening.root @ np.linalg.cholesky(lengths.spread)
        other = plan.rewhitened(chosen.target, chosen.data, root @ root.T, chosen.seed)
        if other.autocorrelation > _SLOWEST:
            break
        plan = other
    sampler, clock = origin_of(samples).sampler, Clock(began, plan.seconds)
    report = report_on(samples, plan, lengths, wishes, lengths.variances, sampler, clock)
    return samples.with_report(report)


def _hmc_is_quicker(plan: Plan, target: Target) -> bool:
    """Return whether HMC needs fewer seconds than the plan, and gives a smaller error.

    So it is with groups that are integrated out, if each gradient is over all of them: a gradient
    takes long, and a draw of HMC needs two to six of them, not twenty. Counts alone say so, and no
    clock, so that the same seed gives the same draws on every machine.

    Args:
        plan: Plan that was chosen.
        target: Log posterior.
    """
    integrated = isinstance(target.log_lik, Marginal)
    return integrated and plan.around.exact and plan.mode.converged


def _by_hmc(
    request: Request, chosen: Chosen, wishes: Wishes, verbose: bool, began: float
) -> Samples:
    """Return draws by HMC in the plan's coordinates; by NUTS if the report of HMC has a warning."""
    plan = chosen.plan
    reason = "effects of groups are integrated out, and it needs the fewest gradients"
    doubts = of_rising(plan.surveyed)
    samples = run_exact(
        chosen.request, HMC(), wishes, verbose, began, reason, doubts, mode=plan.mode
    )
    assert samples.report is not None
    against = samples.report.warnings[len(doubts) :]
    left = np.inf if wishes.max_seconds is None else began + wishes.max_seconds - time.monotonic()
    if not against or not may_begin_anew(wishes, left):
        return samples
    return run_by_nuts(request, plan, wishes, verbose, began, f"of HMC: {against[0]}")


def _around(
    chosen: Chosen,
    plan: Plan,
    wishes: Wishes,
    apart: float,
    exact: bool,
    verbose: bool,
    began: float,
) -> tuple[Plan, float, UntilFar, Samples]:
    """Return draws of chains that start around the mode, and by which plan they were made.

    Chains that diverge start again nearer to the mode, with smaller steps, unless there is another
    way or the stepsize is the user's.
    """

    def attempt(factor: float) -> tuple[Plan, float, UntilFar, Samples]:
        lowered = plan if factor == 1 else replace(plan, stepsize=factor * plan.stepsize)
        asked = chosen.completed(lowered, _starts(chosen, plan, wishes, factor * apart))
        thin = chosen.request.read.options.thin
        lengths = UntilFar(wishes, lowered, chosen.target, thin, began, exact)
        return lowered, factor * apart, lengths, run_lengths(asked, lengths, verbose)

    return with_smaller_steps(attempt, 1 if exact or plan.given.stepsize is not None else _ROUNDS)


def _run_on_disk(reading: Reading, wishes: Wishes, verbose: bool) -> Samples:
    """Return draws that are written to disk, by constants that are chosen once and kept there."""
    if wishes.n_iters is None:
        raise ValueError("`store`: a chain on disk has a fixed length. Give `n_iters`.")
    read_length(wishes.n_iters, reading.request.read.options.thin)

    def tune(request: Request) -> Request:
        chosen = choose(reading, wishes.tolerance, verbose)
        plan, target = chosen.plan, chosen.target
        if not plan.mode.converged and may_be_exact(request, plan, chosen.data, wishes):
            raise ValueError(
                "`store`: no mode was found, so that no constants can be kept for a chain on disk. "
                "Use sgmcmc.nuts(..., store=...)."
            )
        if plan.surveyed is not None and plan.surveyed.several:
            plan, asked = in_modes(chosen, plan.surveyed, wishes.n_chains)
        else:
            asked = chosen.completed(plan, _starts(chosen, plan, wishes, _SPREAD))
        lengths = UntilEffective(wishes, plan, target.size, reading.request.read.options.thin, 0.0)
        return asked.tuned(burn_in=lengths.burn_in)

    request = chosen_once(reading.request, tune)
    if wishes.burn_in is not None:
        request = request.tuned(burn_in=wishes.burn_in)
    return run_tuned(request, wishes.n_iters, verbose)


def _need_all_open(request: Request, d: int) -> None:
    """Raise an error if some constants are given, of a model that is too large for that."""
    is_open = open_arguments(request)
    for name in ("gradient", "minibatches", "minibatch_size", "preconditioner", "stepsize"):
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


def _starts(chosen: Chosen, plan: Plan, wishes: Wishes, apart: float) -> list[Any]:
    """Return over-dispersed starts around the mode."""
    target = chosen.target
    rng = np.random.default_rng([chosen.seed, 1])
    values, vectors = plan.around.axes
    moves = rng.standard_normal((wishes.n_chains, target.size)) / np.sqrt(values) @ vectors.T
    whitening = plan.whitening
    moves = moves @ whitening.root.T if whitening.dense else moves * whitening.root
    middle = plan.mode.position
    return [target.space.params(middle + apart * move, target.dtype) for move in moves]


def may_be_exact(request: Request, plan: Plan, data: Data, wishes: Wishes) -> bool:
    """Return whether the sampler is open, and NUTS on the whole dataset can be afforded.

    Args:
        request: Request of the user.
        plan: Plan that was chosen.
        data: Dataset.
        wishes: User's wishes for the draws.
    """
    if not all_parts_open(request):
        return False
    target = request.read.target
    numbers = data.size * target.row_terms * len(plan.mode.position)
    if plan.around.exact or numbers <= _SURELY:
        return True
    if numbers > _PERHAPS:
        return False
    seconds = seconds_of_gradient(target, data, plan.mode.position)
    moves = wishes.n_chains * (MOVES + 2.0 * wishes.ess)
    return Foretold(seconds, moves * _GRADIENTS, wishes).affordable


class UntilFar(UntilEffective):
    """Runs until coordinates have their effective sample size, or are found far from normal.

    Args:
        wishes: User's wishes for the draws.
        plan: Plan that was chosen.
        target: Target, without a preconditioner.
        thin: Number of iterations between kept draws.
        began: Time at which the clock of ``max_seconds`` was started.
        may_stop: Whether there is another way, so that chains stop as soon as the posterior is
            found far from normal.

    Attributes:
        spread: Covariance of the draws in whitened coordinates, at the last look.
        variances: Eigenvalues of the spread, ascending.
        against: Evidence in the draws that their posterior is far from normal; empty if there is
            none.
    """

    def __init__(
        self, wishes: Wishes, plan: Plan, target: Target, thin: int, began: float, may_stop: bool
    ) -> None:
        super().__init__(wishes, plan, target.size, thin, began)
        self._plan, self._space, self._thin, self._may_stop = plan, target.space, thin, may_stop
        if may_stop and wishes.n_iters is None:
            self.cap = min(self.cap, _PATIENCE * self.first)
        self.spread = np.eye(target.size)
        self.variances: np.ndarray = np.ones(target.size)
        self.against = ""

    @property
    def normal(self) -> bool:
        """Whether the variances are those of a posterior that is near normal."""
        return bool(self.variances[-1] <= WIDE and self.variances[0] >= 1 / WIDE)

    def goals(self) -> Iterator[int]:
        """Yield the numbers of iterations after burn-in at which to stop."""
        for goal in super().goals():
            yield goal
            if self.against and self._may_stop:
                return

    def see(self, samples: Samples) -> None:
        """Look at the draws so far."""
        super().see(samples)
        assert self.diagnostics is not None
        self.spread = _spread(samples, self._plan, self._space)
        self.variances = np.linalg.eigvalsh(self.spread)
        draws = self.diagnostics.draws
        if not self.normal:
            self.against = (
                "the posterior is far from normal: in coordinates whitened at its mode, the "
                f"eigenvalues of the draws' covariance range from {self.variances[0]:.2g} to "
                f"{self.variances[-1]:.2g}"
            )
        elif not self.reached and self._wishes.n_iters is None and draws >= self.cap // self._thin:
            self.against = (
                f"after {draws} draws of each chain the smallest effective sample size was "
                f"{self.diagnostics.smallest:.0f}, far from what a normal posterior would give"
            )


def _spread(samples: Samples, plan: Plan, space: Space) -> np.ndarray:
    """Return the covariance of the draws in whitened coordinates, drawn toward the identity."""
    u = unconstrained(samples, space)
    zeta = plan.whitening.into(u.reshape(-1, u.shape[-1]))
    return shrunk_covariance(zeta, max(4.0, len(zeta) / max(1.0, plan.autocorrelation)))


def run_by_nuts(
    request: Request, plan: Plan, wishes: Wishes, verbose: bool, began: float, reason: str
) -> Samples:
    """Return draws by the No-U-Turn Sampler, with their report; the plan's doubts stay."""
    doubts = of_rising(plan.surveyed)
    return run_exact(request, NUTS(), wishes, verbose, began, reason, doubts)
