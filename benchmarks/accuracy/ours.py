"""The package's own runs, and the reference."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc
from benchmarks.accuracy.curves import Run
from benchmarks.accuracy.problems import Arrays

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "sample": ("sgmcmc.sample, ess=2000", {"ess": 2000}),
    "sample-uniform": (
        "the same, uniform minibatches",
        {"ess": 400, "minibatches": "uniform"},
    ),
    "hmc": ("sgmcmc.hmc, no constants", {"ess": 400}),
}
"""Heading and arguments of each."""


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)


def laplace(params: Any) -> tf.Tensor:
    return -tf.reduce_sum(tf.abs(params["beta"]))


def normal(params: Any) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(params["beta"] ** 2)


PRIORS = {"laplace": laplace, "normal": normal}


def run(method: str, prior: str, data: Arrays, **given: Any) -> Run:
    """Sample, and return the draws with their seconds."""
    function = sgmcmc.hmc if method == "hmc" else sgmcmc.sample
    arguments = {**METHODS[method][1], "seed": 1, "verbose": False, **given}
    began = time.perf_counter()
    samples = function(
        log_lik,
        data,
        {"beta": np.zeros(data["X"].shape[1])},
        PRIORS[prior],
        **arguments,
    )
    seconds = time.perf_counter() - began
    phases = samples.report["Seconds"]
    before = sum(
        s for name, s in phases.items() if name not in ("all", "chain", "report")
    )
    return Run(samples["beta"], before, seconds - before, samples.report.warnings)
