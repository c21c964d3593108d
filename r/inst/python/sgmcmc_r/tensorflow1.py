"""What R calls for code that was written for TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sgmcmc_r import graphs, names

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "feed": graphs.feed,
    "run": graphs.run,
    "reset": graphs.reset,
    "value": lambda tensor: graphs.evaluated(tensor).numpy(),
    "look_up": names.look_up,
    "listed": names.listed,
}


def plain(name: str, arguments: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments of a function, with values in place of tensors of the open graph.

    Args:
        name: the function; those above take tensors as they are.
        arguments: its arguments.
    """
    return arguments if name in FUNCTIONS else graphs.evaluated(list(arguments))
