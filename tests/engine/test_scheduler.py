"""Chains side by side: errors, Ctrl-C, and calls that stand still."""

from __future__ import annotations

import _thread
import gc
import signal
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.engine import scheduler
from sgmcmc.engine.prefetcher import Ahead
from sgmcmc.engine.scheduler import Progress, Watchdog, advance_all
from sgmcmc.plan.methods.hmc import _Quick
from sgmcmc.plan.stopping import Goal, UntilEffective
from tests.conftest import short_call


class Chain:
    """Stands in for a runner: counts, and does what it is told in a certain block."""

    estimate = 0.0

    def __init__(self, total: int, event: dict[int, Any] | None = None) -> None:
        self.total, self.iteration, self._events = total, 0, event or {}

    @property
    def finished(self) -> bool:
        return self.iteration >= self.total

    def prepare_ahead(self, wanted: bool) -> None:
        pass

    def advance(self, most: int) -> int:
        event = self._events.get(self.iteration)
        if event is not None:
            event()
        self.iteration += 1
        return 1


def fail() -> None:
    raise ZeroDivisionError


def press_ctrl_c() -> None:
    _thread.interrupt_main()
    time.sleep(0.05)


def test_all_chains_are_run_to_their_ends() -> None:
    chains: list[Any] = [Chain(total) for total in (3, 100, 1, 0, 50, 7, 9)]
    assert advance_all(chains, "chains", verbose=False)
    assert all(chain.iteration == chain.total for chain in chains)


def test_the_end_is_noticed_at_once() -> None:
    began = time.monotonic()
    for _ in range(20):
        chains: list[Any] = [Chain(1), Chain(1)]
        advance_all(chains, "chains", verbose=False)
    assert time.monotonic() - began < 20 * 0.4  # waiting for a tick takes 0.5 s each


def test_an_error_of_one_chain_ends_all_in_order() -> None:
    """Two chains fail; the others end their blocks, and no thread is left."""
    chains: list[Any] = [Chain(10**7, {5: fail}), Chain(10**7, {5: fail}), Chain(10**7)]
    with pytest.raises(ZeroDivisionError):
        advance_all(chains, "chains", verbose=False)
    assert not [t for t in threading.enumerate() if t.name.startswith("sgmcmc-chain")]


def test_ctrl_c_ends_all_in_order() -> None:
    chains: list[Any] = [Chain(10**6, {1000: press_ctrl_c}), Chain(10**6), Chain(10**6)]
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # background jobs ignore it
    try:
        assert not advance_all(chains, "chains", verbose=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [t for t in threading.enumerate() if t.name.startswith("sgmcmc-chain")]
    reached = [chain.iteration for chain in chains]
    time.sleep(0.01)
    assert reached == [chain.iteration for chain in chains]


def test_a_call_that_stands_still_ends_with_a_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SGMCMC_SILENT_SECONDS", "1")
    for_ever, calls = threading.Event(), 0

    def wait(theta: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls > 5_000:
            for_ever.wait()
        return theta

    @tf.custom_gradient
    def through(theta: tf.Tensor) -> Any:
        value = tf.ensure_shape(
            tf.numpy_function(wait, [theta], theta.dtype), theta.shape
        )
        return value, lambda upstream: upstream

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * tf.reduce_sum((dataset["x"] - through(params["theta"])) ** 2)

    try:
        with pytest.raises(TimeoutError, match="SGMCMC_SILENT_SECONDS"):
            short_call("sgld", log_lik=log_lik, n_iters=20_000, jit_compile=False)
    finally:
        for_ever.set()
    assert "in wait" in capsys.readouterr().err


def test_a_long_computation_is_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGMCMC_SILENT_SECONDS", "0.2")
    dog = Watchdog()
    until = time.process_time() + 0.3
    while time.process_time() < until:
        np.linalg.qr(np.ones((50, 50)))
    for _ in range(3):
        dog.waited(0.1)


def test_for_ever_is_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGMCMC_SILENT_SECONDS", "0")
    dog = Watchdog()
    dog.waited(1e9)


def test_the_thread_ahead_hands_back_errors_and_ends_with_its_owner() -> None:
    ahead = Ahead()
    assert ahead.submit(lambda a: a + 1, 2).result() == 3
    with pytest.raises(ZeroDivisionError):
        ahead.submit(fail).result()
    thread = ahead._thread
    assert thread is not None and thread.daemon
    del ahead
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


class TestAnnounced:
    """Long chains say how long they will take, while they run."""

    @pytest.mark.parametrize("max_seconds", [None, 60.0])
    def test_after_half_a_minute_once(
        self, monkeypatch: pytest.MonkeyPatch, max_seconds: float | None
    ) -> None:
        """The first ten seconds, with compilation, do not count: 20 s for 1000 of 21 000."""
        clock = [0.0]
        monkeypatch.setattr(scheduler.time, "monotonic", lambda: clock[0])
        rule = UntilEffective(
            Goal(0.05, 400, 4, None, None, max_seconds), _Quick(), 2, 1
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            progress = Progress("chains", 22_000, False, announce=rule.announce)
            for clock[0], iterations in (
                (9.0, 900),
                (10.0, 100),
                (20.0, 500),
                (30.0, 500),
            ):
                assert not said
                progress.advance(iterations)
            clock[0] = 300.0
            progress.advance(100)
        expected = [] if max_seconds else ["The chains will take about 7 more minutes."]
        assert [str(each.message)[:42] for each in said] == expected

    def test_with_a_doubt_that_is_known_by_then(self) -> None:
        rule = UntilEffective(Goal(0.05, 400, 4, None, None, None), _Quick(), 2, 1)
        rule.doubt = "There is no mode."
        with pytest.warns(UserWarning, match=r"bounds the time\. There is no mode\.$"):
            rule.announce(100.0)

    def test_not_if_it_is_short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock, told = [0.0], []
        monkeypatch.setattr(scheduler.time, "monotonic", lambda: clock[0])
        progress = Progress("chains", 22_000, False, announce=told.append)
        clock[0] = 9.0
        progress.advance(22_000)
        assert not told
