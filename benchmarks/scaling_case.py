"""One case of scaling.py, in a process of its own: prints its numbers as JSON."""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import numpy as np

from benchmarks import memory
from benchmarks.in_process import run_sgld
from benchmarks.steady import Seconds, choose_lengths

MEMORY_ITERS = 10_000  # of the run that measures memory, the same for all cases


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=Path, help="folder with X.npy and y.npy")
    parser.add_argument(
        "--mapped", action="store_true", help="leave the data in their files"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()

    baseline = memory.resident()
    mode = "r" if options.mapped else None
    data = {
        name: np.load(options.rows / f"{name}.npy", mmap_mode=mode)
        for name in ("X", "y")
    }

    def run(n_iters: int) -> Seconds:
        return run_sgld(data, n_iters)

    run(MEMORY_ITERS)
    result = {
        "bytes": sum(array.nbytes for array in data.values()),
        "peak": memory.peak() - baseline,
        "end": memory.resident() - baseline,
        "end_file": memory.mapped(".npy"),
    }

    lengths = choose_lengths(
        lambda n_iters: run(n_iters).cpu, options.seconds, 1_000_000
    )
    times = [(run(lengths.short), run(lengths.long)) for _ in range(options.rounds)]
    shorts, longs = zip(*times, strict=True)
    scale = 1e6 / lengths.difference
    result |= {
        "n_iters": [lengths.short, lengths.long],
        "median": scale * statistics.median(b.wall - a.wall for a, b in times),
        "best": scale * (min(b.wall for b in longs) - min(a.wall for a in shorts)),
        "cpu": scale * (min(b.cpu for b in longs) - min(a.cpu for a in shorts)),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
