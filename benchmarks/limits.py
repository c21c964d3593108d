"""The time that no sampler could do without, beside ours: `python -m benchmarks.limits`.

An iteration has to read its minibatch from memory, at random places, to compute the gradient of
that, and to draw a normal number for each coordinate. Each is measured by itself, without any
sampler: rows at random by NumPy's `take`, or by this package's own if that is quicker; arithmetic
by BLAS on rows that are in the cache; exponentials and normal numbers by NumPy. One core can read
while another computes, so that the limit of one chain is the larger of the two; several chains
keep all cores busy with both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import machine
from benchmarks.measure import measure
from benchmarks.report import number, publish, table
from benchmarks.simulations import CLASSES, FEATURES, HIDDEN, PIXELS, RANK, Arrays
from benchmarks.summary import columns
from benchmarks.workloads import WORKLOADS, Workload, read_data, write_data
from sgmcmc.data import native

_TIMES = 7
_ROWS = 100_000  # read at once, so that a call to NumPy costs nothing
_CACHED = 2**17  # bytes that stay in the cache of a core
_LONG = 2**20  # numbers


class Work(NamedTuple):
    """What the gradient of one row takes.

    Attributes:
        flops: multiplications and additions.
        exponentials: exponentials and logarithms.
        matrices: whether the products are of matrices with matrices, for which a number that was
            read serves many times.
    """

    flops: float
    exponentials: float
    matrices: bool = False


_WEIGHTS = PIXELS * HIDDEN + HIDDEN * CLASSES

WORK = {
    "logistic": Work(4 * FEATURES, 1),
    "wide": Work(4 * 1000, 1),
    "poisson": Work(4 * FEATURES, 1),
    "gaussian": Work(4, 0),
    "factors": Work(6 * RANK, 0),
    "network": Work(
        4 * _WEIGHTS + 2 * HIDDEN * CLASSES, HIDDEN + CLASSES, matrices=True
    ),
}
"""By model: products forward and back; a network needs no derivative with respect to its pixels."""


class Limit(NamedTuple):
    """Microseconds of an iteration of one chain.

    Attributes:
        memory: reading the minibatches.
        arithmetic: gradients and normal numbers.
        together: the least in which both can be done.
    """

    memory: float
    arithmetic: float
    together: float


def limit(workload: Workload, data: Arrays, d: int) -> Limit:
    """The limit of one workload.

    Args:
        workload: what is run.
        data: its columns.
        d: coordinates of its parameters.
    """
    work = WORK[workload.model]
    rows = workload.L * workload.n
    evaluations = rows * (2 if workload.method == "sgldcv" else 1)
    memory = rows * _of_row(workload, data)
    of_one = (
        work.flops * _of_flop(work.matrices) + work.exponentials * _of_exponential()
    )
    arithmetic = evaluations * of_one + workload.L * d * _of_normal()
    if workload.n_chains == 1:
        together = max(memory, arithmetic)
    else:
        together = (memory + arithmetic) / machine.cores()
    return Limit(1e6 * memory, 1e6 * arithmetic, 1e6 * together)


def _of_row(workload: Workload, data: Arrays) -> float:
    """Seconds to read a row at random."""
    rng = np.random.default_rng(1)
    piece = min(
        _ROWS, max(workload.n, _CACHED // sum(a[:1].nbytes for a in data.values()))
    )
    places = rng.integers(0, workload.N, _ROWS // piece * piece)
    pairs = [
        (array, np.empty((piece, *array.shape[1:]), array.dtype))
        for array in data.values()
    ]

    def read(take: Callable[..., object]) -> None:
        for start in range(0, len(places), piece):
            for array, found in pairs:
                take(array, places[start : start + piece], out=found)

    ways = [partial(np.take, axis=0, mode="clip"), native.take]
    return min(_least(partial(read, way)) for way in ways) / len(places)


@cache
def _of_flop(matrices: bool) -> float:
    """Seconds for one multiplication or addition, of numbers in the cache."""
    rng = np.random.default_rng(1)
    wide = PIXELS if matrices else FEATURES
    rows = 500 if matrices else _CACHED // (4 * wide)
    X = rng.standard_normal((rows, wide), dtype=np.float32)
    weights = rng.standard_normal(
        (wide, HIDDEN) if matrices else wide, dtype=np.float32
    )
    found = np.empty((rows, HIDDEN) if matrices else rows, np.float32)
    return _least(lambda: np.matmul(X, weights, out=found), 50) / (
        2 * X.size * (found.size / rows)
    )


@cache
def _of_exponential() -> float:
    """Seconds for one exponential."""
    x = np.linspace(-3, 3, 2**14, dtype=np.float32)
    found = np.empty_like(x)
    return _least(lambda: np.exp(x, out=found), 50) / x.size


@cache
def _of_normal() -> float:
    """Seconds for one normal number."""
    rng, found = np.random.default_rng(1), np.empty(_LONG, np.float32)
    return _least(lambda: rng.standard_normal(dtype=np.float32, out=found)) / _LONG


def _least(function: Callable[[], object], calls: int = 1) -> float:
    """The least seconds of a call."""
    found = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        for _ in range(calls):
            function()
        found.append((time.perf_counter() - began) / calls)
    return min(found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    smoke = parser.parse_args(arguments).smoke
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for workload in WORKLOADS:
            if workload.section != "packages":
                continue
            workload = workload.smoke() if smoke else workload
            path = write_data(workload, Path(folder))
            data, params = read_data(path)
            least = limit(workload, data, sum(array.size for array in params.values()))
            found = measure(
                workload, ["sgmcmc"], path, *((1, 0.0) if smoke else (5, 0.5))
            )
            ours = columns(found, workload.n_chains)["sgmcmc"]
            row = [workload.description, *map(number, least)]
            if ours is not None:
                row += [number(ours.median), number(ours.median / least.together)]
            rows.append(row)
            print(row, flush=True)
    head = ["", "memory", "arithmetic", "limit", "sgmcmc", "sgmcmc / limit"]
    publish("limits", [table(head, rows)], smoke)


if __name__ == "__main__":
    main()
