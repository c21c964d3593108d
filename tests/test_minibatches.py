"""The data stream: the two ways of bringing rows to the chain, and what a block weighs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import sampler as sampler_module
from sgmcmc.data import ArrayColumn, Data, LazyColumn
from sgmcmc.minibatches import DeviceMinibatches, GatheredMinibatches, make_minibatches


def log_lik(params: dict, dataset: dict) -> tf.Tensor:
    residual = dataset["y"] - tf.linalg.matvec(dataset["X"], params["beta"])
    return -0.5 * tf.reduce_sum(residual**2)


@pytest.fixture
def dataset() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    return {"X": X, "y": (X @ [1.0, -1.0, 0.5]).astype(np.float32)}


def draw(dataset: dict, n_chains: int | None = None) -> np.ndarray:
    chain = sgmcmc.sgldcv(
        log_lik,
        dataset,
        {"beta": np.zeros(3)},
        1e-4,
        1e-3,
        minibatch_size=20,
        n_iters=50,
        n_iters_opt=50,
        verbose=False,
        seed=5,
        n_chains=n_chains,
    )
    return chain["beta"]


def test_rows_gathered_on_the_device_are_those_gathered_on_the_host(
    dataset: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_host = draw(dataset)
    monkeypatch.setattr(
        sampler_module, "make_minibatches", lambda *given: DeviceMinibatches(*given[:3])
    )
    np.testing.assert_allclose(draw(dataset), on_host, rtol=1e-5, atol=1e-6)


def test_looking_ahead_changes_only_the_rounding(
    dataset: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgmcmc.cores.count", lambda: 8)
    ahead = draw(dataset)
    monkeypatch.setattr("sgmcmc.cores.count", lambda: 1)
    np.testing.assert_allclose(draw(dataset), ahead, rtol=1e-5, atol=1e-6)


def test_a_memmap_gives_the_bits_of_the_array_and_is_not_loaded(
    dataset: dict, tmp_path: Path
) -> None:
    stored = np.memmap(tmp_path / "X", np.float32, "w+", shape=dataset["X"].shape)
    stored[:] = dataset["X"]
    column = LazyColumn(stored, np.dtype(np.float32))
    assert column.source is stored
    np.testing.assert_array_equal(draw({**dataset, "X": stored}), draw(dataset))


def test_the_stream_is_chosen_by_size_and_replacement(dataset: dict) -> None:
    data = Data({name: ArrayColumn(array) for name, array in dataset.items()}, 200)
    assert isinstance(make_minibatches(data, 20, False), GatheredMinibatches)
    assert make_minibatches(data, 200, False).shapes(7) == {}
    assert make_minibatches(data, 200, True).shapes(7)["column/y"][0] == (7, 200)
