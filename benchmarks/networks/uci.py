"""Networks on UCI's regressions, as published: `python -m benchmarks.networks.uci --help`.

Twenty splits of 90/10, one hidden layer of 50 units, all else the defaults. Concrete and wine come
from packages of PyPI that have them; any other table is NAME.csv in the folder `uci` of
`SGMCMC_DATA`, with the response in the last column.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from sklearn.model_selection import ShuffleSplit

from benchmarks.client import output_of
from benchmarks.environments import HERE, interpreter
from benchmarks.networks.tables import DATA
from benchmarks.report import (
    describe_machine,
    measure_each,
    replace_section,
    results_of,
    table,
)
from sgmcmc.estimators import BayesianNetworkRegressor

DOCUMENT = HERE.parent / "docs" / "networks.md"
RESULTS = HERE / "results-uci.json"
SPLITS = 20
PUBLISHED = {
    "concrete": -2.94, "energy": -1.72, "kin8nm": 0.97, "power": -2.79, "protein": -2.87,
    "wine": -0.92, "yacht": -1.38,
}  # fmt: skip
"""Mean log-likelihood of a test row, of dropout."""


@cache
def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and responses of a table."""
    file = DATA / "uci" / f"{name}.csv"
    if file.exists():
        rows = np.genfromtxt(file, delimiter=",", skip_header=1)
    else:
        said = output_of(
            interpreter("uci"), "-m", "benchmarks.networks.uci_tables", name
        )
        rows = np.array(json.loads(said))
    return rows[:, :-1], rows[:, -1]


def measure(key: str) -> dict[str, Any]:
    """Return the scores of a table's split, such as "wine 3", with sampling and without."""
    name, number = key.split()
    X, y = read(name)
    splits = ShuffleSplit(SPLITS, test_size=0.1, random_state=0).split(X)
    train, test = list(splits)[int(number)]
    found: dict[str, Any] = {}
    for method, n_iters in (("ours", None), ("ensemble", 0)):
        model = BayesianNetworkRegressor(
            (50,), n_iters=n_iters, random_state=int(number)
        )
        model.fit(X[train], y[train])
        error = model.predict(X[test]) - y[test]
        rmse = float(np.sqrt(np.mean(error**2)))
        found[method] = {"log_lik": model.log_score(X[test], y[test]), "rmse": rmse}
    return found


def shown(splits: dict[str, Any]) -> str:
    """Return the table."""

    def cell(name: str, method: str, score: str) -> str:
        values = [
            found[method][score]
            for key, found in splits.items()
            if key.split()[0] == name
        ]
        error = np.std(values) / np.sqrt(len(values))
        return f"{np.mean(values):.3f} ± {error:.3f}".replace("-", "−")

    head = [
        "",
        "splits",
        "log-likelihood",
        "without sampling",
        "dropout, published",
        "RMSE",
    ]
    numbers = Counter(key.split()[0] for key in splits)
    rows = [
        [
            name, str(number), cell(name, "ours", "log_lik"), cell(name, "ensemble", "log_lik"),
            f"{PUBLISHED[name]:.2f}".replace("-", "−"), cell(name, "ours", "rmse"),
        ]
        for name, number in numbers.items()
    ]  # fmt: skip
    return table(head, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=["concrete", "wine"])
    parser.add_argument("--splits", type=int, default=SPLITS, help="the first so many")
    options = parser.parse_args(arguments)
    wanted = [
        f"{name} {number}"
        for name in options.tables
        for number in range(options.splits)
    ]
    there = results_of(RESULTS, "splits")["splits"]
    left = [key for key in wanted if key not in there]
    results = measure_each(RESULTS, "splits", left, measure, "{}: {}".format)
    text = f"{describe_machine(results, 'uci')}\n\n{shown(results['splits'])}"
    print(text)
    replace_section(DOCUMENT, "uci", text)


if __name__ == "__main__":
    main()
