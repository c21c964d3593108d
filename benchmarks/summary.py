"""From the raw times of one package and workload to the numbers in the tables."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from benchmarks.packages import PACKAGES

MEGABYTE = 1e6


@dataclass(frozen=True)
class Numbers:
    """One cell of each table.

    Attributes:
        median: microseconds an iteration, over the rounds; of one chain, if there are several.
        best: the same from the quickest long run and the quickest short run.
        first: seconds to the first draw.
        added: memory in MB beyond that after the import and the loading of the data.
        peak: memory in MB, in all.
        package: whose numbers these are: the package itself or its faster variant.
    """

    median: float
    best: float
    first: float
    added: float
    peak: float
    package: str


def summarize(result: dict[str, Any], n_chains: int, package: str) -> Numbers | None:
    """The numbers of one package, `None` if it has none."""
    if not result.get("long"):
        return None
    short, long = result["n_iters"]
    scale = 1e6 / ((long - short) * n_chains)
    gains = [b - a for a, b in zip(result["short"], result["long"], strict=True)]
    memory = result["memory"]
    return Numbers(
        median=scale * statistics.median(gains),
        best=scale * (min(result["long"]) - min(result["short"])),
        first=result["first_seconds"],
        added=(memory["peak"] - memory["baseline"]) / MEGABYTE,
        peak=memory["peak"] / MEGABYTE,
        package=package,
    )


def columns(
    results: dict[str, dict[str, Any]], n_chains: int
) -> dict[str, Numbers | None]:
    """The numbers by column: of a package and its variants, those of the fastest."""
    found: dict[str, Numbers | None] = {}
    for name, result in results.items():
        column = PACKAGES[name].variant_of or name
        numbers, rival = summarize(result, n_chains, name), found.get(column)
        if rival is None or (numbers is not None and numbers.median < rival.median):
            found[column] = numbers
    return found
