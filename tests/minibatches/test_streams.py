"""The data stream: the ways of bringing rows to the chain, and what a block weighs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data import native
from sgmcmc.data.dataset import ArrayColumn, Data, MappedColumn
from sgmcmc.minibatches import Uniform, streams
from sgmcmc.minibatches.streams import (
    GatheredAhead,
    InPlace,
    MinibatchSource,
    OnDevice,
    Stream,
    Whole,
    make_stream,
)
from tests import seams
from tests.conftest import EACH_ESTIMATOR, short_call


def log_lik(params: dict, dataset: dict) -> tf.Tensor:
    residual = dataset["y"] - tf.linalg.matvec(dataset["X"], params["beta"])
    return -0.5 * tf.reduce_sum(residual**2)


@pytest.fixture
def dataset() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    return {"X": X, "y": (X @ [1.0, -1.0, 0.5]).astype(np.float32)}


def draw(dataset: dict, n_chains: int | None = None, **given: Any) -> np.ndarray:
    chain = sgmcmc.sgld(
        log_lik,
        dataset,
        {"beta": np.zeros(3)},
        1e-4,
        minibatch_size=20,
        n_iters=50,
        verbose=False,
        seed=5,
        n_chains=n_chains,
        **given,
    )
    return chain["beta"]


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the chain gather every minibatch itself, as it does where no core is to spare."""
    if not native.callable_by_xla():
        pytest.skip("the native code is not built, or this TensorFlow cannot call it")
    monkeypatch.setattr(seams.AVAILABLE_CORES, lambda: 1)
    monkeypatch.setattr(seams.STREAM_SETTINGS, streams._Settings(worth_a_call=0))


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the package as it is where no C++ compiler was."""
    monkeypatch.setattr(seams.NATIVE_ROWS, None)
    assert not native.callable_by_xla()


def stream_of(
    data: Data,
    size: int,
    *,
    replace: bool = False,
    ahead: bool = True,
    xla: bool = True,
) -> Stream:
    """Return the stream of uniform minibatches that is chosen."""
    draws = Uniform(replace).bind(data.size, size)
    source = MinibatchSource(data, draws, tf.float32)
    return make_stream(source, ahead=ahead, xla=xla)


def threads_of(stream: Stream) -> int:
    """Return how many threads copy the rows of ``x``."""
    assert isinstance(stream, InPlace)
    return stream.copying(stream.columns["column/x"])


def test_rows_gathered_on_the_device_are_those_gathered_on_the_host(
    dataset: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_host = draw(dataset, jit_compile=False)
    monkeypatch.setattr(seams.MAKE_STREAM, lambda source, **_: OnDevice(source))
    np.testing.assert_allclose(
        draw(dataset, jit_compile=False), on_host, rtol=1e-5, atol=1e-6
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("method", (*EACH_ESTIMATOR, "sgrld"))
def test_rows_gathered_in_place_are_those_gathered_before(
    method: str, request: pytest.FixtureRequest
) -> None:
    given: dict = {"jit_compile": True, "n_iters": 60}
    if method == "sgrld":
        given |= {
            "log_lik": lambda params, dataset: tf.reduce_sum(
                dataset["x"] * tf.math.log(params["theta"])
            ),
            "dataset": {
                "x": np.random.default_rng(2).multinomial(1, [0.2, 0.3, 0.5], 40)
            },
            "params": {"theta": [0.3, 0.3, 0.4]},
            "alpha": {"theta": 1.0},
            "stepsize": 1e-3,
        }
    before = short_call(method, **given)
    request.getfixturevalue("in_place")
    after = short_call(method, **given)
    np.testing.assert_allclose(after["theta"], before["theta"], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_without_native_code_the_draws_are_the_same(
    dataset: dict, request: pytest.FixtureRequest
) -> None:
    with_it = draw(dataset)
    request.getfixturevalue("without_native")
    np.testing.assert_allclose(draw(dataset), with_it, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("in_place")
def test_in_place_a_model_that_xla_cannot_compile_runs_as_a_plain_graph(
    x: np.ndarray,
) -> None:
    def uncompilable(params: dict, dataset: dict) -> tf.Tensor:
        spelt = tf.strings.to_number(tf.strings.as_string(dataset["x"], precision=9))
        return -0.5 * tf.reduce_sum((spelt - params["theta"]) ** 2)

    plain = short_call("sgldcv", log_lik=uncompilable, jit_compile=False, n_chains=2)
    with pytest.warns(UserWarning, match="XLA cannot compile"):
        tried = short_call("sgldcv", log_lik=uncompilable, jit_compile=None, n_chains=2)
    np.testing.assert_array_equal(tried["theta"], plain["theta"])

    sampler = sgmcmc.sgld_setup(
        uncompilable, {"x": x}, {"theta": 0.0}, 1e-3, minibatch_size=5, seed=1
    )
    with pytest.warns(UserWarning, match="XLA cannot compile"):
        session = sgmcmc.init_sess(sampler)
    sgmcmc.sgmcmc_step(sampler, session, n_steps=20)
    last = short_call(log_lik=uncompilable, jit_compile=False)["theta"][-1]
    np.testing.assert_array_equal(sampler.params["theta"], last)


@pytest.mark.usefixtures("in_place")
def test_a_memmap_is_read_in_place(dataset: dict, tmp_path: Path) -> None:
    stored = np.memmap(tmp_path / "X", np.float32, "w+", shape=dataset["X"].shape)
    stored[:] = dataset["X"]
    column = MappedColumn(stored, np.dtype(np.float32))
    assert column.address == stored.ctypes.data
    np.testing.assert_array_equal(draw({**dataset, "X": stored}), draw(dataset))
    # Other numbers than the chain's, or rows that do not lie one after another, are converted.
    assert MappedColumn(stored, np.dtype(np.float64)).address is None
    assert MappedColumn(stored[:, :2], np.dtype(np.float32)).address is None


def test_the_number_of_cores_changes_only_the_rounding(
    dataset: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seams.AVAILABLE_CORES, lambda: 8)
    on_many = draw(dataset)
    monkeypatch.setattr(seams.AVAILABLE_CORES, lambda: 1)
    np.testing.assert_allclose(draw(dataset), on_many, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_memmap_gives_the_bits_of_the_array_and_is_not_loaded(
    dataset: dict, tmp_path: Path
) -> None:
    stored = np.memmap(tmp_path / "X", np.float32, "w+", shape=dataset["X"].shape)
    stored[:] = dataset["X"]
    column = MappedColumn(stored, np.dtype(np.float32))
    assert np.shares_memory(column.slice(0, 1), stored)
    np.testing.assert_array_equal(draw({**dataset, "X": stored}), draw(dataset))


def test_the_stream_is_chosen_by_size_replacement_and_cores(dataset: dict) -> None:
    data = Data({name: ArrayColumn(array) for name, array in dataset.items()}, 200)
    assert isinstance(stream_of(data, 20), GatheredAhead)
    whole = stream_of(data, 200)
    assert isinstance(whole, Whole) and whole.shapes(7) == {}
    assert stream_of(data, 200, replace=True).shapes(7)["column/y"][0] == (7, 200)
    long = Data({"x": ArrayColumn(np.zeros((10_000, 10)))}, 10_000)
    in_place = stream_of(long, 500, ahead=False)
    assert isinstance(in_place, InPlace) == native.callable_by_xla()
    assert isinstance(stream_of(long, 20, ahead=False), GatheredAhead)
    # A heavy minibatch is gathered in place even where a core is to spare.
    heavy = Data({"x": ArrayColumn(np.zeros((2000, 200)))}, 2000)
    assert isinstance(stream_of(heavy, 700), type(in_place))
    if isinstance(in_place, InPlace):  # which then takes part in that
        assert [
            threads_of(stream_of(heavy, 700, ahead=ahead)) for ahead in (True, False)
        ] == [2, 1]
    # Only XLA can call what gathers in place.
    assert isinstance(stream_of(long, 500, ahead=False, xla=False), GatheredAhead)
    # Blocks are as long in either form, so the same seeds draw the same numbers.
    assert in_place.bytes_per_step == stream_of(long, 500).bytes_per_step


@pytest.mark.usefixtures("in_place")
def test_a_block_in_place_holds_row_numbers_alone(dataset: dict) -> None:
    data = Data({name: ArrayColumn(array) for name, array in dataset.items()}, 200)
    stream = stream_of(data, 20, ahead=False)
    assert stream.shapes(7) == {"rows": ((7, 20), np.dtype(np.int32))}
