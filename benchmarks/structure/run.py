"""Seconds and memory of regressions with structure, beside tools that estimate a point.

`python -m benchmarks.structure.run` measures what `results.json` does not have, each run in a
process of its own, and writes the table of docs/regression.md. Simulating or reading the rows and
imports are not counted. The smaller sizes of a case are measured first; a tool that needed more
than a fifth of the limit is not asked for more rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import environments
from benchmarks.client import WorkerError, output_of
from benchmarks.report import measure_each, publish, results_of, table
from benchmarks.structure.cases import CASES, Case
from benchmarks.structure.tools import TOOLS

HERE = Path(__file__).parent
FILE = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "regression.md"
KIND = "runs"
NAMES = (*TOOLS, "lme4")
LIMIT = 600.0
"""Seconds after which a run is ended."""


def measure(tool: str, name: str, rows: int, limit: float) -> dict[str, Any]:
    """Return what one run found."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        if tool == "lme4":
            path, term = Path(folder) / "rows.csv", case.term
            case.frame(rows).to_csv(path, index=False)
            script = str(HERE / "with_lme4.R")
            command = ["Rscript", script, str(path), case.formula, case.family, term]
        else:
            environment = None if tool in ("sgmcmc", "NumPy") else "structure"
            python = str(environments.interpreter(environment))
            module = "benchmarks.structure.tools"
            command = [python, "-m", module, tool, name, str(rows)]
        try:
            return json.loads(output_of(*command, timeout=limit))
        except subprocess.TimeoutExpired:
            return {"error of run": f"not in {limit:.0f} s"}
        except WorkerError as error:
            return {"error of run": str(error)[-200:]}


def asked_runs(tools: list[str], cases: list[str], most: float) -> list[str]:
    """Return the names of the runs, small ones first."""
    return [
        f"{name}/{rows}/{tool}"
        for name in cases
        for rows in CASES[name].sizes
        for tool in tools
        if rows <= most and (tool == "lme4" or name in TOOLS[tool][1])
    ]


def is_too_long(run: str, limit: float) -> bool:
    """Return whether the tool failed, or took long, with fewer rows of the case."""
    name, rows, tool = run.split("/")
    known = results_of(FILE, KIND)[KIND]
    return any(
        known[other].get("seconds", limit) > limit / 5
        for fewer in CASES[name].sizes
        if fewer < int(rows) and (other := f"{name}/{fewer}/{tool}") in known
    )


def main() -> None:
    """Measure what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--most", type=float, default=1e7, help="rows")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a run")
    parser.add_argument("--again", action="store_true", help="measure known ones, too")
    asked = parser.parse_args()
    tools = [t for t in asked.tools if t != "lme4" or shutil.which("Rscript")]

    def one(run: str) -> dict[str, Any]:
        name, rows, tool = run.split("/")
        if is_too_long(run, asked.limit):
            return {"error of run": "not asked"}
        return measure(tool, name, int(rows), asked.limit)

    known = results_of(FILE, KIND)[KIND]
    runs = asked_runs(tools, asked.cases, asked.most)
    missing = [run for run in runs if asked.again or run not in known]
    results = measure_each(
        FILE, KIND, missing, one, lambda run, found: f"{run} {found}"
    )
    publish("structure", [structure_table(results[KIND])], smoke=False, path=PAGE)


def structure_table(known: dict[str, Any]) -> str:
    """Return the table: a line for each case and number of rows."""
    tools = [t for t in NAMES if any(run.endswith(f"/{t}") for run in known)]
    lines = []
    for name, case in CASES.items():
        for rows in case.sizes:
            found = [known.get(f"{name}/{rows}/{tool}") for tool in tools]
            if any(found):
                label = f"{case.label}, {rows:_}".replace("_", " ")
                label = label.replace("|", "\\|")
                lines.append([label, *(_cell(case, one) for one in found)])
    return table(["seconds (MB)", *tools], lines)


def _cell(case: Case, found: dict[str, Any] | None) -> str:
    if found is None or found.get("error of run") == "not asked":
        return ""
    if "seconds" not in found:
        return found["error of run"] if "not in" in found["error of run"] else "failed"
    return f"{found['seconds']:.1f} ({found['MB']})"


if __name__ == "__main__":
    main()
