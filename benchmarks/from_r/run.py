"""What an iteration costs from R and from Python: `python -m benchmarks.from_r.run --help`.

Runs with the Python that R uses, which both sides share.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.report import number, publish, table
from benchmarks.steady import Lengths, Seconds

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "old-scripts.md"
N, FEATURES = 10_000, 10
LONGEST = {"sgld": 120_000, "sgldcv": 60_000, "sghmc": 20_000}
"""Iterations of the long run; fixed, because other work on the machine misleads a choice."""
CASES = [(method, updates) for method in LONGEST for updates in ("joint", "in_turn")]


class Side:
    """One of the two languages, in a process that idles, blocked on its input, between chains."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "RETICULATE_PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
        )  # fmt: skip

    def run(self, method: str, updates: str, n_iters: int) -> Seconds:
        """Time of a chain."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{method} {updates} {n_iters}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self._process.args!r} ended with {self._process.wait()}"
            )
        wall, cpu = map(float, line.split())
        return Seconds(wall, cpu)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def measure(sides: Sequence[Side], case: tuple[str, str], smoke: bool) -> list[Seconds]:
    """What a longer run takes more than a short one, a second on each side."""
    longest = 20 if smoke else LONGEST[case[0]]
    lengths = Lengths(longest // 10, longest)
    for side in sides:
        side.run(*case, lengths.short)
    return [
        (side.run(*case, lengths.long) - side.run(*case, lengths.short))
        / lengths.difference
        for side in sides
    ]


def row(case: tuple[str, str], rounds: Sequence[Sequence[Seconds]]) -> list[str]:
    """A row of the table: microseconds of both sides and their ratios, medians of the rounds."""
    found = [f"`{case[0]}`, `{case[1]}`"]
    for kind in ("wall", "cpu"):
        of_r, of_python = (
            [getattr(gains[k], kind) for gains in rounds] for k in (0, 1)
        )
        ratio = statistics.median(a / b for a, b in zip(of_r, of_python, strict=True))
        found += [
            number(1e6 * statistics.median(values)) for values in (of_r, of_python)
        ]
        found.append(f"{ratio:.2f}")
    return found


def write_data(folder: str) -> None:
    rng = np.random.default_rng(2019)
    X = rng.standard_normal((N, FEATURES))
    chance = 1 / (1 + np.exp(-X @ rng.normal(0.0, 0.5, FEATURES)))
    np.save(f"{folder}/X.npy", X)
    np.save(f"{folder}/y.npy", (rng.random(N) < chance).astype(float))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What an iteration costs from R.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    if options.smoke:
        options.rounds = 1
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["R", "CMD", "INSTALL", "--no-docs", f"--library={folder}", str(ROOT / "r")],
            check=True, capture_output=True,
        )  # fmt: skip
        write_data(folder)
        gains: dict[tuple[str, str], list[list[Seconds]]] = {case: [] for case in CASES}
        for _ in range(options.rounds):
            # Where the data come to lie in memory makes a process fast or slow as long as it lives.
            sides = [
                Side(["Rscript", str(HERE / "side.R"), folder, folder]),
                Side([sys.executable, "-m", "benchmarks.from_r.side", folder]),
            ]
            for case in CASES:
                gains[case].append(measure(sides, case, options.smoke))
                print(*row(case, gains[case]), flush=True)
            for side in sides:
                side.close()
        rows = [row(case, gains[case]) for case in CASES]
    publish(
        "from-r",
        [
            f"Logistic regression with a bias, N = {N}, {FEATURES} features, n = 500, every draw "
            "kept: microseconds per iteration, difference of a long and a short run, R and Python "
            f"in turn, median of {options.rounds} processes of each, and the median of the ratios "
            "of pairs; in wall time, and in CPU time of all cores.",
            table(
                ["", "R", "Python", "ratio", "R, CPU", "Python, CPU", "ratio, CPU"],
                rows,
            ),
        ],
        options.smoke,
        PAGE,
    )


if __name__ == "__main__":
    main()
