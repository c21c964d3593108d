"""Stepsizes: a number, a schedule, an array, or a dict of these by parameter; or scaled ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, positive_number
from sgmcmc.dynamics import Dynamics, ExactDynamics
from sgmcmc.dynamics.scaled import BURN_IN, GradientScaled, Scaled
from sgmcmc.dynamics.schedules import Schedule, Stepsizes
from sgmcmc.dynamics.simplex import SimplexDynamics
from sgmcmc.engine.iteration import UpdateOrder
from sgmcmc.model.geometry import Space
from sgmcmc.model.layout import Layout, per_parameter
from sgmcmc.model.target import Target


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
    values = np.broadcast_to(
        one_or_each(stepsizes.at(1, 1)[0], space.layout), space.layout.size
    )
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
    return layout.spread(tf.constant(stepsizes, tf.float64)).numpy()


def halved(value: Any) -> Any:
    """Return half of a stepsize in any of its forms, for a chain with twice the iterations."""
    if isinstance(value, Mapping):
        return {name: halved(entry) for name, entry in value.items()}
    if isinstance(value, GradientScaled):
        return replace(value, h=halved(value.h))
    if callable(value):
        return lambda iteration: 0.5 * value((iteration + 1) // 2)
    return (
        0.5 * value if isinstance(value, float) else 0.5 * np.asarray(value, np.float64)
    )


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
