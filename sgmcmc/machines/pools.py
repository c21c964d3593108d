"""Executors of every make: which can be used, how many workers they have, how to replace one."""

from __future__ import annotations

import inspect
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from concurrent.futures import CancelledError as Cancelled
from typing import Any

from sgmcmc.words import describe

_UNKNOWN = 16
"""Workers that are counted on where an executor does not tell how many it has."""

_DASK = ("KilledWorker", "CommClosedError", "FutureCancelledError", "FuturesCancelledError")
"""Errors of Dask's distributed that say that a worker, or what it had done, is gone."""

_SPAWN = (
    "`executor`: its processes are forked, and TensorFlow does not survive that. Make them anew: "
    'ProcessPoolExecutor(..., mp_context=multiprocessing.get_context("spawn")), or "forkserver".'
)


def checked(executor: Any) -> Executor:
    """Return an executor, once it is known to be one that can be used.

    Raises:
        TypeError: it is none.
        ValueError: its processes are forked, or it has been shut down.
    """
    if not isinstance(executor, Executor):
        raise TypeError(
            "`executor` must be a concurrent.futures.Executor, such as ProcessPoolExecutor, Dask's "
            "client.get_executor() or mpi4py's MPIPoolExecutor, or a function without arguments "
            f"that returns one; it is {describe(executor)}."
        )
    context: Any = getattr(executor, "_mp_context", None)
    if isinstance(executor, ProcessPoolExecutor) and context.get_start_method() == "fork":
        raise ValueError(_SPAWN)
    if is_shut_down(executor):
        raise ValueError(
            "`executor` has been shut down. Make the call inside its `with` block, or hand in a "
            "function that makes one."
        )
    return executor


def is_maker(value: Any) -> bool:
    """Tell whether a value is a function without arguments."""
    if isinstance(value, Executor) or not callable(value):
        return False
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):
        return False
    return True


def is_shut_down(executor: Executor) -> bool:
    """Tell whether an executor takes no more work, as far as it tells; a broken one is replaced."""
    if getattr(executor, "_broken", False):
        return False
    names = ("_shutdown", "_shutdown_thread")
    return any(getattr(executor, name, False) is True for name in names)


def width(executor: Executor) -> int:
    """Return how many workers an executor has, or may have."""
    for name in ("_max_workers", "num_workers"):
        found = getattr(executor, name, None)
        if isinstance(found, int) and found > 0:
            return found
    client = getattr(executor, "_client", None)
    try:
        return max(1, sum(client.ncores().values()))  # type: ignore[union-attr]
    except Exception:
        return _UNKNOWN


def is_loss(error: BaseException) -> bool:
    """Tell whether an error says that a worker is gone, not that its work has failed."""
    return isinstance(error, BrokenExecutor | Cancelled) or type(error).__name__ in _DASK


def like(executor: Executor) -> Executor | None:
    """Return a new pool of processes like one that is broken; ``None`` for another executor."""
    if not isinstance(executor, ProcessPoolExecutor):
        return None
    own: Any = executor
    options: dict[str, Any] = {
        "max_workers": own._max_workers,
        "mp_context": own._mp_context,
        "initializer": own._initializer,
        "initargs": own._initargs,
    }
    most = getattr(own, "_max_tasks_per_child", None)
    if most is not None:
        options["max_tasks_per_child"] = most
    return type(executor)(**options)
