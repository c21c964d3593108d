"""Rows of a block in their order and region by region: `python -m benchmarks.gathering`.

Nanoseconds a row, CPU time of one thread, from parts of one file; the two take turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.report import table
from benchmarks.scaling import write_rows
from sgmcmc.data import native

N, FEATURES = 10**8, 8
BLOCK_BYTES, LONGEST = 2**26, 4096
NEVER = 2**62
CASES = (
    (1, 8, 500),
    (2, 8, 500),
    (8, 8, 500),
    (1, 8, 5000),
    (1, 8, 66),
    (1, 16, 500),
    (4, 54, 500),
)
"""What part of the file, numbers in a row, and n."""


def measure(array: np.ndarray, size: int, rounds: int) -> tuple[float, float]:
    """Return the medians of both ways, for blocks of minibatches of so many rows."""
    row_bytes = array[:1].nbytes
    count = int(np.clip(BLOCK_BYTES // (size * (row_bytes + 4)), 1, LONGEST))
    out = np.zeros((count, size, *array.shape[1:]), array.dtype)
    rng, usual = np.random.default_rng(1), native._LARGE_ARRAY
    found: dict[int, list[float]] = {0: [], NEVER: []}
    for turn in range(rounds):
        rows = np.sort(rng.integers(0, len(array), (count, size), np.int32), 1)
        for least in list(found)[:: 1 if turn % 2 else -1]:
            native._LARGE_ARRAY = least
            began = time.thread_time()
            native.take(array, rows, out)
            found[least].append(1e9 * (time.thread_time() - began) / rows.size)
    native._LARGE_ARRAY = usual
    return statistics.median(found[NEVER]), statistics.median(found[0])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Gathering the rows of a block.")
    parser.add_argument(
        "--folder", type=Path, help="for 4 GB of data, which stay; default: none stay"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="tiny: only to see that all runs")
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        X = np.load(write_rows(folder, 2000 if options.smoke else N, FEATURES) / "X.npy", "r")
        flat = np.asarray(X).reshape(-1)
        flat[:: 2**10].sum()  # into the tables of the process
        for part, width, size in CASES[: 1 if options.smoke else None]:
            length = flat.size // part // width
            array = flat[: length * width].reshape(length, width)
            in_order, by_region = measure(array, size, 1 if options.smoke else options.rounds)
            cells = (array.nbytes >> 20, 4 * width, size)
            rows.append([*map(str, cells), f"{in_order:.1f}", f"{by_region:.1f}"])
    print(table(["file, MB", "bytes of a row", "n", "in order", "by region"], rows))


if __name__ == "__main__":
    main()
