"""Small data and a posterior far from normal: NUTS, which holds there, and costs no more."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from sgmcmc.dynamics import NUTS
from sgmcmc.results.samples import Samples
from sgmcmc.run.choices import open_arguments
from sgmcmc.run.exact import run_exactly
from sgmcmc.run.lengths import UntilEffective, Wishes
from sgmcmc.run.sampler import Request
from sgmcmc.tuning.plan import Plan

PATIENCE = 6
"""How many times as long as foretold chains run before their law is given up."""

_LEFT = 0.3
"""What part of the seconds that a user gave must be left to begin anew."""

_OF_OTHERS = ("minibatches", "replace", "updates")
"""Keywords that mean nothing where every gradient takes the whole dataset, for a move of all."""


def may_be_exact(request: Request, plan: Plan) -> bool:
    """Tell whether the sampler is open, and every gradient takes the whole dataset anyway."""
    needed = {"dynamics", "gradient", "minibatches", "minibatch_size", "preconditioner", "stepsize"}
    return needed <= set(open_arguments(request)) and plan.around.exact


def far_from_normal(
    variances: np.ndarray, normal: bool, lengths: UntilEffective, wishes: Wishes
) -> str | None:
    """Return in what draws show that their posterior is far from normal; ``None`` if in nothing.

    Args:
        variances: of the draws in coordinates whitened at the mode, ascending.
        normal: whether they are those of a normal posterior.
        lengths: how long the chains were, and what came of it.
        wishes: what the user wants of the draws.
    """
    if not normal:
        return (
            "the posterior is far from normal: in coordinates whitened at its mode, variances "
            f"range from {variances[0]:.2g} to {variances[-1]:.2g}"
        )
    if lengths.reached or wishes.n_iters is not None or lengths.diagnostics is None:
        return None
    return (
        f"after {lengths.diagnostics.draws} draws of each chain the smallest effective sample size "
        f"was {lengths.diagnostics.smallest:.0f}, far from what a normal posterior would give"
    )


def may_begin_anew(wishes: Wishes, left: float) -> bool:
    """Tell whether enough of the user's time is left."""
    return wishes.max_seconds is None or left >= _LEFT * wishes.max_seconds


def run_by_nuts(
    request: Request, wishes: Wishes, verbose: bool, began: float, reason: str
) -> Samples:
    """Return draws by the No-U-Turn Sampler, with their report.

    Args:
        request: what the user asks for; what is chosen was left open.
        wishes: what the user wants of the draws.
        verbose: show progress.
        began: when the clock of ``max_seconds`` was started.
        reason: why, for the report.
    """
    keywords = {name: v for name, v in request.keywords.items() if name not in _OF_OTHERS}
    exact = replace(
        request, dynamics=NUTS(), gradient=None, minibatch_size=None, stepsize=None,
        keywords=keywords,
    )  # fmt: skip
    if wishes.max_seconds is not None:
        left = wishes.max_seconds - (time.monotonic() - began)
        wishes = replace(wishes, max_seconds=max(left, _LEFT * wishes.max_seconds))
    return run_exactly(exact, wishes, verbose, reason)
