"""The sampler: target, data and parts, checked and assembled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import libraries
from sgmcmc._version import __version__
from sgmcmc.data import native
from sgmcmc.data.dataset import Data, shares_memory
from sgmcmc.data.random_numbers import RunPhase
from sgmcmc.dynamics import SGD, Dynamics, ExactDynamics
from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.iteration import UpdateOrder
from sgmcmc.engine.recorder import Recorder
from sgmcmc.gradients import Gradient, MinibatchGradient, WholeData
from sgmcmc.gradients.latents import Latents
from sgmcmc.graphs import compiler
from sgmcmc.graphs.compiler import Compiler
from sgmcmc.groups.marginal import Marginal, has_few_operations
from sgmcmc.inputs import parts
from sgmcmc.inputs.dry_run import Demands, dry_run, try_reductions, try_test_functions
from sgmcmc.inputs.options import Options
from sgmcmc.inputs.parameters import (
    preconditioner_setting,
    read_latents,
    read_preconditioner,
)
from sgmcmc.inputs.parts import (
    need_one_stepsize,
    one_or_each,
    read_scaled,
    read_stepsizes,
    read_turns,
)
from sgmcmc.inputs.user_model import UserModel
from sgmcmc.minibatches import RowDraws
from sgmcmc.model.target import Target
from sgmcmc.model.whole_posterior import is_in_pieces
from sgmcmc.run.request import Request, prepared


@dataclass(frozen=True)
class Phase:
    """A run of the engine with its own dynamics, gradient, stepsizes and length.

    Attributes:
        kind: Kind of the phase, which names its random numbers and its checkpoints.
        label: Label next to its progress.
        argument: User's argument that its stepsizes came from.
        dynamics: Dynamics of the phase.
        gradient: Gradient estimator.
        stepsizes: Stepsizes of the phase.
        n_iters: Number of its iterations; that of the chain is known to the driver.
        recorder: Recorder of the draws.
        turns: Order in which parameters move; ``None`` if they move together.
    """

    kind: RunPhase
    label: str
    argument: str
    dynamics: Dynamics
    gradient: Gradient
    stepsizes: Stepsizes
    n_iters: int = 0
    recorder: Recorder | None = None
    turns: UpdateOrder | None = None

    def for_rows(self, rows: int, draws: RowDraws) -> Phase:
        """Return the phase with dynamics for the rows and the way they are drawn."""
        unseen = parts.unseen(draws, rows)
        return replace(self, dynamics=self.dynamics.for_rows(rows, draws.size, unseen))

    def bound(self, whole: WholeData, recorder: Recorder) -> Phase:
        """Return the phase with its parts bound to target and data.

        Args:
            whole: Target with the whole dataset.
            recorder: Recorder of the chain; other phases record nothing.
        """
        is_chain = self.kind is RunPhase.CHAIN
        return replace(
            self,
            gradient=self.gradient.bind(whole),
            recorder=recorder if is_chain else Recorder(whole.target),
        )


def _make_phases(
    request: Request, used: parts.SamplerParts, target: Target
) -> tuple[Phase, ...]:
    """Return the phases of a sampler: a search, if the gradient needs one, and the chain.

    In a search, parameters move together.
    """
    method, stepsize, options = request.method, request.stepsize, request.read.options
    burn_in = options.burn_in
    space = target.space
    phases: list[Phase] = []
    dynamics = used.dynamics.after_burn_in(burn_in)
    dynamics, stepsize = read_scaled("stepsize", stepsize, dynamics, burn_in)
    stepsizes = read_stepsizes("stepsize", stepsize, space.layout)
    need_one_stepsize(stepsizes, space)
    search = used.gradient.search()
    if search is not None:
        climbs, opt_stepsize = read_scaled("opt_stepsize", search.stepsize, SGD(), None)
        phases.append(
            Phase(
                RunPhase.MODE,
                f"{method}, mode-finding",
                "opt_stepsize",
                climbs.bind(space),
                MinibatchGradient(),
                read_stepsizes("opt_stepsize", opt_stepsize, space.layout),
                search.n_iters,
            )
        )
    bound = dynamics.bind(space)
    bound.check_stepsize(np.asarray(one_or_each(stepsizes.at(1, 1)[0], space.layout)))
    turns = read_turns(options.updates, bound, target)
    chain = Phase(
        RunPhase.CHAIN,
        method,
        "stepsize",
        bound,
        used.gradient,
        stepsizes,
        turns=turns,
    )
    return (*phases, chain)


@dataclass(frozen=True)
class Sampler:
    """A sampler that is ready to run.

    Attributes:
        request: Request of the user.
        target: Target distribution.
        data: Dataset.
        draws: Way of drawing the rows of a minibatch.
        latents: Function that draws latent variables, or ``None``.
        phases: Runs of the engine, the chain last.
        starts: Starting positions, flat, one for each chain.
        seed: Seed, or the entropy drawn in its place.
        dry_run: Values of the user's functions at the starting values.
        tuning: Constants of dynamics and gradient, as the user gave them.
        options: Keyword arguments.
        compiler: Compiler of the chain's functions.
        settings: Settings stored with the draws.
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
        """Return the target with the whole dataset."""
        return WholeData(
            self.target,
            self.data,
            self.draws.size,
            self.latents,
            self.seed,
            chains=len(self.starts),
        )


def make_sampler(request: Request) -> Sampler:
    """Check the user's input and assemble the sampler."""
    request = prepared(request)
    model, options = request.read, request.read.options
    used = parts.read_parts(request.dynamics, request.gradient, options)
    dynamics, gradient, data = used.dynamics, used.gradient, model.data
    preconditioner = read_preconditioner(
        options.preconditioner, model.target.space, model.starts[0]
    )
    target, starts = model.preconditioned(preconditioner)
    phases = _make_phases(request, used, target)
    draws = parts.bind_minibatches(
        used.minibatches, gradient, request.minibatch_size, data.size
    )
    parts.need_known_noise(phases[-1].dynamics, gradient, options.gibbs, draws)
    phases = (*phases[:-1], phases[-1].for_rows(data.size, draws))
    latents = read_latents(options.gibbs, options.latents, data, options.dtype)
    values = model.values
    # A store identifies a chain by these values.
    if values is None or options.store is not None:
        exact = isinstance(dynamics, ExactDynamics)
        in_parts = is_in_pieces(data) if exact else None
        demands = Demands(used.need_terms(draws), in_parts, corrected=exact)
        tried = UserModel(target, data, draws.size, latents)
        values = dry_run(tried, starts, demands)
    if len(starts) == 1:
        starts *= options.n_chains or 1
    recorder = _make_recorder(request, options, target, starts[0], dynamics)
    constants = {**parts.constants(gradient), **parts.constants(dynamics)}
    sampler = Sampler(
        request=request,
        target=target,
        data=data,
        draws=draws,
        latents=latents,
        phases=phases,
        starts=starts,
        seed=model.seed,
        dry_run=values,
        tuning={**constants, "stepsize": request.stepsize},
        options=options,
        compiler=Compiler(_may_compile(request, dynamics, data, options.jit_compile)),
        settings={},
    )
    whole = sampler.whole()
    bound = tuple(phase.bound(whole, recorder) for phase in phases)
    sampler = replace(sampler, phases=bound)
    return replace(sampler, settings=_settings(sampler, used))


def _settings(sampler: Sampler, used: parts.SamplerParts) -> dict[str, Any]:
    space, data, groups = sampler.target.space, sampler.data, sampler.request.groups
    levels = {**data.levels, **({} if groups is None else groups.levels)}
    return {
        **{name: parts.json_value(value) for name, value in sampler.tuning.items()},
        "method": sampler.request.method,
        "N": data.size,
        "n": sampler.draws.size,
        "seed": sampler.seed,
        **used.to_json(),
        "preconditioner": preconditioner_setting(space.preconditioner),
        "own_coordinates": space.own_coordinates(),
        "weights": sampler.chain.stepsizes.to_json(),
        **_options(sampler.options),
        "groups": None if groups is None else groups.to_json(),
        "levels": {
            name: levels_of_column.to_json()
            for name, levels_of_column in levels.items()
        },
        "labels": {} if groups is None else groups.labels_to_json(),
        "indices": [  # columns of integers that are not numbers of levels
            name
            for name, column in data.columns.items()
            if column.dtype.kind in "iu" and name not in data.levels
        ],
        "paths": {  # which way the engine goes if there is a fast one that may be missing
            "graph calls": "direct" if compiler.calls_directly() else "public",
            "native code": "on" if native.available() else "off",
            "blocks": "shared" if shares_memory() else "copied",
        },
        "versions": {
            "sgmcmc": __version__,
            "tensorflow": tf.__version__,
            "tensorflow_probability": libraries.probability_version(),
            "numpy": np.__version__,
        },
    }


def _options(options: Options) -> dict[str, Any]:
    stored = options.store_params
    manifolds = {name: repr(manifold) for name, manifold in options.manifolds.items()}
    return {
        "manifolds": manifolds,
        "n_chains": options.n_chains,
        "burn_in": options.burn_in,
        "thin": options.thin,
        "store_gradients": options.store_gradients,
        "test_functions": list(options.test_functions),
        "reductions": list(options.reductions),
        "store_params": stored if isinstance(stored, bool) else list(stored),
        "updates": options.updates,
        "temperature": options.temperature,
        "bijectors": {
            name: bijector.name for name, bijector in options.bijectors.items()
        },
        "dtype": options.dtype.name,
        "integers": list(options.integers),
        "storage": options.storage,
        "jit_compile": options.jit_compile,
        "gibbs": options.gibbs is not None,
        "latents": list(options.latents),
    }


def _make_recorder(
    request: Request,
    options: Options,
    target: Target,
    start: np.ndarray,
    dynamics: Dynamics,
) -> Recorder:
    if request.stepwise:
        return Recorder(target, stepwise=True)
    names = target.space.layout.names
    if isinstance(options.store_params, bool):
        stored = names if options.store_params else ()
        with_gradients = names
    else:
        stored = with_gradients = tuple(n for n in names if n in options.store_params)
    scaled = (
        target.space.scaled_names()
        if getattr(dynamics, "store_unnormalized", False)
        else ()
    )
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
        positions=getattr(dynamics, "metric", None) is not None,
    )


def _may_compile(
    request: Request, dynamics: Dynamics, data: Data, jit_compile: bool | None
) -> bool | None:
    """Return whether XLA compiles the chain; ``None`` tries.

    Most graphs of groups take it longer to compile than it gains in a chain of usual length.
    """
    if dynamics.compilable and not data.sparse:
        marginal = request.log_lik
        if jit_compile is not None or not isinstance(marginal, Marginal):
            return jit_compile
        # Chains of a closed form are quick without XLA if there are few rows.
        rows = data.size * marginal.row_terms
        if marginal.groups.normal and rows < 1000:
            return False
        return None if has_few_operations(data.slice(0, 1)) else False
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
