"""Short tracebacks for wrong arguments, without the frames between the caller and the check."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from sgmcmc.data.travel import read_machines
from sgmcmc.interrupts import passed_on

Function = TypeVar("Function", bound=Callable[..., Any])


def brief(function: Function) -> Function:
    """Start the traceback of errors that name an argument here, as if it had been read here.

    Such a message begins with the argument's name in backticks, and is complete. Of
    errors in the user's own functions the cause keeps its traceback.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except (TypeError, ValueError) as error:
            if str(error).startswith("`"):
                error.with_traceback(None)
                raise error
            raise

    return wrapped  # type: ignore[return-value]


def on_machines(function: Function) -> Function:
    """Have the machines of a request ready while a function runs that takes the request first."""

    @functools.wraps(function)
    def wrapped(request: Any, *arguments: Any, **named: Any) -> Any:
        with read_machines(request.keywords.get("executor")) as machines:
            keywords = {**request.keywords, "executor": machines}
            with passed_on():
                return function(replace(request, keywords=keywords), *arguments, **named)

    return wrapped  # type: ignore[return-value]
