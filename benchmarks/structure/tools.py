"""One run of a tool: `python -m benchmarks.structure.tools TOOL CASE ROWS` prints what it found."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.structure.cases import CASES, Case

Estimate = tuple[float, float]
"""Coefficient and its standard error."""


def _sgmcmc(case: Case, frame: pd.DataFrame) -> Estimate:
    import sgmcmc

    _begin()
    fit = sgmcmc.glm(case.formula, frame, case.family, seed=1, verbose=False)
    row = fit.summary().loc[case.term]
    return row["estimate"], row["error"]


def _numpy(case: Case, frame: pd.DataFrame) -> Estimate:
    """Normal equations in float64, from columns to estimates."""
    columns = _terms(case)
    _begin()
    X = np.column_stack([np.ones(len(frame)), *(frame[name] for name in columns)])
    y = frame["y"].to_numpy()
    products, toward = X.T @ X, X.T @ y
    estimate = np.linalg.solve(products, toward)
    variance = (y @ y - estimate @ toward) / (len(y) - len(estimate))
    place = 1 + columns.index(case.term)
    return estimate[place], np.sqrt(variance * np.linalg.inv(products)[place, place])


def _ridge(case: Case, frame: pd.DataFrame) -> Estimate:
    from sklearn.linear_model import Ridge

    columns = _terms(case)
    _begin()
    fit = Ridge(alpha=1e-6).fit(frame[columns], frame["y"])
    return fit.coef_[columns.index(case.term)], np.nan


def _statsmodels(case: Case, frame: pd.DataFrame) -> Estimate:
    import statsmodels.formula.api as formulas
    from statsmodels.genmod.families import Binomial

    fixed, _, bars = case.formula.partition(" + (")
    _begin()
    if bars:
        slopes = bars.partition(" | ")[0]
        fit = formulas.mixedlm(fixed, frame, groups="g", re_formula=f"~ {slopes}").fit()
    elif case.family == "bernoulli":
        fit = formulas.glm(fixed, frame, family=Binomial()).fit()
    else:
        fit = formulas.ols(fixed, frame).fit()
    return fit.params[case.term], fit.bse[case.term]


def _pyfixest(case: Case, frame: pd.DataFrame) -> Estimate:
    """Effects of groups as fixed terms, of which pyfixest returns the slopes alone."""
    import pyfixest

    fixed, *bars = case.formula.split(" + (1 | ")
    groups = " + ".join(bar.rstrip(")") for bar in bars)
    _begin()
    fit = pyfixest.feols(f"{fixed} | {groups}" if groups else fixed, frame)
    return float(fit.coef()[case.term]), float(fit.se()[case.term])


def _terms(case: Case) -> list[str]:
    return case.formula.partition(" ~ ")[2].split(" + ")


TOOLS: dict[str, tuple[Callable[[Case, pd.DataFrame], Estimate], tuple[str, ...]]] = {
    "sgmcmc": (_sgmcmc, tuple(CASES)),
    "NumPy": (_numpy, ("columns",)),
    "scikit-learn": (_ridge, ("columns",)),
    "statsmodels": (_statsmodels, ("columns", "groups", "slopes", "visits")),
    "pyfixest": (_pyfixest, ("columns", "groups", "crossed", "insteval", "ratings")),
}
"""Function of each tool, and the cases that it can do; lme4 is run by `with_lme4.R`."""

_began: list[tuple[float, float, float]] = []


def _begin() -> None:
    """Note time and memory before the tool does anything with the rows."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _began.append((time.monotonic(), sum(os.times()[:2]), used.ru_maxrss / 1024))


def main() -> None:
    """Run a tool and print its numbers."""
    tool, name, rows = sys.argv[1:]
    case = CASES[name]
    frame = case.frame(int(rows))
    estimate, error = TOOLS[tool][0](case, frame)
    began, cpu, before = _began[-1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found: dict[str, Any] = {
        "seconds": round(time.monotonic() - began, 2),
        "cpu": round(sum(os.times()[:2]) - cpu, 2),
        "MB": round(peak),
        "MB of rows and imports": round(before),
        "estimate": float(estimate),
        "error": None if np.isnan(error) else float(error),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
