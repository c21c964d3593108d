"""Thousands of small calls of four chains, a tenth of them interrupted at random instants.

Run by ``test_stress.py`` in a process of its own, or by hand:
``python -m tests.run.stress 5000 --seed 1``.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc

STEPSIZES = {
    "sgld": 1e-4,
    "sgldcv": 1e-4,
    "sghmc": 1e-5,
    "sgnht": 1e-5,
    "sghmccv": 1e-5,
}
SLOW, SILENT = 60, 600
"""Seconds after which all stacks are written, again and again, and after which the process ends."""


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log-likelihood of N(theta, 1), but for a constant."""
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)


def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log density of N(0, 100), but for a constant."""
    return -0.5 * tf.reduce_sum(params["theta"] ** 2) / 100


lost: list[bool] = []
"""Where Ctrl-C came while Python was removing an object: Python drops such exceptions."""


def take_note(ignored: Any) -> None:
    """Keep in mind what Python drops; in place of ``sys.unraisablehook``."""
    sys.__unraisablehook__(ignored)
    if ignored.exc_type is KeyboardInterrupt:
        lost.append(True)


@contextlib.contextmanager
def interrupted_after(seconds: float | None) -> Iterator[list[bool]]:
    """Send this process what Ctrl-C sends, unless the block is over before.

    Args:
        seconds: when; ``None`` for not at all.

    Yields:
        What is not empty once it was sent.
    """
    over, sent = threading.Event(), list[bool]()

    def fire() -> None:
        if not over.wait(seconds):
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=fire)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()


def one_call(
    rng: random.Random, data: dict[str, np.ndarray], seed: int, instant: float | None
) -> bool:
    """Call a sampler with arguments at random; return whether it was interrupted.

    Args:
        rng: draws the arguments.
        data: the observations.
        seed: of the chains.
        instant: seconds after which Ctrl-C comes; ``None`` for not at all.
    """
    name = rng.choice(list(STEPSIZES))
    given: dict[str, Any] = {
        "stepsize": STEPSIZES[name],
        "n_iters": rng.choice([1, 50, 300, 2000]),
        "minibatch_size": rng.choice([10, 50]),
        "verbose": rng.random() < 0.3,
    }
    if name.endswith("cv"):
        given |= {"opt_stepsize": 1e-4, "n_iters_opt": rng.choice([1, 100, 500])}
    start = {"theta": np.zeros(3, np.float32)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with interrupted_after(instant) as sent:
                samples = getattr(sgmcmc, name)(
                    log_lik,
                    data,
                    start,
                    log_prior=log_prior,
                    n_chains=4,
                    seed=seed,
                    **given,
                )
        except KeyboardInterrupt:
            return True
    stopped = any("Interrupted" in str(warning.message) for warning in told)
    if sent and not stopped and not lost:
        raise AssertionError("Ctrl-C went unheard")
    draws = samples["theta"].shape[1]
    if not 0 < draws <= given["n_iters"] or (draws < given["n_iters"] and not stopped):
        raise AssertionError(f"{name}: {draws} draws of {given['n_iters']}")
    if not np.isfinite(samples["theta"]).all():
        raise AssertionError(f"{name}: draws that are not finite")
    lost.clear()
    return bool(sent)


def resident() -> float:
    """Return the memory that this process holds, in MB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def waited() -> float:
    """Return the seconds for which the main thread has waited for a core."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def main() -> None:
    """Make the calls; say every hundred how long they took and what memory is held."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("calls", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--beside", type=int, default=0, help="processes that keep the cores busy"
    )
    parser.add_argument("--nice", type=int, default=0, help="of these processes")
    parser.add_argument(
        "--share", type=float, default=0.2, help="of calls that Ctrl-C is aimed at"
    )
    given = parser.parse_args()
    faulthandler.enable()
    sys.unraisablehook = take_note
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = random.Random(given.seed)
    data = {"x": np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)}
    seconds: list[float] = []
    whole: list[float] = []
    interrupted = 0
    endless = (
        f"import os; os.nice({given.nice})\nwhile os.getppid() == {os.getpid()}: pass"
    )
    busy = [
        subprocess.Popen([sys.executable, "-c", endless]) for _ in range(given.beside)
    ]
    try:
        for call in range(given.calls):
            faulthandler.dump_traceback_later(SLOW, repeat=True)
            signal.alarm(SILENT)  # which nobody handles: it ends the process
            usual = statistics.median(whole[-50:]) if whole else 1.0
            instant = rng.random() * usual if rng.random() < given.share else None
            start, worked, queued = time.monotonic(), time.process_time(), waited()
            stopped = one_call(rng, data, call, instant)
            interrupted += stopped
            seconds.append(time.monotonic() - start)
            if not stopped:
                whole.append(seconds[-1])
            if seconds[-1] > SLOW:
                print(
                    f"call {call}: {seconds[-1]:.0f} s, {time.process_time() - worked:.1f} s of "
                    f"work, {waited() - queued:.0f} s in the queue for a core",
                    flush=True,
                )
            if (call + 1) % 100 == 0:
                print(
                    f"{call + 1} calls, {interrupted} interrupted, "
                    f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s, "
                    f"{threading.active_count()} threads, load {os.getloadavg()[0]:.1f}, "
                    f"{resident():.0f} MB",
                    flush=True,
                )
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
