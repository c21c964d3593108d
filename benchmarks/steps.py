"""CPU time of a step of a chain, and of its parts by themselves.

CPU time, of all threads, because that does not depend on other work.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

import sgmcmc
from benchmarks.report import number, publish, table

Chain = Callable[[], sgmcmc.StepwiseSampler]
"""Sets a chain up, to run step by step."""


def seconds(run: Callable[[], Any]) -> float:
    """Return the CPU time of a call, of all threads."""
    start = time.process_time()
    run()
    return time.process_time() - start


def steps(chains: Mapping[str, tuple[Chain, int]], rounds: int) -> dict[str, float]:
    """Return milliseconds of a step, after as many that compile, median of the rounds.

    Args:
        chains: by label a chain, and how many steps are timed together.
        rounds: how often they are, all chains in turn.
    """
    runs = {
        label: _moves(chain(), n_steps) for label, (chain, n_steps) in chains.items()
    }
    found: dict[str, list[float]] = {label: [] for label in chains}
    for _ in range(rounds):
        for label, (_, n_steps) in chains.items():
            found[label].append(seconds(runs[label]) / n_steps * 1e3)
    return {label: statistics.median(values) for label, values in found.items()}


def _moves(sampler: sgmcmc.StepwiseSampler, n_steps: int) -> Callable[[], Any]:
    """Return what takes so many steps, once they are compiled."""
    session = sgmcmc.init_sess(sampler, verbose=False)

    def move() -> Any:
        sgmcmc.sgmcmc_step(sampler, session, n_steps=n_steps)
        return sgmcmc.get_params(sampler, session)

    move()
    return move


def parts(runs: Mapping[str, Callable[[], Any]], calls: int) -> dict[str, float]:
    """Return milliseconds of each part, median of so many calls."""
    found = {}
    for label, run in runs.items():
        run()
        found[label] = statistics.median(seconds(run) * 1e3 for _ in range(calls))
    return found


def graph(
    function: Callable[..., Any], jit_compile: bool = False
) -> Callable[..., Any]:
    """Return the function as a graph that is waited for."""
    compiled = tf.function(function, autograph=False, jit_compile=jit_compile)

    def call(*arguments: Any) -> Any:
        result = compiled(*arguments)
        for part in tf.nest.flatten(result):
            part.numpy()
        return result

    return call


def show(
    section: str,
    heading: str,
    whole: Mapping[str, float],
    of_parts: Mapping[str, float],
    smoke: bool,
    document: Path,
) -> None:
    """Print the milliseconds as a table, and put it into the document unless `smoke`."""
    rows = [[f"a step of {k}", number(ms), number(1e3 / ms)] for k, ms in whole.items()]
    rows += [[label, number(ms), ""] for label, ms in of_parts.items()]
    head = ["", "ms of CPU", "a second and core"]
    publish(section, [heading, table(head, rows)], smoke, document)
