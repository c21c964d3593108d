"""The clock of the system may be set while a chain runs: nothing goes by it."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest

from sgmcmc.engine.scheduler import Progress, Watchdog
from tests.conftest import short_call
from tests.run.stopping import same, short_blocks_of


@pytest.fixture
def jumping_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the clock jump by hours, forwards and backwards, each time it is looked at."""
    now, jumps = time.time(), itertools.cycle((7200.0, -10_800.0, -86_400.0, 3600.0))

    def jump() -> float:
        return now + next(jumps)

    for name in ("time.time", "tqdm.std.time", "tqdm._monitor.TMonitor._time"):
        monkeypatch.setattr(name, jump, raising=False)


def test_chain_under_a_jumping_clock(
    jumping_clock: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    short_blocks_of(2**8, monkeypatch)
    whole = short_call(n_iters=200)
    same(short_call(n_iters=200, store=tmp_path / "chain", verbose=True), whole)
    assert "200/200" in capsys.readouterr().err


def test_bar_goes_on_where_the_clock_is_put_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("sgld", 30, verbose=True) as bar:
        yesterday = time.time() - 86_400
        monkeypatch.setattr("tqdm.std.time", lambda: yesterday)
        for _ in range(2):
            time.sleep(0.15)  # tqdm shows a bar at most ten times a second
            bar.advance(10)
        shown = capsys.readouterr().err
    assert "10/30" in shown and "20/30" in shown
    assert all(int(speed) > 0 for speed in re.findall(r"(-?\d+)\.\d*it/s", shown))


def test_silence_is_not_measured_by_the_clock(jumping_clock: None) -> None:
    watchdog = Watchdog()
    for _ in range(100):
        watchdog.waited(0.01)
