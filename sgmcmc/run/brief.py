"""Short tracebacks for wrong arguments: what is between the caller and the check says nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def brief(function: Function) -> Function:
    """Have errors that name an argument begin here, as if it had been looked at here.

    Such a message begins with the argument's name in backticks, and says all there is to know. Of
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
