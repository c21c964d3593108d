"""Puts together what samples points of the simplex."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sgmcmc.dynamics import Dynamics
from sgmcmc.inputs.simplex import SimplexArguments
from sgmcmc.sampler import Sampler, Target, make_sampler
from sgmcmc.simplex import Simplex


def make_point_sampler(
    method: str,
    dynamics: Callable[[Simplex, tuple[str, ...]], Dynamics],
    target: Target,
    stepsize: Any,
    simplex: SimplexArguments,
    seed: int | None,
    keywords: Mapping[str, Any],
) -> Sampler:
    """Check everything that the user handed over and put the sampler together.

    Args:
        method: name of the user's function.
        dynamics: makes the dynamics of a simplex and the names whose θ is given at the start.
        target: the model and the data.
        stepsize: the user's ``stepsize``.
        simplex: what the user said of the points of the simplex.
        seed: the user's ``seed``.
        keywords: the user's keyword arguments.
    """
    return make_sampler(
        method,
        target,
        stepsize,
        lambda model: dynamics(model.simplex, tuple(simplex.theta0 or ())),
        seed,
        keywords,
        tuning={"alpha": simplex.alpha},
        simplex=simplex,
    )
