"""What is sampled: the workloads, and the simulated data that all packages share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.simulations import FEATURES, SIMULATIONS, Arrays, simulate_logistic

__all__ = [
    "FEATURES",
    "WORKLOADS",
    "Arrays",
    "Workload",
    "find",
    "read_data",
    "simulate_logistic",
]


@dataclass(frozen=True)
class Workload:
    """A model, a size and a method.

    Attributes:
        name: for the command line.
        description: for the table.
        model: key of `SIMULATIONS`.
        method: "sgld", "sgldcv", "sghmc", "sgnht", or one of those in the further section.
        N: observations.
        n: observations in a minibatch.
        stepsize: ε of θ' = θ + (ε/2) ĝ(θ) + √ε η.
        L: gradient steps in one iteration of SGHMC.
        alpha: friction of SGHMC, and what SGNHT's begins with.
        n_chains: independent chains.
        memory_iters: iterations of the run that measures memory, the same for all packages.
        packages: keys of the packages that run it; all if there are none.
        section: of the document, and of the results.
    """

    name: str
    description: str
    model: str
    method: str
    N: int
    n: int
    stepsize: float
    L: int = 1
    alpha: float = 0.1
    n_chains: int = 1
    memory_iters: int = 2000
    packages: tuple[str, ...] = ()
    section: str = "packages"

    @property
    def data_name(self) -> str:
        """Workloads with the same data name have the same data."""
        return f"{self.model}-{self.N}"

    def smoke(self) -> Workload:
        """The same in tiny, to see that it runs."""
        N = min(self.N, 2000)
        return dataclasses.replace(
            self,
            N=N,
            n=min(self.n, N // 4),
            stepsize=min(self.stepsize, 1e-5),
            memory_iters=20,
        )


def _logistic(
    N: int, n: int, method: str, name: str, description: str, **others: Any
) -> Workload:
    return Workload(name, description, "logistic", method, N, n, 0.1 / N, **others)


_COVERTYPE = 581_012

_WITH_MANY_CHAINS = ("sgmcmc", "sgmcmcjax", "blackjax")
"""Others would take an hour for a thousand chains."""

FURTHER = "further"
"""Section of the samplers that only some packages have."""


def _further(method: str, label: str, *others: str) -> Workload:
    """Return the logistic regression with a sampler that these other packages have."""
    return _logistic(
        100_000,
        500,
        method,
        method,
        label,
        packages=("sgmcmc", *others),
        section=FURTHER,
    )


WORKLOADS = (
    _logistic(100_000, 500, "sgld", "sgld-100k", "Logistic, N = 100 000, SGLD"),
    _logistic(_COVERTYPE, 500, "sgld", "sgld-581k", "Logistic, N = 581 012, SGLD"),
    _logistic(100_000, 500, "sgldcv", "cv-100k", "Logistic, N = 100 000, SGLD-CV"),
    _logistic(_COVERTYPE, 500, "sgldcv", "cv-581k", "Logistic, N = 581 012, SGLD-CV"),
    _logistic(
        100_000, 500, "sghmc", "sghmc", "Logistic, N = 100 000, SGHMC, L = 5", L=5
    ),
    _logistic(100_000, 500, "sgnht", "sgnht", "Logistic, N = 100 000, SGNHT"),
    _logistic(100_000, 50, "sgld", "n-50", "Logistic, N = 100 000, n = 50, SGLD"),
    Workload(
        "p-1000",
        "Logistic, N = 10 000, 1000 features, SGLD",
        "wide",
        "sgld",
        10_000,
        500,
        1e-6,
    ),
    Workload(
        "poisson",
        "Poisson regression, N = 100 000, SGLD",
        "poisson",
        "sgld",
        100_000,
        500,
        1e-7,
    ),
    Workload(
        "factors",
        "Matrix factorization, 200 × 100, rank 5, N = 10 000, SGLD",
        "factors",
        "sgld",
        10_000,
        500,
        1e-5,
    ),
    Workload(
        "tiny",
        "Gaussian mean, N = 1000, d = 2, n = 10, SGLD",
        "gaussian",
        "sgld",
        1000,
        10,
        1e-4,
    ),
    Workload(
        "network",
        "Network 784–100–10, N = 55 000, SGLD",
        "network",
        "sgld",
        55_000,
        500,
        1e-5,
        memory_iters=200,
    ),
    _logistic(
        100_000,
        500,
        "sgld",
        "chains",
        "Logistic, N = 100 000, SGLD, 4 chains",
        n_chains=4,
    ),
    Workload(
        "tiny-1000",
        "Gaussian mean, n = 10, SGLD, 1000 chains",
        "gaussian",
        "sgld",
        1000,
        10,
        1e-4,
        n_chains=1000,
        packages=_WITH_MANY_CHAINS,
    ),
    Workload(
        "logistic-1000",
        "Logistic, N = 10 000, n = 50, SGLD, 1000 chains",
        "logistic",
        "sgld",
        10_000,
        50,
        1e-5,
        n_chains=1000,
        memory_iters=200,
        packages=_WITH_MANY_CHAINS,
    ),
    _logistic(
        _COVERTYPE, 5810, "sgld", "large-n", "Logistic, N = 581 012, n = 5810, SGLD"
    ),
    _further("baoab", "Underdamped Langevin (BAOAB)"),
    _further("badodab", "BADODAB"),
    _further("psgld", "pSGLD", "sgmcmcjax", "jax-sgmc"),
    _further("smile", "SMILE", "blackjax"),
    _further("psmile", "pSMILE"),
    _further("sgfs", "SGFS, diagonal"),
    _further("barker", "Stochastic gradient Barker"),
    _further("sglrw", "SGLRW"),
    dataclasses.replace(
        _further("mala", "MALA, N = 10 000, all rows, 2 chains", "blackjax"),
        N=10_000,
        n=10_000,
        stepsize=0.1 / 10_000,
        n_chains=2,
        memory_iters=200,
    ),
    *(
        dataclasses.replace(
            _further(method, f"{label}, normal prior, 2 chains"),
            model="ridge",
            n_chains=2,
            memory_iters=200,
        )
        for method, label in (("zigzag", "Zig-zag"), ("mhss", "MH-SS"))
    ),
)


def find(name: str) -> Workload:
    """The workload of that name."""
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise KeyError(name)


def write_data(workload: Workload, folder: Path) -> Path:
    """Simulate the workload's data and starting values into a folder of its own, unless there."""
    target = folder / workload.data_name
    if not target.exists():
        data, params = SIMULATIONS[workload.model](
            workload.N, np.random.default_rng(2019)
        )
        target.mkdir(parents=True)
        for kind, arrays in (("data", data), ("params", params)):
            for name, array in arrays.items():
                np.save(target / f"{kind}.{name}.npy", array)
    return target


def read_data(folder: Path) -> tuple[Arrays, Arrays]:
    """The data and the starting values that `write_data` wrote, in memory."""
    read: dict[str, Arrays] = {"data": {}, "params": {}}
    for path in sorted(folder.glob("*.npy")):
        kind, name, _ = path.name.split(".")
        read[kind][name] = np.load(path)
    return read["data"], read["params"]
