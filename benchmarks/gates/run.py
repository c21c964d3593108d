"""Measures again what is in `base.json`, and prints it beside: `python -m benchmarks.gates.run`.

Each part is a process of its own. A row fails if its worst SD or mean is farther from the reference
than before, by three standard errors and a margin, if it has a warning that it had not, or if it
takes more than 1.5 times as long; a part fails if its median row takes more than 1.1 times as long.
With `--write` the new numbers take the place of those before.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.gates.rows import PARTS

BASE = Path(__file__).parent / "base.json"
SD, MEAN = 0.02, 0.05
"""Margins of ratios of SDs and of distances of means."""
ERRORS = 3.0
"""Standard errors that Monte Carlo is allowed."""
MOST, MEDIAN = 1.5, 1.1
"""Largest ratios of the time of a row, and of the median row."""


def complaints(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what is worse in a row than before."""
    worse = []
    sds = abs(math.log(now["sd"])) - abs(math.log(before["sd"]))
    for name, change, margin in (
        ("sd", sds, SD),
        ("mean", now["mean"] - before["mean"], MEAN),
    ):
        noise = math.hypot(before[f"{name}_error"], now[f"{name}_error"])
        if change > margin + ERRORS * noise:
            worse.append(f"{name} {before[name]:.3f} -> {now[name]:.3f}")
    known = {_kind(text) for text in before["warnings"]}
    worse += [f"warns: {text}" for text in now["warnings"] if _kind(text) not in known]
    if now["work"] > MOST * before["work"]:
        worse.append(f"{now['work'] / before['work']:.2f} times as long")
    return worse


def _kind(warning: str) -> str:
    """Return a warning without its numbers."""
    return "".join(letter for letter in warning if not letter.isdigit())


def line(name: str, before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str:
    """Return a row beside the one before."""

    def shown(row: Mapping[str, Any]) -> str:
        return f"{row['work']:9.1f} {row['sd']:6.3f} {row['mean']:6.3f} {len(row['warnings']):2d}"

    if before is None:
        return f"    {name:32s} {'':26s} | {shown(now)}"
    worse = complaints(before, now)
    mark = "BAD " if worse else "ok  "
    return f"{mark}{name:32s} {shown(before)} | {shown(now)} {'; '.join(worse)}"


def measured(
    part: str, names: Sequence[str], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the rows of a part, from a process of its own, and print each as it comes."""
    command = [sys.executable, "-m", "benchmarks.gates.run", part, "--here", *names]
    rows = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if text.startswith("{"):
                name, row = next(iter(json.loads(text).items()))
                rows[name] = row
                print(line(name, before.get(name), row), flush=True)
    if process.returncode:
        raise SystemExit(f"{part} ended with {process.returncode}.")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure parts, print them, and say whether something is worse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named"
    )
    parser.add_argument("--only", nargs="*", default=[], help="names of rows")
    parser.add_argument(
        "--write", action="store_true", help="take the numbers as those before"
    )
    parser.add_argument("--here", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.here is not None:
        for name, row in PARTS[options.parts[0]](options.here):
            print(json.dumps({name: asdict(row)}), flush=True)
        return 0
    kept = json.loads(BASE.read_text()) if BASE.exists() else {"parts": {}}
    bad = 0
    for part in options.parts or PARTS:
        print(f"{part}: work, worst SD, worst mean, warnings; before | now", flush=True)
        before = kept["parts"].get(part, {})
        rows = measured(part, options.only, before)
        both = [name for name in rows if name in before]
        bad += sum(bool(complaints(before[name], rows[name])) for name in both)
        if both:
            ratio = statistics.median(
                rows[name]["work"] / before[name]["work"] for name in both
            )
            bad += ratio > MEDIAN
            print(f"{part}: the median row takes {ratio:.2f} times as long as before.")
        if options.write:
            kept["parts"][part] = {**before, **rows}
            kept |= {
                "date": datetime.date.today().isoformat(),
                "machine": machine.facts(),
            }
            BASE.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{bad} rows or parts are worse than before.")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
