"""How a thread waits for what others send: never for ever, and never for long at a time."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from typing import Generic, TypeVar

TICK = 0.5
"""Some systems let Ctrl-C through only between waits, so none is longer, in seconds."""

Sent = TypeVar("Sent")


class Mailbox(Generic[Sent]):
    """What any threads send and one takes out, in the order in which it was sent.

    In place of ``queue.SimpleQueue``, whose ``get`` can wait for ever in spite of its time limit.
    Up to Python 3.12 it may find its lock free and nothing there; where no time is left by then,
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
        """Return what was sent first.

        Args:
            seconds: how long to wait for it; 0 to take only what is there.

        Raises:
            queue.Empty: nothing was sent in that time.
        """
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
