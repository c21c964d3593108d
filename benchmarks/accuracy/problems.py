"""The two posteriors: forests, and features that are rare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A logistic regression; the first column of X is the intercept's.

    Attributes:
        about: for the table.
        data: returns X, (N, d), and y, (N,), in float32.
        prior: "laplace" or "normal", of scale one, on every coefficient.
    """

    about: str
    data: Callable[[], Arrays]
    prior: str


def covertype() -> Arrays:
    """All rows of the forests, 54 features in [0, 1]."""
    import sgmcmc

    table = sgmcmc.get_dataset("covertype", verbose=False)
    ones = np.ones((len(table), 1), np.float32)
    return {"X": np.hstack([ones, table[:, 1:]]), "y": table[:, 0]}


def rare(N: int = 100_000, d: int = 100) -> Arrays:
    """Binary features of prevalence 0.3 down to 10⁻⁴."""
    rng = np.random.default_rng(7)
    prevalence = np.geomspace(0.3, 1e-4, d)
    X = np.column_stack([np.ones(N), rng.random((N, d)) < prevalence]).astype(
        np.float32
    )
    beta = np.concatenate([[-1.0], rng.normal(0, 0.5, d)])
    y = rng.random(N) < 1 / (1 + np.exp(-X @ beta))
    return {"X": X, "y": y.astype(np.float32)}


PROBLEMS = {
    "covertype": Problem(
        "covertype, N = 581 012, 55 coefficients", covertype, "laplace"
    ),
    "rare": Problem(
        "100 binary features of prevalence 0.3 to 10⁻⁴, N = 100 000", rare, "normal"
    ),
}
