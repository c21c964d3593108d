"""A thread of its own for what can be made while something else is computed."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Ahead:
    """Does one thing after another on a thread of its own, which ends when nobody holds this.

    The thread is a daemon: where it waits for a file that never comes, the process can still end.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._tasks.put, None)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a function called, and return where its result will be."""
        future: Future[Any] = Future()

        def task() -> None:
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)

        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._tasks,), name="sgmcmc-ahead", daemon=True
            )
            self._thread.start()
        self._tasks.put(task)
        return future


def _work(tasks: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # it holds what it is a method of, and that may hold the last reference
