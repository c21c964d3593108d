"""One sampler of one package on a normal mean; started in that package's environment."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np

from benchmarks.packages import PACKAGES
from benchmarks.workloads import Workload

N, n, SHARE, ALPHA, L = 1000, 500, 0.02, 0.3, 5
"""Rows, rows of a minibatch, ελ, friction, and steps of SGHMC: errors are small, if it is right."""


def build(request: dict[str, Any]) -> tuple[Any, float]:
    """Return the function that runs a chain, and the posterior variance."""
    precision = N + 0.01
    workload = Workload(
        "law",
        "",
        "gaussian",
        request["method"],
        N,
        n,
        SHARE / precision,
        L=L,
        alpha=ALPHA,
    )
    x = np.random.default_rng(1).normal(size=(N, 2)).astype(np.float32)
    start = {"theta": x.mean(0)}
    module = importlib.import_module(PACKAGES[request["package"]].module)
    return module.build(workload, {"x": x}, start), 1.0 / precision


def main() -> None:
    request = json.loads(sys.stdin.read())
    draws = (
        request["draws"]
        if request["package"] != "posteriors"
        else request["draws"] // 20
    )
    run, variance = build(request)
    theta = np.asarray(run(draws)["theta"], float).reshape(draws, 2)[draws // 10 :]
    batches = np.array_split((theta - theta.mean(0)) ** 2, 20)
    each = np.array([batch.mean() for batch in batches]) / variance
    found = {"ratio": each.mean(), "error": each.std(ddof=1) / np.sqrt(len(each))}
    print(json.dumps({name: float(value) for name, value in found.items()}))


if __name__ == "__main__":
    main()
