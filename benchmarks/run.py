"""Compares the packages: `python -m benchmarks.run --help`."""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.measure import measure
from benchmarks.packages import PACKAGES
from benchmarks.report import DOCUMENT, render, replace_section, results_file
from benchmarks.workloads import WORKLOADS, write_data


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(
        description="Time sgmcmc and other packages, in turn."
    )
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="WORKLOAD", help=", ".join(names)
    )
    parser.add_argument(
        "--packages",
        nargs="+",
        choices=PACKAGES,
        metavar="PACKAGE",
        help=", ".join(PACKAGES),
    )
    sections = sorted({workload.section for workload in WORKLOADS})
    parser.add_argument(
        "--section", choices=sections, default="packages", help="of the document"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="a measurement lasts, about"
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="with --only: keep the other workloads as the last run found them",
    )
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    options.results = results_file(options.section)
    if options.update and (options.packages or options.smoke):
        parser.error("--update needs all packages, and no --smoke")
    if options.smoke:
        options.rounds, options.seconds = 1, 0.0
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    packages = options.packages or list(PACKAGES)
    workloads = [
        w
        for w in WORKLOADS
        if w.section == options.section and (not options.only or w.name in options.only)
    ]
    if options.smoke:
        workloads = [w.smoke() for w in workloads]
    whole = not (options.only or options.packages or options.smoke) or options.update
    results = options.results
    results = results if whole else results.with_name("results-partial.json")
    kept = options.update and results.exists()
    before = json.loads(results.read_text())["workloads"] if kept else []
    entries = {entry["workload"]["name"]: entry for entry in before}

    raw: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "machine": machine.facts(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "packages": packages,
        "section": options.section,
        "workloads": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for workload in workloads:
            start = time.monotonic()
            print(workload.description, flush=True)
            data = write_data(workload, Path(folder))
            found = measure(workload, packages, data, options.rounds, options.seconds)
            entries[workload.name] = {"workload": vars(workload), "results": found}
            raw["workloads"] = list(entries.values())
            used = {name for entry in entries.values() for name in entry["results"]}
            raw["packages"] = [name for name in packages if name in used]
            results.write_text(json.dumps(raw, indent=1))
            print(f"  {time.monotonic() - start:.0f} s", flush=True)

    print("\n" + render(raw))
    if whole:
        replace_section(DOCUMENT, options.section, render(raw))
        print(f"\nWritten to {DOCUMENT.relative_to(DOCUMENT.parents[1])}.")


if __name__ == "__main__":
    main()
