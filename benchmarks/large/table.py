"""Writes the table of large posteriors: `python -m benchmarks.large.table` from the raw numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.environments import HERE
from benchmarks.large.collection import POSTERIORS
from benchmarks.report import describe_machine, replace_section, results_of, table

RESULTS = HERE / "results-large.json"
DOCUMENT = HERE.parent / "docs" / "posteriors.md"
SD, MEAN, MOST = 0.05, 0.1, 0.05
ERRORS = 3.0  # standard errors that Monte Carlo is allowed


def verdict(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the worst scalar, the part of others that are off, and whether all is right."""
    worst, off = [], []
    for name, found in result["judged"].items():
        ratio, ratio_error = np.array(found["sd_ratio"]), np.array(found["sd_error"])
        away, away_error = np.abs(found["mean_away"]), np.array(found["mean_error"])
        bad = (np.abs(ratio - 1.0) > SD + ERRORS * ratio_error) | (
            away > MEAN + ERRORS * away_error
        )
        if found["scalar"]:
            worst.append((bool(bad[0]), float(ratio[0]), float(away[0]), name))
        else:
            off += bad.tolist()
    part = float(np.mean(off)) if off else 0.0
    first = max(
        worst, key=lambda one: (one[0], abs(np.log(one[1])) + one[2]), default=None
    )
    return {
        "scalar": first,
        "off": part,
        "good": not any(one[0] for one in worst) and part <= MOST,
        "warned": bool(result["judged warnings"]),
    }


def line(name: str, result: Mapping[str, Any]) -> str:
    """Return a posterior's result in a line of plain text."""
    if "failed" in result:
        return f"{name}: {result['failed']}"
    if "judged" not in result:
        return f"{name}: NumPyro's NUTS {_nuts(result)}"
    found = verdict(result)
    warned = "".join(" ! " + text for text in result["warnings"])
    return (
        f"{'ok  ' if found['good'] else 'FAIL'} {name}: N {result['N']}, d {result['d']}, "
        f"{_method(result)}, {_scalar(found)}, {found['off']:.1%} of others off, "
        f"ESS {result['ess']:.0f}, {result['seconds']:.1f} s{warned}"
    )


def read() -> dict[str, Any]:
    """Return what was measured before."""
    return results_of(RESULTS, "posteriors")


HEAD = [
    "posterior",
    "N",
    "d",
    "method",
    "reference",
    "worst scalar",
    "others off",
    "ESS",
]
HEAD += ["seconds", "NumPyro's NUTS: seconds (ESS)", "right", "date", "warnings"]


def write(results: Mapping[str, Any]) -> None:
    """Put the table into its document; rows that were not measured here stay."""
    rows, known = _written(), results["posteriors"]
    rows |= {name: _row(name, result, rows.get(name)) for name, result in known.items()}
    shown = [rows[name] for name in POSTERIORS if name in rows]
    right = sum(row[HEAD.index("right")] == "yes" for row in shown)
    count = f"Of {len(shown)} posteriors {right} are right. {_beside_nuts(shown)}"
    text = "\n\n".join(
        [describe_machine(dict(results), "large"), count, table(HEAD, shown)]
    )
    replace_section(DOCUMENT, "large", text)


def _beside_nuts(rows: Sequence[Sequence[str]]) -> str:
    """Return a sentence on seconds per effective draw, relative to NumPyro's NUTS."""
    ess, seconds = HEAD.index("ESS"), HEAD.index("seconds")
    ratios = []
    for row in rows:
        if found := re.fullmatch(r"(\d+) \((\d+)\)", row[seconds + 1]):
            ratios.append(
                float(row[seconds]) / int(row[ess]) / int(found[1]) * int(found[2])
            )
    return (
        f"For the same effective sample size seconds are {min(ratios):.2f} to {max(ratios):.2f} "
        f"times those of NumPyro's NUTS, on the {len(ratios)} for which that returned draws."
    )


def _written() -> dict[str, list[str]]:
    """Return the rows of the document, by posterior."""
    section = (
        DOCUMENT.read_text()
        .split("<!-- large: begin -->")[1]
        .split("<!-- large: end")[0]
    )
    rows = [
        [cell.strip() for cell in text.strip("| ").split(" | ")]
        for text in section.splitlines()
        if text.startswith("| ")
    ]
    return {row[0].split(":")[0]: row for row in rows if len(row) == len(HEAD)}


def _row(name: str, result: Mapping[str, Any], before: list[str] | None) -> list[str]:
    """Return the cells of a posterior; those of before if only NumPyro was run."""
    if "judged" not in result and "failed" not in result and before is not None:
        place = HEAD.index("seconds") + 1
        return [*before[:place], _nuts(result), *before[place + 1 :]]
    if "failed" in result:
        return [
            name,
            *[""] * (len(HEAD) - 4),
            "**no**",
            result["date"],
            result["failed"],
        ]
    found = verdict(result)
    said = [text.split(". ")[0].rstrip(".") for text in result["warnings"]]
    return [
        f"{name}: {result['about']}",
        str(result["N"]),
        str(result["d"]),
        _method(result),
        result["how"],
        _scalar(found),
        f"{found['off']:.1%}",
        f"{result['ess']:.0f}",
        f"{result['seconds']:.0f}",
        _nuts(result),
        "yes" if found["good"] else "**no**",
        result["date"],
        "; ".join(said) or "none",
    ]


def _scalar(found: Mapping[str, Any]) -> str:
    if found["scalar"] is None:
        return "no scalar"
    _, ratio, away, name = found["scalar"]
    return f"{name}: sd {ratio:.3f}, mean {away:.2f}"


def _nuts(result: Mapping[str, Any]) -> str:
    nuts = result.get("NUTS")
    if nuts is None:
        return ""
    if "failed" in nuts:
        return "—" if nuts["failed"].startswith("TimeoutExpired") else "failed"
    return f"{nuts['seconds']:.0f} ({nuts['ess']:.0f})"


def _method(result: Mapping[str, Any]) -> str:
    return str(result["report"]["method"])


if __name__ == "__main__":
    write(read())
