"""Ctrl-C, where it arrives in another shape."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


def pass_on(error: BaseException) -> None:
    """Raise KeyboardInterrupt where an error stands for Ctrl-C.

    Where that comes while C or C++ (the interpreter's, NumPy's, TensorFlow's) calls Python, it
    arrives as the cause of a SystemError. Whoever goes on after errors of any kind asks here first.

    Args:
        error: what was caught.

    Raises:
        KeyboardInterrupt: that is what it stands for.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    if cause is not None:
        raise KeyboardInterrupt from error


@contextlib.contextmanager
def passed_on() -> Iterator[None]:
    """Raise KeyboardInterrupt where an error leaves the block that stands for it."""
    try:
        yield
    except Exception as error:
        pass_on(error)
        raise
