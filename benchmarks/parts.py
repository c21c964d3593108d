"""Where the time of an iteration goes: `python -m benchmarks.parts --help`."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from benchmarks.in_process import run_sgld
from benchmarks.report import number, publish, table
from benchmarks.workloads import simulate_logistic
from sgmcmc.data.dataset import ArrayColumn
from sgmcmc.engine import prefetcher
from sgmcmc.engine.kernel import Kernel
from sgmcmc.engine.prefetcher import BlockSource, Prefetcher
from sgmcmc.engine.runner import Runner
from sgmcmc.graphs.compiler import FlatGraph
from sgmcmc.minibatches.uniform import UniformDraws

PARTS = (
    ("preparing a block", Prefetcher, "_prepare"),
    ("· row numbers", UniformDraws, "draw"),
    ("· gathering rows", ArrayColumn, "take"),
    ("· noise", prefetcher, "standard_normals"),
    ("· opening random streams", BlockSource, "rng"),
    ("running a block", Kernel, "run"),
    ("· the compiled call", FlatGraph, "__call__"),
    ("keeping what it gave", Runner, "_keep"),
    ("all of a block, with waiting", Runner, "advance"),
)
"""What is timed: a label, and the function that is wrapped."""


@contextmanager
def timed(owner: Any, name: str, seconds: list[float]) -> Iterator[None]:
    """Note how long each call of a function takes while the block lasts."""
    function = getattr(owner, name)

    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **keywords)
        finally:
            seconds.append(time.perf_counter() - start)

    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        setattr(owner, name, function)


def profile(N: int, n_iters: int) -> dict[str, float]:
    """Microseconds an iteration of each part."""
    data, _ = simulate_logistic(N, np.random.default_rng(2019))
    seconds: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        for label, owner, name in PARTS:
            stack.enter_context(timed(owner, name, seconds[label]))
        run_sgld(data, 1)
        for calls in seconds.values():
            calls.clear()
        run_sgld(data, n_iters)
    # Without a core to spare nothing is gathered ahead: those parts are never called.
    return {
        label: _settled(calls) / n_iters * 1e6
        for label, calls in seconds.items()
        if calls
    }


def _settled(calls: list[float]) -> float:
    """Return what all calls would take if the first fifth took as long as the others, which are
    compiled and whose memory was touched before."""
    late = calls[len(calls) // 5 :]
    return sum(late) / len(late) * len(calls)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Where the time of an iteration goes.")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    sizes, n_iters = ((2000,), 2000) if options.smoke else ((100_000, 581_012), 30_000)
    found = {N: profile(N, n_iters) for N in sizes}
    rows = [
        [label, *(number(found[N][label]) for N in sizes)]
        for label, _, _ in PARTS
        if label in found[sizes[0]]
    ]
    publish(
        "parts",
        [
            "SGLD, logistic regression, n = 500: mean microseconds per iteration of each part "
            "during a run. Preparing and running overlap, on two threads.",
            table(["", *(f"N = {N}" for N in sizes)], rows),
        ],
        options.smoke,
    )


if __name__ == "__main__":
    main()
