"""Calls whose chains and passes over the data run on the machines that the user has named."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from sgmcmc.data.travel import read_machines
from sgmcmc.interrupts import passed_on

Function = TypeVar("Function", bound=Callable[..., Any])


def on_machines(function: Function) -> Function:
    """Have the machines of a request ready while a function runs that takes the request first."""

    @functools.wraps(function)
    def wrapped(request: Any, *arguments: Any, **named: Any) -> Any:
        with read_machines(request.keywords.get("executor")) as machines:
            keywords = {**request.keywords, "executor": machines}
            with passed_on():
                return function(replace(request, keywords=keywords), *arguments, **named)

    return wrapped  # type: ignore[return-value]


def outside() -> int:
    """Return the ``stacklevel`` at which the caller's warning names the line of the user's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == "sgmcmc":
        if frame.f_back is None:
            break
        level, frame = level + 1, frame.f_back
    return level
