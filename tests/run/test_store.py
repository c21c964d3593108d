"""Chains on disk: the same draws, resumed after a kill with the same bits, refused when other."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import Samples
from sgmcmc.results.store import FileRows, Store
from tests import seams
from tests.conftest import METHODS, observations, short_call
from tests.run.stopping import StopError, said_of, same, short_blocks_of, stop_after

KEEPS = {
    "store_gradients": True,
    "test_functions": {"square": lambda params: params["theta"] ** 2},
    "reductions": {"mean": sgmcmc.running_mean(lambda params: params["theta"])},
}


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks a few iterations long, and save after each."""
    short_blocks_of(2**8, monkeypatch)


def contents(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir()}


@pytest.mark.some(1)
@pytest.mark.parametrize("method", METHODS[::-1])
@pytest.mark.parametrize("n_chains", [2, None])
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
    changed = {
        name
        for name, data in contents(tmp_path / "chain").items()
        if before[name] != data
    }
    assert not any(name.endswith(".npy") for name in changed)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("blocks", [1, 0, 4])
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
        ({"n_iters": 10}, "`n_iters` was 20 and is 10"),
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
    about = said_of(tmp_path / "chain")
    about["fingerprint"]["versions"]["tensorflow"] = "2.99.0"
    (tmp_path / "chain/about.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"`versions\['tensorflow'\]` was '2.99.0'"):
        short_call(store=tmp_path / "chain")
    about["format"] = 99
    (tmp_path / "chain/about.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="format 99"):
        short_call(store=tmp_path / "chain")


@pytest.mark.parametrize(
    "elsewhere", ["../other.npy", "{}/other.npy", "lock", "array-0.npy/", 3]
)
def test_files_elsewhere_are_neither_read_nor_written(
    elsewhere: Any, tmp_path: Path
) -> None:
    short_call(store=tmp_path / "chain")
    about = said_of(tmp_path / "chain")
    other = tmp_path / "other.npy"
    other.write_bytes((tmp_path / "chain" / about["arrays"]["draws"]).read_bytes())
    before = other.read_bytes()
    named = elsewhere.format(tmp_path) if isinstance(elsewhere, str) else elsewhere
    about["arrays"]["draws"] = named
    (tmp_path / "chain/about.json").write_text(json.dumps(about))
    with pytest.raises(
        ValueError, match="`path`: .*about.json' is damaged: it names files"
    ):
        Samples.open(tmp_path / "chain")
    with pytest.raises(
        ValueError, match="`store`: .*about.json' is damaged: it names files"
    ):
        short_call(store=tmp_path / "chain", n_iters=100)
    assert other.read_bytes() == before


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


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere"
)
def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="`store`"):
        short_call(store=tmp_path / "chain")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_blocks: None
) -> None:
    """What was written before stays, and the run goes on once there is room."""
    write = FileRows.__setitem__

    def full(self: FileRows, rows: slice, values: np.ndarray) -> None:
        if rows.start >= 20:
            self._file = open("/dev/full", "wb", buffering=0)
        write(self, rows, values)

    monkeypatch.setattr(seams.FILE_ROWS_SETITEM, full)
    with pytest.raises(OSError, match="`store`.*No space left"):
        short_call(store=tmp_path / "chain", n_iters=50)
    monkeypatch.setattr(seams.FILE_ROWS_SETITEM, write)
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
    np.testing.assert_array_equal(
        stored.reductions["mean"], short_call(**keeps).reductions["mean"]
    )


def test_a_large_store_opens_at_once(tmp_path: Path) -> None:
    """Ten gigabytes of draws, which are mapped and never read; the file is sparse."""
    vector = {
        "log_lik": lambda params, dataset: (
            -tf.reduce_sum(params["theta"] ** 2 * tf.reduce_sum(dataset["x"]))
        ),
        "params": {"theta": np.ones(10)},
    }
    short_call(**vector, store=tmp_path / "chain", n_iters=50)
    about = said_of(tmp_path / "chain")
    (tmp_path / "chain/about.json").write_text(json.dumps(about))
    draws = 250_000_000
    for name, file in about["arrays"].items():
        if name == "draws":
            shape = (1, draws, 10)
            np.lib.format.open_memmap(
                tmp_path / "chain" / file, "w+", np.float32, shape=shape
            )
    state = dict(np.load(tmp_path / "chain/chain-0.npz"))
    np.savez(tmp_path / "chain/chain-0.npz", **{**state, "draws": np.array(draws)})
    start = time.perf_counter()
    chain = Samples.open(tmp_path / "chain")
    assert time.perf_counter() - start < 1.0
    assert chain["theta"].shape == (draws, 10)
    assert not chain["theta"][-5:].any()
