"""`sgmcmc.sample` without any constant, on the same; seconds are of one core, from the call on."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc
from benchmarks.mamba.problem import PRIOR_VARIANCE, thinned


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    logits = tf.linalg.matvec(dataset["X"], params["theta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)


def log_prior(params: Any) -> tf.Tensor:
    return -0.5 / PRIOR_VARIANCE * tf.reduce_sum(params["theta"] ** 2)


def main() -> None:
    request = json.loads(sys.stdin.read())
    with np.load(request["data"]) as file:
        dataset = {"X": file["X"], "y": file["y"]}
    begun = time.process_time()
    start = {"theta": np.zeros(dataset["X"].shape[1], np.float32)}
    samples = sgmcmc.sample(log_lik, dataset, start, log_prior, seed=1, verbose=False)
    draws = np.asarray(samples["theta"], float)
    spent = time.process_time() - begun
    flat = draws.reshape(-1, draws.shape[-1])
    np.savez(request["out"], draws=thinned(flat), mean=flat.mean(0), sd=flat.std(0))
    print(
        json.dumps(
            {
                "seconds": spent,
                "draws": len(flat),
                "sampler": samples.settings["method"],
            }
        )
    )


if __name__ == "__main__":
    main()
