"""A regression by bambi with its defaults; runs in its environment.

python with_bambi.py DATA.csv FORMULA OUT.json
"""

from __future__ import annotations

import json
import sys

import arviz as az
import bambi
import pandas as pd


def main() -> None:
    """Sample, and write means, SDs and effective sample sizes of the fixed terms."""
    data = pd.read_csv(sys.argv[1])

    model = bambi.Model(sys.argv[2], data, family="bernoulli")
    draws = model.fit(random_seed=1, progressbar=False, chains=4, cores=2)
    names = [
        name
        for name in ("Intercept", *(f"x{k}" for k in range(20)))
        if name in draws.posterior
    ]
    table = az.summary(draws, var_names=names, round_to=None)
    rows = {
        name: {"mean": row["mean"], "sd": row["sd"], "ess": row["ess_bulk"]}
        for name, row in table.iterrows()
    }
    with open(sys.argv[3], "w") as file:
        json.dump(rows, file)


if __name__ == "__main__":
    main()
