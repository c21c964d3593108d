"""Samplers of shards with exact draws, in a file that workers import."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

import sgmcmc

SDS = np.array([1.0, 2.0, 0.5])


def normal_log_lik(params: Any, dataset: Any) -> Any:
    """Return the log-likelihood of x_i ~ N(theta, diag(SDS²)), up to a constant."""
    return (
        -0.5 * (((dataset["x"] - params["theta"]) / SDS.astype(np.float32)) ** 2).sum()
    )


def exact(
    log_lik: Any,
    dataset: Any,
    params: Any,
    log_prior: Any = None,
    seed: int | None = None,
    verbose: bool = True,
    n: int = 1000,
    chains: int = 4,
    sd: Any = SDS,
) -> sgmcmc.Samples:
    """Return draws of N(mean of the rows, sd²/rows), the posterior of a normal mean."""
    rng, x = np.random.default_rng(seed), np.asarray(dataset["x"], np.float64)
    draws = rng.normal(x.mean(0), sd / np.sqrt(len(x)), (chains, n, x.shape[1]))
    return sgmcmc.Samples({"theta": draws}, settings={"n_chains": chains})


class DyingSampler:
    """The same, but whose process dies once.

    Args:
        folder: where it leaves a mark.
    """

    def __init__(self, folder: Path) -> None:
        self._mark = folder / "died"

    def __call__(
        self, log_lik: Any, dataset: Any, params: Any, **given: Any
    ) -> sgmcmc.Samples:
        if not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return exact(log_lik, dataset, params, **given)
