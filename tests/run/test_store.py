"""Chains on disk: the same draws, resumed after a kill with the same bits, refused when other."""

from __future__ import annotations

import importlib
import json
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
import tensorflow as tf

import sgmcmc
from sgmcmc import Samples
from tests.conftest import METHODS, observations, short_call

KEEPS = {
    "store_gradients": True,
    "test_functions": {"square": lambda params: params["theta"] ** 2},
    "reductions": {"mean": sgmcmc.running_mean(lambda params: params["theta"])},
}


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks a few iterations long, and save after each."""
    monkeypatch.setattr("sgmcmc.engine.block.BLOCK_BYTES", 2**8)
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
    ):
        assert (a is None) == (b is None)
        for name in a or ():
            np.testing.assert_array_equal(a[name], b[name])
    np.testing.assert_array_equal(one.log_post.iterations, other.log_post.iterations)
    np.testing.assert_array_equal(one.log_post.values, other.log_post.values)


def contents(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_chains", [None, 2])
def test_on_disk_as_in_memory(
    method: str, n_chains: int | None, tmp_path: Path, short_blocks: None
) -> None:
    given = {
        "method": method,
        "n_chains": n_chains,
        "n_iters": 50,
        "thin": 2,
        "burn_in": 3,
        **KEEPS,
    }
    kept = short_call(**given)
    stored = short_call(**given, store=tmp_path / "chain")
    same(stored, kept)
    same(Samples.open(tmp_path / "chain"), kept)
    assert stored.settings == kept.settings
    before = contents(tmp_path / "chain")
    same(short_call(**given, store=tmp_path / "chain"), kept)
    changed = {name for name, data in contents(tmp_path / "chain").items() if before[name] != data}
    assert not any(name.endswith(".npy") for name in changed)


class StopError(Exception):
    """In place of a kill."""


def stop_after(blocks: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the chain fail in a certain block, after its draws are written but not its state."""
    from sgmcmc.engine.runner import Runner

    keep, count = Runner._keep, 0

    def failing(self: Runner, *arguments: Any) -> None:
        nonlocal count
        keep(self, *arguments)
        count += 1
        if count > blocks:
            raise StopError

    monkeypatch.setattr(Runner, "_keep", failing)
    return lambda: monkeypatch.setattr(Runner, "_keep", keep)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("blocks", [0, 1, 4])
def test_resumed_run_is_that_never_stopped(
    method: str,
    blocks: int,
    tmp_path: Path,
    short_blocks: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"method": method, "n_iters": 50, "seed": None, **KEEPS}
    go_on = stop_after(blocks, monkeypatch)
    with pytest.raises(StopError):
        short_call(**given, store=tmp_path / "chain")
    go_on()
    resumed = short_call(**given, store=tmp_path / "chain")
    given["seed"] = resumed.settings["seed"]  # the first call drew it
    same(resumed, short_call(**given))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stepsize": 2e-3}, "`stepsize` was 0.001 and is 0.002"),
        ({"seed": 2}, "`seed` was 1 and is 2"),
        ({"n_iters": 60}, "`n_iters` was 20 and is 60"),
        ({"method": "sgnht"}, "`method` was 'sgld' and is 'sgnht'"),
        ({"dataset": {"x": observations()[::-1]}}, "`dataset['x']` holds other values"),
        ({"log_prior": lambda params: -(params["theta"] ** 2)}, "log_prior"),
    ],
)
def test_other_chain_is_refused_and_nothing_changes(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    short_call(store=tmp_path / "chain")
    before = contents(tmp_path / "chain")
    with pytest.raises(ValueError, match="`store`") as caught:
        short_call(**{"store": tmp_path / "chain", **change})
    assert said in str(caught.value)
    assert contents(tmp_path / "chain") == before


def test_another_version_is_refused(tmp_path: Path) -> None:
    short_call(store=tmp_path / "chain")
    about = json.loads((tmp_path / "chain/about.json").read_text())
    about["fingerprint"]["versions"]["tensorflow"] = "2.99.0"
    (tmp_path / "chain/about.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"`versions\['tensorflow'\]` was '2.99.0'"):
        short_call(store=tmp_path / "chain")
    about["format"] = 99
    (tmp_path / "chain/about.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="format 99"):
        short_call(store=tmp_path / "chain")


def test_schedules_are_compared(tmp_path: Path) -> None:
    decay = sgmcmc.polynomial_decay
    given = {"store": tmp_path / "chain"}
    short_call(**given, stepsize=decay(1e-3, 5.0, 0.5))
    short_call(**given, stepsize=decay(1e-3, 5.0, 0.5))
    with pytest.raises(ValueError, match="`stepsize`"):
        short_call(**given, stepsize=decay(1e-3, 6.0, 0.5))


def test_a_function_as_schedule_is_compared_by_its_values(tmp_path: Path) -> None:
    given = {"store": tmp_path / "chain"}
    short_call(**given, stepsize=lambda i: 1e-3 / i)
    short_call(**given, stepsize=lambda i: 1e-3 / i)
    with pytest.raises(ValueError, match="`stepsize`"):
        short_call(**given, stepsize=lambda i: 1e-3)


def test_second_writer_is_refused(tmp_path: Path) -> None:
    from sgmcmc.results.store import Store

    with Store(tmp_path / "chain"), pytest.raises(ValueError, match="another process"):
        short_call(store=tmp_path / "chain")
    short_call(store=tmp_path / "chain")


@pytest.mark.parametrize("value", [3, "", b"x", [1]])
def test_what_is_no_path_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="`store`"):
        short_call(store=value)


def test_foreign_folders_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="other things"):
        short_call(store=tmp_path)
    with pytest.raises(ValueError, match="is a file"):
        short_call(store=tmp_path / "thesis.tex")
    assert contents(tmp_path) == {"thesis.tex": b"mine"}
    with pytest.raises(ValueError, match="not a folder that `store` made"):
        Samples.open(tmp_path / "absent")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="`store`"):
        short_call(store=tmp_path / "chain")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_blocks: None) -> None:
    """What was written before stays, and the run goes on once there is room."""
    from sgmcmc.results.store.files import FileRows

    write = FileRows.__setitem__

    def full(self: FileRows, rows: slice, values: np.ndarray) -> None:
        if rows.start >= 20:
            self._file = open("/dev/full", "wb", buffering=0)
        write(self, rows, values)

    monkeypatch.setattr(FileRows, "__setitem__", full)
    with pytest.raises(OSError, match="`store`.*No space left"):
        short_call(store=tmp_path / "chain", n_iters=50)
    monkeypatch.setattr(FileRows, "__setitem__", write)
    assert 0 < len(Samples.open(tmp_path / "chain")["theta"]) < 50
    same(short_call(store=tmp_path / "chain", n_iters=50), short_call(n_iters=50))


def test_divergence_keeps_the_finite_draws(tmp_path: Path, short_blocks: None) -> None:
    for _ in range(2):
        with pytest.raises(sgmcmc.DivergenceError) as caught:
            short_call(store=tmp_path / "chain", stepsize=10.0, n_iters=2000)
        draws = caught.value.samples["theta"]
        assert 0 < len(draws) < 2000 and np.isfinite(draws).all()


def test_nothing_but_reductions(tmp_path: Path) -> None:
    keeps = {"store_params": False, "reductions": KEEPS["reductions"]}
    stored = short_call(**keeps, store=tmp_path / "chain")
    assert len(stored) == 0
    np.testing.assert_array_equal(stored.reductions["mean"], short_call(**keeps).reductions["mean"])


def test_a_large_store_opens_at_once(tmp_path: Path) -> None:
    """Ten gigabytes of draws, which are mapped and never read; the file is sparse."""
    vector = {
        "log_lik": lambda params, dataset: -tf.reduce_sum(params["theta"] ** 2 * dataset["x"][0]),
        "params": {"theta": np.ones(10)},
    }
    short_call(**vector, store=tmp_path / "chain", n_iters=50)
    about = json.loads((tmp_path / "chain/about.json").read_text())
    draws = 250_000_000
    for name, file in about["arrays"].items():
        if name == "draws":
            shape = (1, draws, 10)
            np.lib.format.open_memmap(tmp_path / "chain" / file, "w+", np.float32, shape=shape)
    state = dict(np.load(tmp_path / "chain/chain-0.npz"))
    np.savez(tmp_path / "chain/chain-0.npz", **{**state, "draws": np.array(draws)})
    start = time.perf_counter()
    chain = Samples.open(tmp_path / "chain")
    assert time.perf_counter() - start < 1.0
    assert chain["theta"].shape == (draws, 10)
    assert not chain["theta"][-5:].any()


# ------------------------------------------------------------------------------------- kills

CHILD = """
import sys
import numpy as np
import sgmcmc
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


def caller(method: str) -> str:
    """Return the module that has a short call of a method."""
    return "tests.samplers.test_simplex_runs" if method == "scir" else "tests.conftest"


def kill_and_resume(method: str, tmp_path: Path, kills: int, n_iters: int) -> int:
    """Kill a run again and again at random instants; return how often it was killed at work."""
    given: dict[str, Any] = {"n_iters_opt": n_iters // 2} if method.endswith("cv") else {}
    store, rng, killed = tmp_path / method, random.Random(kills), 0
    script = CHILD.format(
        root=str(Path(__file__).parents[2]),
        caller=caller(method),
        method=method,
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


def finish(method: str, tmp_path: Path, n_iters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run after the kills ends as one that was never stopped."""
    monkeypatch.setattr("sgmcmc.engine.block.BLOCK_BYTES", 2**8)
    given: dict[str, Any] = {"method": method, "n_iters": n_iters, "store_gradients": True}
    given |= {"n_iters_opt": n_iters // 2} if method.endswith("cv") else {}
    call = importlib.import_module(caller(method)).short_call
    same(call(**given, store=tmp_path / method), call(**given))


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_killed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_and_resume("sgldcv", tmp_path, 2, 4000)
    finish("sgldcv", tmp_path, 4000, monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("method", ["sgldcv", "sghmccv", "sgnhtcv", "scir"])
def test_killed_at_twenty_random_instants(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each family, in mode-finding and in the chain; with latent variables for SCIR."""
    n_iters = {"sghmccv": 12_000, "scir": 120_000}.get(method, 40_000)
    killed = kill_and_resume(method, tmp_path, 20, n_iters)
    print(f"{method}: killed at work {killed} times of 20")
    finish(method, tmp_path, n_iters, monkeypatch)
