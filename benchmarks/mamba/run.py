"""A search by Stein discrepancy beside `sample`: `python -m benchmarks.mamba.run --help`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.client import CPU_ONLY
from benchmarks.environments import HERE, interpreter
from benchmarks.mamba.problem import discrepancy, gradients, laplace, make, thinned
from benchmarks.report import number, publish, table

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


def asked(environment: str | None, module: str, request: dict[str, Any], out: Path) -> Any:
    """Return what a run on one core said, and its draws."""
    done = subprocess.run(
        [str(interpreter(environment)), "-c", _PINNED.format(module=module)],
        input=json.dumps({**request, "out": str(out)}), capture_output=True, text=True,
        cwd=HERE.parent, env={**os.environ, **CPU_ONLY, **ONE_CORE},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError("\n".join(done.stderr.strip().splitlines()[-5:]))
    with np.load(out) as file:
        return json.loads(done.stdout.strip().splitlines()[-1]), dict(file)


_PINNED = """
import os, runpy
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {{max(os.sched_getaffinity(0))}})
runpy.run_module("{module}", run_name="__main__")
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny: only to see that all runs")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args(arguments)
    N, budget, seconds, adam = (
        (2000, 0.01, 0.5, 100) if options.smoke else (800_000, 1.0, 10.0, 5000)
    )
    X, y = make(N)
    mode, covariance = laplace(X, y)
    sd, rng = np.sqrt(np.diag(covariance)), np.random.default_rng(1)

    def scored(draws: np.ndarray, found: np.ndarray) -> list[str]:
        error = np.linalg.norm(found - sd) / np.linalg.norm(sd)
        return [number(discrepancy(draws, gradients(X, y, draws))), f"{100 * error:.1f} %"]

    lines = []
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "data.npz", Path(folder) / "out.npz"
        np.savez(data, X=X, y=y)
        request = {"data": str(data), "budget": budget, "seconds": seconds, "adam": adam}
        said, draws = asked(None, "benchmarks.mamba.ours", request, out)
        marks = ["—", "—", "—", number(said["seconds"])]
        lines.append(["`sample`", *marks, *scored(draws["draws"], draws["sd"])])
        print(" | ".join(lines[-1]), said, flush=True)
        for method in options.methods[: 2 if options.smoke else None]:
            asking = {**request, "method": method}
            said, draws = asked("sgmcmcjax", "benchmarks.mamba.search", asking, out)
            marks = [
                number(said["search"]), str(said["minibatch size"]), f"{said['stepsize']:.1e}",
                number(said["seconds"]),
            ]  # fmt: skip
            lines.append(
                [f"MAMBA, {METHODS[method]}", *marks, *scored(draws["draws"], draws["sd"])]
            )
            print(" | ".join(lines[-1]), flush=True)
    exact = mode + rng.normal(size=(1000, len(mode))) @ np.linalg.cholesky(covariance).T
    lines.append(["independent draws", "—", "—", "—", "—", *scored(thinned(exact), exact.std(0))])
    publish("mamba", [table(HEAD, lines)], options.smoke)


if __name__ == "__main__":
    main()
