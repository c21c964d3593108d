"""Ctrl-C and time limits: errors that mean them, and waits that Ctrl-C can interrupt."""

from __future__ import annotations

import contextlib
import math
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Generic, TypeVar

TICK = 0.5
"""Some systems let Ctrl-C through only between waits, so none is longer, in seconds."""

_REPLACED = re.compile(r"REPLACED BY KeyboardInterrupt\b|\AKeyboardInterrupt\b")
"""Message of pybind11 if Ctrl-C came while it made a Python error out of one of C++; and that of
TensorFlow, if it came in a Python function that a graph calls."""

_until: ContextVar[float] = ContextVar("until", default=math.inf)
"""Time at which the present task should end, by the monotonic clock."""

Sent = TypeVar("Sent")


class TimeUpError(Exception):
    """The time of the present task is over."""


def out_of_time(before: str, began: float, instead: str = "") -> TimeoutError:
    """Return the error of a call whose ``max_seconds`` were over too early for any draws.

    Args:
        before: What did not happen in that time.
        began: Start of the call, by the monotonic clock.
        instead: What else would help.
    """
    return TimeoutError(
        f"`max_seconds`: time was up before {before}, for which "
        f"{time.monotonic() - began:.0f} s were not enough. Give more seconds{instead}."
    )


@contextlib.contextmanager
def limited(until: float) -> Iterator[None]:
    """Limit the time of a task inside the ``with`` block; of several limits the first counts.

    Whatever computes for long calls :func:`need_time` between two units of work, such as passes
    over the data or blocks of iterations.

    Args:
        until: Time at which it should end, by the monotonic clock.
    """
    token = _until.set(min(until, _until.get()))
    try:
        yield
    finally:
        _until.reset(token)


def time_left() -> float:
    """Return the seconds that are left for the present task; infinite without a limit."""
    return _until.get() - time.monotonic()


def need_time() -> None:
    """Raise an error if the time of the present task is over.

    Raises:
        TimeUpError: It is.
    """
    if time_left() <= 0:
        raise TimeUpError


def pass_on(error: BaseException) -> None:
    """Raise KeyboardInterrupt if an error means Ctrl-C; pass on that time is up.

    If that comes while C or C++ (the interpreter's, NumPy's, TensorFlow's) calls Python, it
    comes as the cause of a SystemError, or as another error that only names it. Code that
    continues after arbitrary errors calls this first.
    """
    if isinstance(error, TimeUpError):
        raise error
    cause: BaseException | None = error
    while cause is not None:
        named = isinstance(cause, Exception) and _REPLACED.search(str(cause))
        if isinstance(cause, KeyboardInterrupt) or named:
            raise KeyboardInterrupt from error
        cause = cause.__cause__


@contextlib.contextmanager
def passed_on() -> Iterator[None]:
    """Raise KeyboardInterrupt if an error that means it leaves the block."""
    try:
        yield
    except Exception as error:
        pass_on(error)
        raise


class Mailbox(Generic[Sent]):
    """A queue that any thread may add to and one reads, in the order of sending.

    In place of ``queue.SimpleQueue``, whose ``get`` can wait for ever in spite of its time limit.
    Up to Python 3.12 it may find its lock free and nothing there; if no time is left by then,
    it goes on with a negative limit, and to the lock that means none. ``queue.Queue`` takes its
    locks in Python code, where Ctrl-C can come between.

    Example:
        >>> mailbox = Mailbox()
        >>> mailbox.put("a report")
        >>> mailbox.take(seconds=0.5)
        'a report'
    """

    def __init__(self) -> None:
        self._sent: deque[Sent] = deque()
        # Held, unless something was sent since somebody last waited for it.
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, sent: Sent) -> None:
        """Send something; this never waits."""
        self._sent.append(sent)
        with contextlib.suppress(RuntimeError):  # it has been rung already
            self._bell.release()

    def take(self, seconds: float) -> Sent:
        """Return the oldest message; ``queue.Empty`` is raised if there is none in that time."""
        until = time.monotonic() + seconds
        # The bell may have been rung for what was taken without waiting: then wait again.
        while not self._sent:
            left = until - time.monotonic()
            if left <= 0 or not self._bell.acquire(timeout=left):
                break
        try:
            return self._sent.popleft()
        except IndexError:
            raise queue.Empty from None
