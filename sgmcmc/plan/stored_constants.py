"""Constants of a chain on disk: tuned once, stored, and read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sgmcmc.data.dataset import digest
from sgmcmc.dynamics import Underdamped
from sgmcmc.gradients import ControlVariate, FullGradient
from sgmcmc.groups.anchors import FixedNodes
from sgmcmc.groups.coordinates import EffectCoordinates
from sgmcmc.inputs import parts
from sgmcmc.minibatches import Uniform, Weighted
from sgmcmc.model.geometry import Arrow, Preconditioner
from sgmcmc.plan.fixed_nodes import with_fixed_nodes
from sgmcmc.plan.joint_mode import globals_of, with_joint_coordinates
from sgmcmc.plan.latent_field import FieldCoordinates
from sgmcmc.results.schema import difference
from sgmcmc.results.store import Store
from sgmcmc.run.request import MINIBATCHES, Request, is_one_of, is_open

# Prefixes of arrays in stores.
_CENTER = "centre/"  # of control variates
_FIXED_NODES = "held/"  # center that quadrature nodes are fixed at
_SLOPE = "held slope/"  # error of the gradient there
# Ends of the differences of that error, by which nodes follow the parameters.
_SLOPE_END = "held side/"
_LEVELS = "levels/"  # information in the data about effects that are coordinates
_FIELD = "field/"  # coordinates of a latent field
_WHITENING = "whitening/"  # arrays of the preconditioner


def tune_once(
    request: Request, tune: Callable[[Request], Request], tolerance: float = 0.05
) -> Request:
    """Return the request with everything given, as it was tuned when its store was begun.

    Args:
        request: Request, read, with a store.
        tune: Function that returns the request with everything given.
        tolerance: Largest relative error of an SD, by which it tunes.

    Raises:
        ValueError: The store holds another chain.
    """
    requested = {**_requested_facts(request), "tolerance": tolerance}
    path = request.read.options.store
    assert path is not None
    with Store(path) as store:
        stored = store.warm_up()
        if stored is None and store.about is not None:
            raise ValueError(
                f"`store`: {str(path)!r} holds a chain whose constants were given, not chosen. Use "
                "another path. Nothing was changed."
            )
    if stored is None:
        stored = _to_arrays(request, tune(request), requested)
        with Store(path) as store:
            store.save_warm_up(stored)
    about = json.loads(str(stored["about"]))
    if request.seed is None:
        requested["seed"] = about["asked"]["seed"]
    # Stores of earlier versions have no facts about these.
    names = ("minibatches", "burn_in", "tolerance")
    earlier = {name: requested.get(name) for name in names}
    mismatch = difference({**earlier, **about["asked"]}, {**earlier, **requested})
    if mismatch is not None:
        raise ValueError(
            f"`store`: {str(path)!r} holds another chain: {mismatch}. Use another path, or the "
            "arguments it was made with. Nothing was changed."
        )
    return _from_arrays(request, stored, about)


def _requested_facts(request: Request) -> dict[str, Any]:
    """Return the facts that must be the same if the stored constants are used again."""
    model = request.read
    preconditioner = request.keywords.get("preconditioner")
    if preconditioner is not None and not isinstance(preconditioner, str):
        preconditioner = repr(preconditioner)
    facts = {
        "seed": model.seed,
        "dynamics": _described(request.dynamics),
        "stepsize": parts.json_value(request.stepsize),
        "preconditioner": preconditioner,
        "dtype": model.options.dtype.name,
        "params": digest(np.stack(model.starts)),
        "n_chains": model.options.n_chains,
        "burn_in": model.options.burn_in,
        "dataset": {
            name: column.digest() for name, column in model.data.columns.items()
        },
        "model": model.values,
    }
    if not isinstance(request.gradient, FullGradient):
        minibatches = request.keywords.get("minibatches")
        if minibatches is None:
            minibatches = Uniform()
        if not isinstance(minibatches, str):
            minibatches = minibatches.to_json()
        facts |= {
            "gradient": _described(request.gradient),
            "minibatch_size": parts.json_value(request.minibatch_size),
            "minibatches": minibatches,
        }
    return json.loads(json.dumps(facts))


def _described(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else parts.described(value)


def _to_arrays(
    request: Request, tuned: Request, requested: dict[str, Any]
) -> dict[str, Any]:
    model, gradient = tuned.read, tuned.gradient
    about: dict[str, Any] = {
        "asked": requested,
        "chains": len(model.params),
        "stepsize": tuned.stepsize if isinstance(tuned.stepsize, float) else None,
        "burn_in": model.options.burn_in,
        "minibatch_size": tuned.minibatch_size,
        "frequency": getattr(tuned.dynamics, "frequency", None),
    }
    arrays: dict[str, Any] = {}
    preconditioner = model.options.preconditioner
    minibatches = model.options.minibatches
    if isinstance(preconditioner, Preconditioner):
        arrays |= _prefixed(_WHITENING, preconditioner.arrays())
    about["minibatches"] = None
    if is_one_of(request.keywords.get("minibatches"), MINIBATCHES):
        if isinstance(minibatches, Weighted):
            arrays["p"] = minibatches.p
        about["minibatches"] = "uniform" if isinstance(minibatches, Uniform) else None
    if gradient is not request.gradient:
        about["gradient"] = (
            "full" if isinstance(gradient, FullGradient) else "control_variate"
        )
    if isinstance(gradient, ControlVariate):
        about["ascent"] = [gradient.opt_stepsize, gradient.n_iters_opt]
        arrays |= _prefixed(_CENTER, gradient.center_at or {})
    joint = model.target.space.joint
    if isinstance(joint, EffectCoordinates):
        about["levels"] = [effects.groups.by for effects in joint.known]
        arrays |= joint.arrays(_LEVELS)
    elif isinstance(joint, FieldCoordinates):
        about["field"] = joint.name
        arrays |= joint.arrays(_FIELD)
    if tuned.fixed_nodes is not None:
        center, slope = tuned.fixed_nodes.center, tuned.fixed_nodes.slope
        sides = tuned.fixed_nodes.sides
        about["held"] = {"nodes": tuned.fixed_nodes.nodes, "sides": len(sides)}
        arrays |= _prefixed(_FIXED_NODES, center) | _prefixed(_SLOPE, slope)
        for number, (first, last) in enumerate(sides):
            arrays |= _prefixed(f"{_SLOPE_END}{number}/0/", first)
            arrays |= _prefixed(f"{_SLOPE_END}{number}/1/", last)
    for number, params in enumerate(model.params):
        arrays |= _prefixed(f"{number}/", params)
    return {**arrays, "about": np.array(json.dumps(about))}


def _from_arrays(
    request: Request, stored: dict[str, np.ndarray], about: dict[str, Any]
) -> Request:
    changes: dict[str, Any] = {"preconditioner": "none"}
    whitening = _with_prefix(stored, _WHITENING)
    if whitening:
        of_arrays = (
            Arrow.of_arrays if "leaves" in whitening else Preconditioner.of_arrays
        )
        changes["preconditioner"] = of_arrays(whitening)
    if about.get("frequency") is not None:
        changes["dynamics"] = replace(request.dynamics, frequency=about["frequency"])
    if about["stepsize"] is not None:
        changes["stepsize"] = about["stepsize"]
    if "burn_in" in about:
        changes |= {name: about[name] for name in ("burn_in", "minibatch_size")}
    if "p" in stored:
        changes["minibatches"] = Weighted(stored["p"])
    elif about.get("minibatches") == "uniform":
        changes["minibatches"] = Uniform()
    if about.get("gradient") == "full":
        changes["gradient"] = FullGradient()
    elif about.get("gradient") == "control_variate":
        stepsize, n_iters = about["ascent"]
        center = _with_prefix(stored, _CENTER) or None
        changes["gradient"] = ControlVariate(stepsize, n_iters, center_at=center)
    if is_open(request.dynamics):
        changes["dynamics"] = Underdamped()
    starts = [_with_prefix(stored, f"{number}/") for number in range(about["chains"])]
    if "levels" in about:
        assert request.groups is not None
        factors = {factor.by: factor for factor in request.groups.coordinates}
        with_effects = [factors[by] for by in about["levels"]]
        arrays = _with_prefix(stored, _LEVELS)
        joint = EffectCoordinates.of_arrays(with_effects, arrays, globals_of(request))
        request = with_joint_coordinates(request, joint)
    if "field" in about:
        log_prior = request.read.target.log_prior
        assert log_prior is not None
        field = FieldCoordinates.of_arrays(
            about["field"], log_prior, _with_prefix(stored, _FIELD)
        )
        request = with_joint_coordinates(request, field)
    if "held" in about:
        sides = []
        for number in range(about["held"]["sides"]):
            first = _with_prefix(stored, f"{_SLOPE_END}{number}/0/")
            last = _with_prefix(stored, f"{_SLOPE_END}{number}/1/")
            sides.append((first, last))
        center, slope = _with_prefix(stored, _FIXED_NODES), _with_prefix(stored, _SLOPE)
        nodes = FixedNodes(about["held"]["nodes"], center, tuple(sides), slope)
        request = with_fixed_nodes(request, nodes)
    return request.tuned(starts, seed=about["asked"]["seed"], **changes)


def _prefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def _with_prefix(stored: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        name[len(prefix) :]: a for name, a in stored.items() if name.startswith(prefix)
    }
