"""Microseconds an iteration of a model in TensorFlow, and of the same in JAX.

Run it in an environment with JAX: ``python -m benchmarks.from_jax``.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc

N, D, N_ITERS = 100_000, 54, 20_000


def tf_log_lik(params: Any, dataset: Any) -> Any:
    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)


def tf_log_prior(params: Any) -> Any:
    return -0.5 * tf.reduce_sum(params["beta"] ** 2)


def log_lik(params: Any, dataset: Any) -> Any:
    jnp = importlib.import_module("jax.numpy")
    logits = dataset["X"] @ params["beta"]
    return dataset["y"] * logits - jnp.logaddexp(0.0, logits)


def log_prior(params: Any) -> Any:
    return -0.5 * (params["beta"] ** 2).sum()


def models() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Return the same model in TensorFlow, by from_jax and by jax2tf."""
    convert = importlib.import_module("jax.experimental.jax2tf").convert
    return {
        "TensorFlow": (tf_log_lik, tf_log_prior),
        "from_jax": (sgmcmc.from_jax(log_lik), sgmcmc.from_jax(log_prior)),
        "jax2tf": (convert(log_lik), convert(log_prior)),
    }


def stepping(
    likelihood: Any, prior: Any, compiled: bool, dataset: Any
) -> Callable[[], float]:
    """Return a function that runs a chain on and returns microseconds an iteration."""
    sampler = sgmcmc.sgld_setup(
        likelihood, dataset, {"beta": np.zeros(D)}, 1e-5, prior, minibatch_size=500, seed=1,
        jit_compile=compiled,
    )  # fmt: skip
    session = sgmcmc.init_sess(sampler, verbose=False)
    sgmcmc.sgmcmc_step(sampler, session, N_ITERS)

    def run() -> float:
        start = time.perf_counter()
        sgmcmc.sgmcmc_step(sampler, session, N_ITERS)
        return (time.perf_counter() - start) / N_ITERS * 1e6

    return run


def main() -> None:
    """Print the medians of several rounds, the models in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    y = (rng.random(N) < 1 / (1 + np.exp(-X @ rng.normal(size=D) / 8))).astype(
        np.float32
    )
    for compiled in (True, False):
        runs = {
            name: stepping(*model, compiled, {"X": X, "y": y})
            for name, model in models().items()
        }
        seen: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                seen[name].append(run())
        first = np.median(seen["TensorFlow"])
        for name, micros in seen.items():
            middle = np.median(micros)
            kind = "XLA" if compiled else "plain graph"
            print(
                f"{kind:12} {name:12} {middle:6.1f} µs, {middle / first:.2f} of TensorFlow"
            )


if __name__ == "__main__":
    main()
