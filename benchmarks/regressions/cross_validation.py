"""LOO from a thousand rows against LOO of all rows: covertype by formula, and 10⁷ simulated rows.

python -m benchmarks.regressions.cross_validation FOLDER [covertype | simulated]

The sum over all rows is by importance sampling with the same draws, without Pareto smoothing,
which does nothing where there are so many rows for each coefficient.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np

import sgmcmc
from benchmarks.regressions.large import CASES, ROWS, write
from sgmcmc.regression.frames import chunks

_DRAWS = {"covertype": 400, "simulated": 100}
"""Draws of the sum over all rows."""


def fitted(case: str, folder: Path) -> sgmcmc.Regression:
    """Return the regression."""
    if case == "covertype":
        import pandas as pd

        rows = sgmcmc.get_dataset("covertype", verbose=False)
        columns = {f"x{k}": rows[:, k] for k in range(1, rows.shape[1])}
        data = pd.DataFrame({"cover": rows[:, 0], **columns})
        # Soil types whose rows are all of one class have coefficients that their priors hold alone.
        separated = [
            name for name in columns if data[data[name] > 0]["cover"].nunique() == 1
        ]
        formula = " - ".join(["cover ~ .", *separated])
        return sgmcmc.glm(formula, data, "bernoulli", seed=1, verbose=False)
    path = folder / f"regression-{ROWS}.parquet"
    write(path, ROWS)
    return sgmcmc.glm(*_formula("20 numeric terms", path), seed=1, verbose=False)


def _formula(case: str, path: Path) -> tuple[str, Path, str]:
    formula, family = CASES[case]
    return formula, path, family


def whole(fit: sgmcmc.Regression, draws: int) -> float:
    """Return the sum over all rows."""
    predictor = fit._predictor
    chains, count = next(iter(fit.samples.values())).shape[:2]
    few = fit.samples[:: max(1, chains * count // draws)]
    total = 0.0
    for part in chunks(fit._frame, len(fit._model.terms)):
        terms = few.predict(fit._model.log_lik, predictor.dataset(part), reduce=None)
        terms = np.asarray(terms, np.float64).reshape(-1, len(part))
        low = (-terms).max(0)
        total -= float((low + np.log(np.exp(-terms - low).mean(0))).sum())
    return total


def main() -> None:
    """Fit, estimate from some rows, and add up all."""
    folder = Path(sys.argv[1])
    for case in sys.argv[2:] or list(_DRAWS):
        start = time.monotonic()
        fit = fitted(case, folder)
        took = time.monotonic() - start
        rows = len(fit._frame)
        print(f"{case}: {rows} rows, {took:.0f} s, warnings {fit.warnings}", flush=True)
        start = time.monotonic()
        loo = fit.loo()
        seconds = time.monotonic() - start
        print(
            f"  LOO of 1000 rows {loo.elpd:.1f} ± {loo.subsampling_se:.1f} (rows not seen), "
            f"largest k {loo.pareto_k.max():.2f}, {seconds:.0f} s",
            flush=True,
        )
        start = time.monotonic()
        of_all = whole(fit, _DRAWS[case])
        gap = (loo.elpd - of_all) / loo.subsampling_se
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"  LOO of all rows {of_all:.1f}, {gap:+.2f} standard errors away, "
            f"{time.monotonic() - start:.0f} s; peak {peak:.1f} GB",
            flush=True,
        )


if __name__ == "__main__":
    main()
