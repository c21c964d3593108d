"""Plugin of pytest: coverage is told the name of each test, and seconds are written down."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

_seconds: dict[str, float] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run a test, its fixtures included, as a context of its own."""
    coverage = Coverage.current()
    if coverage is not None:
        coverage.switch_context(item.nodeid)
    begin = time.process_time()
    yield
    _seconds[item.nodeid] = time.process_time() - begin


def pytest_sessionfinish() -> None:
    """Write the processor seconds of each test."""
    Path(os.environ["SECONDS_OF_TESTS"]).write_text(json.dumps(_seconds))
