"""Large states, such as tables with a row for each observation, have files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import Samples
from sgmcmc.atomic_files import read_arrays
from tests import seams
from tests.conftest import EACH_ESTIMATOR, short_call, short_setup
from tests.run.stopping import StopError, same, short_blocks_of, stop_after

ROWS = 500
Tensors = dict[str, tf.Tensor]


def gibbs(params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
    """Let the value of each observation wander about its present one."""
    z = minibatch["z"]
    return {
        **minibatch,
        "z": 0.5 * z + tf.random.stateless_normal(z.shape, seed, dtype=z.dtype),
    }


def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return -0.5 * tf.reduce_sum((dataset["x"] + dataset["z"] - params["theta"]) ** 2)


KEPT: dict[str, Any] = {
    "log_lik": log_lik,
    "dataset": {"x": np.zeros(ROWS)},
    "gibbs": gibbs,
    "latents": {"z": np.zeros(ROWS)},
    "stepsize": 1e-4,
    "minibatch_size": 20,
    "n_iters": 60,
}


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save after each block of a few iterations; arrays of a kilobyte are large."""
    short_blocks_of(2**10, monkeypatch)
    monkeypatch.setattr(seams.LARGE_BYTES, 2**10)
    monkeypatch.setattr(seams.LARGE_SHARE, np.inf)


@pytest.mark.slow
@pytest.mark.parametrize("method", EACH_ESTIMATOR[::-1])
@pytest.mark.parametrize(
    ("n_chains", "blocks"), [(2, 1), (2, 0), (2, 2), (2, 5), (None, 2)]
)
def test_resumed_to_the_bit(
    method: str,
    blocks: int,
    n_chains: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {**KEPT, "method": method, "n_chains": n_chains}
    go_on = stop_after(blocks, monkeypatch)
    with pytest.raises(StopError):
        short_call(**given, store=tmp_path / "chain")
    go_on()
    resumed = short_call(**given, store=tmp_path / "chain")
    same(resumed, short_call(**given))
    same(Samples.open(tmp_path / "chain"), resumed)


def test_large_arrays_lie_beside_the_checkpoint(tmp_path: Path) -> None:
    """In two files by turns, of which the small one names the whole one."""
    short_call(**KEPT, store=tmp_path / "chain")
    folder = tmp_path / "chain"
    small = read_arrays(folder / "chain-0.npz")
    assert max(array.nbytes for array in small.values()) < 2**10
    for slot in (0, 1):
        large = read_arrays(folder / f"chain-0-large-{slot}.npz")
        assert [array.shape for array in large.values()] == [(ROWS,)]
        assert not set(large) & set(small)
    assert int(small["large"]) in (0, 1)


def test_a_large_file_that_is_not_whole_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill leaves of the file that is being written is not looked at."""
    go_on = stop_after(3, monkeypatch)
    with pytest.raises(StopError):
        short_call(**KEPT, store=tmp_path / "chain")
    go_on()
    folder = tmp_path / "chain"
    named = int(read_arrays(folder / "chain-0.npz")["large"])
    (folder / f"chain-0-large-{1 - named}.npz").write_bytes(b"PK\x03\x04 and no more")
    same(short_call(**KEPT, store=folder), short_call(**KEPT))


def test_sessions_keep_large_arrays(tmp_path: Path) -> None:
    given = {name: value for name, value in KEPT.items() if name != "n_iters"}
    sampler = short_setup(**given)
    sess = sgmcmc.init_sess(sampler)
    sgmcmc.sgmcmc_step(sampler, sess, 13)
    sess.save(tmp_path / "session")
    sgmcmc.sgmcmc_step(sampler, sess, 20)
    again = sgmcmc.init_sess(sampler, restore=tmp_path / "session")
    sgmcmc.sgmcmc_step(sampler, again, 20)
    assert sgmcmc.get_params(sampler, sess) == sgmcmc.get_params(sampler, again)
