"""Chains and passes over the data on the workers of an executor: the numbers are the same."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data import passes
from sgmcmc.data.transfer import read_machines
from sgmcmc.engine.runner import Runner
from sgmcmc.gradients import WholeData
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.plan.leverage import leverage
from sgmcmc.plan.objective import Objective
from tests import seams
from tests.machines.work import CALL, ROWS, log_lik
from tests.plan.models import make
from tests.run.stopping import same


@pytest.fixture(scope="module")
def threads() -> Iterator[Executor]:
    """Yield two workers that are threads; what is sent to them is pickled all the same."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def alone() -> sgmcmc.Samples:
    """Return the draws of the short call without an executor."""
    return sgmcmc.sgldcv(**CALL)


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have segments, and blocks, be short."""
    short = seams.changed(seams.EXECUTOR_SETTINGS, segment_seconds=0.0)
    monkeypatch.setattr(seams.EXECUTOR_SETTINGS, short)
    monkeypatch.setattr(seams.LONGEST_BLOCK, 100)


RICH = {
    **CALL,
    "store_gradients": True,
    "thin": 3,
    "burn_in": 50,
    "test_functions": {"square": lambda params: params["theta"] ** 2},
    "reductions": {"mean": sgmcmc.running_mean(lambda params: params["theta"])},
}


@functools.cache
def in_short_blocks() -> sgmcmc.Samples:
    """Return the draws of a rich call without an executor, with blocks that are short."""
    return sgmcmc.sgldcv(**RICH)


@pytest.mark.slow
@pytest.mark.usefixtures("short_segments")
def test_segments_do_not_show(threads: Executor) -> None:
    same(sgmcmc.sgldcv(**RICH, executor=threads), in_short_blocks())


def test_draws_are_those_of_one_process_and_go_on(alone: sgmcmc.Samples) -> None:
    longer = sgmcmc.sgldcv(**{**CALL, "n_iters": 900})
    with ThreadPoolExecutor(2) as pool:
        found = sgmcmc.sgldcv(**CALL, executor=pool)
        same(found, alone)
        same(found.extend(300, verbose=False), longer)
    # The executor is gone: the chains go on here.
    same(found.extend(300, verbose=False), longer)


@pytest.mark.usefixtures("short_segments")
def test_a_store_goes_on(tmp_path: Path, threads: Executor, monkeypatch: Any) -> None:
    take, count = Runner.take_over, 0

    def failing(self: Runner, *arguments: Any) -> None:
        nonlocal count
        take(self, *arguments)
        count += 1
        if count == 7:
            raise MemoryError

    given = {**RICH, "store": tmp_path / "chain", "executor": threads}
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(seams.TAKE_OVER, failing)
        sgmcmc.sgldcv(**given)
    same(sgmcmc.sgldcv(**given), in_short_blocks())


@pytest.mark.usefixtures("short_segments")
def test_ctrl_c_returns_the_draws_so_far(threads: Executor, monkeypatch: Any) -> None:
    save, caller, begun = Runner.save, threading.current_thread(), set[int]()

    def interrupted(self: Runner) -> None:
        save(self)
        # As Ctrl-C does, in the thread that waits, and once: when every chain has draws there.
        if threading.current_thread() is caller and len(begun) < CALL["n_chains"]:
            begun.add(self.chain)
            if len(begun) == CALL["n_chains"]:
                raise KeyboardInterrupt

    whole = sgmcmc.sgld(**_of_sgld())
    monkeypatch.setattr(seams.RUNNER_SAVE, interrupted)
    with pytest.warns(UserWarning, match="Interrupted"):
        found = sgmcmc.sgld(**_of_sgld(), executor=threads)
    draws = found["theta"].shape[1]
    assert 0 < draws < 600
    np.testing.assert_array_equal(found["theta"], whole["theta"][:, :draws])


def _of_sgld() -> dict[str, Any]:
    """Return a call of its own: workers keep kernels, whose blocks are of another length here."""
    given = {k: v for k, v in CALL.items() if k not in ("opt_stepsize", "n_iters_opt")}
    return {**given, "seed": 2}


@pytest.mark.usefixtures("short_segments")
def test_a_divergence_arrives(threads: Executor) -> None:
    given = {
        **_of_sgld(),
        "n_chains": None,
        "stepsize": lambda t: 1e-3 if t < 250 else 1e3,
    }
    with pytest.raises(sgmcmc.DivergenceError) as here:
        sgmcmc.sgld(**given)
    with pytest.raises(sgmcmc.DivergenceError) as there:
        sgmcmc.sgld(**given, executor=threads)
    assert str(there.value) == str(here.value)
    same(there.value.samples, here.value.samples)


def test_warnings_of_the_compiler_arrive(threads: Executor) -> None:
    def of_a_gamma(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        noise = tf.random.stateless_gamma([1], [1, 2], 1.0)
        return log_lik(params, dataset) + 0 * tf.reduce_sum(noise)

    given = {**_of_sgld(), "log_lik": of_a_gamma, "jit_compile": None, "n_iters": 100}
    with pytest.warns(UserWarning, match="XLA cannot compile"):
        here = sgmcmc.sgld(**given)
    with pytest.warns(UserWarning, match="XLA cannot compile"):
        there = sgmcmc.sgld(**given, executor=threads)
    same(there, here)


def test_step_by_step_is_refused(threads: Executor) -> None:
    given = {k: v for k, v in _of_sgld().items() if k not in ("n_iters", "verbose")}
    with pytest.raises(ValueError, match="`executor`: sgld_setup.. runs step by step"):
        sgmcmc.sgld_setup(**given, executor=threads)


def test_sums_over_the_data(threads: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams.PASSES_PIECE_BYTES, 60 * 8)
    monkeypatch.setattr(seams.PASSES_SETTINGS, passes._Settings(max_shards=3))
    target, here = make(log_lik, {"x": ROWS}, {"theta": (2,)})
    there = here.on(read_machines(threads))
    u, whitening = np.array([0.5, 1.5]), Preconditioner(np.ones(2) / 20, np.ones(2))
    with there.machines:
        one, two = Objective(target, here), Objective(target, there)
        (value, gradient), (value_2, gradient_2) = (
            o.value_and_gradient(u) for o in (one, two)
        )
        assert value == value_2
        np.testing.assert_array_equal(gradient, gradient_2)
        np.testing.assert_array_equal(
            one.likelihood_hessian(u), two.likelihood_hessian(u)
        )
        np.testing.assert_array_equal(
            leverage(target, here, whitening, 1), leverage(target, there, whitening, 1)
        )
        position, places = u.astype(np.float32), np.arange(2)
        one, two = (WholeData(target, data, 10) for data in (here, there))
        np.testing.assert_array_equal(one.gradient(position), two.gradient(position))
        np.testing.assert_array_equal(
            one.term_gradients(position, places), two.term_gradients(position, places)
        )
    exact = (ROWS.astype(float) - u).sum(0)
    np.testing.assert_allclose(gradient, exact, rtol=1e-5)


def test_predictions(
    alone: sgmcmc.Samples, threads: Executor, monkeypatch: Any
) -> None:
    small = seams.changed(seams.EVALUATION, numbers=2**14)
    monkeypatch.setattr(seams.EVALUATION, small)

    def f(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.reduce_sum(dataset["x"] * params["theta"], 1)

    for reduce in ("mean", "quantiles", None):
        np.testing.assert_array_equal(
            alone.predict(f, reduce=reduce, executor=threads),
            alone.predict(f, reduce=reduce),
        )
    few = alone[::100]
    np.testing.assert_array_equal(few.log_lik(executor=threads), few.log_lik())


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_processes(
    workers: int, alone: sgmcmc.Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that are all killed on the way; data in a file that they map; a shared folder."""
    np.save(tmp_path / "x.npy", ROWS)
    mapped = {"x": np.load(tmp_path / "x.npy", mmap_mode="r")}
    short = seams.changed(seams.EXECUTOR_SETTINGS, segment_seconds=0.0)
    monkeypatch.setattr(seams.EXECUTOR_SETTINGS, short)
    take, seen = Runner.take_over, []
    with ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn")
    ) as pool:

        def killing(self: Runner, *arguments: Any) -> None:
            take(self, *arguments)
            if not seen:
                seen.extend(pool._processes)
                for process in seen:
                    os.kill(process, signal.SIGKILL)

        monkeypatch.setattr(seams.TAKE_OVER, killing)
        given = {
            **CALL,
            "dataset": mapped,
            "store": tmp_path / "chain",
            "executor": pool,
        }
        same(sgmcmc.sgldcv(**given), alone)
        assert len(seen) == workers
