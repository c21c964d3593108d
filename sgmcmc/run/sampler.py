"""The sampler: target, data and parts, checked and put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.data.dataset import Data
from sgmcmc.dynamics import Dynamics, ExactDynamics
from sgmcmc.engine.recorder import Recorder
from sgmcmc.gradients import WholeData
from sgmcmc.gradients.latents import Latents
from sgmcmc.graphs.compiler import Compiler
from sgmcmc.graphs.tracing import quiet_start
from sgmcmc.groups.model import Structure, read_groups
from sgmcmc.inputs import parts
from sgmcmc.inputs.additive import need_sum_of_pieces
from sgmcmc.inputs.arrays import read_columns, read_params
from sgmcmc.inputs.dry_run import dry_run
from sgmcmc.inputs.geometries import read_geometries
from sgmcmc.inputs.kept_functions import try_reductions, try_test_functions
from sgmcmc.inputs.latents import read_latents
from sgmcmc.inputs.options import Options, check_names, read_options
from sgmcmc.inputs.preconditioner import preconditioner_setting, read_preconditioner
from sgmcmc.minibatches import RowDraws
from sgmcmc.run.phases import Phase, make_phases
from sgmcmc.run.settings import of_options, paths, versions
from sgmcmc.target.geometry import Space
from sgmcmc.target.target import LogLik, LogPrior, Target


@dataclass(frozen=True)
class Request:
    """What a user asks for, as it was given.

    Attributes:
        function: name of the function that was called.
        method: what the sampler is called in the settings and beside the progress bar.
        log_lik: the log-likelihood.
        dataset: the dataset.
        params: the starting values.
        log_prior: the log-prior, or ``None``.
        dynamics: a name or an object.
        gradient: a name or an object.
        minibatch_size: a proportion or a number; ``None`` where the gradient knows.
        stepsize: of the chain.
        seed: a whole number, or ``None``.
        keywords: the keyword arguments that every sampler has.
        stepwise: whether the user runs the chain, and keeps the draws.
        data: the dataset as it was read, if it was.
        groups: the groups of the model, if it has any: ``log_lik`` and ``dataset`` are then those
            of packs of groups.
    """

    function: str
    method: str
    log_lik: LogLik
    dataset: Mapping[str, Any]
    params: Any
    log_prior: LogPrior | None
    dynamics: Any
    gradient: Any
    minibatch_size: Any
    stepsize: Any
    seed: int | None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    stepwise: bool = False
    data: Data | None = None
    groups: Structure | None = None


def with_groups(request: Request) -> Request:
    """Return a request whose ``groups`` have become log-likelihood, dataset and parameters.

    Graphs of groups take XLA longer to compile than it gains in a chain of usual length.
    """
    wanted = request.keywords.get("groups")
    if wanted is None:
        return request
    keywords = {"jit_compile": False, **request.keywords, "groups": None}
    model = read_groups(
        wanted,
        request.log_lik,
        request.dataset,
        request.params,
        request.log_prior,
        checks.floating_dtype("dtype", keywords.get("dtype", tf.float32)),
        keywords.get("integers", ()),
    )
    return replace(
        request,
        log_lik=model.log_lik,
        dataset=model.dataset,
        params=model.params,
        log_prior=model.log_prior,
        keywords=keywords,
        groups=model.structure,
    )


@dataclass(frozen=True)
class Sampler:
    """A sampler that is ready to run.

    Attributes:
        request: what the user asked for.
        target: what is sampled.
        data: the dataset.
        draws: how the rows of a minibatch are drawn.
        latents: draws latent variables, or ``None``.
        phases: the runs of the engine, the chain last.
        starts: starting positions, flat, one for each chain.
        seed: the seed, or the entropy drawn in its place.
        dry_run: what the user's functions returned at the starting values.
        tuning: the constants of dynamics and gradient, as the user gave them.
        options: the keyword arguments.
        compiler: compiles the chain's functions.
        settings: everything above that a person would want to see with the draws.
    """

    request: Request
    target: Target
    data: Data
    draws: RowDraws
    latents: Latents | None
    phases: tuple[Phase, ...]
    starts: list[np.ndarray]
    seed: int
    dry_run: dict[str, float]
    tuning: dict[str, Any]
    options: Options
    compiler: Compiler
    settings: dict[str, Any]

    @property
    def chain(self) -> Phase:
        """The phase whose draws are kept."""
        return self.phases[-1]

    def whole(self) -> WholeData:
        """Return the target with the whole dataset at hand."""
        return whole_data(self.target, self.data, self.draws, self.latents, self.seed, self.starts)


def read_model(request: Request) -> tuple[Options, list[dict[str, np.ndarray]]]:
    """Check the user's functions, and return the checked keyword arguments and starting values."""
    quiet_start()
    checks.function("log_lik", request.log_lik, "of `params` and `dataset`")
    if request.log_prior is not None:
        checks.function("log_prior", request.log_prior, "of `params`, or None")
    options = read_options(request.function, request.keywords, request.stepwise)
    params = read_params(request.params, options.n_chains, options.dtype)
    check_names(options, list(params[0]))
    return options, params


def make_sampler(request: Request) -> Sampler:
    """Check everything that the user handed over and put the sampler together."""
    options, params = read_model(request)
    used = parts.read_parts(request.dynamics, request.gradient, options)
    dynamics, gradient = used.dynamics, used.gradient
    seed = checks.seed_number("seed", request.seed)
    target, starts = make_target(request, options, dynamics, params)
    phases = make_phases(
        request.method, request.stepsize, dynamics, gradient, target, options.updates,
        options.burn_in,
    )  # fmt: skip
    data = request.data or read_columns(request.dataset, options)
    draws = parts.bind_minibatches(used.minibatches, gradient, request.minibatch_size, data.size)
    parts.need_known_noise(phases[-1].dynamics, gradient, options.gibbs, draws.size)
    latents = read_latents(options.gibbs, options.latents, data, options.dtype)
    values = dry_run(target, data, draws.size, starts, latents, used.need_terms(draws))
    if isinstance(dynamics, ExactDynamics):
        need_sum_of_pieces(target, data, starts[0])
    if len(starts) == 1:
        starts *= options.n_chains or 1
    whole = whole_data(target, data, draws, latents, seed, starts)
    recorder = _make_recorder(request, options, target, starts[0], dynamics)
    constants = {**parts.constants(gradient), **parts.constants(dynamics)}
    sampler = Sampler(
        request=request,
        target=target,
        data=data,
        draws=draws,
        latents=latents,
        phases=tuple(phase.bound(whole, recorder) for phase in phases),
        starts=starts,
        seed=seed,
        dry_run=values,
        tuning={**constants, "stepsize": request.stepsize},
        options=options,
        compiler=Compiler(_may_compile(request, dynamics, data, options.jit_compile)),
        settings={},
    )
    return replace(sampler, settings=_settings(sampler, used))


def _settings(sampler: Sampler, used: parts.Parts) -> dict[str, Any]:
    """Return what a person would want to see of a sampler with its draws."""
    space = sampler.target.space
    return {
        **{name: parts.json_value(value) for name, value in sampler.tuning.items()},
        "method": sampler.request.method,
        "N": sampler.data.size,
        "n": sampler.draws.size,
        "seed": sampler.seed,
        **used.to_json(),
        "preconditioner": preconditioner_setting(space.preconditioner),
        "own_coordinates": space.own_coordinates(),
        **of_options(sampler.options),
        "groups": None if sampler.request.groups is None else sampler.request.groups.to_json(),
        "paths": paths(),
        "versions": versions(),
    }


def whole_data(
    target: Target,
    data: Data,
    draws: RowDraws,
    latents: Latents | None,
    seed: int,
    starts: list[np.ndarray],
) -> WholeData:
    """Return the target with the whole dataset at hand."""
    return WholeData(target, data, draws.size, latents, seed, chains=len(starts))


def make_target(
    request: Request, options: Options, dynamics: Dynamics, params: list[dict[str, np.ndarray]]
) -> tuple[Target, list[np.ndarray]]:
    """Return what is sampled, and the positions where chains start."""
    dtype = options.dtype
    geometries = read_geometries(options.bijectors, options.manifolds, dynamics, params, dtype)
    space = Space({name: value.shape for name, value in params[0].items()}, geometries)
    origin = space.start(params[0], dtype)
    preconditioner = read_preconditioner(options.preconditioner, space, origin)
    space = space.preconditioned(preconditioner)
    starts = [space.start(start, dtype) for start in params]
    return Target(request.log_lik, request.log_prior, space, dtype), starts


def _make_recorder(
    request: Request, options: Options, target: Target, start: np.ndarray, dynamics: Dynamics
) -> Recorder:
    """Return what is written down of the chain's draws."""
    if request.stepwise:
        return Recorder(target, stepwise=True)
    names = target.space.layout.names
    if isinstance(options.store_params, bool):
        stored = names if options.store_params else ()
        with_gradients = names
    else:
        stored = with_gradients = tuple(n for n in names if n in options.store_params)
    scaled = target.space.scaled_names() if getattr(dynamics, "store_unnormalised", False) else ()
    return Recorder(
        target,
        options.burn_in,
        options.thin,
        stored,
        with_gradients if options.store_gradients else (),
        options.test_functions,
        try_test_functions(options.test_functions, target, start),
        try_reductions(options.reductions, target, start),
        tuple(name for name in stored if name in scaled),
    )


def _may_compile(
    request: Request, dynamics: Dynamics, data: Data, jit_compile: bool | None
) -> bool | None:
    if dynamics.compilable and not data.sparse:
        return jit_compile
    if jit_compile and data.sparse:
        raise ValueError(
            "`jit_compile=True`: XLA compiles no operations on sparse tensors, and `dataset` holds "
            "a sparse matrix. Leave it at None."
        )
    if jit_compile:
        raise ValueError(
            f"`jit_compile=True`: {request.method} draws from distributions, such as gamma and "
            "Poisson, which XLA cannot compile. Leave it at None."
        )
    return False
