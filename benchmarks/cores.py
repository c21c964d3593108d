"""Whether chains keep the cores busy: `python -m benchmarks.cores --help`."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import numpy as np

from benchmarks import machine
from benchmarks.in_process import run_sgld
from benchmarks.report import number, publish, table
from benchmarks.steady import choose_lengths
from benchmarks.workloads import simulate_logistic


def measure(
    data: dict[str, np.ndarray], n_chains: int, rounds: int, seconds: float
) -> list[float]:
    """Wall and CPU microseconds of an iteration of one chain, and the share of cores in use."""

    def run(n_iters: int) -> float:
        return run_sgld(data, n_iters, n_chains).wall

    lengths = choose_lengths(run, seconds, 200_000)
    scale = 1e6 / (lengths.difference * n_chains)
    gains = [
        run_sgld(data, lengths.long, n_chains) - run_sgld(data, lengths.short, n_chains)
        for _ in range(rounds)
    ]
    wall = statistics.median(gain.wall for gain in gains)
    cpu = statistics.median(gain.cpu for gain in gains)
    return [scale * wall, scale * cpu, cpu / (wall * machine.cores())]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="CPU time of one, two and four chains."
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="a measurement lasts, about"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    if options.smoke:
        options.rounds, options.seconds = 1, 0.0
    N = 2000 if options.smoke else 100_000
    data, _ = simulate_logistic(N, np.random.default_rng(2019))

    rows = []
    for n_chains in (1, 2, 4):
        wall, cpu, share = measure(data, n_chains, options.rounds, options.seconds)
        rows.append([str(n_chains), number(wall), number(cpu), f"{share:.0%}"])
    publish(
        "cores",
        [
            f"SGLD, logistic regression, N = {N}, n = 500; difference of a long and a "
            f"short run, median of {options.rounds}. Microseconds per iteration of one chain; the "
            "last column is CPU time divided by wall time times cores.",
            table(["chains", "µs, wall", "µs, CPU", "cores in use"], rows),
        ],
        options.smoke,
    )


if __name__ == "__main__":
    main()
