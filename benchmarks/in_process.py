"""`sgmcmc` on a logistic regression in this process, for scaling.py and cores.py."""

from __future__ import annotations

import time
from typing import Any

import sgmcmc
from benchmarks.packages.with_sgmcmc import logistic_log_lik, logistic_log_prior
from benchmarks.steady import Seconds
from benchmarks.workloads import Arrays

n = 500


def run_sgld(
    data: Arrays, n_iters: int, n_chains: int | None = None, **more: Any
) -> Seconds:
    """Time of `sgmcmc.sgld` with minibatches of 500, every draw kept."""
    params = {"bias": 0.0, "beta": [[0.0]] * data["X"].shape[1]}
    wall, cpu = time.perf_counter(), time.process_time()
    sgmcmc.sgld(
        logistic_log_lik,
        data,
        params,
        0.1 / len(data["y"]),
        logistic_log_prior,
        minibatch_size=n,
        n_iters=n_iters,
        verbose=False,
        seed=1,
        n_chains=n_chains,
        **more,
    )
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)
