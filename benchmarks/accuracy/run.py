"""Errors of posterior SDs against seconds: `python -m benchmarks.accuracy.run --help`.

The other packages' chains start at the posterior mean of the reference and have it for a center;
their stepsize and minibatch size are the best of a grid by the median error of the SDs, among those
that are stable, which only those can know who have the answer. That search is not counted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.accuracy import ours, references, table
from benchmarks.accuracy.curves import Run, summarized
from benchmarks.accuracy.problems import PROBLEMS
from benchmarks.client import output_of
from benchmarks.environments import interpreter
from benchmarks.packages import PACKAGES
from benchmarks.workloads import Workload

GRID = (0.01, 0.03, 0.1, 0.3)
"""Stepsizes, in units of one over the sum of the coefficients' precisions."""
SIZES = (500, 5000)
PILOT, SECONDS = 8.0, 40.0
ROWS = 20_000
AWAY = 5.0
"""Sds of a mean from where it should be, from which a chain is called unstable."""

OTHERS = {
    f"{package}-{method}": (package, method)
    for package in ("sgmcmcjax", "blackjax")
    for method in ("sgldcv", "sghmc")
}
HEADINGS = {"sgldcv": "SGLD-CV", "sghmc": "SGHMC"}


def asked(python: Path, request: dict[str, Any], variables: dict[str, str]) -> Run:
    """Send a request to another environment."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "draws.npz"
        request = {**request, "out": str(out)}
        output_of(
            python,
            "-m",
            "benchmarks.accuracy.outside",
            request=request,
            variables=variables,
        )
        with np.load(out) as file:
            return Run(file["draws"], float(file["before"]), float(file["seconds"]))


def other(
    name: str, problem: str, data: Path, N: int, reference: dict[str, Any]
) -> dict[str, Any]:
    """Return the best chain of another package."""
    package, method = OTHERS[name]
    described = PACKAGES[f"{package}-pmap"]
    python, sd = interpreter(described.environment), np.array(reference["sd"])
    unit = 1.0 / float((1.0 / sd**2).sum())

    def run(stepsize: float, n: int, seconds: float) -> dict[str, Any]:
        workload = Workload(
            name,
            problem,
            PROBLEMS[problem].prior,
            method,
            N,
            n,
            stepsize,
            L=5,
            n_chains=4,
        )
        request = {
            "module": described.module, "workload": asdict(workload), "data": str(data),
            "start": reference["mean"], "seconds": seconds,
        }  # fmt: skip
        found = asked(python, request, described.variables)
        if not np.isfinite(found.draws).all():
            return {"median": float("inf"), "mean": float("inf")}
        return {**summarized(found, reference), "stepsize": stepsize, "n": n}

    pilots = [run(factor * unit, n, PILOT) for factor in GRID for n in SIZES]
    stable = [found for found in pilots if found["mean"] < AWAY] or pilots
    best = min(stable, key=lambda found: found["median"])
    label = f"{described.label.split(',')[0]} {HEADINGS[method]}"
    return {"label": label, **run(best["stepsize"], best["n"], SECONDS)}


def numpyro(problem: str, data: Path, N: int) -> dict[str, Any]:
    """Return what NumPyro's NUTS takes on some rows, and what that makes of all."""
    request = {"rows": ROWS, "prior": PROBLEMS[problem].prior, "data": str(data)}
    found = asked(interpreter("numpyro"), request, {})
    own = {
        "mean": found.draws.mean((0, 1)),
        "sd": found.draws.std((0, 1)),
        "sd_error": 0.0,
    }
    at = summarized(found, own)
    wanted = found.before + found.seconds * 400 / at["ess"]
    return {
        "label": f"NumPyro NUTS, {ROWS} rows",
        "ess": at["ess"],
        "seconds": found.before + found.seconds,
        "each": found.seconds / at["ess"] * N / ROWS,
        "extrapolated": wanted * N / ROWS,
    }


def measure(problem: str, names: Sequence[str]) -> None:
    """Measure some, or all, and write down each as soon as it is known."""
    references.main([problem] if problem not in references.read() else [])
    reference = references.read()[problem]
    arrays = PROBLEMS[problem].data()
    N = len(arrays["y"])
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        np.savez(data, **arrays)
        for name in names:
            if name in ours.METHODS:
                run = ours.run(name, PROBLEMS[problem].prior, arrays)
                found = {"label": ours.METHODS[name][0], **summarized(run, reference)}
            elif name == "numpyro":
                found = numpyro(problem, data, N)
            else:
                found = other(name, problem, data, N, reference)
            print(problem, {k: v for k, v in found.items() if k != "curve"}, flush=True)
            results = table.read()
            results |= {
                "date": datetime.date.today().isoformat(),
                "machine": machine.facts(),
            }
            results["runs"].setdefault(problem, {})[name] = found
            table.RESULTS.write_text(json.dumps(results, indent=1))


def main(arguments: Sequence[str] | None = None) -> None:
    names = [*ours.METHODS, "numpyro", *OTHERS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", choices=PROBLEMS, help="default: both")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names)}; default: all")
    options = parser.parse_args(arguments)
    for problem in [options.problem] if options.problem else PROBLEMS:
        measure(problem, options.names or names)
    table.write(table.read())


if __name__ == "__main__":
    main()
