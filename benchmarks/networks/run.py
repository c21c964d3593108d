"""Networks on tables against a deep ensemble and `bde`: `python -m benchmarks.networks.run --help`.

The split, the network (4 × 16) and the numbers that `bde` has published are those of its paper
(Arvanitis and others, Journal of Open Source Software, 2026), measured there on ten cores.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.client import output_of
from benchmarks.environments import HERE, interpreter
from benchmarks.networks import tables
from benchmarks.report import describe_machine, replace_section, table
from sgmcmc.estimators import BayesianNetworkRegressor

DOCUMENT = HERE.parent / "docs" / "networks.md"
RESULTS = HERE / "results-networks.json"
HIDDEN = (16, 16, 16, 16)
LABELS = {
    "ours": "ours",
    "ensemble": "ours, without sampling",
    "bde": "`bde` here, same seconds",
}
PUBLISHED = {
    "airfoil": [
        ("`bde`, published", "0.1215", "−0.9126", "", "235 × 10"),
        ("TabPFN v2, published", "0.1359", "−0.9338", "", "10 × 10"),
        ("deep ensemble, published", "0.3650", "0.1760", "", "20 × 10"),
    ],
    "bikesharing": [
        ("`bde`, published", "0.2261", "−0.7315", "", "2350 × 10"),
        ("TabPFN v2, published", "0.2103", "−0.6856", "", "1240 × 10"),
        ("deep ensemble, published", "0.2880", "−0.4550", "", "40 × 10"),
    ],
}


def ours(data: tables.Split, seed: int, **constants: Any) -> dict[str, float]:
    """Fit with the defaults, and score the test part."""
    X, y, X_test, y_test = data
    began = time.perf_counter()
    model = BayesianNetworkRegressor(HIDDEN, random_state=seed, **constants).fit(X, y)
    mean, sd = model.predict(X_test, return_std=True)
    seconds = time.perf_counter() - began
    found = tables.scores(mean, sd, y_test)
    return {**found, "mixture": -model.log_score(X_test, y_test), "seconds": seconds}


def bde(data: tables.Split, seed: int, seconds: float) -> dict[str, float]:
    """Have the other package fit for as long, in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        split, out = Path(folder) / "split.npz", Path(folder) / "out.npz"
        np.savez(split, X=data[0], y=data[1], X_test=data[2])
        request = {
            "split": str(split),
            "out": str(out),
            "seed": seed,
            "seconds": seconds,
        }
        said = output_of(
            interpreter("bde"), "-m", "benchmarks.networks.with_bde", request=request
        )
        took = json.loads(said)["seconds"]
        with np.load(out) as file:
            return {**tables.scores(file["mean"], file["sd"], data[3]), "seconds": took}


def measure(
    name: str, seeds: Sequence[int], methods: Sequence[str], smoke: bool
) -> dict[str, Any]:
    """Return the scores of each method at each seed, written down as soon as they are known."""
    data = tables.tiny() if smoke else tables.split(name)
    quick: dict[str, Any] = (
        {"members": 2, "n_iters": 50, "draws": 5, "epochs": 5} if smoke else {}
    )
    kept = (
        json.loads(RESULTS.read_text())
        if RESULTS.exists() and not smoke
        else {"runs": {}}
    )
    runs = kept["runs"].setdefault(name, {})
    for method in methods:
        for seed in seeds:
            if method == "bde":
                found = bde(data, seed, runs["ours"][str(seed)]["seconds"])
            else:
                without = {"n_iters": 0} if method == "ensemble" else {}
                found = ours(data, seed, **{**quick, **without})
            runs.setdefault(method, {})[str(seed)] = found
            print(name, method, seed, found, flush=True)
            if not smoke:
                about = {
                    "date": datetime.date.today().isoformat(),
                    "machine": machine.facts(),
                }
                RESULTS.write_text(json.dumps({**kept, **about}, indent=1))
    return kept


def shown(results: dict[str, Any]) -> str:
    """Return the tables."""
    parts = []
    head = ["", "RMSE", "NLL, normal", "NLL, mixture", "seconds × cores"]
    for name, methods in results["runs"].items():
        rows = [_row(method, list(runs.values())) for method, runs in methods.items()]
        parts.append(
            f"**{name}**\n\n"
            + table(head, [*rows, *map(list, PUBLISHED.get(name, []))])
        )
    return "\n\n".join(parts)


def _row(method: str, runs: list[dict[str, float]]) -> list[str]:
    def cell(name: str, digits: int = 4) -> str:
        values = [run[name] for run in runs if name in run]
        if not values:
            return ""
        mean, least, most = (f"{f(values):.{digits}f}" for f in (np.mean, min, max))
        return f"{mean} ({least} to {most})".replace("-", "−")

    seconds = np.mean([run["seconds"] for run in runs])
    cells = [
        cell("rmse"),
        cell("nll"),
        cell("mixture"),
        f"{seconds:.0f} × {machine.cores()}",
    ]
    return [LABELS[method], *cells]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--smoke", action="store_true", help="a tiny table, nothing is written"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument(
        "--tables", nargs="+", default=tables.TABLES, choices=tables.TABLES
    )
    parser.add_argument(
        "--methods", nargs="+", default=list(LABELS), choices=list(LABELS)
    )
    options = parser.parse_args(arguments)
    if options.smoke:
        print(shown(measure("airfoil", [0], ["ours", "ensemble"], True)))
        return
    for name in options.tables:
        results = measure(name, options.seeds, options.methods, False)
    text = f"{describe_machine(results, 'networks')}\n\n{shown(results)}"
    print(text)
    replace_section(DOCUMENT, "networks", text)


if __name__ == "__main__":
    main()
