"""An iteration at 10^5, 10^7 and 10^8 rows from disk in turn: `python -m benchmarks.alternating`.

In one process, so that what else the machine does comes down on all alike.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.in_process import n, run_sgld
from benchmarks.report import number, publish, table
from benchmarks.scaling import write_rows
from benchmarks.steady import Seconds

SIZES, FEATURES = (10**5, 10**7, 10**8), 8
KINDS: dict[str, Any] = {
    "at random": "uniform",
    f"in blocks of {n}": sgmcmc.minibatches.Reshuffled(block=n),
}
"""Minibatches, by the words for their rows."""

SHORT, LONG = 8_000, 48_000
"""Iterations of the two runs whose difference is measured: whole blocks, about."""

Found = dict[tuple[str, int], list[Seconds]]


def measure(folder: Path, sizes: Sequence[int], rounds: int) -> Found:
    """Return the seconds of an iteration in each round, by the rows' order and number."""
    data = {}
    for N in sizes:
        rows = write_rows(folder, N, FEATURES)
        data[N] = {
            name: np.load(rows / f"{name}.npy", mmap_mode="r") for name in ("X", "y")
        }
        run_sgld(data[N], LONG)  # which maps the pages
    found: Found = {(kind, N): [] for kind in KINDS for N in sizes}
    for turn in range(rounds):
        for kind, N in list(found)[:: 1 if turn % 2 else -1]:
            short, long = (
                run_sgld(data[N], k, minibatches=KINDS[kind]) for k in (SHORT, LONG)
            )
            seconds = Seconds(long.wall - short.wall, long.cpu - short.cpu) / (
                LONG - SHORT
            )
            found[kind, N].append(seconds)
            print(f"N = {N}, {kind}: {1e6 * seconds.cpu:.2f} µs", flush=True)
    return found


def render(found: Found) -> str:
    """Return the table."""
    rows = []
    for (kind, N), seconds in sorted(found.items()):
        first = found[kind, min(N for _, N in found)]
        cpu, wall = (
            [1e6 * getattr(each, of) for each in seconds] for of in ("cpu", "wall")
        )
        times = [
            each.cpu / at_first.cpu
            for each, at_first in zip(seconds, first, strict=True)
        ]
        rows.append(
            [
                kind,
                f"{N:,}".replace(",", " "),
                f"{number(statistics.median(cpu))} ({number(min(cpu))})",
                f"{statistics.median(times):.2f}",
                f"{number(statistics.median(wall))} ({number(min(wall))})",
            ]
        )
    return table(["rows", "N", "of CPU, µs", "times the first", "clock, µs"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="An iteration at 10^5 to 10^8 rows, in turn."
    )
    parser.add_argument(
        "--folder", type=Path, help="for 4 GB of data, which stay; default: none stay"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    sizes, rounds = ((2000, 4000), 1) if options.smoke else (SIZES, options.rounds)
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(options.folder or Path(temporary), sizes, rounds)
    publish(
        "alternating",
        [
            f"SGLD, logistic regression with {FEATURES} features from mapped files, n = {n}, one "
            f"chain, {rounds} rounds in one process, all sizes in each round: microseconds per "
            "iteration, in CPU time of both threads and in wall time, median and, in parentheses, "
            "best, and the median over the rounds of the ratio to the first line of the kind. "
            "Rows are drawn at random, or in blocks that are permuted once an epoch "
            "(`Reshuffled(block=)`).",
            render(found),
        ],
        options.smoke,
    )


if __name__ == "__main__":
    main()
