"""Chains that are stopped or killed on the way, and what has to come out all the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgmcmc import Samples
from sgmcmc.engine.runner import Runner
from tests.ladder import Case

ROOT = Path(__file__).parents[2]


def short_blocks_of(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have blocks weigh so many bytes, and save after each."""
    monkeypatch.setattr("sgmcmc.engine.block.BLOCK_BYTES", size)
    monkeypatch.setattr("sgmcmc.run.checkpoints.SAVE_EVERY", 0.0)


def same(one: Samples, other: Samples) -> None:
    """Everything is the same to the bit."""
    for a, b in (
        (one, other),
        (one.gradients, other.gradients),
        (one.test_functions, other.test_functions),
        (one.mode, other.mode),
        (one.mode_gradient, other.mode_gradient),
        (one.reductions, other.reductions),
        (one.unnormalised, other.unnormalised),
    ):
        assert (a is None) == (b is None)
        for name in a or ():
            np.testing.assert_array_equal(a[name], b[name])
    np.testing.assert_array_equal(one.log_post.iterations, other.log_post.iterations)
    np.testing.assert_array_equal(one.log_post.values, other.log_post.values)


class StopError(Exception):
    """In place of a kill."""


def stop_after(blocks: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the chain fail in a certain block, after its draws are written but not its state."""
    keep, count = Runner._keep, 0

    def failing(self: Runner, *arguments: Any) -> None:
        nonlocal count
        keep(self, *arguments)
        count += 1
        if count > blocks:
            raise StopError

    monkeypatch.setattr(Runner, "_keep", failing)
    return lambda: monkeypatch.setattr(Runner, "_keep", keep)


CHILD = """
import sys
import sgmcmc.engine.block, sgmcmc.run.checkpoints
sys.path.insert(0, {root!r})
from {caller} import short_call
sgmcmc.engine.block.BLOCK_BYTES = 2**8
sgmcmc.run.checkpoints.SAVE_EVERY = 0.002
print("ready", flush=True)
short_call(method={method!r}, n_iters={n_iters}, store={store!r}, store_gradients=True,
           **{given!r})
print("done", flush=True)
"""


def kill_again_and_again(
    case: Case, caller: str, store: Path, kills: int, n_iters: int, given: dict[str, Any]
) -> int:
    """Kill a run at random instants; return how often it was killed at work.

    Args:
        case: the sampler.
        caller: the module that has a short call of it.
        store: where it writes to.
        kills: how often.
        n_iters: its iterations.
        given: further arguments.
    """
    rng, killed = random.Random(kills), 0
    script = CHILD.format(
        root=str(ROOT),
        caller=caller,
        method=case.name,
        n_iters=n_iters,
        store=str(store),
        given=given,
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    for _ in range(kills):
        with subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0.2, 3.0))
            child.send_signal(signal.SIGKILL)
            killed += child.stdout.read() != "done\n"
    return killed
