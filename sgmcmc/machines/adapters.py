"""Executors made of what other tools have in their place: joblib's `Parallel`, and Ray.

Neither is imported here unless an object of it was handed over.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

_IDLE = 300
"""Seconds after which workers of loky's without work end; others take their place."""

_pools: dict[int, Executor] = {}
"""Pools of loky's by their number of workers, for as long as the process: workers take seconds to
import TensorFlow. joblib's own pool has other options, and would be made again for each change."""


class Adapted(Executor):
    """An executor that replaces its workers itself, and belongs to a tool that goes on without it.

    Args:
        submit: Has a worker call a function with arguments, and returns the future.
        workers: Returns how many workers there are.
    """

    heals = True

    def __init__(self, submit: Callable[..., Future[Any]], workers: Callable[[], int]) -> None:
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
    """Return what is made of joblib's `Parallel` or of Ray; anything else as it is.

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
        raise ValueError("`executor` is Ray, which is not connected yet: call ray.init() before.")

    @ray.remote
    def call(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    return Adapted(
        lambda function, *arguments: call.remote(function, *arguments).future(),
        lambda: ray.cluster_resources().get("CPU", 1),
    )


def _of_joblib(parallel: Any) -> Executor:
    """Return what a `Parallel` of joblib's would have its work done by."""
    own = parallel._backend
    backend = type(own).__name__
    if backend == "LokyBackend":
        joblib = importlib.import_module("joblib")
        loky = importlib.import_module("joblib.externals.loky")
        count = joblib.effective_n_jobs(parallel.n_jobs)

        def submit(function: Any, *arguments: Any) -> Future[Any]:
            for _ in range(2):
                if count not in _pools:
                    _pools[count] = loky.ProcessPoolExecutor(count, timeout=_IDLE)
                try:
                    return _pools[count].submit(function, *arguments)
                except (BrokenExecutor, RuntimeError) as error:
                    broken = error
                    _pools.pop(count).shutdown(wait=False)
            raise broken

        return Adapted(submit, lambda: count)
    if backend == "DaskDistributedBackend":
        return own.client.get_executor()
    if backend == "RayBackend":
        return _of_ray(importlib.import_module("ray"))
    raise ValueError(
        f"`executor` is a Parallel of joblib's on its {backend}, whose workers are threads of this "
        'process or forked from it, which TensorFlow does not survive. Use backend="loky", "dask" '
        'or "ray".'
    )
