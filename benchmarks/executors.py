"""Passes over the data and chains on one and two workers: `python -m benchmarks.executors -h`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc
from benchmarks.environments import HERE
from benchmarks.report import number, publish, table
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.transfer import read_machines
from sgmcmc.model.geometry import Preconditioner, Space
from sgmcmc.model.target import Target
from sgmcmc.plan.leverage import leverage
from sgmcmc.plan.objective import Objective

FEATURES = 8


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log-likelihood of a logistic regression, by observation."""
    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return dataset["y"] * logits - tf.math.softplus(logits)


def probability(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return the predicted probabilities."""
    return tf.math.sigmoid(tf.linalg.matvec(dataset["X"], params["beta"]))


def one_thread() -> None:
    """Have a process compute on one core, as if the other were another machine's."""
    os.environ["OMP_NUM_THREADS"] = "1"
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def write(folder: Path, N: int) -> dict[str, np.ndarray]:
    """Write a logistic regression to files, and return them mapped."""
    rng = np.random.default_rng(2026)
    X = rng.standard_normal((N, FEATURES), np.float32)
    y = (rng.random(N) < 1 / (1 + np.exp(-X @ np.linspace(-1, 1, FEATURES)))).astype(
        np.float32
    )
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "y")}


def operations(
    data: dict[str, np.ndarray], n_iters: int
) -> dict[str, Callable[[Any], Any]]:
    """Return what is measured, by name: functions of the executor that return numbers."""
    u, space = np.zeros(FEATURES), Space({"beta": (FEATURES,)})
    target = Target(log_lik, None, space, tf.float32)
    whitening = Preconditioner(np.full(FEATURES, 0.01), u)
    draws = np.random.default_rng(1).normal(size=(2, 100, FEATURES)).astype(np.float32)
    samples = sgmcmc.Samples({"beta": draws}, settings={"n_chains": 2})
    first = {name: column[:200_000] for name, column in data.items()}

    def over(executor: Executor | None) -> Any:
        return read_dataset(data, tf.float32).on(read_machines(executor))

    def chains(executor: Executor | None) -> np.ndarray:
        return sgmcmc.sgld(
            log_lik, first, {"beta": u}, 1e-6, minibatch_size=500, n_iters=n_iters, n_chains=4,
            seed=1, verbose=False, executor=executor,
        )["beta"]  # fmt: skip

    return {
        "gradient": lambda executor: Objective(
            target, over(executor)
        ).value_and_gradient(u)[1],
        "information": lambda executor: Objective(
            target, over(executor)
        ).likelihood_hessian(u),
        "leverage": lambda executor: leverage(target, over(executor), whitening, 1),
        "predictions, 200 draws": lambda executor: samples.predict(
            probability, first, executor=executor
        ),
        f"4 chains of {n_iters} iterations": chains,
    }


def cpu_of(process: int) -> float:
    """Return the seconds of CPU time that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(
    function: Callable[[Any], Any], pool: ProcessPoolExecutor
) -> tuple[float, float, float, Any]:
    """Return seconds: wall, CPU of the busiest worker, CPU of the caller; and what comes back."""
    began, own = time.perf_counter(), time.process_time()
    before = {process: cpu_of(process) for process in pool._processes}
    found = function(pool)
    worker = max(
        cpu_of(process) - before.get(process, 0.0) for process in pool._processes
    )
    return time.perf_counter() - began, worker, time.process_time() - own, found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Passes and chains on one and two workers."
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--iterations", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    if options.smoke:
        options.rows, options.iterations, options.rounds = 5000, 100, 1
    context = multiprocessing.get_context("spawn")
    pools = [ProcessPoolExecutor(k, context, one_thread) for k in (1, 2)]
    rows = []
    with tempfile.TemporaryDirectory() as folder, pools[0], pools[1]:
        data = write(Path(folder), options.rows)
        for name, function in operations(data, options.iterations).items():
            reference, same = function(None), True
            best: list[list[tuple[float, float, float]]] = [[], []]
            for turn in range(options.rounds + 1):  # the first one compiles
                for k, pool in enumerate(pools):
                    *seconds, found = timed(function, pool)
                    same = same and np.array_equal(found, reference)
                    if turn:
                        best[k].append((seconds[0], seconds[1], seconds[2]))
            one, two = (np.min(each, 0) for each in best)
            cells = [one[1], two[1], one[1] / two[1], one[0], two[0], two[2]]
            rows.append(
                [name, *(number(cell) for cell in cells), "yes" if same else "no"]
            )
    publish(
        "executors",
        [
            f"Logistic regression, N = {options.rows} rows of {FEATURES} features in files that "
            "workers map themselves; predictions and chains on the first 200 000. Each worker uses "
            f"one core. Seconds, the minimum of {options.rounds} runs: CPU time of the busiest "
            "worker, which equals wall time on an idle machine; wall time; and the caller's own "
            "CPU time. The last column compares with the same call without an executor, bit for "
            "bit.",
            table(
                [
                    "",
                    "CPU, 1 worker",
                    "2 workers",
                    "ratio",
                    "wall, 1 worker",
                    "2 workers",
                    "caller's CPU",
                    "bit for bit",
                ],
                rows,
            ),
        ],
        options.smoke,
        HERE.parent / "docs" / "long-chains.md",
    )


if __name__ == "__main__":
    main()
