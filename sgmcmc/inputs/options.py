"""The keyword-only arguments that every sampler has."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import by_name, flag, known_keys, whole_number
from sgmcmc.data.travel import read_machines
from sgmcmc.engine.reductions import Reduction
from sgmcmc.inputs.spaces import read_bijectors, read_manifolds
from sgmcmc.machines import Machines
from sgmcmc.manifolds import Manifold
from sgmcmc.words import describe, did_you_mean

if TYPE_CHECKING:
    import tensorflow_probability as tfp

    from sgmcmc.data.minibatch import Tensors
    from sgmcmc.gradients.latents import Gibbs
    from sgmcmc.minibatches import Minibatches


class Keywords(TypedDict, total=False):
    """The keyword-only arguments that every sampler has; ``DEFAULTS`` holds their defaults."""

    n_chains: int | None
    burn_in: int
    thin: int
    store_gradients: bool
    test_functions: Mapping[str, Callable[[Tensors], tf.Tensor]] | None
    store_params: bool | list[str]
    reductions: Mapping[str, Reduction | tuple[Any, Callable[..., Any]]] | None
    store: str | os.PathLike[str] | None
    bijectors: Mapping[str, tfp.bijectors.Bijector] | None
    manifolds: Mapping[str, Manifold] | None
    replace: bool
    minibatches: str | Minibatches | None
    preconditioner: Any
    updates: str
    dtype: tf.DType
    integers: list[str] | tuple[str, ...]
    jit_compile: bool | None
    gibbs: Gibbs | None
    latents: Mapping[str, Any] | None
    groups: Any
    executor: Any


DEFAULTS: dict[str, Any] = {
    "n_chains": None,
    "burn_in": 0,
    "thin": 1,
    "store_gradients": False,
    "test_functions": None,
    "store_params": True,
    "reductions": None,
    "store": None,
    "bijectors": None,
    "manifolds": None,
    "replace": False,
    "minibatches": None,
    "preconditioner": None,
    "updates": "joint",
    "dtype": tf.float32,
    "integers": (),
    "jit_compile": None,
    "gibbs": None,
    "latents": None,
    "groups": None,
    "executor": None,
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
"""Keywords of those samplers alone that move along geodesics, or may."""

ARGUMENTS: dict[str, list[str]] = {}
"""All arguments of each sampler function, entered where the function is defined; for hints."""


@dataclass(frozen=True)
class Options:
    """The keyword-only arguments; the fields are those of :class:`Keywords`.

    ``machines`` is what became of ``executor``. All are checked but ``minibatches`` and
    ``preconditioner``, which need the data and the parameters.
    """

    n_chains: int | None
    burn_in: int
    thin: int
    store_gradients: bool
    test_functions: dict[str, Callable[[Tensors], tf.Tensor]]
    store_params: bool | tuple[str, ...]
    reductions: dict[str, Reduction]
    store: Path | None
    bijectors: dict[str, Any]
    manifolds: dict[str, Manifold]
    replace: bool
    minibatches: Any
    preconditioner: Any
    updates: str
    dtype: tf.DType
    integers: tuple[str, ...]
    jit_compile: bool | None
    gibbs: Gibbs | None
    latents: dict[str, Any]
    machines: Machines


def read_options(method: str, keywords: Mapping[str, Any], stepwise: bool) -> Options:
    """Return the checked keyword arguments of a call.

    Args:
        method: name of the function that was called.
        keywords: what it was given.
        stepwise: whether the user runs the chain, and keeps the draws.
    """
    for name in keywords:
        if name not in DEFAULTS:
            raise TypeError(f"{method}() has no argument `{name}`.{_hint(method, name)}")
    given = {**DEFAULTS, **keywords}
    for name in OF_A_RUN if stepwise else ():
        if name == "executor" and given[name] is not None:
            raise ValueError(
                f"`executor`: {method}() runs step by step, in the process that takes the steps. "
                "Call the function that runs the whole chain, such as sample()."
            )
        if given[name] != DEFAULTS[name]:
            raise ValueError(
                f"`{name}`: {method}() runs step by step and keeps no draws; write the loop around "
                "sgmcmc_step as you need it, or call the function that runs the whole chain."
            )
    _need_geodesics(method, given["manifolds"])
    n_chains, jit_compile = given["n_chains"], given["jit_compile"]
    return Options(
        n_chains=None if n_chains is None else whole_number("n_chains", n_chains, 1),
        burn_in=whole_number("burn_in", given["burn_in"], 0),
        thin=whole_number("thin", given["thin"], 1),
        store_gradients=flag("store_gradients", given["store_gradients"]),
        test_functions=_read_test_functions(given["test_functions"]),
        store_params=_read_store_params(
            given["store_params"], given["test_functions"] or given["reductions"]
        ),
        reductions=_read_reductions(given["reductions"]),
        store=_read_store(given["store"]),
        bijectors=read_bijectors(given["bijectors"]),
        manifolds=read_manifolds(given["manifolds"]),
        replace=flag("replace", given["replace"]),
        minibatches=given["minibatches"],
        preconditioner=given["preconditioner"],
        updates=checks.choice("updates", given["updates"], ["joint", "in_turn"]),
        dtype=checks.floating_dtype("dtype", given["dtype"]),
        integers=_read_integers(given["integers"]),
        jit_compile=None if jit_compile is None else flag("jit_compile", jit_compile, "or None"),
        gibbs=_read_gibbs(given["gibbs"], given["latents"]),
        latents=by_name("latents", given["latents"], "of arrays"),
        machines=read_machines(given["executor"]),
    )


def _hint(method: str, name: str) -> str:
    """Return what the user may have meant by an argument that ``method`` does not have."""
    owners = [function for function, names in ARGUMENTS.items() if name in names]
    if owners:
        return f" It is one of {', '.join(owners)}."
    # The R package writes minibatchSize, nIters.
    in_snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return did_you_mean(in_snake_case, ARGUMENTS.get(method, list(DEFAULTS)), "`")


def _read_test_functions(value: Any) -> dict[str, Callable[[Tensors], tf.Tensor]]:
    functions = by_name("test_functions", value, "of functions of `params`")
    for name, entry in functions.items():
        checks.function(f"test_functions[{name!r}]", entry, "of `params`")
    return functions


def _read_reductions(value: Any) -> dict[str, Reduction]:
    reductions = {}
    for name, entry in by_name("reductions", value, "of reductions").items():
        label = f"reductions[{name!r}]"
        if not isinstance(entry, tuple) or not 2 <= len(entry) <= 3:
            raise TypeError(
                f"`{label}` must be a pair (init, update) or a sgmcmc.Reduction, such as "
                f"sgmcmc.running_mean gives; it is {describe(entry)}."
            )
        checks.function(f"{label}[1]", entry[1], "of the state and `params`")
        if "/" in name:
            raise ValueError(f"`reductions`: the name {name!r} must not contain a slash.")
        reductions[name] = Reduction(*entry)
    return reductions


def _read_gibbs(value: Any, latents: Any) -> Gibbs | None:
    if value is not None:
        return checks.function("gibbs", value, "of `params`, a minibatch and a seed")
    if latents is not None:
        raise ValueError("`latents` are handed to `gibbs`, which was not given.")
    return None


def _read_store(value: Any) -> Path | None:
    if value is None:
        return None
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path:
        raise TypeError(f"`store` must be the path of a folder; it is {describe(value)}.")
    return Path(path)


def _read_store_params(value: Any, others: Any) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        if not value and not others:
            raise ValueError(
                "`store_params=False` keeps only the test functions, and there are none: nothing "
                "would be kept. Give `test_functions` or `reductions`."
            )
        return value
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise TypeError(
            f"`store_params` must be True, False or a list of parameter names; it is "
            f"{describe(value)}."
        )
    if not value:
        raise ValueError("`store_params` is an empty list; use False to keep no parameter.")
    return tuple(value)


def _read_integers(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):  # R has no strings but in vectors
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise TypeError(
            f"`integers` must be a list of names of columns in `dataset`; it is {describe(value)}."
        )
    return tuple(value)


def _need_geodesics(method: str, manifolds: Any) -> None:
    """Raise an error where a function is given manifolds that moves in ℝᵈ alone."""
    if manifolds is not None and "manifolds" not in ARGUMENTS.get(method, OF_GEODESICS):
        raise ValueError(
            f"`manifolds`: {method}() moves in ℝᵈ, not along manifolds. Use sggmc() or gsgnht(), "
            "or dynamics='sggmc' or 'gsgnht' in sample() or setup()."
        )


def read_length(n_iters: Any, thin: int) -> int:
    """Return the checked length of a run."""
    n_iters = whole_number("n_iters", n_iters, 1)
    if thin > n_iters:
        raise ValueError(f"`thin` is {thin}, so of `n_iters`={n_iters} iterations none is kept.")
    return n_iters


def check_names(options: Options, names: list[str]) -> None:
    """Raise an error where an option names a parameter that there is not."""
    known_keys("bijectors", options.bijectors, names, "the parameters are")
    known_keys("manifolds", options.manifolds, names, "the parameters are")
    if not isinstance(options.store_params, bool):
        known_keys("store_params", options.store_params, names, "the parameters are")
