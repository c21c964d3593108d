"""Passes over a whole dataset in files, against the disk and one matrix product.

`python -m benchmarks.passes --help`
"""

from __future__ import annotations

import argparse
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.packages.with_sgmcmc import logistic_log_lik, logistic_log_prior
from benchmarks.report import publish, table
from benchmarks.scaling import write_rows
from benchmarks.workloads import Arrays
from sgmcmc.data.reading import read_dataset
from sgmcmc.gradients import WholeData
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.plan.leverage import PROBES, leverage
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.plan import mode_from, whitening_at

SIZES, FEATURES = (10**7, 10**8), 8

_BYTES, _ROWS = 2**23, 2**15
"""What is read, and multiplied, in one go."""

_LONG = 10.0
"""Seconds of a pass in which the time for tracing is lost."""


def measure(folder: Path, data: Arrays) -> dict[str, float]:
    """Return seconds of passes over X.npy and y.npy in a folder: of all cores, or on the clock.

    Args:
        folder: where the files are.
        data: the same, mapped.
    """
    files, (N, d) = [folder / f"{name}.npy" for name in data], data["X"].shape
    space = Space({"bias": (), "beta": (d, 1)})
    target = Target(logistic_log_lik, logistic_log_prior, space, tf.float32)
    dataset = read_dataset(data, tf.float32)
    objective, whole = Objective(target, dataset), WholeData(target, dataset, 500)
    whitening = whitening_at(np.full(d + 1, 0.05), np.eye(d + 1) / N)
    position, single = np.full(d + 1, 0.05), np.ones((d, 1), np.float32)
    several = np.ones((d, 2 * PROBES + 1), np.float32)

    _forget(files, data)
    found = {
        "reading, cold (clock)": _seconds(lambda: _read(files), time.perf_counter),
        "reading, cached (clock)": _seconds(lambda: _read(files), time.perf_counter),
        "NumPy, X times a vector": _seconds(lambda: _product(data["X"], single)),
        f"NumPy, X times {several.shape[1]} vectors": _seconds(
            lambda: _product(data["X"], several)
        ),
        "NumPy, the gradient by hand, float64": _seconds(
            lambda: _by_hand(data, position)
        ),
        "NumPy, the Hessian by hand, float64": _seconds(
            lambda: _by_hand(data, position, 2)
        ),
        "reading and checking": _seconds(lambda: read_dataset(data, tf.float32)),
        "gradient, float64 (mode)": _second_time(
            lambda: objective.value_and_gradient(position)
        ),
        "Hessian, float64 (information)": _second_time(
            lambda: objective.likelihood_hessian(position)
        ),
        "gradient, float32 (control variates)": _second_time(
            lambda: whole.gradient(position.astype(np.float32))
        ),
        "mode, all its passes": _seconds(
            lambda: mode_from(objective, np.zeros(d + 1), 1)
        ),
        f"leverage, {several.shape[1]} positions": _second_time(
            lambda: leverage(target, dataset, whitening, 1)
        ),
    }
    return found


def _seconds(
    function: Callable[[], object], clock: Callable[[], float] = time.process_time
) -> float:
    started = clock()
    function()
    return clock() - started


def _second_time(function: Callable[[], object]) -> float:
    """Return the seconds of a second pass, for which nothing is traced, or of a long first one."""
    first = _seconds(function)
    return first if first > _LONG else _seconds(function)


def _forget(files: list[Path], data: Arrays) -> None:
    """Have the system drop files from its cache, as far as no other process has them mapped."""
    for array in data.values():
        if isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)
    for path in files:
        with path.open("rb") as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(files: list[Path]) -> None:
    """Read files in order, as `dd` does."""
    buffer = bytearray(_BYTES)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _product(X: np.ndarray, vectors: np.ndarray) -> float:
    """Multiply in pieces that stay in the cache, and return one number of it."""
    plain, last = np.asarray(X), 0.0
    for start in range(0, len(plain), _ROWS):
        last = float((plain[start : start + _ROWS] @ vectors)[0, 0])
    return last


def _by_hand(data: Arrays, position: np.ndarray, order: int = 1) -> np.ndarray:
    """Return the log-likelihood's gradient, or its Hessian without the bias, in such pieces."""
    X, y, total = np.asarray(data["X"]), np.asarray(data["y"]), np.zeros(())
    for start in range(0, len(X), _ROWS):
        x = X[start : start + _ROWS].astype(np.float64)
        p = 1 / (1 + np.exp(-(x @ position[1:] + position[0])))
        total = total + (
            x.T @ (y[start : start + _ROWS] - p)
            if order == 1
            else -(x * (p * (1 - p))[:, np.newaxis]).T @ x
        )
    return total


def render(found: dict[int, dict[str, float]]) -> str:
    """Return the table: nanoseconds a row."""
    names = next(iter(found.values()))
    rows = [
        [name, *(f"{1e9 * seconds[name] / N:.1f}" for N, seconds in found.items())]
        for name in names
    ]
    return table(["pass", *(f"N = {N:,}".replace(",", " ") for N in found)], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Passes over 10^7 and 10^8 rows.")
    parser.add_argument(
        "--folder", type=Path, help="for 4 GB of data, which stay; default: none stay"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        for N in (2000, 4000) if options.smoke else SIZES:
            rows = write_rows(options.folder or Path(temporary), N, FEATURES)
            data = {
                name: np.load(rows / f"{name}.npy", mmap_mode="r")
                for name in ("X", "y")
            }
            found[N] = measure(rows, data)
    publish(
        "passes",
        [
            f"Passes over all rows of {FEATURES} features in mapped files, logistic regression, in "
            "nanoseconds per row, on all cores: CPU time without the first pass, which is traced, "
            "unless the pass is so long that tracing is negligible; reading is wall time. For a "
            "cold read the files were dropped from the system's cache. NumPy by hand computes one "
            "exponential and no logarithm, and not the value of the likelihood.",
            render(found),
        ],
        options.smoke,
    )


if __name__ == "__main__":
    main()
