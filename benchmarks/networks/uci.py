"""Networks on UCI's regressions, as published: `python -m benchmarks.networks.uci --help`.

Twenty splits of 90/10, one hidden layer of 50 units, all else the defaults. Concrete and wine come
from packages of PyPI that have them; any other table is NAME.csv in the folder `uci` of
`SGMCMC_DATA`, with the response in the last column.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import ShuffleSplit

from benchmarks import machine
from benchmarks.client import output_of
from benchmarks.environments import HERE, interpreter
from benchmarks.networks.tables import DATA
from benchmarks.report import describe_machine, replace_section, table
from sgmcmc.estimators import BayesianNetworkRegressor

DOCUMENT = HERE.parent / "docs" / "networks.md"
RESULTS = HERE / "results-uci.json"
SPLITS = 20
PUBLISHED = {
    "concrete": -2.94, "energy": -1.72, "kin8nm": 0.97, "power": -2.79, "protein": -2.87,
    "wine": -0.92, "yacht": -1.38,
}  # fmt: skip
"""Mean log-likelihood of a test row, of dropout."""


def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and responses of a table."""
    file = DATA / "uci" / f"{name}.csv"
    if file.exists():
        rows = np.genfromtxt(file, delimiter=",", skip_header=1)
    else:
        said = output_of(interpreter("uci"), "-m", "benchmarks.networks.uci_tables", name)
        rows = np.array(json.loads(said))
    return rows[:, :-1], rows[:, -1]


def score(X: np.ndarray, y: np.ndarray, number: int, **constants: Any) -> dict[str, float]:
    """Return the scores of one split."""
    splits = ShuffleSplit(SPLITS, test_size=0.1, random_state=0).split(X)
    train, test = list(splits)[number]
    began = time.perf_counter()
    model = BayesianNetworkRegressor((50,), random_state=number, **constants)
    model.fit(X[train], y[train])
    seconds = time.perf_counter() - began
    error = model.predict(X[test]) - y[test]
    rmse = float(np.sqrt(np.mean(error**2)))
    return {"log_lik": model.log_score(X[test], y[test]), "rmse": rmse, "seconds": seconds}


def measure(name: str, splits: Sequence[int]) -> None:
    """Write down the scores with sampling and without, for splits whose scores are not there."""
    X, y = read(name)
    for number in splits:
        for method, constants in (("ours", {}), ("ensemble", {"n_iters": 0})):
            kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
            runs = kept["runs"].setdefault(name, {}).setdefault(method, {})
            if str(number) in runs:
                continue
            runs[str(number)] = found = score(X, y, number, **constants)
            about = {"date": datetime.date.today().isoformat(), "machine": machine.facts()}
            RESULTS.write_text(json.dumps({**kept, **about}, indent=1))
            print(name, method, number, found, flush=True)


def shown(results: dict[str, Any]) -> str:
    """Return the table."""

    def cell(runs: dict[str, dict[str, float]], score: str) -> str:
        values = [run[score] for run in runs.values()]
        error = np.std(values) / np.sqrt(len(values))
        return f"{np.mean(values):.3f} ± {error:.3f}".replace("-", "−")

    head = ["", "splits", "log-likelihood", "without sampling", "dropout, published", "RMSE"]
    rows = []
    for name, methods in results["runs"].items():
        ours, ensemble = methods["ours"], methods["ensemble"]
        scores = [cell(runs, "log_lik") for runs in (ours, ensemble)]
        published = f"{PUBLISHED[name]:.2f}".replace("-", "−")
        rows.append([name, str(len(ours)), *scores, published, cell(ours, "rmse")])
    return table(head, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=["concrete", "wine"])
    parser.add_argument("--splits", type=int, default=SPLITS, help="the first so many")
    options = parser.parse_args(arguments)
    for name in options.tables:
        measure(name, range(options.splits))
    results = json.loads(RESULTS.read_text())
    text = f"{describe_machine(results, 'uci')}\n\n{shown(results)}"
    print(text)
    replace_section(DOCUMENT, "uci", text)


if __name__ == "__main__":
    main()
