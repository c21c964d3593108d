"""A posterior without constants from the user: what was left open is chosen, run, and reported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from sgmcmc.results.diagnostics import Diagnostics, diagnose
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import Lengths, run_lengths
from sgmcmc.run.sampler import Request, make_target
from sgmcmc.target.geometry import Space
from sgmcmc.tuning.mode import DENSE_UP_TO
from sgmcmc.tuning.plan import WHOLE_UP_TO, Plan, make_plan

_SPREAD = 1.5
"""How many posterior sds chains start away from the mode, in the root mean square."""

_MOST_BYTES = 2 * 2**30
"""Memory that draws may take where nothing says how many are to be kept."""

_WIDE = 8.0
"""A direction whose variance in whitened coordinates is more than this, or less than its inverse,
was not known well at the mode. If the chain is slow then, it starts anew, whitened by what it has
shown."""

_ROUNDS = 4


@dataclass(frozen=True)
class Wishes:
    """What a user wants of the draws.

    Attributes:
        tolerance: the largest relative error of a posterior sd.
        ess: effective sample size, bulk and tail, that every coordinate is to have.
        n_chains: how many chains.
        n_iters: iterations after burn-in; ``None`` for as many as it takes.
        burn_in: iterations dropped first; ``None`` for as many as it takes.
        max_seconds: after which no more iterations are added, or ``None``.
    """

    tolerance: float
    ess: float
    n_chains: Any
    n_iters: int | None
    burn_in: int | None
    max_seconds: float | None

    def checked(self) -> Wishes:
        """Return the same, once every wish is known to be one that can be granted."""
        tolerance = checks.positive_number("tolerance", self.tolerance)
        if tolerance >= 1:
            raise ValueError(f"`tolerance` must be below 1, a relative error; it is {tolerance:g}.")
        return Wishes(
            tolerance,
            checks.positive_number("ess", self.ess),
            checks.whole_number("n_chains", self.n_chains, 2),
            None if self.n_iters is None else checks.whole_number("n_iters", self.n_iters, 100),
            None if self.burn_in is None else checks.whole_number("burn_in", self.burn_in, 0),
            None
            if self.max_seconds is None
            else checks.positive_number("max_seconds", self.max_seconds),
        )


def _refuse(request: Request, options: Options, d: int) -> None:
    """Raise an error where constants cannot be chosen."""
    reason = None
    if options.gibbs is not None:
        reason = "latent variables are drawn by `gibbs`"
    elif isinstance(request.dynamics, SimplexDynamics):
        reason = f"{type(request.dynamics).__name__} moves points of the simplex"
    elif d > DENSE_UP_TO:
        reason = f"there are {d} coordinates, more than {DENSE_UP_TO}"
    if reason is not None:
        raise ValueError(f"`stepsize` must be given, with all parts: {reason}.")
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
    _refuse(replace(request, dynamics=dynamics), options, target.size)
    data = read_dataset(request.dataset, options.dtype)
    seed = checks.seed_number("seed", request.seed)
    dry_run(target, data, min(500, data.size), starts, None, with_terms=data.size > WHOLE_UP_TO)
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
        asked = _planned(request, plan, target.space, wishes, seed, dynamics, apart)
        lengths = _Until(wishes, plan, target.size, began)
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
        if lengths.reached or (values[-1] <= _WIDE and values[0] >= 1 / _WIDE):
            break
        root = plan.whitening.root @ np.linalg.cholesky(spread)
        plan = plan.rewhitened(target, data, root @ root.T, wishes.tolerance, seed)
    return samples.with_report(_report(samples, plan, lengths, wishes, values, began))


def _planned(
    request: Request,
    plan: Plan,
    space: Space,
    wishes: Wishes,
    seed: int,
    dynamics: Any,
    apart: float,
) -> Request:
    """Return the request with everything given that the plan has chosen."""
    rng = np.random.default_rng([seed, 1])
    centre = _user_params(space, plan.mode.position)
    d = space.layout.size
    moves = rng.standard_normal((wishes.n_chains, d)) @ plan.whitening.root.T
    starts = [_user_params(space, plan.whitening.origin + apart * move) for move in moves]
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


def _user_params(space: Space, u: np.ndarray) -> dict[str, np.ndarray]:
    """Return the user's parameters at unconstrained coordinates."""
    found = space.constrain(tf.constant(u))
    return {name: value.numpy() for name, value in found.items()}


class _Until(Lengths):
    """Runs until every coordinate has its effective sample size, or time is up."""

    def __init__(self, wishes: Wishes, plan: Plan, d: int, began: float) -> None:
        self._wishes = wishes
        self._began = began
        time_of = plan.autocorrelation
        self.burn_in = wishes.burn_in
        if self.burn_in is None:
            self.burn_in = int(max(100, 20 * time_of))
        first = int(np.ceil(max(250, 2.0 * wishes.ess * time_of / wishes.n_chains)))
        most = max(first, int(_MOST_BYTES / (4 * d * wishes.n_chains)))
        self.first = wishes.n_iters or first
        self.cap = wishes.n_iters or min(most, 200 * first)
        self.diagnostics: Diagnostics | None = None

    @property
    def reached(self) -> bool:
        """Whether the draws are what was asked for."""
        return self.diagnostics is not None and self.diagnostics.enough(self._wishes.ess)

    def goals(self) -> Iterator[int]:
        """Yield how many iterations to have run after burn-in; the draws so far come by ``see``."""
        goal = self.first
        while True:
            yield goal
            late = self._wishes.max_seconds is not None and (
                time.monotonic() - self._began > self._wishes.max_seconds
            )
            if self.reached or late or goal >= self.cap:
                return
            assert self.diagnostics is not None
            short = self._wishes.ess / max(1.0, self.diagnostics.smallest)
            goal = min(self.cap, int(np.ceil(goal * min(4.0, max(1.3, 1.2 * short)))))

    def see(self, samples: Samples) -> None:
        """Look at the draws so far."""
        self.diagnostics = diagnose(samples)


def _coordinates(samples: Samples, plan: Plan, space: Space) -> np.ndarray:
    """Return draws in whitened coordinates, (chains, draws, d)."""
    names = list(samples)
    draws = {name: np.asarray(samples[name]) for name in names}
    chains, count = next(iter(draws.values())).shape[:2]
    parts_ = []
    for name in names:
        flat = draws[name].reshape(chains * count, *draws[name].shape[2:])
        geometry = space.geometries[name]
        u = (
            flat
            if geometry.in_place
            else np.stack(
                [geometry.start(one, tf.float64) for one in flat[:: max(1, len(flat) // 2000)]]
            )
        )
        parts_.append(np.asarray(u, np.float64).reshape(len(u), -1))
    shortest = min(len(part) for part in parts_)
    stacked = np.concatenate([part[:: len(part) // shortest][:shortest] for part in parts_], 1)
    return np.stack([plan.whitening.into(one) for one in stacked])


def _spread(samples: Samples, plan: Plan, space: Space) -> np.ndarray:
    """Return the covariance of the draws in whitened coordinates, drawn towards the identity."""
    zeta = _coordinates(samples, plan, space)
    d = zeta.shape[1]
    effective = max(4.0, len(zeta) / max(1.0, plan.autocorrelation))
    covariance = np.atleast_2d(np.cov(zeta.T))
    return (effective * covariance + 2 * d * np.eye(d)) / (effective + 2 * d)


def _report(
    samples: Samples,
    plan: Plan,
    lengths: _Until,
    wishes: Wishes,
    spread: np.ndarray,
    began: float,
) -> Report:
    """Return the report on draws whose constants were chosen here."""
    diagnostics = lengths.diagnostics
    assert diagnostics is not None
    warnings = []
    if not plan.mode.converged:
        warnings.append(
            f"The mode was not found: a Newton step would still go {plan.mode.distance:.2g} "
            "posterior sds. Gradient noise may be larger than it need be."
        )
    if plan.error.max() > 1.001 * wishes.tolerance:
        warnings.append(
            f"The predicted error of a posterior sd is {plan.error.max():.1%}, above the tolerance "
            f"of {wishes.tolerance:.1%}."
        )
    warnings += diagnostics.warnings(wishes.ess)
    if spread[-1] > _WIDE or spread[0] < 1 / _WIDE:
        warnings.append(
            "The posterior is far from normal: in whitened coordinates variances range from "
            f"{spread[0]:.2g} to {spread[-1]:.2g}."
        )
    whole = plan.minibatches is None
    return Report(
        {
            "method": samples.settings["method"],
            "Mode": {
                "found": plan.mode.converged,
                "distance of a Newton step, posterior sds": plan.mode.distance,
                "passes over the data": plan.mode.evaluations,
                "condition number of the information": plan.mode.information.condition,
            },
            "Chain": {
                "dynamics": repr(plan.dynamics),
                "gradient": samples.settings["gradient"]["name"],
                "minibatch size": f"{plan.minibatch_size} of {samples.settings['N']}",
                "rows": "all" if whole else "in proportion to leverage",
                "rows that the probabilities are worth": plan.effective_rows,
                "stepsize, whitened coordinates": plan.stepsize,
                "variances in whitened coordinates": spread.tolist(),
            },
            "Predicted": {
                "gradient noise, whitened, by coordinate": plan.noise.tolist(),
                "relative error of the posterior sds": plan.error.tolist(),
                "iterations for an independent draw": plan.autocorrelation,
            },
            "Draws": {
                "chains, draws of each": f"{wishes.n_chains}, {diagnostics.draws}",
                "burn-in": lengths.burn_in,
                "ESS, bulk": diagnostics.bulk,
                "ESS, tail": diagnostics.tail,
                "R-hat": diagnostics.rhat,
            },
            "Seconds": {
                **plan.seconds,
                "all": time.monotonic() - began,
            },
            "warnings": warnings,
        }
    )
