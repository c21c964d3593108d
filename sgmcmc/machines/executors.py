"""Executors of any kind: checks, numbers of workers, replacement of broken ones.

Objects of joblib and Ray become executors too; neither is imported unless one is passed.
"""

from __future__ import annotations

import importlib
import inspect
import types
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import CancelledError as Cancelled
from dataclasses import dataclass
from typing import Any

from sgmcmc.checks import describe


@dataclass(frozen=True)
class Settings:
    """Numbers of workers and calls, and how long they last."""

    unknown_width: int = 16  # workers to assume if an executor does not say
    calls: int = 2  # under way for each worker, so that none waits for its next
    deaths: int = 4  # of workers in a row at the same call, at most
    idle: int = 300  # seconds without work after which a worker of loky's ends


SETTINGS = Settings()

# Errors of Dask's distributed and of Ray that mean that a worker, or its results, are lost.
_LOSSES = (
    "KilledWorker", "CommClosedError", "FutureCancelledError", "FuturesCancelledError",
    "WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "LocalRayletDiedError",
)  # fmt: skip

_SPAWN = (
    "`executor`: its processes are forked, and TensorFlow does not survive that. Create them with "
    'ProcessPoolExecutor(..., mp_context=multiprocessing.get_context("spawn")), or "forkserver".'
)

# Pools of loky's by their number of workers, for as long as the process: workers take seconds to
# import TensorFlow. joblib's own pool has other options, and would be made again for each change.
_pools: dict[int, Executor] = {}

# Broken executors about which users have been warned.
_warned: weakref.WeakSet[Executor] = weakref.WeakSet()


def checked(executor: Any) -> Executor:
    """Return an executor, checked.

    Raises:
        TypeError: It is none.
        ValueError: Its processes are forked, or it has been shut down.
    """
    if not isinstance(executor, Executor):
        raise TypeError(
            "`executor` must be a concurrent.futures.Executor, such as ProcessPoolExecutor, Dask's "
            "client.get_executor() or mpi4py's MPIPoolExecutor, joblib's Parallel, the module ray, "
            f"or a function without arguments that returns one; it is {describe(executor)}."
        )
    context: Any = getattr(executor, "_mp_context", None)
    if (
        isinstance(executor, ProcessPoolExecutor)
        and context.get_start_method() == "fork"
    ):
        raise ValueError(_SPAWN)
    if is_shut_down(executor):
        raise ValueError(
            "`executor` has been shut down. Make the call inside its `with` block, or pass a "
            "function that makes one."
        )
    return executor


def is_maker(value: Any) -> bool:
    """Return whether a value is a function without arguments."""
    if isinstance(value, Executor) or not callable(value):
        return False
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):
        return False
    return True


def is_shut_down(executor: Executor) -> bool:
    """Return whether an executor has been shut down; a broken one is replaced."""
    if getattr(executor, "_broken", False):
        return False
    names = ("_shutdown", "_shutdown_thread")
    return any(getattr(executor, name, False) is True for name in names)


def width(executor: Executor) -> int:
    """Return the number of workers that an executor has, or may have."""
    for name in ("_max_workers", "num_workers"):
        count = getattr(executor, name, None)
        if isinstance(count, int) and count > 0:
            return count
    client = getattr(executor, "_client", None)
    try:
        return max(1, sum(client.ncores().values()))  # type: ignore[union-attr]
    except Exception:
        return SETTINGS.unknown_width


def is_loss(error: BaseException) -> bool:
    """Return whether an error says that a worker is gone, not that its work has failed."""
    return (
        isinstance(error, BrokenExecutor | Cancelled) or type(error).__name__ in _LOSSES
    )


def like(executor: Executor) -> Executor | None:
    """Return a new pool of processes like one that is broken; ``None`` for another executor."""
    if not isinstance(executor, ProcessPoolExecutor):
        return None
    pool: Any = executor
    options: dict[str, Any] = {
        "max_workers": pool._max_workers,
        "mp_context": pool._mp_context,
        "initializer": pool._initializer,
        "initargs": pool._initargs,
    }
    max_tasks = getattr(pool, "_max_tasks_per_child", None)
    if max_tasks is not None:
        options["max_tasks_per_child"] = max_tasks
    return type(executor)(**options)


class LastingExecutor:
    """A user's executor, or one made on demand: broken pools are recreated.

    ``generation`` is how often it was replaced.
    """

    def __init__(self, executor: Any) -> None:
        executor = adapted(executor)
        self._maker = executor if is_maker(executor) else None
        self._user_executor = None if self._maker else checked(executor)
        self._made_executor: Executor | None = None
        self.generation = 0
        own = self._user_executor
        if own is not None and getattr(own, "_broken", False) and own not in _warned:
            _warned.add(own)
            warnings.warn(
                "`executor` is broken, because one of its workers died in an earlier call. A new "
                "pool like it replaces it for this call, and for each later one; its workers have "
                "to start and import TensorFlow each time. Create a new executor, or pass a "
                "function that makes one.",
                RuntimeWarning,
                stacklevel=1,
            )

    @property
    def is_given(self) -> bool:
        """Whether it is the user's, who may have work for it besides."""
        return self._user_executor is not None

    @property
    def gone(self) -> bool:
        """Whether the user's has been shut down."""
        return self._user_executor is not None and is_shut_down(self._user_executor)

    @property
    def width(self) -> int:
        """Number of workers."""
        return width(self._executor())

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        """Have a worker call a function, of an executor that is made again if it is broken."""
        for _ in range(SETTINGS.deaths):
            generation = self.generation
            try:
                return self._executor().submit(function, *arguments)
            except BrokenExecutor as error:
                self.renew(generation, error)
            except RuntimeError as error:
                raise ValueError(
                    f"`executor` does not accept work: {error}."
                ) from error
        raise given_up()

    def renew(self, generation: int, error: BaseException) -> None:
        """Replace the executor, unless that was done since.

        Raises:
            BrokenExecutor: There is no way to make another.
        """
        if generation != self.generation:
            return
        if self._maker is None:
            broken = self._made_executor or self._user_executor
            assert broken is not None
            another = like(broken)
            if another is None:
                heals = getattr(broken, "heals", False)
                if isinstance(error, BrokenExecutor) and not heals:
                    raise BrokenExecutor(
                        "`executor` is broken, and no other can be made. Hand in a function that "
                        "makes one."
                    ) from error
                return  # it replaces its workers itself
            self.let_go()
            self._made_executor = another
        else:
            self.let_go()
        self.generation += 1

    def _executor(self) -> Executor:
        if self._made_executor is None and self._maker is not None:
            self._made_executor = checked(adapted(self._maker()))
        executor = self._made_executor or self._user_executor
        assert executor is not None
        return executor

    def let_go(self) -> None:
        """Shut down the executor if it was made here."""
        if self._made_executor is not None:
            executor, self._made_executor = self._made_executor, None
            try:
                executor.shutdown(wait=False, cancel_futures=True)
            except TypeError:  # loky's cannot cancel futures
                executor.shutdown(wait=False)
            if self._maker is None:
                # The user's own is broken for good.
                self.generation += 1


def given_up() -> BrokenExecutor:
    """Return the error of an executor whose workers die again and again."""
    return BrokenExecutor(
        f"`executor`: workers died {SETTINGS.deaths} times in a row at the same work. They may be "
        'short of memory; or the script that starts them lacks `if __name__ == "__main__":` around '
        "what only it is to do; or a library that your functions load ends their process."
    )


class Adapted(Executor):
    """An executor that replaces its workers itself, and belongs to a tool that goes on without it.

    Args:
        submit: Function that submits a call to a worker and returns the future.
        workers: Function that returns the number of workers.
    """

    heals = True

    def __init__(
        self, submit: Callable[..., Future[Any]], workers: Callable[[], int]
    ) -> None:
        self._submit, self._workers = submit, workers

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return max(1, int(self._workers()))

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        """Have a worker call a function."""
        return self._submit(function, *arguments, **keywords)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the workers to the tool that they belong to."""


def adapted(executor: Any) -> Any:
    """Return an executor for joblib's `Parallel` or for Ray; anything else as it is.

    Raises:
        ValueError: Workers are threads, or forked; or there is no cluster of Ray's yet.
    """
    if isinstance(executor, types.ModuleType) and executor.__name__ == "ray":
        return _of_ray(executor)
    home = type(executor).__module__.partition(".")[0]
    if home == "joblib" and hasattr(executor, "n_jobs"):
        return _of_joblib(executor)
    return executor


def _of_ray(ray: Any) -> Executor:
    """Return the cluster that this process is connected to as an executor."""
    if not ray.is_initialized():
        raise ValueError(
            "`executor` is Ray, which is not connected yet: call ray.init() before."
        )

    @ray.remote
    def call(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    return Adapted(
        lambda function, *arguments: call.remote(function, *arguments).future(),
        lambda: ray.cluster_resources().get("CPU", 1),
    )


def _of_joblib(parallel: Any) -> Executor:
    """Return an executor with the workers of a `Parallel` of joblib's."""
    parallel_backend = parallel._backend
    backend = type(parallel_backend).__name__
    if backend == "LokyBackend":
        joblib = importlib.import_module("joblib")
        loky = importlib.import_module("joblib.externals.loky")
        count = joblib.effective_n_jobs(parallel.n_jobs)

        def submit(function: Any, *arguments: Any) -> Future[Any]:
            for _ in range(2):
                if count not in _pools:
                    _pools[count] = loky.ProcessPoolExecutor(
                        count, timeout=SETTINGS.idle
                    )
                try:
                    return _pools[count].submit(function, *arguments)
                except (BrokenExecutor, RuntimeError) as error:
                    broken = error
                    _pools.pop(count).shutdown(wait=False)
            raise broken

        return Adapted(submit, lambda: count)
    if backend == "DaskDistributedBackend":
        return parallel_backend.client.get_executor()
    if backend == "RayBackend":
        return _of_ray(importlib.import_module("ray"))
    raise ValueError(
        f"`executor` is a Parallel of joblib's on its {backend}, whose workers are threads of this "
        'process or forked from it, which TensorFlow does not survive. Use backend="loky", "dask" '
        'or "ray".'
    )
