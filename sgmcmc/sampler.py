"""The sampler: a model, data, dynamics and an estimator, checked and put together.

The one-call functions are thin faces of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from sgmcmc import cores
from sgmcmc.compiler import Compiler
from sgmcmc.data import Data
from sgmcmc.dynamics import Dynamics
from sgmcmc.inputs import numbers
from sgmcmc.inputs.arrays import read_dataset, read_params
from sgmcmc.inputs.functions import try_reductions, try_test_functions
from sgmcmc.inputs.latents import read_latents
from sgmcmc.inputs.options import Options, check_names, read_options
from sgmcmc.inputs.simplex import SimplexArguments, read_simplex
from sgmcmc.inputs.trial import make_model, try_model
from sgmcmc.inputs.tuning import read_stepsizes
from sgmcmc.latents import Latents
from sgmcmc.minibatches import Minibatches, make_minibatches
from sgmcmc.model import LogLik, LogPrior, Model
from sgmcmc.recorder import Recorder
from sgmcmc.schedules import Stepsizes
from sgmcmc.tracing import quiet_start

PLAIN = object()
"""In place of an ``opt_stepsize``: the gradients are plain minibatch estimates."""


@dataclass(frozen=True)
class Target:
    """What every sampler is handed first: the model and the data.

    Attributes:
        log_lik: the user's log-likelihood.
        dataset: the user's dataset.
        params: the user's starting values.
        log_prior: the user's log-prior, or ``None``.
        minibatch_size: a proportion or a number.
    """

    log_lik: LogLik
    dataset: Mapping[str, Any]
    params: Any
    log_prior: LogPrior | None
    minibatch_size: float


@dataclass(frozen=True)
class Sampler:
    """A sampler that is ready to run.

    Attributes:
        method: name of the function that made it.
        model: the model.
        data: the dataset.
        minibatches: the data stream.
        latents: draws latent variables, or ``None``.
        dynamics: how the state moves.
        stepsizes: the stepsizes of the chain.
        opt_stepsizes: the stepsizes of the mode-finding; ``None`` for plain minibatch gradients.
        starts: starting positions, flat and unconstrained, one for each chain.
        recorder: what is written down of each draw.
        seed: the seed, or the entropy drawn in its place.
        seed_given: whether the user chose it.
        trial: what the user's functions returned at the starting values.
        target: what the user handed over.
        tuning: the method's tuning constants, as the user gave them.
        options: the keyword arguments.
        compiler: compiles the chain's functions.
        settings: everything above that a person would want to see with the draws.
    """

    method: str
    model: Model
    data: Data
    minibatches: Minibatches
    latents: Latents | None
    dynamics: Dynamics
    stepsizes: Stepsizes
    opt_stepsizes: Stepsizes | None
    starts: list[np.ndarray]
    recorder: Recorder
    seed: int
    seed_given: bool
    trial: dict[str, float]
    target: Target
    tuning: dict[str, Any]
    options: Options
    compiler: Compiler
    settings: dict[str, Any]


def make_sampler(
    method: str,
    target: Target,
    stepsize: Any,
    make_dynamics: Callable[[Model], Dynamics],
    seed: int | None,
    keywords: Mapping[str, Any],
    *,
    opt_stepsize: Any = PLAIN,
    tuning: Mapping[str, Any] | None = None,
    simplex: SimplexArguments | None = None,
) -> Sampler:
    """Check everything that the user handed over and put the sampler together.

    Args:
        method: name of the user's function.
        target: the model and the data.
        stepsize: the user's ``stepsize``.
        make_dynamics: returns the dynamics for a model.
        seed: the user's ``seed``.
        keywords: the user's keyword arguments.
        opt_stepsize: the user's ``opt_stepsize``; ``PLAIN`` for plain minibatch gradients.
        tuning: the method's tuning constants, to be shown in the settings.
        simplex: what the user said of the points of the simplex, for methods that have such.
    """
    quiet_start()
    numbers.function("log_lik", target.log_lik, "of `params` and `dataset`")
    if target.log_prior is not None:
        numbers.function("log_prior", target.log_prior, "of `params`, or None")
    options = read_options(method, keywords)
    stepwise = method.endswith("_setup")
    method = method.removesuffix("_setup")
    params = read_params(target.params, options.n_chains, options.dtype)
    names = list(params[0])
    check_names(options, names)
    stepsizes = read_stepsizes("stepsize", stepsize, names)
    opt = None if opt_stepsize is PLAIN else read_stepsizes("opt_stepsize", opt_stepsize, names)
    entropy = numbers.seed_number("seed", seed)
    data = read_dataset(target.dataset, options.dtype)
    rows = numbers.minibatch_rows("minibatch_size", target.minibatch_size, data.size)
    latents = read_latents(options.gibbs, options.latents, data, options.dtype)
    alpha, theta0 = read_simplex(simplex, params, options.dtype)
    model = make_model(
        target.log_lik, target.log_prior, params, options.bijectors, options.dtype, alpha
    )
    dynamics = make_dynamics(model)
    starts = [model.unconstrain({**start, **theta0}) for start in params]
    trial = try_model(model, data, rows, starts, latents)
    if len(starts) == 1:
        starts *= options.n_chains or 1
    # With several chains blocks take more memory than they spare time.
    ahead = len(starts) == 1 and cores.to_spare(1)
    settings = {
        "method": method,
        "N": data.size,
        "n": rows,
        "seed": entropy,
        "stepsize": _plain(stepsize),
        **({} if opt is None else {"opt_stepsize": _plain(opt_stepsize)}),
        **{name: _plain(value) for name, value in (tuning or {}).items()},
        **({} if alpha is None else {"simplex": list(alpha)}),
        **_plain_options(options),
        "versions": _versions(),
    }
    return Sampler(
        method=method,
        model=model,
        data=data,
        minibatches=make_minibatches(data, rows, options.replace, bool(options.latents), ahead),
        latents=latents,
        dynamics=dynamics,
        stepsizes=stepsizes,
        opt_stepsizes=opt,
        starts=starts,
        recorder=Recorder(model, stepwise=True)
        if stepwise
        else _make_recorder(
            model, options, starts[0], simplex is not None and simplex.store_unnormalised
        ),
        seed=entropy,
        seed_given=seed is not None,
        trial=trial,
        target=target,
        tuning={"stepsize": stepsize, **({} if opt is None else {"opt_stepsize": opt_stepsize})}
        | dict(tuning or {}),
        options=options,
        compiler=Compiler(_may_compile(method, dynamics, options.jit_compile)),
        settings=settings,
    )


def _make_recorder(
    model: Model, options: Options, start: np.ndarray, unnormalised: bool
) -> Recorder:
    names = model.layout.names
    if isinstance(options.store_params, bool):
        stored = names if options.store_params else ()
        with_gradients = names
    else:
        stored = with_gradients = tuple(n for n in names if n in options.store_params)
    return Recorder(
        model,
        options.burn_in,
        options.thin,
        stored,
        with_gradients if options.store_gradients else (),
        options.test_functions,
        try_test_functions(options.test_functions, model, start),
        try_reductions(options.reductions, model, start),
        tuple(name for name in stored if name in model.simplex) if unnormalised else (),
    )


def _may_compile(method: str, dynamics: Dynamics, jit_compile: bool | None) -> bool | None:
    if dynamics.compilable:
        return jit_compile
    if jit_compile:
        raise ValueError(
            f"`jit_compile=True`: {method} draws from gamma and Poisson distributions, which XLA "
            "cannot compile. Leave it at None."
        )
    return False


def _plain(value: Any) -> Any:
    """Return a setting in the form that JSON gives back unchanged."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if value is None or isinstance(value, bool | str):
        return value
    if callable(value):
        return repr(value)
    return np.asarray(value).tolist()


def _plain_options(options: Options) -> dict[str, Any]:
    stored = options.store_params
    return {
        "n_chains": options.n_chains,
        "burn_in": options.burn_in,
        "thin": options.thin,
        "store_gradients": options.store_gradients,
        "test_functions": list(options.test_functions),
        "reductions": list(options.reductions),
        "store_params": stored if isinstance(stored, bool) else list(stored),
        "bijectors": {name: bijector.name for name, bijector in options.bijectors.items()},
        "replace": options.replace,
        "dtype": options.dtype.name,
        "jit_compile": options.jit_compile,
        "gibbs": options.gibbs is not None,
        "latents": list(options.latents),
    }


def _versions() -> dict[str, str]:
    from sgmcmc import __version__

    return {
        "sgmcmc": __version__,
        "tensorflow": tf.__version__,
        "tensorflow_probability": tfp.__version__,
        "numpy": np.__version__,
    }
