"""Chooses the arguments that the user left open, before the sampler is made."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.data.dataset import Data
from sgmcmc.dynamics import Dynamics, ExactDynamics, Underdamped
from sgmcmc.dynamics.riemannian import SimplexDynamics
from sgmcmc.engine.scheduler import Progress
from sgmcmc.gradients import ControlVariate, FullGradient
from sgmcmc.graphs.tracing import trace, vectorized_map
from sgmcmc.inputs import parts
from sgmcmc.inputs.dry_run import Demands, dry_run
from sgmcmc.inputs.options import Options
from sgmcmc.inputs.parameters import read_preconditioner
from sgmcmc.inputs.parts import need_unmixed, one_or_each, read_stepsizes, read_turns
from sgmcmc.inputs.support import find_support, finite_priors, need_precision, overflows
from sgmcmc.inputs.user_model import UserModel
from sgmcmc.interrupts import passed_on
from sgmcmc.minibatches import Minibatches
from sgmcmc.model.geometry import root_of
from sgmcmc.model.target import Target, untempered
from sgmcmc.plan.fixed_nodes import with_nodes_at_mode
from sgmcmc.plan.joint_mode import uncentered
from sgmcmc.plan.mode import DENSE_OF_PREDICTORS, DENSE_UP_TO
from sgmcmc.plan.objective import is_of_predictors
from sgmcmc.plan.plan import WHOLE_UP_TO, GivenConstants, Knowledge, Plan, make_plan
from sgmcmc.plan.prediction import need_law_in_turn
from sgmcmc.plan.recursion import LinearRecursion, has_thermostat
from sgmcmc.plan.stored_constants import tune_once
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run_tuned
from sgmcmc.run.request import (
    AUTO,
    MINIBATCHES,
    PRECONDITIONERS,
    Model,
    Request,
    brief,
    center_is_open,
    is_one_of,
    on_machines,
    open_arguments,
    prepared,
)
from sgmcmc.run.sampler import make_sampler
from sgmcmc.run.stepwise import StepwiseSampler


@dataclass(frozen=True)
class _Settings:
    # Whose extreme draws are tried first, one by one without a graph.
    few_coordinates: int = 12
    # From the normal approximation at which the log-prior is evaluated.
    support_draws: int = 256
    share_outside: float = 0.01  # share of them at which it need not be finite


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Chosen:
    """A request with the choices made for it.

    Attributes:
        request: Request with all arguments; starting values and center may be open.
        plan: Constants that were chosen.
    """

    request: Request
    plan: Plan

    @property
    def target(self) -> Target:
        """Log posterior, without a preconditioner."""
        return self.request.read.target

    @property
    def data(self) -> Data:
        """Dataset."""
        return self.request.read.data

    @property
    def seed(self) -> int:
        """Seed."""
        return self.request.read.seed

    def completed(self, plan: Plan | None = None, params: Any = None) -> Request:
        """Return the request with every constant of the plan.

        Args:
            plan: Another plan for the request.
            params: Starting values of the chains; by default the mode if it is the center of
                control variates, else the user's.
        """
        plan, request = plan or self.plan, self.request
        gradient = request.gradient
        center = self.target.space.params(plan.mode.position, self.target.dtype)
        if is_one_of(gradient, (AUTO,)) and plan.given.takes_all(
            self.data.size, self.target.row_terms
        ):
            gradient = FullGradient()
        elif center_is_open(gradient):
            control_variate = (
                gradient
                if isinstance(gradient, ControlVariate)
                else ControlVariate(AUTO)
            )
            gradient = replace(control_variate, center_at=center)
            params = center if params is None else params
        minibatches = request.keywords.get("minibatches")
        if is_one_of(minibatches, MINIBATCHES):
            minibatches = plan.minibatches
        preconditioner = request.keywords.get("preconditioner")
        if is_one_of(preconditioner, PRECONDITIONERS):
            preconditioner = plan.preconditioner
        whole = (
            getattr(gradient, "whole_dataset", False) or gradient == FullGradient.name
        )
        return request.tuned(
            params,
            dynamics=Underdamped()
            if is_one_of(request.dynamics, (AUTO,))
            else request.dynamics,
            gradient=gradient,
            minibatch_size=None if whole else plan.minibatch_size,
            stepsize=plan.stepsize
            if is_one_of(request.stepsize, (AUTO,))
            else request.stepsize,
            minibatches=minibatches,
            preconditioner=preconditioner,
            mode=plan.mode,
            plan=replace(plan, meter=None),  # which holds the data
        )


@dataclass(frozen=True)
class BoundRequest:
    """A request that was read, with its bound parts.

    Attributes:
        request: Request, its model tried.
        dynamics: Dynamics, bound.
        in_turn: Places of parameters that move one after the other; ``None`` if they move together.
    """

    request: Request
    dynamics: Dynamics
    in_turn: tuple[slice, ...] | None = None


def bind_request(request: Request) -> BoundRequest:
    """Check the user's arguments, as far as nothing has been chosen.

    Raises:
        ValueError, TypeError: An argument is wrong, or cannot be chosen; the message names it.
    """
    request = prepared(request)
    model, options, target = request.read, request.read.options, request.read.target
    dynamics_or_name = (
        Underdamped() if is_one_of(request.dynamics, (AUTO,)) else request.dynamics
    )
    dynamics = parts.read_dynamics(dynamics_or_name).bind(target.space)
    need_unmixed(options.updates, options.preconditioner, target.space)
    blocks = read_turns(options.updates, dynamics, target)
    in_turn = None if blocks is None else blocks.slices
    _check_can_choose(request, options, dynamics, in_turn)
    size = model.data.size
    # Leverage needs the terms of single observations.
    terms = is_one_of(options.minibatches, MINIBATCHES) and size > WHOLE_UP_TO
    in_parts = size > WHOLE_UP_TO
    values = None if request.previous is None else request.previous.values
    if values is None:
        tried = UserModel(target, model.data, min(500, size))
        values = dry_run(tried, model.starts, Demands(terms, in_parts))
    request = replace(request, model=replace(model, values=values))
    return BoundRequest(request, dynamics, in_turn)


def has_dense_information(model: Model) -> bool:
    """Return whether the information at a mode can be made and inverted."""
    target = model.target
    if target.size <= DENSE_UP_TO:
        return True
    start = model.starts[0].astype(np.float64)
    return target.size <= DENSE_OF_PREDICTORS and is_of_predictors(
        target, model.data, start
    )


def choose(bound: BoundRequest, tolerance: float, verbose: bool) -> Chosen:
    """Choose the open constants of a request.

    Args:
        bound: Request, read.
        tolerance: Largest relative error of a posterior SD.
        verbose: Whether to show progress.
    """
    request, model = bound.request, bound.request.read
    target = model.target
    if not has_dense_information(model):
        raise ValueError(
            f"`{open_arguments(request)[0]}` must be given, and cannot be chosen here: there are "
            f"{target.size} coordinates, more than {DENSE_UP_TO}. Only sample() without any "
            "constant goes beyond."
        )
    constants = _constants(bound, tolerance)
    with Progress(request.method, 1, verbose) as progress:
        if request.groups is not None:
            progress.describe("finding the mode")
            if is_one_of(model.options.preconditioner, PRECONDITIONERS):
                request = uncentered(request, model.seed)
            model, target = request.read, request.read.target
        start = model.starts[0].astype(np.float64)
        at_mode = with_nodes_at_mode(request, start, model.seed)
        if at_mode is not None:
            nodes, packs = at_mode.request.fixed_nodes, at_mode.request.read
            assert nodes is not None
            knowledge = Knowledge(at_mode.mode, far=not nodes.near_center_only)
            plan = make_plan(packs, start, constants, progress.describe, knowledge)
            _check_precision_and_support(packs.target, packs.data, plan)
            if plan.surveyed is None or not plan.surveyed.several:
                progress.advance(1)
                return Chosen(at_mode.request, plan)
        earlier = None if request.previous is None else request.previous.plan
        knowledge = Knowledge(None, request.previous_hessian, earlier)
        plan = make_plan(model, start, constants, progress.describe, knowledge)
        _check_precision_and_support(target, model.data, plan)
        progress.advance(1)
    return Chosen(request, plan)


def _check_precision_and_support(target: Target, data: Data, plan: Plan) -> None:
    """Raise an error if chains around the mode would leave what functions or float32 can do."""
    mode = plan.mode
    if np.isfinite(mode.information.covariance).all():
        need_precision(target, data, mode.position, mode.information.covariance)
        need_support(target, plan)


def need_support(target: Target, plan: Plan) -> None:
    """Raise an error if chains by gradients would leave the support of the prior.

    They do if a part of the normal approximation at the mode lies outside of it, along a parameter
    without a bijector.

    Args:
        target: Log posterior, without a preconditioner.
        plan: Plan of the chains.
    """
    log_prior, space, mode = untempered(target.log_prior), target.space, plan.mode
    plain = {name for name, geometry in space.geometries.items() if geometry.in_place}
    if log_prior is None or not plain or space.joint is not None:
        return
    root = root_of(mode.information.covariance)
    steps = (
        np.random.default_rng(0).standard_normal((_SETTINGS.support_draws, target.size))
        @ root.T
    )
    points = np.concatenate([mode.position[np.newaxis], mode.position + steps])
    points = points.astype(target.dtype.as_numpy_dtype)
    if target.size <= _SETTINGS.few_coordinates:
        # An end that leaves out enough of the draws leaves out the first or last of a coordinate.
        extremes = points[np.unique([points.argmin(0), points.argmax(0)])]
        params = [space.constrain(tf.constant(point)) for point in extremes]
        with contextlib.suppress(
            RuntimeError, TypeError, ValueError, tf.errors.OpError
        ):
            # A prior may be one for graphs alone.
            if all(np.isfinite(float(log_prior(dict(values)))) for values in params):
                return
    constrain = trace(lambda u: vectorized_map(space.constrain, u), tf.constant(points))
    draws = {
        name: tensor.numpy() for name, tensor in constrain(tf.constant(points)).items()
    }
    is_finite = finite_priors(log_prior, draws)
    outside = 1.0 - float(is_finite[1:].mean())
    if outside <= _SETTINGS.share_outside or not is_finite.any():
        return
    inside, out = (
        {k: array[where][0] for k, array in draws.items()}
        for where in (is_finite, ~is_finite)
    )
    support = find_support(log_prior, inside, out)
    if support is None or support.name not in plain or support.bijector is None:
        return
    if not overflows(log_prior, support, inside, out):
        raise ValueError(
            f"`log_prior` is not finite where {support.label} is {support.interval}, and "
            f"{outside:.2g} of the normal approximation to the posterior lies there. Gradients do "
            f"not keep a chain from crossing the end. {support.advice}"
        )


def complete(request: Request, verbose: bool, tolerance: float = 0.05) -> Request:
    """Return a request without open choices; a store keeps the choices."""
    if not open_arguments(request):
        return request
    bound = bind_request(request)

    def tune(request: Request) -> Request:
        return choose(bound, tolerance, verbose).completed()

    if bound.request.read.options.store is not None:
        return tune_once(bound.request, tune, tolerance)
    return tune(bound.request)


@brief
@on_machines
def run(request: Request, n_iters: Any, verbose: Any) -> Samples:
    """Make the user's sampler, run it, and return its draws.

    Args:
        request: Request of the user.
        n_iters: Number of iterations after burn-in.
        verbose: Whether to show progress.

    Raises:
        ValueError, TypeError: An argument is wrong; the message names it.
        DivergenceError: A chain became NaN or infinite.
    """
    verbose = checks.flag("verbose", verbose)
    return run_tuned(complete(request, verbose), n_iters, verbose)


@brief
def set_up(request: Request, verbose: Any) -> StepwiseSampler:
    """Return the user's sampler, to run step by step.

    Args:
        request: Request of the user.
        verbose: Whether to show the progress of the phases that ``init_sess`` runs first.
    """
    verbose = checks.flag("verbose", verbose)
    with passed_on():
        return StepwiseSampler(make_sampler(complete(request, verbose)), verbose)


def _check_can_choose(
    request: Request,
    options: Options,
    dynamics: Dynamics,
    in_turn: tuple[slice, ...] | None,
) -> None:
    name = (open_arguments(request) or ["stepsize"])[0]
    reason = None
    if options.gibbs is not None:
        reason = "latent variables are drawn by `gibbs`"
    elif isinstance(dynamics, SimplexDynamics):
        reason = f"{type(dynamics).__name__} moves {dynamics.moves}"
    elif options.manifolds:
        reason = f"{next(iter(options.manifolds))!r} is on a manifold"
    elif isinstance(dynamics, ExactDynamics):
        reason = f"constants of {type(dynamics).__name__} are chosen by its own function alone"
    if reason is not None:
        raise ValueError(
            f"`{name}` must be given, and cannot be chosen here: {reason}."
        )
    if "stepsize" in open_arguments(request) and in_turn is not None:
        try:
            need_law_in_turn(dynamics, in_turn[-1].stop)
        except ValueError as error:
            raise ValueError(
                f"`updates`: {error} Give a `stepsize`, or use updates='joint'."
            ) from None
    elif "stepsize" in open_arguments(request) and not has_thermostat(dynamics):
        try:
            LinearRecursion(dynamics, 0.1)
        except ValueError as error:
            raise ValueError(
                f"`dynamics`: {error} Give a `stepsize`, or use 'underdamped'."
            ) from None


def _constants(bound: BoundRequest, tolerance: float) -> GivenConstants:
    """Return the user's choices, checked."""
    request, model = bound.request, bound.request.read
    options = model.options
    gradient = None
    if not center_is_open(request.gradient):
        gradient = parts.read_gradient(request.gradient, bound.dynamics)
    minibatches: Minibatches | None = None
    if not is_one_of(options.minibatches, MINIBATCHES):
        minibatches = parts.read_minibatches(options.minibatches, options.replace)
    size = None
    if (
        not is_one_of(request.minibatch_size, (AUTO,))
        and request.minibatch_size is not None
    ):
        size = checks.minibatch_rows(
            "minibatch_size", request.minibatch_size, model.data.size
        )
    stepsize: Any = None
    if not is_one_of(request.stepsize, (AUTO,)):
        layout = model.target.space.layout
        stepsize = one_or_each(
            read_stepsizes("stepsize", request.stepsize, layout).at(1, 1)[0], layout
        )
    preconditioner = options.preconditioner
    if is_one_of(preconditioner, (AUTO,)):
        preconditioner = "dense"
    elif not is_one_of(preconditioner, PRECONDITIONERS):
        space, start = model.target.space, model.starts[0]
        preconditioner = read_preconditioner(preconditioner, space, start) or "none"
    return GivenConstants(
        bound.dynamics,
        gradient,
        minibatches,
        size,
        preconditioner,
        stepsize,
        tolerance,
        bound.in_turn,
    )
