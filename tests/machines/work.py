"""What tests of executors have workers do; workers import this file, and so can find it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

ROWS = np.random.default_rng(3).normal(1.0, 1.0, (400, 2)).astype(np.float32)


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log-likelihood of x_i ~ N(theta, 1)."""
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)


CALL: dict[str, Any] = {
    "log_lik": log_lik,
    "dataset": {"x": ROWS},
    "params": {"theta": np.zeros(2)},
    "stepsize": 1e-3,
    "opt_stepsize": 1e-3,
    "minibatch_size": 20,
    "n_iters": 600,
    "n_iters_opt": 50,
    "n_chains": 3,
    "seed": 1,
    "verbose": False,
    "jit_compile": False,
}
"""A short call of ``sgldcv``."""


class Adder:
    """Adds numbers, and ends its process on the way, once for each file that is not there yet.

    Args:
        folder: where files are made.
        fatal: numbers at which a process ends.
        always: whether it ends every time.
    """

    def __init__(
        self, folder: Path, fatal: tuple[int, ...] = (), always: bool = False
    ) -> None:
        self.folder, self.fatal, self.always = folder, fatal, always

    def add(self, number: int, other: int) -> int:
        """Return the sum."""
        mark = self.folder / f"killed-{number}"
        if number in self.fatal and (self.always or not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number + other

    def fail(self) -> None:
        """Fail."""
        raise KeyError("nothing")

    def process(self) -> int:
        """Return the number of the process."""
        return os.getpid()
