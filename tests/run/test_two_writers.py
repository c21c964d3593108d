"""Processes that start at the same instant on the same store: one writes, the others are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import short_call
from tests.run.stopping import ROOT, same, short_blocks_of

SCRIPT = """
import os, sys, time
sys.path.insert(0, {root!r})
from tests.conftest import short_call
import sgmcmc.engine.kernel, sgmcmc.run.checkpoints
sgmcmc.engine.kernel.BLOCK_BYTES = 2**8
sgmcmc.run.checkpoints.SAVE_EVERY = 0.0
for race in range({races}):
    at, children = time.monotonic() + 0.2, []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            time.sleep(max(0.0, at - time.monotonic()))
            try:
                short_call(n_iters={n_iters}, store={store!r} + str(race))
            except ValueError as error:
                os._exit(3 if "another process is writing" in str(error) else 1)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    codes = sorted(os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children)
    assert codes[0] == 0 and set(codes) <= {{0, 3}}, codes
    print(codes.count(3))
"""


@pytest.mark.faults
@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_three_writers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    races, n_iters = 20, 5000
    script = SCRIPT.format(
        root=str(ROOT), races=races, n_iters=n_iters, store=str(tmp_path / "chain")
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    turned_away = sum(map(int, done.stdout.split()))
    print(f"{turned_away} of {3 * races} turned away")
    assert turned_away > 0
    short_blocks_of(2**8, monkeypatch)
    whole = short_call(n_iters=n_iters)
    for race in range(races):
        same(short_call(n_iters=n_iters, store=f"{tmp_path / 'chain'}{race}"), whole)
