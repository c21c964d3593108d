"""Makes small changes of the package, one at a time, and runs the tests: `--help` tells more.

Fifty changes of five rooms are drawn with a seed. One run of the tests with coverage tells which of
them execute the line of a change. Those run, the quickest first, until one fails; if none does, all
tests of the same files run. What no test noticed is written to `survivors.json` with the reason why
it may stay, which people fill in; a survivor without a reason ends the command with an error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import coverage

from tests.mutations.changes import Change, drawn

ROOT = Path(__file__).parents[2]
ROOMS = ["results", "after", "groups", "regression", "plan"]
OTHERS = ["contract", "estimators", "invariances", "run"]
"""Folders of tests that run next to those of the rooms."""
SURVIVORS = Path(__file__).parent / "survivors.json"
FIRST = 30
"""Number of tests that run first."""

MOST_SECONDS = 900
"""Seconds after which a change that keeps the tests from ending counts as noticed."""

_CODES = (0, 1, 2, -1)
"""All passed, one failed, one cannot be imported, time is up; others are errors of pytest."""


def copied(to: Path) -> None:
    """Copy what is in the repository, and what was compiled for it."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    compiled = [str(path.relative_to(ROOT)) for path in (ROOT / "sgmcmc").rglob("*.so")]
    for name in filter(None, [*listed, *compiled]):
        if name.startswith(("sgmcmc/", "tests/")) or "/" not in name:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def pytest_in(
    folder: Path,
    arguments: Sequence[str],
    seconds: float | None = None,
    measured: bool = False,
) -> int:
    """Run pytest in a copy; return its code, or -1 if it does not end."""
    before = [
        "coverage",
        "run",
        "--source=sgmcmc",
        f"--data-file={folder / 'coverage'}",
        "-m",
    ]
    command = [sys.executable, "-m", *(before if measured else []), "pytest", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment["SECONDS_OF_TESTS"] = str(folder / "seconds.json")
    process = subprocess.Popen(
        [*command, "-p", "no:cacheprovider", *arguments], cwd=folder, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return -1


class Tests:
    """Which tests execute which lines of a copy, by a run with coverage.

    Raises:
        RuntimeError: A test fails before anything is changed.
    """

    def __init__(self, folder: Path, tests: Sequence[str]) -> None:
        arguments = ["-p", "tests.mutations.contexts", *tests]
        if code := pytest_in(folder, arguments, measured=True):
            raise RuntimeError(f"Nothing is changed yet, and pytest ends with {code}.")
        self.seconds = json.loads((folder / "seconds.json").read_text())
        self.data = coverage.CoverageData(str(folder / "coverage"))
        self.data.read()

    def of(self, change: Change) -> list[str]:
        """Return the tests that execute the line of a change, the quickest first."""
        files = [
            name
            for name in self.data.measured_files()
            if name.endswith("/" + change.path)
        ]
        names = {
            context
            for file in files
            for context in self.data.contexts_by_lineno(file).get(change.line, [])
            if context in self.seconds
        }
        return sorted(names, key=lambda name: self.seconds[name])


def noticed(folder: Path, change: Change, tests: list[str]) -> bool:
    """Return whether a test fails with a change, cannot be imported, or does not end.

    Raises:
        RuntimeError: pytest did not run these tests.
    """
    if not tests:
        return False
    source = folder / change.path
    text = source.read_text()
    source.write_text(change.made(text))
    try:
        for stage in (tests[:FIRST], sorted({name.split("::")[0] for name in tests})):
            code = pytest_in(folder, ["-x", *stage], MOST_SECONDS)
            if code not in _CODES:
                raise RuntimeError(f"pytest ended with {code} for {change}.")
            if code != 0:
                return True
        return False
    finally:
        source.write_text(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make changes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="number of changes")
    parser.add_argument("--seed", type=int, default=40, help="seed of the draw")
    parser.add_argument(
        "--rooms", nargs="*", default=ROOMS, help="folders that are changed"
    )
    parser.add_argument(
        "--tests", nargs="*", default=OTHERS, help="further folders of tests"
    )
    options = parser.parse_args(arguments)
    known = json.loads(SURVIVORS.read_text()) if SURVIVORS.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        tests = Tests(
            folder, [f"tests/{name}" for name in (*options.rooms, *options.tests)]
        )
        rooms = [f"sgmcmc/{room}" for room in options.rooms]
        changes = drawn(folder, rooms, options.count, options.seed)
        survivors = {}
        for k, change in enumerate(changes):
            covering, begin = tests.of(change), time.perf_counter()
            caught = noticed(folder, change, covering)
            line = (
                (folder / change.path).read_text().splitlines()[change.line - 1].strip()
            )
            if not caught:
                survivors[str(change)] = {
                    "line": line,
                    "tests": len(covering),
                    "reason": known.get(str(change), {}).get("reason", ""),
                }
            print(
                f"{k + 1}/{len(changes)} {'noticed ' if caught else 'SURVIVES'} {change} "
                f"[{line}] {len(covering)} tests, {time.perf_counter() - begin:.0f} s",
                flush=True,
            )
    if options.rooms == ROOMS:
        SURVIVORS.write_text(json.dumps(survivors, indent=1) + "\n")
    print(f"{len(changes) - len(survivors)} of {len(changes)} changes noticed.")
    return int(any(not each["reason"] for each in survivors.values()))


if __name__ == "__main__":
    sys.exit(main())
