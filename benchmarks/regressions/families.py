"""Every family of regressions against long NUTS chains of the same model, on real data.

`python -m benchmarks.regressions.families` runs `sgmcmc.glm` and compares with `references.json`,
of which NumPyro makes what is missing; `--again NAME ...` makes references again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environments
from benchmarks.regressions.cases import CASES, Case
from benchmarks.report import replace_section, table

FILE = Path(__file__).parent / "references.json"
PAGE = Path(__file__).parents[2] / "docs" / "regression.md"
BAR = r"\|"

LONG = 4000.0
"""Effective sample size of regressions that are farther off than 5 % or 0.1 SDs at the default."""


def arrays(case: Case) -> dict[str, Any]:
    """Return a case as NumPyro reads it."""
    data = case.data()
    y = data[case.response].astype(float)
    found: dict[str, Any] = {
        "X": np.column_stack([data[term] for term in case.terms]),
        "family": case.family,
        "link": case.link or "logit",
        "terms": np.array(case.terms),
    }
    if case.family in ("ordinal", "categorical"):
        found["levels"], y = np.unique(y, return_inverse=True)
    if case.family == "binomial":
        found["trials"] = data["n"]
    if case.family in ("exponential", "weibull"):
        found["censored"] = data["gone"]
    if case.group is not None:
        found |= {"group": data[case.group], "by": case.group}
    if case.slope is not None:
        found |= {"slope": data[case.slope], "slope name": case.slope}
    return {**found, "y": y.astype(float)}


def reference(name: str) -> dict[str, Any]:
    """Return means and SDs by NUTS, in the environment of NumPyro."""
    python = environments.interpreter("numpyro")
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "case.npz", Path(folder) / "out.json"
        np.savez(given, **arrays(CASES[name]))
        script = Path(__file__).parent / "nuts.py"
        subprocess.run([str(python), str(script), str(given), str(out)], check=True)
        return dict(json.loads(out.read_text()))


def fitted(case: Case, **keywords: Any) -> Any:
    """Return the regression of a case."""
    import sgmcmc

    return sgmcmc.glm(
        case.formula,
        case.data(),
        case.family,
        link=case.link,
        seed=1,
        verbose=False,
        **keywords,
    )


def differences(
    summary: Any, known: dict[str, Any]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return distances of means in SDs of the reference, and ratios of SDs, by term."""
    shift, ratio = {}, {}
    for term, about in known["terms"].items():
        shift[term] = (summary["estimate"][term] - about["mean"]) / about["sd"]
        ratio[term] = summary["error"][term] / about["sd"]
    return shift, ratio


def compare(name: str, known: dict[str, Any], ess: float = 400.0) -> list[str]:
    """Return a row of the table: a fit and its reference; a longer one if they differ."""
    case = CASES[name]
    start = time.process_time()
    fit = fitted(case, ess=ess)
    seconds = time.process_time() - start
    found = fit.summary()
    shift, ratio = differences(found, known)
    off = max(shift, key=lambda term: abs(shift[term]))
    wrong = max(ratio, key=lambda term: abs(np.log(ratio[term])))
    error = max(
        _errors(fit._draws[wrong]), 1.0 / np.sqrt(2 * known["terms"][wrong]["ess"])
    )
    least = min(found["ess_bulk"][term] for term in known["terms"])
    print(
        f"{name}: mean {shift[off]:+.3f} SDs ({off}), SD {ratio[wrong]:.3f} ± "
        f"{error:.3f} ({wrong}), smallest ESS {least:.0f}, {seconds:.1f} CPU seconds, warnings "
        f"{fit.warnings}",
        flush=True,
    )
    if ess < LONG and (abs(shift[off]) > 0.1 or abs(ratio[wrong] - 1.0) > 0.05):
        return compare(name, known, LONG)
    family = case.family + (f", {case.link}" if case.link else "")
    numbers = (
        len(fit.fitted),
        len(shift),
        f"{abs(shift[off]):.3f}",
        f"{ratio[wrong]:.3f}",
    )
    return [_label(case), family, *map(str, numbers), f"{least:.0f}"]


def _errors(draws: np.ndarray) -> float:
    """Return the relative standard error of the SD of draws, (chains, draws)."""
    import arviz

    away = draws - draws.mean()
    fourth = float((away**4).mean() / (away**2).mean() ** 2)
    return float(np.sqrt((fourth - 1.0) / (4.0 * arviz.ess(away**2, method="mean"))))


def _label(case: Case) -> str:
    return f"`{case.formula.replace('|', BAR)}`"


def publish(rows: list[list[str]]) -> None:
    """Put rows into the table of the page; other rows stay."""
    head = [
        "regression",
        "family",
        "rows",
        "terms",
        "mean off by, SDs",
        "SD ratio",
        "ESS",
    ]
    of_row = {(row[0], row[1]): row for row in rows}
    inside = (
        PAGE.read_text()
        .split("<!-- families: begin -->")[1]
        .split("<!-- families: end -->")[0]
    )
    for line in inside.strip().splitlines()[2:]:
        cells = re.split(
            r" (?<!\\)\| ", line.strip().removeprefix("| ").removesuffix(" |")
        )
        of_row.setdefault((cells[0], cells[1]), cells)
    order = [
        (_label(c), c.family + (f", {c.link}" if c.link else ""))
        for c in CASES.values()
    ]
    replace_section(
        PAGE, "families", table(head, [of_row[key] for key in order if key in of_row])
    )


def main() -> None:
    """Compare all cases, or some, and write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases; all by default")
    parser.add_argument(
        "--again", nargs="*", default=[], help="references to make again"
    )
    asked = parser.parse_args()
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    names = asked.names or list(CASES)
    for name in names:
        if name not in known or name in asked.again:
            known[name] = reference(name)
            FILE.write_text(json.dumps(known, indent=1) + "\n")
            worst = min(about["ess"] for about in known[name]["terms"].values())
            print(
                f"{name}: reference, {known[name]['seconds']} s, smallest ESS {worst:.0f}"
            )
    publish([compare(name, known[name]) for name in names])


if __name__ == "__main__":
    main()
