"""Mixed models without constants, held to their references: docs/hierarchical.md.

Two calls of each. The first is what a user writes: its effective sample size is in the table. The
second asks for an effective sample size of 4000, so that errors of means and SDs can be told from
those of Monte Carlo.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.environments import HERE
from benchmarks.mixed import references
from benchmarks.mixed.designs import DESIGNS
from benchmarks.mixed.models import Mixed
from benchmarks.posteriors.moments import moments
from benchmarks.posteriors.run import compare
from benchmarks.posteriors.table import verdict
from benchmarks.report import describe_machine, measure_each, replace_section, table

RESULTS = HERE / "results-mixed.json"
DOCUMENT = HERE.parent / "docs" / "hierarchical.md"
ESS, SECONDS = 4000, 300.0


def sampled(mixed: Mixed, **required: Any) -> sgmcmc.Samples:
    """Return draws, with nothing chosen by hand."""
    groups = mixed.groups
    return sgmcmc.sample(
        mixed.log_lik,
        mixed.dataset,
        mixed.params,
        mixed.log_prior,
        groups=groups if len(groups) > 1 else groups[0],
        bijectors=mixed.bijectors,
        seed=1,
        verbose=False,
        max_seconds=SECONDS,
        **required,
    )


def flat(mixed: Mixed, samples: sgmcmc.Samples) -> np.ndarray:
    """Return draws of what is compared, (chain, draw, coordinate)."""
    return mixed.compared({name: np.asarray(samples[name]) for name in mixed.params})


def of_effects(
    mixed: Mixed, samples: sgmcmc.Samples, reference: Any
) -> dict[str, float]:
    """Return how effects differ: the median ratio of SDs, and the root mean square of means."""
    ratios, away = [], []
    thin = samples[:: max(1, next(iter(samples.values())).shape[1] // 1000)]
    for k, known in enumerate(reference):
        u = thin.effects(f"g{k}")[f"u{k}"].astype(np.float64)
        sd = np.array(known["sd"])
        ratios.append(u.std((0, 1)).ravel() / sd)
        away.append((u.mean((0, 1)).ravel() - known["mean"]) / sd)
    return {
        "sd": float(np.median(np.concatenate(ratios))),
        "mean": float(np.sqrt(np.mean(np.concatenate(away) ** 2))),
    }


def measure(name: str, reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything about one model."""
    mixed = Mixed(DESIGNS[name])
    began = time.perf_counter()
    samples = sampled(mixed)
    seconds = time.perf_counter() - began
    first = moments(flat(mixed, samples))
    long = sampled(mixed, ess=ESS)
    return {
        "N": len(mixed.dataset["y"]),
        "groups": [
            int(mixed.dataset[f"g{k}"].max()) + 1
            for k in range(len(mixed.design.groups))
        ],
        "effects a group": mixed.design.sizes,
        "family": mixed.design.family,
        "seconds": seconds,
        "method": samples.settings["method"],
        "nodes": dict(samples.report.get("Groups", {})).get("nodes in each direction"),
        "ess": min(first.ess),
        "warnings": samples.report.warnings,
        "long": {
            **compare(flat(mixed, long), dict(reference)),
            "effects": of_effects(mixed, long, reference["effects"]),
            "warnings": long.report.warnings,
        },
    }


def line(name: str, result: Mapping[str, Any]) -> str:
    """Return a result in a line of plain text."""
    found, effects = verdict(result), result["long"]["effects"]
    return (
        f"{'ok  ' if found['good'] else 'FAIL'} {name}: {result['method']}, nodes "
        f"{result['nodes']}, SD {found['sd']:.3f}±{found['sd_error']:.3f}, mean "
        f"{found['mean']:.3f}±{found['mean_error']:.3f}, effects' SDs {effects['sd']:.3f}, means "
        f"{effects['mean']:.3f}, ESS {result['ess']:.0f}/{result['long']['ess']:.0f}, "
        f"{result['seconds']:.1f} s{''.join(' ! ' + text for text in result['long']['warnings'])}"
    )


def write(results: Mapping[str, Any]) -> None:
    """Put the table into its document."""
    rows = []
    for name, result in results["models"].items():
        found, effects = verdict(result), result["long"]["effects"]
        groups = " × ".join(f"{g:,}" for g in result["groups"])
        rows.append(
            [
                name,
                result["family"].replace("_", " "),
                f"{result['N']:,}",
                groups,
                f"{found['sd']:.3f} ± {found['sd_error']:.3f}",
                f"{found['mean']:.3f} ± {found['mean_error']:.3f}",
                f"{effects['sd']:.3f}",
                f"{result['ess']:.0f}",
            ]
        )
    head = [
        "model", "family", "N", "groups", "SD, worst ratio", "mean, worst distance in SDs",
        "effects' SDs, median ratio", "ESS of the first call",
    ]  # fmt: skip
    good = sum(verdict(result)["good"] for result in results["models"].values())
    text = (
        "Mixed models of data sets in R's lme4, nlme and MASS, without a constant, against "
        "NumPyro's NUTS over all parameters, effects included (4 chains of 5000 draws). "
        f"{good} of {len(rows)} models have every SD within 5 % and every mean within 0.1 SD of "
        "the reference, up to three Monte Carlo standard errors. "
        f"{describe_machine(results, 'mixed')}\n\n"
        + table(head, rows)
        + "\n\nThe errors are those of a second call with `ess=4000`."
    )
    replace_section(DOCUMENT, "mixed", text)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="models to measure; all if none is named"
    )
    names = parser.parse_args(arguments).names
    if lacking := [name for name in names or DESIGNS if name not in references.read()]:
        references.main(lacking)
    known = references.read()
    write(
        measure_each(
            RESULTS, "models", names or DESIGNS, lambda n: measure(n, known[n]), line
        )
    )


if __name__ == "__main__":
    main()
