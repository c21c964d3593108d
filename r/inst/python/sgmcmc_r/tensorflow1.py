"""What R calls for code that was written for TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sgmcmc_r import graphs, names
from sgmcmc_r.documented import Documented

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "feed": graphs.feed,
    "run": graphs.run,
    "reset": graphs.reset,
    "value": lambda tensor: graphs.evaluated(tensor).numpy(),
    "look_up": names.look_up,
    "listed": names.listed,
    "documented": Documented,
    "placeholders": lambda parts: parts.placeholders(),
    "found": lambda parts: parts.found(),
    "est_log_post_tensor": lambda parts, at_mode: parts.est_log_post(at_mode),
    "est_log_post_opt": lambda parts, minibatch: parts.est_log_post_opt_at(minibatch),
    "step": lambda parts, session, parameter, feeds: parts.step(
        session, parameter, feeds
    ),
    "ascend": lambda parts, feeds: parts.ascend(feeds),
}


def plain(name: str, arguments: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments of a function, with values in place of tensors of the open graph.

    Args:
        name: the function; those above take tensors as they are.
        arguments: its arguments.
    """
    return arguments if name in FUNCTIONS else graphs.evaluated(list(arguments))
