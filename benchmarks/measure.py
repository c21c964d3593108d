"""Measures one workload with all packages, in turn."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import environments
from benchmarks.client import UnsupportedWorkloadError, Worker, WorkerError
from benchmarks.packages import PACKAGES
from benchmarks.steady import choose_lengths
from benchmarks.workloads import Workload, read_data

PAUSE = 0.2  # seconds in which the threads of the package before go to sleep
MOST_BYTES = 1_000_000_000  # of draws in one run
MOST_ITERATIONS = 3_000_000


def measure(
    workload: Workload, names: Iterable[str], data: Path, rounds: int, seconds: float
) -> dict[str, dict[str, Any]]:
    """Everything about one workload, by package.

    Args:
        workload: what is run.
        names: keys of `PACKAGES`.
        data: folder of the workload's data.
        rounds: how often each package is measured.
        seconds: what a measurement lasts, about.
    """
    results: dict[str, dict[str, Any]] = {}
    workers: dict[str, Worker] = {}
    draw_bytes = (
        sum(array.nbytes for array in read_data(data)[1].values()) * workload.n_chains
    )
    most = min(MOST_ITERATIONS, max(MOST_BYTES // draw_bytes, 10))

    def attempt(name: str, step: Any) -> None:
        """Run a step of one package; if it fails, the package is out of this workload."""
        if "failed" in results[name] or "unsupported" in results[name]:
            return
        time.sleep(PAUSE)
        try:
            step(name)
        except UnsupportedWorkloadError as error:
            results[name] = {"unsupported": str(error)}
        except (WorkerError, environments.InstallError) as error:
            results[name] = {"failed": str(error)}
            print(f"  {name} failed: {error}", flush=True)

    def start(name: str) -> None:
        python = environments.interpreter(PACKAGES[name].environment)
        workers[name] = Worker(python, PACKAGES[name])
        results[name] |= workers[name].prepare(name, workload, data)

    def first(name: str) -> None:
        results[name]["first_seconds"] = workers[name].ask("first")["seconds"]
        answer = workers[name].ask("run", n_iters=workload.memory_iters)
        results[name]["memory"] = {key: answer[key] for key in ("baseline", "peak")}

    def calibrate(name: str) -> None:
        def run(n_iters: int) -> float:
            return workers[name].ask("run", n_iters=n_iters)["seconds"]

        workers[name].ask("keep_memory")  # whose peak is known by now
        lengths = choose_lengths(run, seconds, most)
        results[name] |= {
            "n_iters": [lengths.short, lengths.long],
            "short": [],
            "long": [],
        }

    def one_round(name: str) -> None:
        short, long = results[name]["n_iters"]
        workers[name].ask(
            "run", n_iters=short
        )  # what has gone cold meanwhile is warm again
        results[name]["short"].append(
            workers[name].ask("run", n_iters=short)["seconds"]
        )
        results[name]["long"].append(workers[name].ask("run", n_iters=long)["seconds"])

    names = [
        name
        for name in names
        if (not PACKAGES[name].only or workload.name in PACKAGES[name].only)
        and (not workload.packages or name in workload.packages)
    ]
    results |= {name: {} for name in names}
    try:
        for step in (start, first, calibrate, *[one_round] * rounds):
            for name in names:
                attempt(name, step)
    finally:
        for worker in workers.values():
            worker.close()
    return results
