"""The side of Python: does what `side.R` does. Its argument is the folder of the data."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc


def log_lik(
    params: Mapping[str, tf.Tensor], dataset: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    logits = tf.squeeze(params["bias"] + tf.matmul(dataset["X"], params["beta"]), 1)
    return tf.reduce_sum(dataset["y"] * logits - tf.nn.softplus(logits))


def log_prior(params: Mapping[str, tf.Tensor]) -> tf.Tensor:
    return -(
        tf.reduce_sum(tf.abs(params["beta"])) + tf.reduce_sum(tf.abs(params["bias"]))
    )


def main(folder: str) -> None:
    data = {name: np.load(Path(folder) / f"{name}.npy") for name in ("X", "y")}
    params = {"bias": 0.0, "beta": np.zeros((data["X"].shape[1], 1))}
    for line in sys.stdin:
        method, updates, n_iters = line.split()
        further: dict[str, Any] = {"updates": updates, "n_iters": int(n_iters)}
        if method.endswith("cv"):
            further |= {"opt_stepsize": 1e-5, "n_iters_opt": 100}
        wall, cpu = time.perf_counter(), time.process_time()
        samples = getattr(sgmcmc, method)(
            log_lik, data, params, stepsize=1e-5, log_prior=log_prior, minibatch_size=500,
            verbose=False, seed=1, **further,
        )  # fmt: skip
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        assert len(samples["beta"]) == further["n_iters"]
        print(wall, cpu, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
