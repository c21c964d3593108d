"""Chosen constants of a chain on disk: chosen once, kept in its store, and used again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sgmcmc.data.dataset import digest
from sgmcmc.dynamics import Underdamped
from sgmcmc.gradients import ControlVariate, FullGradient
from sgmcmc.groups.anchors import Held
from sgmcmc.groups.coordinates import EffectCoordinates
from sgmcmc.inputs import parts
from sgmcmc.minibatches import Uniform, Weighted
from sgmcmc.results.schema import difference
from sgmcmc.results.store import Store
from sgmcmc.run.anchored import with_held
from sgmcmc.run.joint_mode import moved_in
from sgmcmc.run.request import Request, is_open
from sgmcmc.run.uncentered import globals_of
from sgmcmc.target.geometry import Arrow, Preconditioner
from sgmcmc.tuning.fields import FieldCoordinates

_CENTER = "centre/"
"""Prefix in stores of the center of control variates."""

_HELD = "held/"
"""Prefix of the center that the nodes of groups are held at."""

_SLOPE = "held slope/"
"""Prefix of the error of the gradient there."""

_SIDE = "held side/"
"""Prefix of the sides of that error by which nodes follow the parameters."""

_LEVELS = "levels/"
"""Prefix of the information in the data about effects that are coordinates."""

_FIELD = "field/"
"""Prefix of the coordinates of a latent field."""

_WHITENING = "whitening/"
"""Prefix in stores of the arrays of the coordinates."""


def chosen_once(request: Request, choose: Callable[[Request], Request]) -> Request:
    """Return the request with everything given, as it was chosen when its store was begun.

    Args:
        request: Request, read, with a store.
        choose: Function that returns the request with everything given.

    Raises:
        ValueError: The store holds another chain.
    """
    asked, path = _asked(request), request.read.options.store
    assert path is not None
    with Store(path) as store:
        known = store.warm_up()
        if known is None and store.about is not None:
            raise ValueError(
                f"`store`: {str(path)!r} holds a chain whose constants were given, not chosen. Use "
                "another path. Nothing was changed."
            )
    if known is None:
        known = _packed(request, choose(request), asked)
        with Store(path) as store:
            store.save_warm_up(known)
    about = json.loads(str(known["about"]))
    if request.seed is None:
        asked["seed"] = about["asked"]["seed"]
    found = difference(about["asked"], asked)
    if found is not None:
        raise ValueError(
            f"`store`: {str(path)!r} holds another chain: {found}. Use another path, or the "
            "arguments it was made with. Nothing was changed."
        )
    return _unpacked(request, known, about)


def _asked(request: Request) -> dict[str, Any]:
    """Return the facts that must be the same if the choices are used again."""
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
        "dataset": {name: column.digest() for name, column in model.data.columns.items()},
        "model": model.values,
    }
    if not isinstance(request.gradient, FullGradient):
        facts |= {
            "gradient": _described(request.gradient),
            "minibatch_size": parts.json_value(request.minibatch_size),
        }
    return json.loads(json.dumps(facts))


def _described(part: Any) -> Any:
    return part if part is None or isinstance(part, str) else parts.described(part)


def _packed(request: Request, tuned: Request, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the choices, as arrays."""
    model, gradient = tuned.read, tuned.gradient
    about: dict[str, Any] = {
        "asked": asked,
        "chains": len(model.params),
        "stepsize": tuned.stepsize if isinstance(tuned.stepsize, float) else None,
        "burn_in": model.options.burn_in,
        "minibatch_size": tuned.minibatch_size,
        "frequency": getattr(tuned.dynamics, "frequency", None),
    }
    arrays: dict[str, Any] = {}
    preconditioner, minibatches = model.options.preconditioner, model.options.minibatches
    if isinstance(preconditioner, Preconditioner):
        arrays |= {f"{_WHITENING}{k}": a for k, a in preconditioner.arrays().items()}
    if isinstance(minibatches, Weighted):
        arrays["p"] = minibatches.p
    about["minibatches"] = "uniform" if isinstance(minibatches, Uniform) else None
    if gradient is not request.gradient:
        about["gradient"] = "full" if isinstance(gradient, FullGradient) else "control_variate"
    if isinstance(gradient, ControlVariate):
        about["ascent"] = [gradient.opt_stepsize, gradient.n_iters_opt]
        center = gradient.center_at or {}
        arrays |= {f"{_CENTER}{name}": value for name, value in center.items()}
    joint = model.target.space.joint
    if isinstance(joint, EffectCoordinates):
        about["levels"] = [known.groups.by for known in joint.known]
        arrays |= joint.arrays(_LEVELS)
    elif isinstance(joint, FieldCoordinates):
        about["field"] = joint.name
        arrays |= joint.arrays(_FIELD)
    if tuned.held is not None:
        about["held"] = {"nodes": tuned.held.nodes, "sides": len(tuned.held.sides)}
        arrays |= _packed_held(tuned.held)
    for number, params in enumerate(model.params):
        arrays |= {f"{number}/{name}": value for name, value in params.items()}
    return {**arrays, "about": np.array(json.dumps(about))}


def _unpacked(request: Request, known: dict[str, np.ndarray], about: dict[str, Any]) -> Request:
    """Return the request with the choices."""
    changes: dict[str, Any] = {"preconditioner": "none"}
    whitening = _starting(known, _WHITENING)
    if whitening:
        of_arrays = Arrow.of_arrays if "leaves" in whitening else Preconditioner.of_arrays
        changes["preconditioner"] = of_arrays(whitening)
    if about.get("frequency") is not None:
        changes["dynamics"] = replace(request.dynamics, frequency=about["frequency"])
    if about["stepsize"] is not None:
        changes["stepsize"] = about["stepsize"]
    if "burn_in" in about:
        changes |= {name: about[name] for name in ("burn_in", "minibatch_size")}
    if "p" in known:
        changes["minibatches"] = Weighted(known["p"])
    elif about.get("minibatches") == "uniform":
        changes["minibatches"] = Uniform()
    if about.get("gradient") == "full":
        changes["gradient"] = FullGradient()
    elif about.get("gradient") == "control_variate":
        stepsize, n_iters = about["ascent"]
        center = _starting(known, _CENTER) or None
        changes["gradient"] = ControlVariate(stepsize, n_iters, center_at=center)
    if is_open(request.dynamics):
        changes["dynamics"] = Underdamped()
    starts = [_starting(known, f"{number}/") for number in range(about["chains"])]
    if "levels" in about:
        assert request.groups is not None
        factors = {factor.by: factor for factor in request.groups.coordinates}
        moved = [factors[by] for by in about["levels"]]
        numbers = _starting(known, _LEVELS)
        joint = EffectCoordinates.of_arrays(moved, numbers, globals_of(request))
        request = moved_in(request, joint)
    if "field" in about:
        log_prior = request.read.target.log_prior
        assert log_prior is not None
        field = FieldCoordinates.of_arrays(about["field"], log_prior, _starting(known, _FIELD))
        request = moved_in(request, field)
    if "held" in about:
        request = with_held(request, _unpacked_held(known, **about["held"]))
    return request.tuned(starts, seed=about["asked"]["seed"], **changes)


def _packed_held(held: Held) -> dict[str, np.ndarray]:
    parts = {_HELD: held.center, _SLOPE: held.slope}
    for number, pair in enumerate(held.sides):
        parts |= {f"{_SIDE}{number}/{side}/": point for side, point in enumerate(pair)}
    return {
        f"{prefix}{name}": array for prefix, point in parts.items() for name, array in point.items()
    }


def _unpacked_held(known: dict[str, np.ndarray], nodes: int, sides: int) -> Held:
    pairs = [
        (_starting(known, f"{_SIDE}{number}/0/"), _starting(known, f"{_SIDE}{number}/1/"))
        for number in range(sides)
    ]
    return Held(nodes, _starting(known, _HELD), tuple(pairs), _starting(known, _SLOPE))


def _starting(known: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: a for name, a in known.items() if name.startswith(prefix)}
