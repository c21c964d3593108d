"""What a step and a store cost: `python -m benchmarks.long_chains --help`."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.in_process import n
from benchmarks.packages.with_sgmcmc import logistic_log_lik, logistic_log_prior
from benchmarks.report import number, publish, table
from benchmarks.workloads import FEATURES, Arrays, simulate_logistic


def arguments_of(data: Arrays) -> tuple[Any, ...]:
    params = {"bias": 0.0, "beta": [[0.0]] * FEATURES}
    return logistic_log_lik, data, params, 0.1 / len(data["y"]), logistic_log_prior, n


def steps(data: Arrays, n_iters: int, n_steps: int) -> Callable[[], float]:
    """Seconds of a session that is stepped so many iterations at a time."""
    sampler = sgmcmc.sgld_setup(*arguments_of(data), seed=1)
    sess = sgmcmc.init_sess(sampler)
    sgmcmc.sgmcmc_step(sampler, sess, 100)

    def run() -> float:
        start = time.perf_counter()
        for _ in range(n_iters // n_steps):
            sgmcmc.sgmcmc_step(sampler, sess, n_steps)
        return time.perf_counter() - start

    return run


def one_call(
    data: Arrays, n_iters: int, store: Path | None = None
) -> Callable[[], float]:
    """Seconds of a call less those of a short one, with a store of its own each time."""
    calls = 0

    def seconds(n_iters: int) -> float:
        nonlocal calls
        calls += 1
        path = None if store is None else store / str(calls)
        start = time.perf_counter()
        sgmcmc.sgld(
            *arguments_of(data), n_iters=n_iters, verbose=False, seed=1, store=path
        )
        return time.perf_counter() - start

    return lambda: seconds(n_iters + 500) - seconds(500)


def compared(label: str, values: list[float], one_call: list[float]) -> list[str]:
    """A row of the table: what each round took, and what in units of the same round's one call."""
    ratio = statistics.median(a / b for a, b in zip(values, one_call, strict=True))
    return [
        label,
        f"{number(statistics.median(values))} ({number(min(values))})",
        f"{ratio:.2f} ({min(values) / min(one_call):.2f})",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What a step and a store cost.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    N, few, many = (2000, 20, 100) if options.smoke else (100_000, 3000, 30_000)
    data, _ = simulate_logistic(N, np.random.default_rng(2019))
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            "one call": (one_call(data, many), many),
            "one call, `store`": (one_call(data, many, Path(folder)), many),
            "`sgmcmc_step`": (steps(data, few, 1), few),
            "`sgmcmc_step`, `n_steps=100`": (steps(data, many, 100), many),
        }
        found: dict[str, list[float]] = {label: [] for label in ways}
        for _ in range(1 if options.smoke else options.rounds):
            for label, (run, iterations) in ways.items():
                found[label].append(run() / iterations * 1e6)
    rows = [
        compared(label, values, found["one call"]) for label, values in found.items()
    ]
    publish(
        "long-chains",
        [
            f"SGLD, logistic regression, N = {N}, d = {FEATURES}, n = 500, every draw kept: "
            f"microseconds per iteration, median of {options.rounds} alternating rounds and, in "
            "parentheses, the best, and the ratio to one call, median of the rounds and, in "
            "parentheses, that of the best.",
            table(["", "µs", "ratio"], rows),
        ],
        options.smoke,
    )


if __name__ == "__main__":
    main()
