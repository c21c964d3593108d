"""The phases before the chains of a large model: starts apart, an ascent, a warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sgmcmc.data.dataset import Data
from sgmcmc.data.rng import Purpose, RunPhase, generator
from sgmcmc.dynamics import Dynamics
from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.recorder import Recorder
from sgmcmc.errors import DivergenceError
from sgmcmc.gradients import FullGradient, Gradient, MinibatchGradient
from sgmcmc.minibatches import Uniform
from sgmcmc.run.driver import search
from sgmcmc.run.phases import Phase
from sgmcmc.run.sampler import Request, make_sampler
from sgmcmc.target.geometry import Preconditioner, Space
from sgmcmc.target.target import Target
from sgmcmc.tuning.ascent import Ascent, InformedGradient
from sgmcmc.tuning.local import LocalPlan, Neighbourhood

_STEP, _SMALLER, _TRIES = 0.1, 10.0, 3
"""Sds of a coordinate that a step of the ascent goes at first; by how much less where that fails,
and how often."""

_SHORTEST, _LONGEST, _PASSES = 1000, 4000, 20
"""Iterations of the ascent: twenty passes over the data, within these bounds."""

_ROWS = 500
"""Rows of its minibatches."""

_KEPT = ("bijectors", "dtype", "jit_compile", "executor")
"""Keywords of the user's that matter before there are draws."""


def spread_out(
    space: Space, starts: Sequence[np.ndarray], chains: int, around: Neighbourhood, seed: int
) -> list[np.ndarray]:
    """Return where chains start, flat and unconstrained: the user's starts, or spread around one.

    The first chain starts at ``params``. The others start about one sd of each coordinate away, but
    no further than the components of a parameter are in the root mean square, which stays what it
    is: weights that were made small on purpose do not become large.
    """
    if len(starts) > 1:
        return [start.astype(np.float64) for start in starts]
    u, scale = starts[0].astype(np.float64), around.whitening.root.copy()
    kept = np.ones(len(u))
    for place in space.layout.slices.values():
        size = float(np.sqrt((u[place] ** 2).mean()))
        if size > 0:
            scale[place] = np.minimum(scale[place], size / np.sqrt(2.0))
            kept[place] = np.sqrt(1.0 - (scale[place] / size) ** 2)
    rng = generator(seed, 0, RunPhase.MODE, Purpose.START)
    return [u, *(kept * u + scale * rng.standard_normal(len(u)) for _ in range(chains - 1))]


def ascend(
    request: Request,
    target: Target,
    data: Data,
    positions: list[np.ndarray],
    around: Neighbourhood,
    verbose: bool,
) -> list[np.ndarray]:
    """Return the positions after an ascent of the likelihood, of each chain by itself.

    Raises:
        DivergenceError: the ascent fails even with small steps.
    """
    n = min(_ROWS, data.size)
    n_iters = int(np.clip(_PASSES * data.size / n, _SHORTEST, _LONGEST))
    gradient, step = InformedGradient(around.share), _STEP
    for tries in range(_TRIES):
        stepsizes = Stepsizes("stepsize", (_falling(step, n_iters),))
        asked = _asked(request, target, positions, around.whitening, Ascent(), gradient, n, step)
        try:
            return _run(asked, around.whitening, stepsizes, n_iters, "ascent", verbose)
        except DivergenceError:
            if tries == _TRIES - 1:
                raise
            step /= _SMALLER
    raise AssertionError("not reached")


def _falling(step: float, n_iters: int) -> Any:
    return lambda iteration: step * max(1.0 - (iteration - 1) / n_iters, 1.0 / n_iters)


def warm_up(
    request: Request,
    target: Target,
    plan: LocalPlan,
    positions: list[np.ndarray],
    n_iters: int,
    verbose: bool,
) -> list[np.ndarray]:
    """Return the positions after some iterations of the chains as they are planned so far."""
    asked = planned(request, target, plan, positions)
    stepsizes = Stepsizes("stepsize", (plan.stepsize,))
    whitening = plan.around.whitening
    return _run(asked, whitening, stepsizes, n_iters, "warm-up", verbose)


def planned(
    request: Request, target: Target, plan: LocalPlan, positions: list[np.ndarray]
) -> Request:
    """Return the request with everything given that the plan has chosen."""
    whole = plan.minibatch_size >= plan.around.size
    gradient = FullGradient() if whole else MinibatchGradient()
    return _asked(
        request,
        target,
        positions,
        plan.around.whitening,
        plan.dynamics,
        gradient,
        None if whole else plan.minibatch_size,
        plan.stepsize,
    )


def _asked(
    request: Request,
    target: Target,
    positions: list[np.ndarray],
    whitening: Preconditioner,
    dynamics: Dynamics,
    gradient: Gradient,
    n: int | None,
    stepsize: float,
) -> Request:
    return replace(
        request,
        params=[target.space.params(u, target.dtype) for u in positions],
        dynamics=dynamics,
        gradient=gradient,
        minibatch_size=n,
        stepsize=stepsize,
        keywords={
            **request.keywords,
            "n_chains": len(positions),
            "preconditioner": whitening,
            "minibatches": Uniform(),
        },
    )


def _run(
    asked: Request,
    whitening: Preconditioner,
    stepsizes: Stepsizes,
    n_iters: int,
    what: str,
    verbose: bool,
) -> list[np.ndarray]:
    """Run the chains that are asked for, keep nothing of them, and return where they end."""
    keywords = {name: asked.keywords[name] for name in _KEPT if name in asked.keywords}
    ours = {name: asked.keywords[name] for name in ("n_chains", "preconditioner", "minibatches")}
    sampler = make_sampler(replace(asked, keywords={**keywords, **ours}))
    chain = sampler.chain
    phase = Phase(
        RunPhase.MODE,
        f"{asked.method}, {what}",
        "stepsize",
        chain.dynamics,
        chain.gradient,
        stepsizes,
        n_iters,
        Recorder(sampler.target),
    )
    ends = search(replace(sampler, phases=(phase, chain)), verbose)
    return [whitening.origin + whitening.root * end.astype(np.float64) for end in ends]
