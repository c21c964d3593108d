"""Whether parameters move together or one after the other."""

from __future__ import annotations

import tensorflow as tf

from sgmcmc.dynamics import Dynamics, ExactDynamics
from sgmcmc.engine.iteration import Turns
from sgmcmc.target.geometry import Space
from sgmcmc.target.target import Target

JOINT, IN_TURN = "joint", "in_turn"
"""What a user writes for it."""

_MIXING = ("auto", "dense")
"""Names of preconditioners that mix parameters."""


def read_turns(updates: str, dynamics: Dynamics, target: Target) -> Turns | None:
    """Return the order in which parameters move; ``None`` where they move together.

    A single parameter has nobody to take turns with.

    Args:
        updates: the user's, "joint" or "in_turn".
        dynamics: how the state moves, bound.
        target: what is sampled, in the chain's coordinates.

    Raises:
        ValueError: the parameters cannot move one after the other.
    """
    need_steps(updates, dynamics)
    turns = Turns(target.space.layout)
    if updates == JOINT or len(turns) == 1:
        return None
    if not turns.divides(_state(dynamics, target)):
        raise ValueError(
            f"`updates`: the state of {type(dynamics).__name__} holds more than vectors with an "
            "entry for each coordinate, or for each parameter, so that no parameter can move "
            "without the others. Use 'joint'."
        )
    preconditioner = target.space.preconditioner
    if preconditioner is not None and preconditioner.dense:
        root = preconditioner.root.copy()
        for part in turns.slices:
            root[part, part] = 0.0
        if root.any():
            _refuse_mixing()
    return turns


def need_steps(updates: str, dynamics: Dynamics) -> None:
    """Raise an error where dynamics without steps are to move parameters in turn."""
    if updates == IN_TURN and isinstance(dynamics, ExactDynamics):
        raise ValueError(
            f"`updates`: {type(dynamics).__name__} accepts or rejects a move of all parameters "
            "together. Use 'joint'."
        )


def need_unmixed(updates: str, preconditioner: object, space: Space) -> None:
    """Raise an error where a preconditioner that goes by a name would mix the parameters."""
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
    """Return a state of these dynamics, for its shapes."""
    zeros = tf.zeros([target.size], target.dtype)
    normals = tf.zeros([dynamics.start_normals, target.size], target.dtype)
    return dynamics.init(zeros, zeros, tf.ones([], target.dtype), normals)
