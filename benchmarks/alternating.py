"""An iteration at 10^5, 10^7 and 10^8 rows from disk in turn: `python -m benchmarks.alternating`.

In one process, so that what else the machine does comes down on all alike.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.in_process import n, run_sgld
from benchmarks.report import number, publish, table
from benchmarks.scaling import write_rows
from benchmarks.steady import Seconds

SIZES, FEATURES = (10**5, 10**7, 10**8), 8
SHORT, LONG = 8_000, 48_000
"""Iterations of the two runs whose difference is measured: whole blocks, about."""


def measure(folder: Path, sizes: Sequence[int], rounds: int) -> dict[int, list[Seconds]]:
    """Return the seconds of an iteration in each round, by the number of rows."""
    data = {}
    for N in sizes:
        rows = write_rows(folder, N, FEATURES)
        data[N] = {name: np.load(rows / f"{name}.npy", mmap_mode="r") for name in ("X", "y")}
        run_sgld(data[N], LONG)  # which maps the pages
    found: dict[int, list[Seconds]] = {N: [] for N in sizes}
    for turn in range(rounds):
        for N in sizes[:: 1 if turn % 2 else -1]:
            short, long = run_sgld(data[N], SHORT), run_sgld(data[N], LONG)
            seconds = Seconds(long.wall - short.wall, long.cpu - short.cpu) / (LONG - SHORT)
            found[N].append(seconds)
            print(f"N = {N}: {1e6 * seconds.cpu:.2f} µs", flush=True)
    return found


def render(found: dict[int, list[Seconds]]) -> str:
    """Return the table."""
    first, rows = found[min(found)], []
    for N, seconds in sorted(found.items()):
        cpu, wall = ([1e6 * getattr(each, of) for each in seconds] for of in ("cpu", "wall"))
        times = [each.cpu / at_first.cpu for each, at_first in zip(seconds, first, strict=True)]
        rows.append(
            [
                f"{N:,}".replace(",", " "),
                f"{number(statistics.median(cpu))} ({number(min(cpu))})",
                f"{statistics.median(times):.2f}",
                f"{number(statistics.median(wall))} ({number(min(wall))})",
            ]
        )
    return table(["N", "of CPU, µs", "times the first", "clock, µs"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="An iteration at 10^5 to 10^8 rows, in turn.")
    parser.add_argument(
        "--folder", type=Path, help="for 4 GB of data, which stay; default: none stay"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="tiny: only to see that all runs")
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
            "best, and the median over the rounds of the ratio to the first line.",
            render(found),
        ],
        options.smoke,
    )


if __name__ == "__main__":
    main()
