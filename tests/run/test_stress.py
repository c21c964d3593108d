"""Thousands of calls in one process, at load and interrupted: none stands still, none leaks."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.run.stopping import ROOT

CALLS = 5000
SPARE = 150.0
"""Megabytes that a process may hold more at the end than after 500 calls: the heap breathes."""


@pytest.mark.faults
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_five_thousand_calls() -> None:
    """A call that stands still for ten minutes ends the process with the stacks of all threads."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.run.stress", str(CALLS), "--beside", "8"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.findall(
        r"(\d+) calls, (\d+) interrupted.* (\d+) threads.* (\d+) MB", done.stdout
    )
    held = {int(calls): float(memory) for calls, _, _, memory in found}
    calls, interrupted, threads, _ = found[-1]
    assert int(calls) == CALLS and int(interrupted) > CALLS / 20
    assert int(threads) <= 3
    assert held[CALLS] < held[500] + SPARE
