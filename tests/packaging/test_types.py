"""mypy finds nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_types_are_right() -> None:
    """As `make types`; here, so that it runs beside other tests."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-m", "mypy"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
