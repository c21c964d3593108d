"""The parts of a sampler: dynamics, gradient and minibatches, and the constants of their steps.

Parts are given by name or as objects. Stepsizes are a number, a schedule, an array, or a dict of
these by parameter; or scaled ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from sgmcmc import dynamics as dynamics_room
from sgmcmc import gradients as gradients_room
from sgmcmc.checks import (
    describe,
    did_you_mean,
    from_outside,
    is_number,
    minibatch_rows,
    or_list,
    positive_number,
)
from sgmcmc.dynamics import Dynamics, ExactDynamics
from sgmcmc.dynamics.learning import BURN_IN
from sgmcmc.dynamics.riemannian import SimplexDynamics
from sgmcmc.dynamics.scaled import GradientScaled, Scaled
from sgmcmc.dynamics.schedules import Schedule, Stepsizes
from sgmcmc.engine.iteration import UpdateOrder
from sgmcmc.gradients import SAGA, FullGradient, Gradient, MinibatchGradient
from sgmcmc.inputs.options import Options
from sgmcmc.minibatches import Minibatches, Reshuffled, RowDraws, Uniform
from sgmcmc.minibatches.base import check_bound, try_minibatches
from sgmcmc.minibatches.reshuffled import OrderedDraws
from sgmcmc.minibatches.uniform import UniformDraws
from sgmcmc.model.geometry import Space
from sgmcmc.model.layout import Layout, per_parameter
from sgmcmc.model.target import Target


def _by_name(room: ModuleType) -> dict[str, Any]:
    """Return the parts in a module that go by a name."""
    parts = [getattr(room, name) for name in room.__all__]
    names = [getattr(part, "name", None) for part in parts]
    pairs = zip(names, parts, strict=True)
    return {name: part for name, part in pairs if isinstance(name, str) and name}


_DYNAMICS = _by_name(dynamics_room)
_GRADIENTS = _by_name(gradients_room)
_MINIBATCHES: Mapping[str, Minibatches] = {
    "uniform": Uniform(),
    "replacement": Uniform(replace=True),
    "reshuffled": Reshuffled(),
    "symmetric": Reshuffled(symmetric=True),
}
_PartType = TypeVar("_PartType")


def _read_part(
    argument: str, value: Any, names: Mapping[str, Any], kind: type[_PartType]
) -> _PartType:
    if isinstance(value, kind):
        return value
    allowed = f"{or_list(names)}, or an object of {kind.__module__.rpartition('.')[0]}"
    if value is None:
        raise ValueError(f"`{argument}` must be given: {allowed}.")
    if not isinstance(value, str):
        hint = (
            f" Did you mean {value.__name__}(...)?" if isinstance(value, type) else ""
        )
        raise TypeError(
            f"`{argument}` must be {allowed}; it is {describe(value)}.{hint}"
        )
    if value not in names:
        raise ValueError(
            f"`{argument}` must be {allowed}; it is {value!r}.{did_you_mean(value, names)}"
        )
    chosen = names[value]
    if not isinstance(chosen, type):
        return chosen
    needed = [f"{name}=..." for name in getattr(chosen, "needs", ())]
    if needed:
        raise ValueError(
            f"`{argument}`: {value!r} has a constant that must be given; write "
            f"{chosen.__module__.rpartition('.')[0]}.{chosen.__name__}({', '.join(needed)})."
        )
    return chosen()


@dataclass(frozen=True)
class SamplerParts:
    """The parts of a sampler, known to be compatible.

    Attributes:
        dynamics: Dynamics, bound to what the gradient estimator provides.
        gradient: Gradient estimator.
        minibatches: Way of drawing the rows.
    """

    dynamics: Dynamics
    gradient: Gradient
    minibatches: Minibatches

    def need_terms(self, draws: RowDraws) -> bool:
        """Return whether the terms of single observations are needed."""
        weighted = draws.weights is not None
        learns = self.dynamics.learns_noise or self.dynamics.visits
        return weighted or self.gradient.needs_rows or learns

    def to_json(self) -> dict[str, Any]:
        """Return names and constants, for the settings."""
        return {
            "dynamics": described(self.dynamics),
            "gradient": described(self.gradient),
            "minibatches": self.minibatches.to_json(),
        }


def read_parts(dynamics: Any, gradient: Any, options: Options) -> SamplerParts:
    """Return the user's parts, known to be compatible.

    Args:
        dynamics: User's dynamics: a name or an object.
        gradient: User's gradient: a name or an object.
        options: Keyword arguments.
    """
    chosen_dynamics = read_dynamics(dynamics)
    estimator = read_gradient(gradient, chosen_dynamics)
    is_centered = estimator.centered or isinstance(estimator, SAGA)
    if isinstance(chosen_dynamics, SimplexDynamics) and is_centered:
        chosen_dynamics = replace(chosen_dynamics, differences=True)
    minibatches = read_minibatches(options.minibatches, options.replace)
    return SamplerParts(chosen_dynamics, estimator, minibatches)


def read_dynamics(value: Any) -> Dynamics:
    """Return the user's dynamics."""
    return _read_part("dynamics", value, _DYNAMICS, Dynamics)  # type: ignore[type-abstract]


def read_gradient(value: Any, dynamics: Dynamics) -> Gradient:
    """Return the user's gradient estimator, known to be compatible with the dynamics."""
    gradient = _read_part("gradient", value, _GRADIENTS, Gradient)  # type: ignore[type-abstract]
    if isinstance(dynamics, ExactDynamics) and not isinstance(gradient, FullGradient):
        raise ValueError(
            f"`gradient`: {type(gradient).__name__} is not compatible with "
            f"{type(dynamics).__name__}, which accepts or rejects by the log posterior over the "
            "whole dataset; an estimated gradient is not enough for that. Use 'full'."
        )
    search = gradient.search() if isinstance(dynamics, SimplexDynamics) else None
    if search is not None and search.n_iters:
        raise ValueError(
            f"`gradient`: {type(gradient).__name__} finds its center by stochastic gradient "
            f"ascent, which is not compatible with {type(dynamics).__name__}. Give the center, "
            "ControlVariate(center_at={...}), or use 'svrg', whose center follows the chain."
        )
    return gradient


def need_no_latents(dynamics: Dynamics, gibbs: Any) -> None:
    """Raise an error if latent variables are drawn for dynamics that need log p(θ | x)."""
    if gibbs is not None and isinstance(dynamics, ExactDynamics):
        raise ValueError(
            f"`gibbs`: {type(dynamics).__name__} needs the log posterior of the parameters alone, "
            "and with latent variables drawn at each step there is none. Sum or integrate them out "
            "in `log_lik`."
        )


def need_geodesics(dynamics: Dynamics, manifolds: Mapping[str, Any]) -> None:
    """Raise an error if dynamics of ℝᵈ would move parameters on manifolds."""
    if manifolds and not dynamics.on_manifolds:
        raise ValueError(
            f"`dynamics`: {type(dynamics).__name__} moves in ℝᵈ, and `manifolds` names "
            f"{next(iter(manifolds))!r}. Use 'sggmc' or 'gsgnht'."
        )


def unseen(draws: RowDraws, rows: int) -> float:
    """Return the variance of the gradient's noise as a part of that of draws with replacement."""
    without_replacement = isinstance(draws, UniformDraws) and not draws.replace
    once = without_replacement or isinstance(draws, OrderedDraws)
    return 1.0 - draws.size / rows if once else 1.0


def need_known_noise(
    dynamics: Dynamics, gradient: Gradient, gibbs: Any, draws: RowDraws
) -> None:
    """Raise an error if dynamics should learn the gradient's noise, and it cannot be estimated."""
    if dynamics.visits and gibbs is not None:
        raise ValueError(
            f"`gibbs`: {type(dynamics).__name__} compares the log posterior at several positions, "
            "and latent variables are drawn at one. Sum or integrate them out in `log_lik`."
        )
    if not dynamics.learns_noise:
        return
    n, reason = draws.size, None
    if dynamics.learns_information:
        name = type(dynamics).__name__
        if not isinstance(gradient, MinibatchGradient):
            raise ValueError(
                f"`gradient`: {name} estimates the information by the rows' own gradients, and "
                f"those of {type(gradient).__name__} are differences. Use 'minibatch' or 'full'."
            )
        if draws.weights is not None:
            raise ValueError(
                f"`minibatches`: {name} estimates the information by rows that are drawn alike. "
                "Use 'uniform', 'replacement' or 'reshuffled'."
            )
    if type(gradient).terms is Gradient.terms:
        reason = (
            f"{type(gradient).__name__} does not estimate the noise of its estimates"
        )
    elif gibbs is not None:
        reason = "latent variables are drawn by `gibbs`, which add noise"
    elif n < 2:
        reason = "a minibatch of one row does not show how much rows differ"
    if reason is not None:
        if dynamics.learns_information:
            raise ValueError(
                f"`dynamics`: the information cannot be estimated: {reason}."
            )
        raise ValueError(
            f"`noise_variance` cannot be estimated: {reason}. Give a number, or 0."
        )


def read_minibatches(value: Any, replace: bool) -> Minibatches:
    """Return the user's way of drawing rows.

    Args:
        value: User's ``minibatches``; ``None`` leaves it to ``replace``.
        replace: User's ``replace``.
    """
    if value is None:
        return Uniform(replace)
    minibatches = _read_part("minibatches", value, _MINIBATCHES, Minibatches)  # type: ignore[type-abstract]
    if replace and minibatches != Uniform(replace=True):
        raise ValueError(
            "`replace=True` draws uniformly with replacement; with `minibatches` of another kind "
            "leave it out."
        )
    return minibatches


def bind_minibatches(
    minibatches: Minibatches, gradient: Gradient, minibatch_size: Any, size: int
) -> RowDraws:
    """Return the way of drawing rows, bound to this dataset.

    Args:
        minibatches: User's way of drawing minibatches.
        gradient: Gradient estimator, which may need the whole dataset.
        minibatch_size: User's minibatch size: a proportion or a number; ``None`` if the gradient
            determines it.
        size: Number of observations.
    """
    if gradient.whole_dataset:
        if minibatches != Uniform():
            raise ValueError(
                "`minibatches`: the gradient uses the whole dataset; use 'uniform'."
            )
        if minibatch_size is not None and not (
            is_number(minibatch_size) and minibatch_size == size
        ):
            raise ValueError(
                f"`minibatch_size`: the gradient uses the whole dataset of {size} observations; "
                f"omit it. It is {describe(minibatch_size)}."
            )
        return minibatches.bind(size, size)
    if minibatch_size is None:
        raise ValueError(
            "`minibatch_size` must be given: a proportion between 0 and 1 or an integer from 1 "
            f"to {size}."
        )
    draws = minibatches.bind(
        size, minibatch_rows("minibatch_size", minibatch_size, size)
    )
    if from_outside(draws):
        check_bound(draws, size)
        try_minibatches(minibatches, draws, size, gradient.needs_rows)
    return draws


def constants(part: object) -> dict[str, Any]:
    """Return the constants of a part, by name, for the settings."""
    fields = getattr(part, "__dataclass_fields__", None)
    if fields is None:
        return {name: v for name, v in vars(part).items() if not name.startswith("_")}
    return {
        name: getattr(part, name)
        for name, field in fields.items()
        if field.metadata.get("constant", True)
    }


def described(part: object) -> dict[str, Any]:
    """Return the name of a part and its constants, for the settings."""
    named = {name: json_value(value) for name, value in constants(part).items()}
    return {"name": type(part).__name__, **named}


def json_value(value: Any) -> Any:
    """Return a setting in the form that JSON gives back unchanged."""
    if isinstance(value, Mapping):
        return {name: json_value(entry) for name, entry in value.items()}
    if value is None or isinstance(value, bool | str):
        return value
    if callable(value):
        return repr(value)
    try:
        array = np.asarray(value)
    except ValueError:  # a list of numbers and arrays
        return [json_value(entry) for entry in value]
    return repr(value) if array.dtype.kind == "O" else array.tolist()


def read_stepsizes(argument: str, value: Any, layout: Layout) -> Stepsizes:
    """Return the stepsizes of all parameters.

    Args:
        argument: Name of the argument.
        value: User's value.
        layout: Places of the parameters in the position.
    """
    entries = per_parameter(argument, value, layout.names, _read_stepsize)
    by_name = isinstance(value, Mapping)
    names = layout.names if by_name else ()
    if by_name or len(layout.names) == 1:
        shapes = layout.shapes
        for name, entry in zip(layout.names, entries, strict=True):
            label = f"{argument}[{name!r}]" if by_name else argument
            _need_shape(label, entry, shapes[name])
    else:
        _need_shape(argument, entries[0], (layout.size,))
    stepsizes = Stepsizes(argument, entries, names, tuple(layout.sizes.values()))
    stepsizes.at(1, 2)
    return stepsizes


def need_one_stepsize(stepsizes: Stepsizes, space: Space) -> None:
    """Raise an error if the coordinates of a parameter on a manifold have different stepsizes.

    A geodesic is no longer one on other scales.
    """
    stepsize = one_or_each(stepsizes.at(1, 1)[0], space.layout)
    values = np.broadcast_to(stepsize, space.layout.size)
    for name in space.curved_names():
        if np.ptp(values[space.layout.slices[name]]) > 0:
            raise ValueError(
                f"`{stepsizes.argument}`: {name!r} is on a manifold, where all coordinates have "
                "the same stepsize. Use a dict, with one number for it."
            )


def read_scaled(
    argument: str, value: Any, dynamics: Dynamics, burn_in: int | None
) -> tuple[Dynamics, Any]:
    """Return dynamics that scale their stepsizes, if the user requests that, and the stepsizes.

    Args:
        argument: Name of the argument.
        value: User's value.
        dynamics: Dynamics of the phase.
        burn_in: Number of iterations whose draws are dropped; ``None`` if no draws are kept at all.
    """
    if not isinstance(value, GradientScaled):
        return dynamics, value
    if isinstance(dynamics, ExactDynamics | SimplexDynamics):
        raise ValueError(
            f"`{argument}`: gradient_scaled() is not compatible with {type(dynamics).__name__}. "
            "Give a number, or one for each parameter."
        )
    until = value.until
    if until == BURN_IN:
        if burn_in == 0:
            raise ValueError(
                f"`{argument}`: gradient_scaled() learns its scales in the burn-in, and there is "
                "none. Give a `burn_in`, or write gradient_scaled(h, until=...) with a number of "
                "iterations."
            )
        until = burn_in
    assert not isinstance(until, str)
    return Scaled(dynamics, until), value.h


def one_or_each(stepsizes: np.ndarray, layout: Layout) -> float | np.ndarray:
    """Return the stepsizes of an iteration as one number, or as one for each coordinate.

    Args:
        stepsizes: Row of the table of stepsizes.
        layout: Places of the parameters in the position.
    """
    if len(stepsizes) == 1:
        return float(stepsizes[0])
    return layout.per_coordinate(tf.constant(stepsizes, tf.float64)).numpy()


def halved(value: Any) -> Any:
    """Return half of a stepsize in any of its forms, for a chain with twice the iterations."""
    if isinstance(value, Mapping):
        return {name: halved(entry) for name, entry in value.items()}
    if isinstance(value, GradientScaled):
        return replace(value, h=halved(value.h))
    if callable(value):
        return lambda iteration: 0.5 * value((iteration + 1) // 2)
    if isinstance(value, float):
        return 0.5 * value
    return 0.5 * np.asarray(value, np.float64)


def _read_stepsize(label: str, value: Any) -> float | Schedule | np.ndarray:
    if callable(value):
        return value
    if isinstance(value, GradientScaled):
        raise ValueError(
            f"`{label}`: gradient_scaled() scales all parameters of a chain whose constants are "
            "given. For a stepsize by parameter write gradient_scaled({...}), and leave no "
            "constant to be chosen."
        )
    if isinstance(value, list | tuple) or np.ndim(value) > 0:
        array = _as_array(value)
        if array is not None and array.dtype.kind in "iuf" and array.size:
            if not (np.isfinite(array).all() and (array > 0).all()):
                raise ValueError(f"`{label}` must hold positive and finite numbers.")
            return array.astype(np.float64)
    try:
        return positive_number(label, value)
    except TypeError:
        raise TypeError(
            f"`{label}` must be a positive number, an array with one for each coordinate, a dict "
            "with one for each parameter, or a schedule (a function of the iteration); it is "
            f"{describe(value)}."
        ) from None


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except ValueError:  # lists of unequal lengths
        return None


def _need_shape(label: str, entry: Any, shape: tuple[int, ...]) -> None:
    if isinstance(entry, np.ndarray) and entry.shape != shape:
        raise ValueError(
            f"`{label}` has shape {entry.shape}; it must be a number, or an array with one for "
            f"each coordinate, of shape {shape}."
        )


JOINT = "joint"
"""The user's value for updates of all parameters at once."""

IN_TURN = "in_turn"
"""The user's value for updates of one parameter after the other."""

_MIXING = ("auto", "dense")  # names of preconditioners that mix parameters


def read_turns(updates: str, dynamics: Dynamics, target: Target) -> UpdateOrder | None:
    """Return the order in which parameters move; ``None`` if they move together.

    A single parameter cannot take turns.

    Args:
        updates: User's ``updates``, "joint" or "in_turn".
        dynamics: Dynamics, bound.
        target: Target, in the chain's coordinates.

    Raises:
        ValueError: The parameters cannot move one after the other.
    """
    need_steps(updates, dynamics)
    order = UpdateOrder(target.space.layout)
    if updates == JOINT or len(order) == 1:
        return None
    if not order.divides(_state(dynamics, target)):
        raise ValueError(
            f"`updates`: the state of {type(dynamics).__name__} holds more than vectors with an "
            "entry for each coordinate, or for each parameter, so that no parameter can move "
            "without the others. Use 'joint'."
        )
    preconditioner = target.space.preconditioner
    if preconditioner is not None and preconditioner.dense:
        root = preconditioner.root.copy()
        for block in order.slices:
            root[block, block] = 0.0
        if root.any():
            _refuse_mixing()
    return order


def need_steps(updates: str, dynamics: Dynamics) -> None:
    """Raise an error if dynamics without steps are to move parameters in turn."""
    if updates == IN_TURN and isinstance(dynamics, ExactDynamics):
        raise ValueError(
            f"`updates`: {type(dynamics).__name__} accepts or rejects a move of all parameters "
            "together. Use 'joint'."
        )
    if updates == IN_TURN and not dynamics.separable:
        raise ValueError(
            f"`updates`: {type(dynamics).__name__} moves all parameters in one direction of "
            "constant length. Use 'joint'."
        )


def need_unmixed(updates: str, preconditioner: object, space: Space) -> None:
    """Raise an error if a preconditioner that goes by a name would mix the parameters."""
    named = isinstance(preconditioner, str) and preconditioner in _MIXING
    if updates == IN_TURN and named and len(space.layout.names) > 1:
        _refuse_mixing()


def _refuse_mixing() -> None:
    raise ValueError(
        "`updates`: 'in_turn' moves one parameter after the other, and each coordinate of a dense "
        "preconditioner moves several. Use 'diagonal' or 'none', or a dict of matrices by "
        "parameter, or updates='joint'."
    )


def _state(dynamics: Dynamics, target: Target) -> object:
    zeros = tf.zeros([target.size], target.dtype)
    normals = tf.zeros([dynamics.start_normals, target.size], target.dtype)
    return dynamics.init(zeros, zeros, tf.ones([], target.dtype), normals)
