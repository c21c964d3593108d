"""Runs one package in a process, and environment, of its own: `python -m benchmarks.worker`.

Reads one JSON object a line from standard input and answers each with one on standard output:

    {"do": "prepare", "package": NAME, "workload": {...}, "data": FOLDER}
    {"do": "first"}                  builds the sampler and asks for one draw
    {"do": "run", "n_iters": K}      a chain of K iterations, its draws in NumPy arrays
    {"do": "keep_memory"}            what is freed from now on stays with the process
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import memory
from benchmarks.packages import PACKAGES, UnsupportedError
from benchmarks.workloads import Arrays, Workload, read_data


class Server:
    """The state between two requests."""

    def __init__(self) -> None:
        self._chain: Callable[[int], Arrays] | None = None
        self._build: Callable[[], Callable[[int], Arrays]] | None = None
        self._baseline = 0

    def prepare(
        self, package: str, workload: dict[str, Any], data: str
    ) -> dict[str, Any]:
        """Import the package and load the data."""
        self._workload = Workload(**workload)
        described = PACKAGES[package]
        module = importlib.import_module(described.module)
        arrays, params = read_data(Path(data))
        self._build = lambda: module.build(self._workload, arrays, params)
        self._baseline = memory.resident()
        versions = {
            name: importlib.metadata.version(name) for name in described.distributions
        }
        return {"versions": versions | {"python": platform.python_version()}}

    def first(self) -> dict[str, Any]:
        """Time to the first draw, everything that the package does for it included."""
        assert self._build is not None
        start = time.perf_counter()
        self._chain = self._build()
        draws = self._chain(1)
        seconds = time.perf_counter() - start
        self._check(draws, 1)
        return {"seconds": seconds}

    def run(self, n_iters: int) -> dict[str, Any]:
        """Time of a whole chain."""
        assert self._chain is not None
        start, cpu_start = time.perf_counter(), time.process_time()
        draws = self._chain(n_iters)
        seconds, cpu_seconds = (
            time.perf_counter() - start,
            time.process_time() - cpu_start,
        )
        self._check(draws, n_iters)
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "baseline": self._baseline,
            "peak": memory.peak(),
        }

    def keep_memory(self) -> dict[str, Any]:
        """Let what is freed stay with the process."""
        memory.keep()
        return {}

    def _check(self, draws: Arrays, n_iters: int) -> None:
        """Every draw of every parameter is there, and finite."""
        chains = self._workload.n_chains
        leading = (n_iters,) if chains == 1 else (chains, n_iters)
        for name, array in draws.items():
            if (
                not isinstance(array, np.ndarray)
                or array.shape[: len(leading)] != leading
            ):
                raise RuntimeError(
                    f"{name}: {np.shape(array)} does not begin with {leading}"
                )
            if not math.isfinite(float(array.mean(dtype=np.float64))):
                raise RuntimeError(f"the draws of {name} are not finite")


def main() -> None:
    # What a package prints goes to standard error; the answers have standard output to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(server, request.pop("do"))(**request)
        except UnsupportedError as reason:
            answer = {"unsupported": str(reason)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
