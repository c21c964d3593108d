"""Chains that go on: the bits of one longer call, in memory and in a store that grows."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import Samples
from sgmcmc.results import store
from tests.conftest import EACH_ESTIMATOR, log_lik, observations, short_call
from tests.ladder import DISTINCT, QUICK, Case, every
from tests.run.stopping import StopError, same, short_blocks_of, stop_after

KEEPS = {
    "store_gradients": True,
    "test_functions": {"square": lambda params: params["theta"] ** 2},
    "reductions": {"mean": sgmcmc.running_mean(lambda params: params["theta"])},
}


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks a few iterations long, none of which ends with the calls below."""
    short_blocks_of(2**9, monkeypatch)


def caller(case: Case) -> Callable[..., Samples]:
    module = "tests.samplers.test_simplex_runs" if case.of_points else "tests.conftest"
    return importlib.import_module(module).short_call


@every(DISTINCT, slow=lambda case: not (case in QUICK or case.of_points))
@pytest.mark.some(1)
@pytest.mark.parametrize(("n_chains", "on_disk"), [(2, True), (None, False)])
def test_extended_in_steps_as_in_one_call(
    case: Case, n_chains: int | None, on_disk: bool, tmp_path: Path
) -> None:
    """31, 7 and 13 iterations after 4 of burn-in, of which every third is kept."""
    keeps = {"store_gradients": True} if case.of_points else KEEPS
    given: dict[str, Any] = {
        "method": case.name,
        "n_chains": n_chains,
        "thin": 3,
        "burn_in": 4,
    }
    whole = caller(case)(**given, **keeps, n_iters=51)
    store = {"store": tmp_path / "chain"} if on_disk else {}
    first = caller(case)(**given, **keeps, n_iters=31, **store)
    before = {name: np.array(array) for name, array in first.items()}
    second = first.extend(7, verbose=False)
    third = second.extend(13, verbose=False)
    same(third, whole)
    assert third.settings == whole.settings
    for name, array in before.items():
        np.testing.assert_array_equal(
            first[name], array
        )  # the old draws stay as they are
        np.testing.assert_array_equal(third[name].shape, whole[name].shape)
    if on_disk:
        same(Samples.open(tmp_path / "chain"), whole)
        same(caller(case)(**given, **keeps, n_iters=51, **store), whole)


@pytest.mark.slow
@pytest.mark.parametrize("method", EACH_ESTIMATOR[::-1])
def test_the_same_call_with_more_iterations(method: str, tmp_path: Path) -> None:
    """Without a seed, and with more and more iterations."""
    given = {"method": method, "n_chains": 3, "burn_in": 4, "thin": 2, **KEEPS}
    store = tmp_path / "chain"
    for n_iters in (15, 29, 60):
        stored = short_call(**given, n_iters=n_iters, seed=None, store=store)
    same(stored, short_call(**given, n_iters=60, seed=stored.settings["seed"]))
    assert len(list(store.glob("array-*.npy"))) == 4  # those outgrown are gone


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["svrg", "saga"])
def test_gradients_with_memories(gradient: str, tmp_path: Path) -> None:
    def call(n_iters: int, **given: Any) -> Samples:
        return sgmcmc.sample(
            log_lik, {"x": observations()}, {"theta": 0.0}, dynamics="sgld", gradient=gradient,
            minibatches="uniform", minibatch_size=5, preconditioner="none", stepsize=1e-3,
            n_iters=n_iters, burn_in=0, n_chains=2, seed=1, verbose=False,
            jit_compile=False, **given,
        )  # fmt: skip

    whole = call(40)
    same(call(17).extend(23, verbose=False), whole)
    call(17, store=tmp_path / "chain")
    same(call(40, store=tmp_path / "chain"), whole)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "stepsize", [lambda i: 1e-3 / i, sgmcmc.polynomial_decay(1e-3, 5.0, 0.5)]
)
def test_schedules_go_on(stepsize: Any, tmp_path: Path) -> None:
    whole = short_call(stepsize=stepsize, n_iters=40)
    same(short_call(stepsize=stepsize, n_iters=17).extend(23, verbose=False), whole)
    short_call(stepsize=stepsize, n_iters=17, store=tmp_path / "chain")
    same(short_call(stepsize=stepsize, n_iters=40, store=tmp_path / "chain"), whole)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("place", "after"),
    [
        ("create_array", True),
        ("_copy", True),
        ("write_about", False),
        ("write_about", True),
    ],
)
def test_stopped_while_the_store_grows(
    place: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after each thing that growth does; what was there can be read all the while."""
    given = {"n_chains": 2, **KEEPS, "store": tmp_path / "chain"}
    short = short_call(**given, n_iters=17)
    function = getattr(store, place)

    def stopped(*arguments: Any) -> None:
        if after:
            function(*arguments)
        raise StopError

    monkeypatch.setattr(store, place, stopped)
    with pytest.raises(StopError):
        short_call(**given, n_iters=40)
    monkeypatch.setattr(store, place, function)
    same(Samples.open(tmp_path / "chain"), short)
    same(
        short_call(**given, n_iters=40),
        short_call(**{**given, "store": None}, n_iters=40),
    )
    assert len(list((tmp_path / "chain").glob("array-*.npy"))) == 4


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [0, 2])
def test_stopped_before_and_after_it_grew(
    blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"n_chains": 2, **KEEPS, "store": tmp_path / "chain"}
    for n_iters in (17, 40, 61):
        go_on = stop_after(blocks, monkeypatch)
        with contextlib.suppress(StopError):
            short_call(**given, n_iters=n_iters)
        go_on()
    same(
        short_call(**given, n_iters=61),
        short_call(**{**given, "store": None}, n_iters=61),
    )


@pytest.mark.slow
def test_a_chain_whose_length_was_chosen() -> None:
    x = np.random.default_rng(1).normal(3.0, 1.0, 200)
    samples = sgmcmc.sample(log_lik, {"x": x}, {"theta": 0.0}, seed=1, verbose=False)
    draws = samples["theta"].shape[1]
    longer = samples.extend(300, verbose=False)
    assert longer["theta"].shape == (4, draws + 300)
    np.testing.assert_array_equal(longer["theta"][:, :draws], samples["theta"])
    again = longer.extend(200, verbose=False)
    same(again, samples.extend(500, verbose=False))


def test_the_report_of_longer_chains_has_the_methods_that_were_considered() -> None:
    x = np.random.default_rng(1).normal(3.0, 1.0, 50)
    samples = sgmcmc.sample(
        log_lik, {"x": x}, {"theta": 0.0}, ess=20, seed=1, verbose=False
    )
    longer = samples.extend(10, verbose=False).extend(10, verbose=False)
    assert samples.report is not None and longer.report is not None
    assert samples.report["Methods"] == longer.report["Methods"]


def test_what_cannot_go_on(tmp_path: Path) -> None:
    chain = short_call()
    chain.save(tmp_path / "chain.npz")
    with pytest.raises(
        ValueError, match="make the same call again with a larger `n_iters`"
    ):
        Samples.load(tmp_path / "chain.npz").extend(5)
    with pytest.raises(ValueError, match="slice"):
        chain[5:].extend(5)
    with pytest.raises(ValueError, match="`n_iters`"):
        chain.extend(0)
    with pytest.raises(TypeError, match="`verbose`"):
        chain.extend(5, verbose=1)  # type: ignore[arg-type]
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        short_call(stepsize=10.0, n_iters=2000)
    with pytest.raises(ValueError, match="diverged"):
        caught.value.samples.extend(5)


def test_a_shorter_call_is_refused(tmp_path: Path) -> None:
    short_call(store=tmp_path / "chain", n_iters=20)
    with pytest.raises(ValueError, match="`n_iters` was 20 and is 10.*never cut"):
        short_call(store=tmp_path / "chain", n_iters=10)


def test_reductions_alone_go_on() -> None:
    keeps = {
        "store_params": False,
        "reductions": {"sum": (0.0, lambda s, p: s + p["theta"])},
    }
    longer = short_call(**keeps).extend(10, verbose=False)
    same(longer, short_call(**keeps, n_iters=30))
    assert tf.is_tensor(longer.reductions["sum"]) is False
