"""The regressions: rows that are simulated, or read, and the formula of each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
TRUTH = 0.3
"""Coefficient of the first column."""


@dataclass(frozen=True)
class Case:
    """A regression.

    Attributes:
        label: What it is, for the table.
        formula: Formula of lme4.
        frame: Function of the number of rows that returns them.
        sizes: Numbers of rows that are measured.
        family: Family.
        term: Coefficient that is compared.
        truth: Its true value; ``None`` if it is not known.
    """

    label: str
    formula: str
    frame: Callable[[int], pd.DataFrame]
    sizes: tuple[int, ...] = SIZES
    family: str = "gaussian"
    term: str = "x0"
    truth: float | None = TRUTH


def _columns(rng: np.random.Generator, rows: int, count: int) -> pd.DataFrame:
    return pd.DataFrame({f"x{k}": rng.normal(size=rows) for k in range(count)})


def _twenty(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = _columns(rng, rows, 20)
    y = TRUTH * frame["x0"] + rng.normal(size=rows)
    return frame.assign(y=y)


def _groups(rows: int, per_group: int, slopes: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame, levels = _columns(rng, rows, 2), rows // per_group
    g = rng.integers(0, levels, rows)
    y = TRUTH * frame["x0"] + 0.7 * rng.normal(size=levels)[g] + rng.normal(size=rows)
    for k in range(slopes):
        y = y + 0.5 * rng.normal(size=levels)[g] * frame[f"x{k}"]
    return frame.assign(g=g, y=y)


def _crossed(rows: int) -> pd.DataFrame:
    rng, levels = np.random.default_rng(1), 1000
    frame = _columns(rng, rows, 2)
    a, b = rng.integers(0, levels, (2, rows))
    y = TRUTH * frame["x0"] + rng.normal(size=levels)[a] + rng.normal(size=rows)
    return frame.assign(a=a, b=b, y=y + 0.5 * rng.normal(size=levels)[b])


def _insteval(rows: int) -> pd.DataFrame:
    folder = Path(os.environ.get("SGMCMC_DATA", "data"))
    return pd.read_csv(folder / "insteval.csv")


def _ratings(rows: int) -> pd.DataFrame:
    path = Path(os.environ.get("SGMCMC_DATA", "data")) / "ml-100k" / "u.data"
    names = ["user", "film", "y", "time"]
    frame = pd.read_csv(path, sep="\t", names=names)
    seconds = frame["time"] - frame["time"].min()
    return frame.assign(years=seconds / (365.25 * 86400))


def _visits(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {f"x{k}": (rng.random(rows) < 0.5).astype(np.int8) for k in range(10)}
    )
    p = 1 / (1 + np.exp(1.0 - TRUTH * frame["x0"]))
    return frame.assign(y=(rng.random(rows) < p).astype(np.int8))


CASES = {
    "columns": Case(
        "20 columns", "y ~ " + " + ".join(f"x{k}" for k in range(20)), _twenty
    ),
    "groups": Case(
        "`(1 | g)`, ten rows a group",
        "y ~ x0 + x1 + (1 | g)",
        lambda rows: _groups(rows, 10, 0),
    ),
    "slopes": Case(
        "`(1 + x0 + x1 | g)`, twenty rows a group",
        "y ~ x0 + x1 + (1 + x0 + x1 | g)",
        lambda rows: _groups(rows, 20, 2),
        SIZES[:3],
    ),
    "crossed": Case(
        "`(1 | a) + (1 | b)`, 1000 × 1000 levels",
        "y ~ x0 + x1 + (1 | a) + (1 | b)",
        _crossed,
        SIZES[1:],
    ),
    "insteval": Case(
        "InstEval, 2972 × 1128 × 14 levels",
        "y ~ service + (1 | s) + (1 | d) + (1 | dept)",
        _insteval,
        (73_421,),
        term="service",
        truth=None,
    ),
    "ratings": Case(
        "ratings of MovieLens, 1682 × 943 levels",
        "y ~ years + (1 | film) + (1 | user)",
        _ratings,
        (100_000,),
        term="years",
        truth=None,
    ),
    "visits": Case(
        "yes or no, ten binary columns",
        "y ~ " + " + ".join(f"x{k}" for k in range(10)),
        _visits,
        family="bernoulli",
    ),
}
