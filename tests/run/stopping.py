"""Chains that are stopped or killed on the way, and what has to come out all the same."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgmcmc import Samples
from sgmcmc.engine import kernel
from sgmcmc.engine.runner import Runner
from tests import seams
from tests.ladder import Case

ROOT = Path(__file__).parents[2]


def short_blocks_of(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have blocks weigh so many bytes, and save after each."""
    monkeypatch.setattr(seams.BLOCK_BYTES, size)
    monkeypatch.setattr(seams.SAVE_EVERY, 0.0)


def short_blocks() -> None:
    """Have blocks weigh 256 bytes, for good: in a process of its own, or in each worker."""
    kernel.BLOCK_BYTES = 2**8


def same(one: Samples, other: Samples, rtol: float = 0.0) -> None:
    """Everything is the same: bit for bit, or but for rounding."""
    equal = np.testing.assert_array_equal
    if rtol:
        equal = functools.partial(
            np.testing.assert_allclose, rtol=rtol, atol=rtol / 100
        )
    for a, b in (
        (one, other),
        (one.gradients, other.gradients),
        (one.test_functions, other.test_functions),
        (one.mode, other.mode),
        (one.mode_gradient, other.mode_gradient),
        (one.reductions, other.reductions),
        (one.unnormalized, other.unnormalized),
    ):
        assert (a is None) == (b is None)
        for name in a or ():
            equal(a[name], b[name])
    np.testing.assert_array_equal(one.log_post.iterations, other.log_post.iterations)
    equal(one.log_post.values, other.log_post.values)


def said_of(chain: Path) -> dict[str, Any]:
    """Return what is said of a store, without the checksum that keeps it from being changed."""
    about = json.loads((chain / "about.json").read_text())
    return {
        name: value
        for name, value in about.items()
        if name not in ("checksum", "records")
    }


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

    monkeypatch.setattr(seams.RUNNER_KEEP, failing)
    return lambda: monkeypatch.setattr(seams.RUNNER_KEEP, keep)


SERVER = """
import json, os, random, signal, sys, time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
sys.path.insert(0, {root!r})
from {caller} import short_call
from tests.run.stopping import short_blocks
import sgmcmc.run.checkpoints
short_blocks()
sgmcmc.run.checkpoints.SAVE_EVERY = 0.002
executors = {{
    None: dict,
    "threads": lambda: dict(executor=ThreadPoolExecutor(2)),
    "processes": lambda: dict(
        executor=lambda: ProcessPoolExecutor(2, get_context("spawn"), short_blocks)
    ),
}}
rng, killed = random.Random({seed}), 0

def wait(child, instant):
    # Until a process has worked for so many seconds, or is done: a busy machine changes nothing
    # about where it is then. Where others work for it, or elsewhere: until they are over.
    if {executor!r} == "processes" or not sys.platform.startswith("linux"):
        time.sleep(instant)
        return
    state, worked = "R", 0.0
    while worked < instant and state != "Z":
        time.sleep(0.002)
        with open(f"/proc/{{child}}/stat") as file:
            state, *fields = file.read().rpartition(")")[2].split()
        worked = sum(map(int, fields[10:12])) / os.sysconf("SC_CLK_TCK")

for _ in range({kills}):
    child = os.fork()
    if child == 0:
        try:
            short_call(method={method!r}, n_iters={n_iters}, store={store!r}, store_gradients=True,
                       **{given!r}, **executors[{executor!r}]())
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.setpgid(child, child)  # its workers die with it
    wait(child, rng.uniform(0.05, {longest}))
    os.killpg(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, status
    killed += os.WIFSIGNALED(status)
print(killed)
"""


def kill_again_and_again(
    case: Case,
    caller: str,
    store: Path,
    kills: int,
    n_iters: int,
    given: dict[str, Any],
    longest: float = 2.5,
    executor: str | None = None,
    seed: int = 0,
) -> int:
    """Kill a run at random instants; return how often it was killed at work.

    Each run is forked from a process that has imported everything and done nothing, which spares
    the seconds of importing TensorFlow.

    Args:
        case: the sampler.
        caller: the module that has a short call of it.
        store: where it writes to.
        kills: how often.
        n_iters: its iterations.
        given: further arguments.
        longest: seconds of its own work, on Linux, after which a run is killed at the latest.
        executor: ``"threads"`` or ``"processes"``, two of them; ``None`` for none.
        seed: of the instants, which are others for each sampler and each number of kills.
    """
    if not kills:
        return 0
    script = SERVER.format(
        root=str(ROOT),
        caller=caller,
        method=case.name,
        n_iters=n_iters,
        store=str(store),
        given=given,
        seed=zlib.crc32(
            repr((case.name, sorted(given.items()), executor, kills, seed)).encode()
        ),
        kills=kills,
        longest=longest,
        executor=executor,
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-1])
