"""References: `sgmcmc.hmc` until every effective sample size is 1000.

`python -m benchmarks.accuracy.references [NAME ...]` makes those that are lacking, or these again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import ours
from benchmarks.accuracy.curves import Run
from benchmarks.accuracy.problems import PROBLEMS
from benchmarks.posteriors.moments import moments

FILE = Path(__file__).parent / "references.json"
ESS, SEED = 1000, 20261122


def read() -> dict[str, Any]:
    """Return those that there are."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def keep(name: str, run: Run) -> None:
    """Write means and SDs down."""
    found = moments(np.asarray(run.draws, np.float64)).rounded()
    about = {"seconds": round(run.before + run.seconds, 1), "warnings": run.warnings}
    FILE.write_text(json.dumps({**read(), name: {**found, **about}}, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*PROBLEMS, []], help="default: lacking ones"
    )
    known = read()
    for name in parser.parse_args(arguments).names or [
        n for n in PROBLEMS if n not in known
    ]:
        problem = PROBLEMS[name]
        keep(name, ours.run("hmc", problem.prior, problem.data(), ess=ESS, seed=SEED))


if __name__ == "__main__":
    main()
