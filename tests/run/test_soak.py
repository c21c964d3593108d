"""A chain of a hundred million iterations: memory stays flat, and the law holds at the end."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import sgmcmc
from tests.run.stress import resident

N_ITERS = 10**8
BINS = 20
APART = 1000
"""Iterations between the draws that the law is tested by: their correlation is 0.95¹⁰⁰⁰."""
N, MINIBATCH = 100, 50
SPARE = 40.0
"""Megabytes that the heap may breathe."""


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log-likelihood of x_i ~ N(theta, 1), but for a constant."""
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)


def peak_while(over: threading.Event, found: list[float]) -> None:
    """Note twice a second what memory the process holds."""
    while not over.wait(0.5):
        found.append(resident())


@pytest.mark.faults
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_hundred_million_iterations() -> None:
    """SGLD on a Gaussian is a first-order autoregression, whose law is known with its noise."""
    x = np.random.default_rng(1).normal(1.0, 1.0, N).astype(np.float32)
    stepsize = 0.1 / N
    pull = stepsize / 2 * N
    noise = N**2 * (1 - MINIBATCH / N) * x.var(ddof=1, dtype=np.float64) / MINIBATCH
    variance = (stepsize + stepsize**2 / 4 * noise) / (1 - (1 - pull) ** 2)
    law = stats.norm(x.mean(dtype=np.float64), np.sqrt(variance))
    edges = tf.constant(law.ppf(np.arange(1, BINS) / BINS), tf.float32)

    def last_tenth(state: dict[str, tf.Tensor], params: dict[str, tf.Tensor]) -> dict:
        count = state["count"] + 1
        counts = (count > N_ITERS - N_ITERS // 10) & (count % APART == 0)
        where = tf.reduce_sum(tf.cast(params["theta"] > edges, tf.int32))
        more = tf.one_hot(where, BINS, dtype=tf.int32) * tf.cast(counts, tf.int32)
        return {"count": count, "bins": state["bins"] + more}

    def run(n_iters: int) -> sgmcmc.Samples:
        start = {"count": np.int32(0), "bins": np.zeros(BINS, np.int32)}
        return sgmcmc.sgld(
            log_lik, {"x": x}, {"theta": 1.0}, stepsize, minibatch_size=MINIBATCH,
            n_iters=n_iters, store_params=False, verbose=False, seed=1,
            reductions={
                "moments": sgmcmc.running_moments(lambda params: params["theta"]),
                "last": (start, last_tenth),
            },
        )  # fmt: skip

    run(10**6)
    over, held, before = threading.Event(), list[float](), resident()
    watcher = threading.Thread(target=peak_while, args=(over, held))
    watcher.start()
    began = time.perf_counter()
    try:
        chain = run(N_ITERS)
    finally:
        over.set()
        watcher.join()
    assert chain.reductions is not None
    moments, bins = chain.reductions["moments"], chain.reductions["last"]["bins"]
    p = stats.chisquare(bins).pvalue
    # An autoregression with the coefficient 0.95 has (1 + 0.95) / (1 - 0.95) draws to each one.
    to_each = (2 - pull) / pull
    mean_off = (moments["mean"] - law.mean()) / np.sqrt(variance * to_each / N_ITERS)
    of_squares = (1 + (1 - pull) ** 2) / (1 - (1 - pull) ** 2)
    variance_off = (moments["variance"] / variance - 1) / np.sqrt(
        2 * of_squares / N_ITERS
    )
    print(
        f"{time.perf_counter() - began:.0f} s; memory {before:.0f} MB before, {max(held):.0f} MB "
        f"at most; mean {mean_off:.2f}, variance {variance_off:.2f} standard errors off; "
        f"last tenth, {bins.sum()} draws: p = {p:.3f}"
    )
    assert bins.sum() == N_ITERS // 10 // APART
    assert p > 1e-4
    assert abs(mean_off) < 4 and abs(variance_off) < 4
    assert max(held) < before + SPARE
