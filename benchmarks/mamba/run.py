"""A search by Stein discrepancy against `sample`: `python -m benchmarks.mamba.run --help`."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.client import output_of
from benchmarks.environments import HERE, interpreter
from benchmarks.mamba.problem import discrepancy, gradients, laplace, make, thinned
from benchmarks.report import measure_each, number, publish, results_of, table

METHODS = {
    "sgld": "SGLD", "sgldCV": "SGLD-CV", "sghmc": "SGHMC", "sghmcCV": "SGHMC-CV",
    "sgnht": "SGNHT", "sgnhtCV": "SGNHT-CV",
}  # fmt: skip
ONE_CORE = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
HEAD = [
    "", "search, seconds", "minibatch size", "stepsize", "run, seconds", "Stein discrepancy",
    "error of SDs",
]  # fmt: skip


def asked(
    environment: str | None, module: str, request: dict[str, Any], out: Path
) -> Any:
    """Return what a run on one core said, and its draws."""
    said = output_of(
        interpreter(environment), "-c", _PINNED.format(module=module),
        request={**request, "out": str(out)}, variables=ONE_CORE,
    )  # fmt: skip
    with np.load(out) as file:
        return json.loads(said), dict(file)


_PINNED = """
import os, runpy
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {{max(os.sched_getaffinity(0))}})
runpy.run_module("{module}", run_name="__main__")
"""


SAMPLE = "sample"
RESULTS = HERE / "results-mamba.json"


class Problem:
    """The regression with its normal approximation, and what one method gives on it."""

    def __init__(self, folder: Path, smoke: bool) -> None:
        N, budget, seconds, adam = (
            (2000, 0.01, 0.5, 100) if smoke else (800_000, 1.0, 10.0, 5000)
        )
        self.X, self.y = make(N)
        self.mode, self.covariance = laplace(self.X, self.y)
        self.sd = np.sqrt(np.diag(self.covariance))
        self.out, data = folder / "out.npz", folder / "data.npz"
        np.savez(data, X=self.X, y=self.y)
        self.request = {
            "data": str(data),
            "budget": budget,
            "seconds": seconds,
            "adam": adam,
        }

    def scored(self, draws: np.ndarray, sd: np.ndarray) -> dict[str, float]:
        error = np.linalg.norm(sd - self.sd) / np.linalg.norm(self.sd)
        return {
            "discrepancy": discrepancy(draws, gradients(self.X, self.y, draws)),
            "error": float(error),
        }

    def measure(self, method: str) -> dict[str, Any]:
        """Return seconds, constants and scores of a search with its run, or of `sample`."""
        if method == SAMPLE:
            said, draws = asked(None, "benchmarks.mamba.ours", self.request, self.out)
        else:
            asking = {**self.request, "method": method}
            said, draws = asked(
                "sgmcmcjax", "benchmarks.mamba.search", asking, self.out
            )
        return {**said, **self.scored(draws["draws"], draws["sd"])}

    def independent(self) -> dict[str, float]:
        """Return the scores of independent draws of the normal approximation."""
        rng, root = np.random.default_rng(1), np.linalg.cholesky(self.covariance)
        exact = self.mode + rng.normal(size=(1000, len(self.mode))) @ root.T
        return self.scored(thinned(exact), exact.std(0))


def line(method: str, found: Mapping[str, Any]) -> list[str]:
    """Return a row of the table."""
    scores = [number(found["discrepancy"]), f"{100 * found['error']:.1f} %"]
    if "search" not in found:
        name = "`sample`" if method == SAMPLE else method
        seconds = number(found["seconds"]) if "seconds" in found else "—"
        return [name, "—", "—", "—", seconds, *scores]
    return [
        f"MAMBA, {METHODS[method]}", number(found["search"]), str(found["minibatch size"]),
        f"{found['stepsize']:.1e}", number(found["seconds"]), *scores,
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    names = [SAMPLE, *METHODS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    parser.add_argument(
        "--methods", nargs="+", choices=names, help="those that have no result yet"
    )
    parser.add_argument(
        "--again", action="store_true", help="measure those with a result, too"
    )
    options = parser.parse_args(arguments)
    path = RESULTS.with_name("results-mamba-smoke.json") if options.smoke else RESULTS
    known = {} if options.again else results_of(path, "methods")["methods"]
    wanted = options.methods or [name for name in names if name not in known]
    with tempfile.TemporaryDirectory() as folder:
        problem = Problem(Path(folder), options.smoke)
        results = measure_each(
            path, "methods", wanted, problem.measure, lambda *row: " | ".join(line(*row))
        )["methods"]  # fmt: skip
        lines = [line(name, results[name]) for name in names if name in results]
        lines.append(line("independent draws", problem.independent()))
    publish("mamba", [table(HEAD, lines)], options.smoke)


if __name__ == "__main__":
    main()
