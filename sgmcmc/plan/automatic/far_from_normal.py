"""Small data and a posterior far from normal: NUTS, which is reliable and affordable there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from sgmcmc.dynamics import NUTS
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.plan.automatic.methods import (
    NUTS_WARM_UP_MOVES,
    Cost,
    run_exact,
    seconds_of_gradient,
)
from sgmcmc.plan.information import shrunk_covariance
from sgmcmc.plan.lengths import FEWEST, Requirements, UntilEffective
from sgmcmc.plan.mode import Mode
from sgmcmc.plan.plan import Plan
from sgmcmc.plan.reports.judging import judge, unconstrained
from sgmcmc.plan.reports.reporting import WIDE, no_mode_warnings
from sgmcmc.plan.reports.warnings import is_within_tolerance
from sgmcmc.results.samples import Samples
from sgmcmc.run.origin import origin_of
from sgmcmc.run.request import Request, all_parts_open

_SURELY = (
    10**6
)  # observations × coordinates of a full gradient of about a millisecond at most

# Observations × coordinates above which a full gradient is not timed before chains ran.
_PERHAPS = 2 * 10**7

_PATIENCE = 6  # multiple of the predicted length after which NUTS takes over
_GRADIENTS = 25  # of a move of NUTS if the posterior is far from normal
_PILOT = (
    5  # divisor of the first length: the noise along the chains is measured after that
)


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
