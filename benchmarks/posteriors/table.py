"""Writes docs/posteriors.md: `python -m benchmarks.posteriors.table` from the raw numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.environments import HERE
from benchmarks.posteriors.families import POSTERIORS
from benchmarks.report import describe_machine, replace_section, results_of, table

RESULTS = HERE / "results-posteriors.json"
DOCUMENT = HERE.parent / "docs" / "posteriors.md"
SD, MEAN = 0.05, 0.1
ERRORS = 3.0  # standard errors that Monte Carlo is allowed


def worst(compared: Mapping[str, Any]) -> dict[str, float]:
    """Return the SD and the mean that are farthest from their reference, with their errors."""
    ratio, away = np.array(compared["sd_ratio"]), np.abs(compared["mean_away"])
    sd, mean = int(np.abs(np.log(ratio)).argmax()), int(away.argmax())
    return {
        "sd": float(ratio[sd]),
        "sd_error": float(compared["sd_error"][sd]),
        "mean": float(away[mean]),
        "mean_error": float(compared["mean_error"][mean]),
    }


def verdict(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is judged: the worst sd and mean, and whether they are within bounds."""
    long = result["long"]
    ratio, ratio_error = np.array(long["sd_ratio"]), np.array(long["sd_error"])
    away, away_error = np.abs(long["mean_away"]), np.array(long["mean_error"])
    return {
        **worst(long),
        "good": bool(
            (np.abs(ratio - 1.0) <= SD + ERRORS * ratio_error).all()
            and (away <= MEAN + ERRORS * away_error).all()
        ),
        "warned": bool(result["warnings"] or long["warnings"]),
    }


def line(name: str, result: Mapping[str, Any]) -> str:
    """Return a posterior's result in a line of plain text."""
    if "failed" in result:
        return f"{name}: {result['failed']}"
    found = verdict(result)
    return (
        f"{'ok  ' if found['good'] else 'FAIL'} {name}: N {result['N']}, d {result['d']}, "
        f"sd {found['sd']:.3f}±{found['sd_error']:.3f}, "
        f"mean {found['mean']:.3f}±{found['mean_error']:.3f}, predicted {_predicted(result)}, "
        f"ESS {result['ess']:.0f}/{result['long']['ess']:.0f}, {result['seconds']:.1f} s"
        f"{''.join(' ! ' + text for text in result['long']['warnings'])}"
    )


def read() -> dict[str, Any]:
    """Return what was measured before."""
    return results_of(RESULTS, "posteriors")


def write(results: Mapping[str, Any]) -> None:
    """Put the table into its document."""
    rows, right, wrong, said = [], 0, 0, 0
    known = results["posteriors"]
    for name in [name for name in POSTERIORS if name in known]:
        result = known[name]
        if "failed" in result:
            wrong, said = wrong + 1, said + 1
            rows.append([name, *[""] * 8, "**no**", *_short([result["failed"]])])
            continue
        found, report = verdict(result), result["report"]
        right += found["good"]
        wrong += not found["good"]
        said += not found["good"] and found["warned"]
        rows.append(
            [
                f"{name}: {result['about']}",
                str(result["N"]),
                str(result["d"]),
                _condition(report),
                f"{found['sd']:.3f} ± {found['sd_error']:.3f}",
                f"{found['mean']:.3f} ± {found['mean_error']:.3f}",
                _predicted(result),
                f"{result['ess']:.0f}",
                f"{result['seconds']:.1f}",
                "yes" if found["good"] else "**no**",
                "; ".join(_short(result["warnings"])) or "none",
            ]
        )
    head = ["posterior", "N", "d", "condition", "worst SD ratio", "worst mean, SDs"]
    head += ["predicted", "ESS", "seconds", "right", "warnings"]
    count = f"Of {len(rows)} posteriors {right} are right."
    count += f" Of the other {wrong}, {said} say so." if wrong else ""
    text = "\n\n".join(
        [describe_machine(dict(results), "posteriors"), count, table(head, rows)]
    )
    replace_section(DOCUMENT, "posteriors", text)


def _condition(report: Mapping[str, Any]) -> str:
    if "Mode" not in report:
        return "no mode"
    found = report["Mode"]["condition number of observed information"]
    return found if isinstance(found, str) else f"{found:.0e}"


def _predicted(result: Mapping[str, Any]) -> str:
    """Return the largest predicted error, or the sampler that has none."""
    if "Predicted" not in result["report"]:
        return "NUTS"
    errors = result["report"]["Predicted"]["SD error (noise along the chain)"]
    return f"{max(errors, key=abs):.1%}"


def _short(warnings: Iterable[str]) -> list[str]:
    """Return first sentences."""
    return [text.split(". ")[0].rstrip(".") for text in warnings]


if __name__ == "__main__":
    write(read())
