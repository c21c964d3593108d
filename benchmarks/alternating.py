"""An iteration at 10^5, 10^7 and 10^8 rows from disk in turn: `python -m benchmarks.alternating`.

In one process, and with the rows of a block gathered region by region and in the order of their
minibatches, so that what else the machine does comes down on all alike.
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
from sgmcmc.data import native

SIZES, FEATURES = (10**5, 10**7, 10**8), 8
SHORT, LONG = 8_000, 48_000
"""Iterations of the two runs whose difference is measured: whole blocks, about."""

NEVER = 2**62


def measure(
    folder: Path, sizes: Sequence[int], rounds: int
) -> dict[tuple[int, bool], list[Seconds]]:
    """Return the seconds of an iteration, by the number of rows and whether region by region."""
    data = {}
    for N in sizes:
        rows = write_rows(folder, N, FEATURES)
        data[N] = {name: np.load(rows / f"{name}.npy", mmap_mode="r") for name in ("X", "y")}
        run_sgld(data[N], SHORT)
    usual = native._LARGE_ARRAY
    found: dict[tuple[int, bool], list[Seconds]] = {}
    for turn in range(rounds):
        cases = [(N, by_region) for N in sizes for by_region in (True, False)]
        for N, by_region in cases[:: 1 if turn % 2 else -1]:
            native._LARGE_ARRAY = usual if by_region else NEVER
            short, long = run_sgld(data[N], SHORT), run_sgld(data[N], LONG)
            seconds = Seconds(long.wall - short.wall, long.cpu - short.cpu) / (LONG - SHORT)
            found.setdefault((N, by_region), []).append(seconds)
            print(f"N = {N}, region by region {by_region}: {1e6 * seconds.cpu:.2f} µs", flush=True)
    native._LARGE_ARRAY = usual
    return found


def render(found: dict[tuple[int, bool], list[Seconds]]) -> str:
    """Return the table."""
    first = min(N for N, _ in found)
    rows = []
    for N in sorted({N for N, _ in found}):
        cells = [f"{N:,}".replace(",", " ")]
        for by_region in (True, False):
            cpu = [1e6 * each.cpu for each in found[N, by_region]]
            times = [
                a.cpu / b.cpu for a, b in zip(found[N, by_region], found[first, True], strict=True)
            ]
            cells += [f"{number(statistics.median(cpu))} ({number(min(cpu))})"]
            cells += [f"{statistics.median(times):.2f}"]
        cells += [number(1e6 * min(each.wall for each in found[N, True]))]
        rows.append(cells)
    head = [
        "N",
        "of CPU, µs",
        "times the first",
        "in drawn order, µs",
        "times the first",
        "clock, µs",
    ]
    return table(head, rows)


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
            f"chain, {rounds} rounds in one process in which all take their turn: microseconds an "
            "iteration of both threads on the cores, median and in brackets the best, and the "
            "median over the rounds of how many times as long it takes as in the first line. Then "
            "the same with the rows of a block gathered in the order of their minibatches, where "
            "the package gathers those of a large file by region. Last the best on the clock.",
            render(found),
        ],
        options.smoke,
    )


if __name__ == "__main__":
    main()
