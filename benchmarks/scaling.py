"""Cost and memory against the number of rows: `python -m benchmarks.scaling --help`."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks import machine
from benchmarks.environments import HERE
from benchmarks.report import DOCUMENT, describe_machine, number, replace_section, table
from benchmarks.workloads import FEATURES

PIECE = 100_000  # rows written at a time
PICTURE = DOCUMENT.with_name("scaling.png")


@dataclass(frozen=True)
class Case:
    """So many rows, in memory or from a file."""

    N: int
    mapped: bool
    features: int = FEATURES


CASES = (
    Case(10**4, False),
    Case(10**5, False),
    Case(10**6, False),
    Case(10**5, True),
    Case(10**7, True),
    Case(10**5, True, 8),
    Case(10**7, True, 8),
    Case(10**8, True, 8),
)


def write_rows(folder: Path, N: int, features: int) -> Path:
    """A logistic regression of N rows, written to a folder of its own in pieces."""
    target = folder / f"rows-{N}-{features}"
    target.mkdir(parents=True, exist_ok=True)
    if (target / "complete").exists():
        return target
    rng = np.random.default_rng(2019)
    beta = rng.normal(0.0, 0.3, features).astype(np.float32)
    create = np.lib.format.open_memmap
    X = create(target / "X.npy", mode="w+", dtype=np.float32, shape=(N, features))
    y = create(target / "y.npy", mode="w+", dtype=np.float32, shape=(N,))
    for start in range(0, N, PIECE):
        rows = slice(start, min(start + PIECE, N))
        x = rng.standard_normal((rows.stop - rows.start, features), dtype=np.float32)
        X[rows], y[rows] = x, rng.random(len(x)) < 1 / (1 + np.exp(-(x @ beta)))
    X.flush()
    y.flush()
    (target / "complete").touch()
    return target


def measure(case: Case, folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """One case in a process of its own."""
    rows = write_rows(folder, case.N, case.features)
    command = [sys.executable, "-m", "benchmarks.scaling_case", str(rows)]
    command += ["--rounds", str(rounds), "--seconds", str(seconds)]
    command += ["--mapped"] if case.mapped else []
    done = subprocess.run(
        command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True
    )
    return asdict(case) | json.loads(done.stdout.splitlines()[-1])


def render(raw: dict[str, Any]) -> str:
    """The table and what its columns are."""
    head = [
        "N",
        "features",
        "data",
        "data, MB",
        "µs (best)",
        "of CPU, µs",
        "peak, MB",
        "at the end, MB",
        "of it file, MB",
    ]
    rows = []
    for found in raw["cases"]:
        sizes = (found["bytes"], found["peak"], found["end"], found["end_file"])
        size, peak, end, file = (f"{x / 1e6:.0f}" for x in sizes)
        micros = f"{number(found['median'])} ({number(found['best'])})"
        where = "mapped" if found["mapped"] else "memory"
        N, features = f"{found['N']:,}".replace(",", " "), str(found["features"])
        rows.append(
            [N, features, where, size, micros, number(found["cpu"]), peak, end, file]
        )
    return "\n\n".join(
        [
            describe_machine(raw, "scaling"),
            "SGLD, logistic regression, n = 500, each row of the table in a separate process. "
            "Microseconds per iteration: median and best of wall time, and CPU time of all "
            "threads, which depends less on other users of the machine. Resident memory beyond "
            "that after the import, dataset included: the peak of a run of 10 000 iterations, the "
            "memory after it, and the part of that which is pages of the dataset's files, which "
            "the system reuses when it needs them.",
            table(head, rows),
            f"![Time and memory against N]({PICTURE.name})",
        ]
    )


def plot(cases: list[dict[str, Any]], path: Path) -> None:
    """Time on the left, memory on the right."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    kinds = sorted({(found["mapped"], found["features"]) for found in cases})
    for place, kind in enumerate(kinds):
        label, color = (
            f"{'mapped' if kind[0] else 'memory'}, {kind[1]} features",
            f"C{place}",
        )
        chosen = [
            found for found in cases if (found["mapped"], found["features"]) == kind
        ]
        N = [found["N"] for found in chosen]
        style = {"marker": "o", "color": color}
        left.plot(N, [found["cpu"] for found in chosen], label=label, **style)
        right.plot(
            N,
            [found["peak"] / 1e6 for found in chosen],
            label=f"{label}: peak",
            **style,
        )
        own = [(found["end"] - found["end_file"]) / 1e6 for found in chosen]
        right.plot(
            N, own, label=f"{label}: end, without file pages", linestyle=":", **style
        )
    left.set(xscale="log", xlabel="N", ylabel="µs of CPU an iteration, all threads")
    right.set(xscale="log", xlabel="N", ylabel="MB beyond the import")
    for axes in (left, right):
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    left.legend()
    right.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="SGLD with 10^4 to 10^8 rows.")
    parser.add_argument(
        "--folder", type=Path, help="for 6.5 GB of data; default: a temporary one"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the data in --folder"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="a measurement lasts, about"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    cases = CASES
    if options.smoke:
        some = (CASES[0], CASES[3], CASES[-2])
        cases = tuple(replace(case, N=max(2000, case.N // 1000)) for case in some)
        options.rounds, options.seconds = 1, 0.0

    found = []
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = options.folder if options.folder and options.keep else Path(temporary)
        for case in cases:
            found.append(measure(case, folder, options.rounds, options.seconds))
            print(json.dumps(found[-1]), flush=True)
    raw = {
        "date": datetime.date.today().isoformat(),
        "machine": machine.facts(),
        "cases": found,
    }
    print(render(raw))
    if options.smoke:
        with tempfile.TemporaryDirectory() as temporary:
            plot(found, Path(temporary) / PICTURE.name)
        return
    plot(found, PICTURE)
    replace_section(DOCUMENT, "scaling", render(raw))


if __name__ == "__main__":
    main()
