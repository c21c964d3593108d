"""Every family of regressions beside long NUTS chains of the same model, on real data.

`python -m benchmarks.regressions.families` runs `sgmcmc.glm` and compares with `references.json`,
of which NumPyro makes what is missing; `--again NAME ...` makes references again.
"""

from __future__ import annotations

import argparse
import json
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


def compare(name: str, known: dict[str, Any]) -> list[str]:
    """Return a row of the table: a fit beside its reference."""
    import sgmcmc

    case = CASES[name]
    start = time.monotonic()
    fit = sgmcmc.glm(case.formula, case.data(), case.family, link=case.link, seed=1, verbose=False)
    seconds = time.monotonic() - start
    found = fit.summary()
    shift, ratio = {}, {}
    for term, about in known["terms"].items():
        shift[term] = (found["estimate"][term] - about["mean"]) / about["sd"]
        ratio[term] = found["error"][term] / about["sd"]
    off = max(shift, key=lambda term: abs(shift[term]))
    wrong = max(ratio, key=lambda term: abs(np.log(ratio[term])))
    ess = min(found["ess_bulk"][term] for term in known["terms"])
    print(
        f"{name}: mean {shift[off]:+.3f} SDs ({off}), SD {ratio[wrong]:.3f} ({wrong}), smallest "
        f"ESS {ess:.0f}, {seconds:.1f} s, warnings {fit.warnings}",
        flush=True,
    )
    family = case.family + (f", {case.link}" if case.link else "")
    numbers = (len(fit.fitted), len(shift), f"{abs(shift[off]):.3f}", f"{ratio[wrong]:.3f}")
    return [f"`{case.formula.replace('|', BAR)}`", family, *map(str, numbers), f"{ess:.0f}"]


def main() -> None:
    """Compare all cases, or some, and write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases; all by default")
    parser.add_argument("--again", nargs="*", default=[], help="references to make again")
    asked = parser.parse_args()
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    names = asked.names or list(CASES)
    for name in names:
        if name not in known or name in asked.again:
            known[name] = reference(name)
            FILE.write_text(json.dumps(known, indent=1) + "\n")
            worst = min(about["ess"] for about in known[name]["terms"].values())
            print(f"{name}: reference, {known[name]['seconds']} s, smallest ESS {worst:.0f}")
    rows = [compare(name, known[name]) for name in names]
    if not asked.names:
        head = ["regression", "family", "rows", "terms", "mean off by, SDs", "SD ratio", "ESS"]
        replace_section(PAGE, "families", table(head, rows))


if __name__ == "__main__":
    main()
