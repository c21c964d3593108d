"""Run all vignettes in full, one after another, and report the resources that each used.

`make vignettes` calls it. What a vignette prints goes to `NAME.txt` next to its figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

VIGNETTES = Path(__file__).resolve().parent


class Cost(NamedTuple):
    """Resources that a process used."""

    status: int
    seconds: float
    of_cpu: float
    megabytes: float


def run(script: Path, folder: Path) -> Cost:
    """Run a script in a folder, to its end."""
    start = time.monotonic()
    with (folder / f"{script.stem}.txt").open("w") as printed:
        process = subprocess.Popen(
            [sys.executable, str(script)], cwd=folder, stdout=printed
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(
        process.returncode,
        time.monotonic() - start,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
    )


def main() -> None:
    names = [script.stem for script in sorted(VIGNETTES.glob("[a-z]*.py"))]
    parser = argparse.ArgumentParser(description="Run vignettes in full.")
    parser.add_argument(
        "names", nargs="*", default=names, metavar="NAME", help="all by default"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(), help="folder for all output"
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    total, failed = 0.0, []
    print(
        "| vignette | seconds | of CPU | peak memory, MB |\n| --- | ---: | ---: | ---: |"
    )
    for name in options.names:
        cost = run(VIGNETTES / f"{name}.py", options.output)
        total += cost.seconds
        failed += [name] if cost.status else []
        print(
            f"| {name} | {cost.seconds:.0f} | {cost.of_cpu:.0f} | {cost.megabytes:.0f} |",
            flush=True,
        )
    print(f"\n{total / 60:.0f} minutes in all.")
    if failed:
        sys.exit(f"Ended with an error: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
