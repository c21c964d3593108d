"""A posterior without constants from the user: what was left open is chosen, run, and reported."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.dynamics import Underdamped
from sgmcmc.dynamics.simplex import SimplexDynamics
from sgmcmc.engine.progress import Progress
from sgmcmc.errors import DivergenceError
from sgmcmc.gradients import ControlVariate, FullGradient
from sgmcmc.graphs.tracing import quiet_start
from sgmcmc.inputs import parts
from sgmcmc.inputs.arrays import read_dataset, read_params
from sgmcmc.inputs.dry_run import dry_run
from sgmcmc.inputs.options import Options, read_options
from sgmcmc.minibatches import Uniform
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run_lengths
from sgmcmc.run.large import run_large
from sgmcmc.run.lengths import UntilEffective, Wishes
from sgmcmc.run.reporting import WIDE, report_on
from sgmcmc.run.sampler import Request, make_target
from sgmcmc.target.geometry import Space
from sgmcmc.target.target import Target
from sgmcmc.tuning.laws import LinearLaw
from sgmcmc.tuning.mode import DENSE_UP_TO
from sgmcmc.tuning.plan import WHOLE_UP_TO, Plan, make_plan

_SPREAD = 1.5
"""How many posterior sds chains start away from the mode, in the root mean square."""

_ROUNDS = 4
"""How often a chain may start anew, whitened by what it has shown."""

_SLOWEST = 1e5
"""Iterations for an independent draw beyond which it is of no use to start anew."""

_ROWS = 20_000
"""Draws that the covariance is taken of."""


def _refuse(request: Request, options: Options) -> None:
    """Raise an error where constants cannot be chosen."""
    reason = None
    if options.gibbs is not None:
        reason = "latent variables are drawn by `gibbs`"
    elif isinstance(request.dynamics, SimplexDynamics):
        reason = f"{type(request.dynamics).__name__} moves points of the simplex"
    if reason is not None:
        raise ValueError(f"`stepsize` must be given, with all parts: {reason}.")
    try:
        LinearLaw(request.dynamics, 0.1)
    except ValueError as error:
        raise ValueError(
            f"`dynamics`: {error} Give a `stepsize`, and all parts, or take 'underdamped'."
        ) from None
    if options.store is not None:
        raise ValueError(
            "`store`: a chain on disk has a length fixed beforehand. Give a `stepsize`, all "
            "parts and `n_iters`; `samples.report` of a run without a store tells good ones."
        )
    if options.store_params is not True:
        raise ValueError(
            "`store_params`: all parameters are kept where the length is chosen by looking at them."
        )


def run_automatically(request: Request, wishes: Wishes, verbose: bool) -> Samples:
    """Choose what the request leaves open, run the chains, and return draws with their report.

    Args:
        request: what the user asks for.
        wishes: what the user wants of the draws.
        verbose: show progress.
    """
    began = time.monotonic()
    quiet_start()
    verbose, wishes = checks.flag("verbose", verbose), wishes.checked()
    checks.function("log_lik", request.log_lik, "of `params` and `dataset`")
    keywords = {**request.keywords, "n_chains": wishes.n_chains}
    options = read_options(request.function, keywords, stepwise=False)
    params = read_params(request.params, options.n_chains, options.dtype)
    dynamics = Underdamped() if request.dynamics is None else parts.read_dynamics(request.dynamics)
    target, starts = make_target(request, options, dynamics, params)
    bound = dynamics.bind(target.space)
    _refuse(replace(request, dynamics=bound), options)
    data = read_dataset(request.dataset, options.dtype)
    seed = checks.seed_number("seed", request.seed)
    dry_run(target, data, min(500, data.size), starts, None, with_terms=data.size > WHOLE_UP_TO)
    if target.size > DENSE_UP_TO:
        return run_large(
            request, target, data, starts, bound, options.thin, wishes, seed, verbose, began
        )
    with Progress("sample", 1, verbose) as progress:
        plan = make_plan(
            target,
            data,
            starts[0].astype(np.float64),
            dynamics.bind(target.space),
            wishes.tolerance,
            seed,
            progress.describe,
        )
        progress.advance(1)
    apart = _SPREAD
    for rounds in range(_ROUNDS):
        asked = _planned(request, plan, target, wishes, seed, dynamics, apart)
        lengths = UntilEffective(wishes, plan, target.size, options.thin, began)
        try:
            samples = run_lengths(asked, lengths, verbose)
        except DivergenceError:
            if rounds == _ROUNDS - 1:
                raise
            # Far from normal: nearer to the mode, and with smaller steps, it may hold.
            plan, apart = replace(plan, stepsize=plan.stepsize / 4), apart / 4
            continue
        spread = _spread(samples, plan, target.space)
        values = np.linalg.eigvalsh(spread)
        normal = values[-1] <= WIDE and values[0] >= 1 / WIDE
        if lengths.reached or normal or lengths.left <= 0 or rounds == _ROUNDS - 1:
            break
        root = plan.whitening.root @ np.linalg.cholesky(spread)
        other = plan.rewhitened(target, data, root @ root.T, wishes.tolerance, seed)
        if other.autocorrelation > _SLOWEST:
            break
        plan = other
    return samples.with_report(report_on(samples, plan, lengths, wishes, values, began))


def _planned(
    request: Request,
    plan: Plan,
    target: Target,
    wishes: Wishes,
    seed: int,
    dynamics: Any,
    apart: float,
) -> Request:
    """Return the request with everything given that the plan has chosen."""
    space, dtype = target.space, target.dtype
    rng = np.random.default_rng([seed, 1])
    centre = _user_params(space, plan.mode.position, dtype)
    d = space.layout.size
    moves = rng.standard_normal((wishes.n_chains, d)) @ plan.whitening.root.T
    starts = [_user_params(space, plan.whitening.origin + apart * move, dtype) for move in moves]
    whole = plan.minibatches is None
    return replace(
        request,
        params=starts,
        dynamics=dynamics,
        gradient=FullGradient() if whole else ControlVariate(centre_at=centre),
        minibatch_size=None if whole else plan.minibatch_size,
        stepsize=plan.stepsize,
        seed=seed,
        keywords={
            **request.keywords,
            "n_chains": wishes.n_chains,
            "preconditioner": plan.whitening,
            "minibatches": Uniform() if whole else plan.minibatches,
        },
    )


def _user_params(space: Space, u: np.ndarray, dtype: tf.DType) -> dict[str, np.ndarray]:
    """Return the user's parameters at unconstrained coordinates."""
    # Some bijectors are bound to the dtype of the chain.
    found = space.constrain(tf.constant(u, dtype))
    return {name: value.numpy() for name, value in found.items()}


def _coordinates(samples: Samples, plan: Plan, space: Space) -> np.ndarray:
    """Return draws in whitened coordinates, (k, d), evenly from all chains."""
    parts_ = []
    for name, array in samples.items():
        draws = np.reshape(array, (-1, *array.shape[2:]))
        draws = draws[:: max(1, len(draws) // _ROWS)]
        u = np.asarray(space.geometries[name].start(draws, draws.dtype), np.float64)
        parts_.append(u.reshape(len(u), -1))
    return np.stack([plan.whitening.into(one) for one in np.concatenate(parts_, 1)])


def _spread(samples: Samples, plan: Plan, space: Space) -> np.ndarray:
    """Return the covariance of the draws in whitened coordinates, drawn towards the identity."""
    zeta = _coordinates(samples, plan, space)
    d = zeta.shape[1]
    effective = max(4.0, len(zeta) / max(1.0, plan.autocorrelation))
    covariance = np.atleast_2d(np.cov(zeta.T))
    return (effective * covariance + 2 * d * np.eye(d)) / (effective + 2 * d)
