"""The keyword-only arguments of every sampler: defaults, descriptions, and checks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from sgmcmc import checks, libraries
from sgmcmc.checks import (
    by_name,
    describe,
    did_you_mean,
    flag,
    floating_dtype,
    known_keys,
    positive_number,
    whole_number,
)
from sgmcmc.data.transfer import read_machines
from sgmcmc.engine.reductions import Reduction
from sgmcmc.machines import Machines
from sgmcmc.manifolds import Manifold

if TYPE_CHECKING:
    from sgmcmc.data.dataset import Tensors
    from sgmcmc.gradients.latents import Gibbs


def _test_functions(
    argument: str, value: Any
) -> dict[str, Callable[[Tensors], tf.Tensor]]:
    functions = by_name(argument, value, "of functions of `params`")
    for name, entry in functions.items():
        checks.function(f"{argument}[{name!r}]", entry, "of `params`")
    return functions


def _reductions(argument: str, value: Any) -> dict[str, Reduction]:
    reductions = {}
    for name, entry in by_name(argument, value, "of reductions").items():
        label = f"{argument}[{name!r}]"
        if not isinstance(entry, tuple) or not 2 <= len(entry) <= 3:
            raise TypeError(
                f"`{label}` must be a pair (init, update) or a sgmcmc.Reduction, such as "
                f"sgmcmc.running_mean gives; it is {describe(entry)}."
            )
        checks.function(f"{label}[1]", entry[1], "of the state and `params`")
        if "/" in name:
            raise ValueError(
                f"`{argument}`: the name {name!r} must not contain a slash."
            )
        reductions[name] = Reduction(*entry)
    return reductions


def _path(argument: str, value: Any) -> Path:
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path:
        raise TypeError(
            f"`{argument}` must be the path of a folder; it is {describe(value)}."
        )
    return Path(path)


def _store_params(argument: str, value: Any) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise TypeError(
            f"`{argument}` must be True, False or a list of parameter names; it is "
            f"{describe(value)}."
        )
    if not value:
        raise ValueError(
            f"`{argument}` is an empty list; use False to keep no parameter."
        )
    return tuple(value)


def _integers(argument: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):  # R has no strings but in vectors
        value = [value]
    if not isinstance(value, list | tuple) or not all(
        isinstance(name, str) for name in value
    ):
        raise TypeError(
            f"`{argument}` must be a list of names of columns in `dataset`; it is "
            f"{describe(value)}."
        )
    return tuple(value)


def _storage(argument: str, value: Any) -> str:
    if not isinstance(value, str) or value not in ("float16", "bfloat16"):
        raise ValueError(
            f"`{argument}` must be 'float16', 'bfloat16' or None; it is {describe(value)}."
        )
    return value


def _bijectors(argument: str, value: Any) -> dict[str, Any]:
    bijectors = by_name(argument, value, "of TFP bijectors")
    for name, entry in bijectors.items():
        if not isinstance(entry, libraries.tensorflow_probability().bijectors.Bijector):
            raise TypeError(
                f"`{argument}[{name!r}]` must be a tfp.bijectors.Bijector, such as "
                f"tfp.bijectors.Exp(); it is {describe(entry)}."
            )
    return bijectors


def _manifolds(argument: str, value: Any) -> dict[str, Manifold]:
    manifolds = by_name(argument, value, "of manifolds")
    for name, entry in manifolds.items():
        if not isinstance(entry, Manifold):
            is_class = isinstance(entry, type)
            hint = f" Did you mean {entry.__name__}()?" if is_class else ""
            raise TypeError(
                f"`{argument}[{name!r}]` must be an object of sgmcmc.manifolds, such as "
                f"sgmcmc.manifolds.Sphere(); it is {describe(entry)}.{hint}"
            )
    return manifolds


def _machines(_: str, value: Any) -> Machines:
    return read_machines(value)


def _unread(_: str, value: Any) -> Any:
    """Return an argument that is read later, with the data and the parameters."""
    return value


def _from(minimum: int) -> Callable[[str, Any], int]:
    return partial(whole_number, least=minimum)


def _optional(reader: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda argument, value: None if value is None else reader(argument, value)


def _keyword(default: Any, reader: Callable[[str, Any], Any], text: str) -> Any:
    """Return the field of one keyword.

    Args:
        default: Default value, as in the signatures.
        reader: Function of the argument's name and value that returns the checked value.
        text: Description in the docstrings.
    """
    return field(metadata={"default": default, "reader": reader, "text": text})


@dataclass(frozen=True)
class Options:
    """The keyword-only arguments, checked.

    ``minibatches`` and ``preconditioner`` are as they were given: they need the data and the
    parameters. ``groups`` have become part of the model before.
    """

    n_chains: int | None = _keyword(
        None,
        _optional(_from(1)),
        """
        Number of independent chains, on all cores; every output array gains a leading chain
        axis.""",
    )
    burn_in: int = _keyword(
        0,
        _from(0),
        """
        Number of iterations run first and dropped.""",
    )
    thin: int = _keyword(
        1,
        _from(1),
        """
        Number of iterations between kept draws.""",
    )
    store_gradients: bool = _keyword(
        False,
        flag,
        """
        Whether to store with each draw the gradient estimate at that very draw, for every stored
        parameter.""",
    )
    test_functions: dict[str, Callable[[Tensors], tf.Tensor]] = _keyword(
        None,
        _test_functions,
        """
        Dict of functions of the parameters, evaluated at each kept draw inside the compiled
        chain.""",
    )
    store_params: bool | tuple[str, ...] = _keyword(
        True,
        _store_params,
        """
        Parameters to store: ``True`` for all, a list of names, or ``False`` for only test
        functions and reductions.""",
    )
    reductions: dict[str, Reduction] = _keyword(
        None,
        _reductions,
        """
        Dict of running reductions over the kept draws, such as :func:`sgmcmc.running_mean` returns,
        or pairs ``(init, update)``: see :class:`sgmcmc.Reduction`.""",
    )
    store: Path | None = _keyword(
        None,
        _optional(_path),
        """
        Path of a folder to which draws are written as they are made. If the run is killed at any
        instant, the same call resumes it and gives the same draws, bit for bit;
        :meth:`sgmcmc.Samples.open` reads the folder without loading it.""",
    )
    bijectors: dict[str, Any] = _keyword(
        None,
        _bijectors,
        """
        Dict of TFP bijectors: such a parameter moves in the unconstrained space, with the
        log-Jacobian in the target; all values that you see are constrained.""",
    )
    manifolds: dict[str, Manifold] = _keyword(
        None,
        _manifolds,
        """
        Dict of manifolds, such as :class:`sgmcmc.manifolds.Sphere`, for parameters that have to
        stay on them. The density of such a parameter is with respect to Hausdorff measure, and that
        of a point of the simplex with respect to Lebesgue measure. Other parameters move in ℝᵈ.""",
    )
    replace: bool = _keyword(
        False,
        flag,
        """
        Whether to draw minibatches with replacement.""",
    )
    minibatches: Any = _keyword(
        None,
        _unread,
        """
        Way of drawing rows: ``"uniform"``, without replacement; ``"replacement"``; ``"leverage"``,
        in proportion to each row's contribution to the curvature of the log posterior;
        ``"reshuffled"`` and ``"symmetric"``, in a new order in each epoch; or an object, such as
        :class:`sgmcmc.minibatches.Weighted`. ``None`` leaves it to ``replace``.""",
    )
    preconditioner: Any = _keyword(
        None,
        _unread,
        """
        Matrix M, near the posterior covariance of the p unconstrained coordinates: p variances, a p
        × p matrix, or a dict of these by parameter. The chain moves in ζ, θ = θ₀ + Cζ with CCᵀ = M,
        and stepsizes belong to ζ. ``"dense"`` (or ``"auto"``) uses the inverse of the information
        at the mode, ``"diagonal"`` its diagonal; ``None`` or ``"none"`` is none.""",
    )
    temperature: float = _keyword(
        1.0,
        positive_number,
        """
        Temperature T, positive: the chain samples p(θ|x)^(1/T), up to a constant, of the parameters
        as you see them. Above 1 it is flatter than the posterior, below 1 more concentrated.""",
    )
    updates: str = _keyword(
        "joint",
        partial(checks.choice, options=["joint", "in_turn"]),
        """
        Order of updates: ``"joint"``, all parameters at once; ``"in_turn"``, one after the other,
        in the order of ``params``, each with a new gradient at the others' current values, on the
        same minibatch.""",
    )
    dtype: tf.DType = _keyword(
        tf.float32,
        floating_dtype,
        """
        Floating point type, ``tf.float32`` or ``tf.float64``.""",
    )
    integers: tuple[str, ...] = _keyword(
        (),
        _integers,
        """
        List of names of columns of ``dataset`` that stay integers, int32, such as ``log_lik`` needs
        for the index of a ``tf.gather``.""",
    )
    storage: str | None = _keyword(
        None,
        _optional(_storage),
        """
        Format of arrays of ``dataset`` in memory: ``"float16"`` or ``"bfloat16"`` holds their
        numbers in 16 bits, which halves memory and what a minibatch reads of it; ``log_lik`` is
        handed them in ``dtype``, rounded. float16 keeps 11 binary digits of numbers from 6e-5 to
        65504, bfloat16 8 of all. Columns of single numbers, integers, sparse matrices and files
        stay as they are. ``None`` is ``dtype``.""",
    )
    jit_compile: bool | None = _keyword(
        None,
        _optional(partial(flag, or_else="or None")),
        """
        Whether to compile the chain with XLA; ``None`` tries it and falls back to a plain graph,
        with a warning that names the op.""",
    )
    gibbs: Gibbs | None = _keyword(
        None,
        _optional(
            partial(checks.function, signature="of `params`, a minibatch and a seed")
        ),
        """
        Function of parameters, minibatch and seed (two int32, for ``tf.random.stateless_*``) that
        draws latent variables and returns the minibatch with them added, which is then passed to
        ``log_lik``; called before each gradient, inside the compiled chain.""",
    )
    latents: dict[str, Any] = _keyword(
        None,
        partial(by_name, what="of arrays"),
        """
        Dict of arrays of length N: starting values of latent variables that are kept for each
        observation, passed to ``gibbs`` with the minibatch and updated after it.""",
    )
    groups: Any = _keyword(
        None,
        _unread,
        """
        :class:`sgmcmc.Groups`, or a list of them: effects of groups of observations, which are
        integrated out. ``log_lik`` then returns one term for each row, and finds the effect of each
        row's group under its name in ``params``.""",
    )
    executor: Machines = _keyword(
        None,
        _machines,
        """
        Executor for chains and passes over the whole dataset: a ``concurrent.futures.Executor``
        (processes that are not forked, Dask's ``client.get_executor()``, mpi4py's
        ``MPIPoolExecutor``), joblib's ``Parallel``, the module ``ray``, or a function without
        arguments that makes one; ``None`` is this process. The draws do not depend on it.""",
    )


KEYWORDS = {entry.name: entry.metadata for entry in fields(Options)}
"""Default, reader and text of each keyword."""

DEFAULTS: dict[str, Any] = {
    name: keyword["default"] for name, keyword in KEYWORDS.items()
}

OF_A_RUN = (
    "burn_in",
    "thin",
    "store_gradients",
    "test_functions",
    "store_params",
    "reductions",
    "store",
    "executor",
)
"""Keywords about the draws of a run, which mean nothing to a sampler that runs step by step."""

OF_GEODESICS = ("manifolds",)
"""Keywords of samplers that can move along geodesics."""

ARGUMENTS: dict[str, list[str]] = {}
"""All arguments of each sampler function, entered where the function is defined; for hints."""


def read_options(method: str, keywords: Mapping[str, Any], stepwise: bool) -> Options:
    """Return the checked keyword arguments of a call.

    Args:
        method: Name of the function that was called.
        keywords: Keyword arguments of the call.
        stepwise: Whether the user runs the chain, and keeps the draws.
    """
    for name in keywords:
        if name not in DEFAULTS:
            owners = [owner for owner, names in ARGUMENTS.items() if name in names]
            # The R package writes minibatchSize, nIters.
            in_snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
            known = ARGUMENTS.get(method, list(DEFAULTS))
            hint = did_you_mean(in_snake_case, known, "`")
            if owners:
                hint = f" It is one of {', '.join(owners)}."
            raise TypeError(f"{method}() has no argument `{name}`.{hint}")
    values = {**DEFAULTS, **keywords}
    for name in OF_A_RUN if stepwise else ():
        if name == "executor" and values[name] is not None:
            raise ValueError(
                f"`executor`: {method}() runs step by step, in the process that calls it. Call "
                "the function that runs the whole chain, such as sample()."
            )
        if values[name] != DEFAULTS[name]:
            raise ValueError(
                f"`{name}`: {method}() runs step by step and keeps no draws; write the loop around "
                "sgmcmc_step as you need it, or call the function that runs the whole chain."
            )
    moves_along = "manifolds" in ARGUMENTS.get(method, OF_GEODESICS)
    if values["manifolds"] is not None and not moves_along:
        raise ValueError(
            f"`manifolds`: {method}() moves in ℝᵈ, not along manifolds. Use sggmc() or gsgnht(), "
            "or dynamics='sggmc' or 'gsgnht' in sample() or setup()."
        )
    if values["latents"] is not None and values["gibbs"] is None:
        raise ValueError("`latents` are for `gibbs`, which was not given.")
    checked = {
        name: keyword["reader"](name, values[name])
        for name, keyword in KEYWORDS.items()
    }
    options = Options(**checked)
    keeps_functions = options.test_functions or options.reductions
    if options.store_params is False and not keeps_functions:
        raise ValueError(
            "`store_params=False` keeps only the test functions, and there are none: nothing "
            "would be kept. Give `test_functions` or `reductions`."
        )
    return options


def without(options: Options, names: Iterable[str]) -> Options:
    """Return the keyword arguments with the defaults of some."""
    defaults = {name: KEYWORDS[name]["reader"](name, DEFAULTS[name]) for name in names}
    return replace(options, **defaults)


def read_length(n_iters: Any, thin: int) -> int:
    """Return the checked length of a run."""
    n_iters = whole_number("n_iters", n_iters, 1)
    if thin > n_iters:
        raise ValueError(
            f"`thin` is {thin}, so of `n_iters`={n_iters} iterations none is kept."
        )
    return n_iters


def check_names(options: Options, names: list[str]) -> None:
    """Raise an error if an option names a parameter that there is not."""
    known_keys("bijectors", options.bijectors, names, "the parameters are")
    known_keys("manifolds", options.manifolds, names, "the parameters are")
    if not isinstance(options.store_params, bool):
        known_keys("store_params", options.store_params, names, "the parameters are")
