"""The table of stationary variances: `python -m benchmarks.laws.run --help`.

Every dynamics × gradient × minibatches whose stationary variance is known in closed form, against
what the package's chains have; and the same of the other packages' samplers where they run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.client import WorkerError, output_of
from benchmarks.environments import HERE, InstallError, interpreter
from benchmarks.laws.elsewhere import ALPHA, SHARE, L, N, n
from benchmarks.laws.exact import published_sghmc
from benchmarks.laws.rows import Row, every
from benchmarks.report import measure_each, publish, table

DOCUMENT = HERE.parent / "docs" / "posteriors.md"
ELSEWHERE = {
    "SGMCMCJax": ("sgmcmcjax", ("sgld", "sghmc", "sgnht", "badodab")),
    "BlackJAX": ("blackjax", ("sgld", "sghmc", "sgnht")),
    "posteriors": ("posteriors", ("sgld", "sghmc", "sgnht")),
    "sgmcmc": (None, ("sgld", "sghmc", "sgnht", "badodab")),
}
"""The other packages and their samplers; ours with the same constants."""
METHODS = ("sgld", "sghmc", "sgnht", "badodab")
RESULTS = HERE / "results-elsewhere.json"


def own(rows: Sequence[Row], draws: int) -> list[str]:
    """Return the paragraphs on the package's own chains."""
    lines, worst = [], 0.0
    for seed, row in enumerate(rows):
        found, error = row.measured(draws, seed)
        off = (found - row.exact) / error
        worst = max(worst, abs(off))
        ratios = [f"{value / row.posterior:.4f}" for value in (row.exact, found)]
        lines.append(
            [row.dynamics, row.gradient, row.minibatches, *ratios, f"{off:+.1f}"]
        )
        print(" | ".join(lines[-1]), flush=True)
    head = [
        "dynamics",
        "gradient",
        "rows",
        "exact",
        "measured",
        "off, in standard errors",
    ]
    largest = float(np.sqrt(2) * _quantile(len(rows)))
    return [
        table(head, lines),
        f"The largest of the {len(rows)} deviations is {worst:.1f} standard errors; of as many "
        f"standard normals it would be {largest:.1f} or more once in twenty times.",
    ]


def _quantile(count: int) -> float:
    from scipy.special import erfinv

    return float(erfinv(0.95 ** (1 / count)))


def elsewhere(draws: int, packages: Sequence[str], path: Path) -> list[str]:
    """Return the table of other packages: those measured now, and those before."""

    def measure(label: str) -> dict[str, Any]:
        environment, known = ELSEWHERE[label]
        return {method: _asked(environment, method, draws) for method in known}

    def line(label: str, found: Mapping[str, Any]) -> list[str]:
        return [label, *(found.get(method, "—") for method in METHODS)]

    found = measure_each(
        path, "packages", packages, measure, lambda *row: " | ".join(line(*row))
    )
    results = found["packages"]
    lines = [line(label, results[label]) for label in ELSEWHERE if label in results]
    of_r = published_sghmc(
        SHARE, ALPHA, L, N / n - 1.0, moves_first=False, refreshed=0.5
    )
    lines.append(["sgmcmc 0.2.4 for R, not run", "—", f"{of_r:.3f}", "—", "—"])
    return [
        table(["", "SGLD", "SGHMC", "SGNHT", "BADODAB"], lines),
        published(),
        for_r(),
    ]


def for_r() -> str:
    """Return what stands behind the row of the R package."""
    defaults = published_sghmc(1e-6, 0.01, 5, 0.0, moves_first=False, refreshed=0.5)
    return (
        "The R package of 2019 needs TensorFlow 1, which can no longer be installed: "
        "its number is the exact one of its update (v before θ, momenta drawn with variance ε/2, "
        "rows without replacement). At its defaults, friction 0.01 and five steps, without "
        f"gradient noise and as ε → 0 it is {defaults:.2f}."
    )


def published() -> str:
    """Return what SGMCMCJax's and BlackJAX's SGHMC has exactly."""
    exact = [
        published_sghmc(SHARE, ALPHA, L, noise, once)
        for noise, once in ((N / n, False), (N / n, True), (0.0, False))
    ]
    return (
        "SGMCMCJax and BlackJAX have SGHMC's published update, with gradients at the position "
        f"before the move. For this the exact number is {exact[0]:.3f} with a new minibatch in "
        f"each of the {L} steps (SGMCMCJax), {exact[1]:.3f} with one for all (BlackJAX), and "
        f"{exact[2]:.3f} without gradient noise."
    )


def _asked(environment: str | None, method: str, draws: int) -> str:
    """Return what the sampler of a package has for variance over posterior variance."""
    try:
        python = interpreter(environment)
    except InstallError as error:
        return f"not installed: {error}"
    request = {"package": environment or "sgmcmc", "method": method, "draws": draws}
    try:
        found = json.loads(
            output_of(python, "-m", "benchmarks.laws.elsewhere", request=request)
        )
    except WorkerError:
        return "fails"
    return f"{found['ratio']:.3f} ± {found['error']:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    parser.add_argument("--draws", type=int, default=4000, help="of each chain")
    parser.add_argument(
        "--elsewhere", action="store_true", help="the other packages alone"
    )
    parser.add_argument(
        "--packages", nargs="+", choices=ELSEWHERE, default=list(ELSEWHERE)
    )
    options = parser.parse_args(arguments)
    draws, others = (100, 1000) if options.smoke else (options.draws, 100_000)
    if not options.elsewhere:
        rows = every()[: 4 if options.smoke else None]
        publish("laws", own(rows, draws), options.smoke, DOCUMENT)
    path = (
        RESULTS.with_name("results-elsewhere-smoke.json") if options.smoke else RESULTS
    )
    publish(
        "elsewhere", elsewhere(others, options.packages, path), options.smoke, DOCUMENT
    )


if __name__ == "__main__":
    main()
