"""Ctrl-C, where it arrives in another shape."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

_REPLACED = re.compile(r"REPLACED BY KeyboardInterrupt\b|\AKeyboardInterrupt\b")
"""What pybind11 says where Ctrl-C came while it was making a Python error out of one of C++; and
TensorFlow, where it came in a Python function that a graph calls."""


def pass_on(error: BaseException) -> None:
    """Raise KeyboardInterrupt where an error stands for Ctrl-C.

    Where that comes while C or C++ (the interpreter's, NumPy's, TensorFlow's) calls Python, it
    arrives as the cause of a SystemError, or as another error that only names it. Whoever goes on
    after errors of any kind asks here first.

    Args:
        error: what was caught.

    Raises:
        KeyboardInterrupt: that is what it stands for.
    """
    cause: BaseException | None = error
    while cause is not None:
        named = isinstance(cause, Exception) and _REPLACED.search(str(cause))
        if isinstance(cause, KeyboardInterrupt) or named:
            raise KeyboardInterrupt from error
        cause = cause.__cause__


@contextlib.contextmanager
def passed_on() -> Iterator[None]:
    """Raise KeyboardInterrupt where an error leaves the block that stands for it."""
    try:
        yield
    except Exception as error:
        pass_on(error)
        raise
