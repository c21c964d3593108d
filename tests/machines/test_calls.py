"""Calls on the workers of an executor: results in order, deaths, what is sent, what is refused."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import warnings
from collections import OrderedDict
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.data.transfer import courier, read_machines
from sgmcmc.machines import HERE, Workers, worker
from sgmcmc.machines.worker import Unpickler, pack
from tests import seams
from tests.machines.work import Adder


def unpacked(thing: Any) -> Any:
    """Return an object that has been sent."""
    parcel = pack(thing, {Data: courier})
    shared = {key: Unpickler(blob(), {}).load() for key, blob in parcel.needs.items()}
    return Unpickler(parcel.blob, shared).load()


class InTurn(Executor):
    """Stands for several workers, each with a memory of its own, in one process."""

    def __init__(self, workers: int) -> None:
        self._max_workers = workers
        self.kept = [({}, {}) for _ in range(workers)]
        self.sent: list[int] = []
        self._next = 0

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        """Have the next worker call a function at once."""
        number = self._next = (self._next + 1) % self._max_workers
        things, shared = self.kept[number]
        future: Future[Any] = Future()
        if function is worker.work:
            self.sent += [number] * bool(arguments[2])
        before = worker._objects, worker._shared, worker.socket.gethostname
        try:
            worker._objects, worker._shared = things, shared
            worker.socket.gethostname = lambda: f"worker {number}"
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        finally:
            worker._objects, worker._shared, worker.socket.gethostname = before
        return future


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> InTurn:
    """Return three workers, made of ordered dicts as theirs are."""
    found = InTurn(3)
    found.kept = [(OrderedDict(), OrderedDict()) for _ in range(3)]
    monkeypatch.setattr(seams.AT_HAND, {})
    return found


def test_results_come_in_order(in_turn: InTurn, tmp_path: Path) -> None:
    calls = [(k, 1) for k in range(50)]
    with Workers(in_turn, {}) as machines:
        assert list(machines.map(Adder(tmp_path), "add", calls)) == list(range(1, 51))


def test_an_object_goes_once_to_each_worker(in_turn: InTurn, tmp_path: Path) -> None:
    with Workers(in_turn, {}) as machines:
        adder = Adder(tmp_path)
        for _ in range(3):
            list(machines.map(adder, "add", [(k, 1) for k in range(40)]))
    assert len(in_turn.sent) <= 6 and set(in_turn.sent) == {0, 1, 2}


def test_errors_of_the_work_are_those_of_the_call(
    in_turn: InTurn, tmp_path: Path
) -> None:
    with Workers(in_turn, {}) as machines, pytest.raises(KeyError, match="nothing"):
        list(machines.map(Adder(tmp_path), "fail", [()]))


def test_a_dataset_is_shared() -> None:
    data = Data({"x": ArrayColumn(np.arange(5.0))}, 5)
    one, two = unpacked((data, data))
    assert one is two and one.machines is HERE
    np.testing.assert_array_equal(one.columns["x"].slice(0, 5), np.arange(5.0))
    assert one.columns["x"].address != data.columns["x"].address
    assert b"ArrayColumn" not in pack(data, {Data: courier}).blob


def test_what_functions_hold_survives() -> None:
    variable, tensor = tf.Variable([1.0, 2.0]), tf.constant(3.0)
    bijector = tfp.bijectors.Invert(tfp.bijectors.Exp())
    traced = tf.function(lambda x: tensor * x)
    traced(tf.constant(1.0))
    sent = unpacked(lambda x: traced(variable * x) + bijector.inverse(tf.constant(0.0)))
    np.testing.assert_array_equal(sent(2.0), [7.0, 13.0])


def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(
        TypeError, match="`executor`: something that your functions use .*lock"
    ):
        pack(lambda: lock, {})


def test_what_is_no_executor_is_refused() -> None:
    for bad in (4, "processes", [ThreadPoolExecutor], lambda number: None):
        with pytest.raises(
            TypeError, match="`executor` must be a concurrent.futures.Executor"
        ):
            read_machines(bad)
    with (
        pytest.raises(TypeError, match="`executor` must be"),
        read_machines(lambda: None),
    ):
        pass


def test_forked_processes_are_refused() -> None:
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork on this system")
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    with pytest.raises(ValueError, match=r'get_context\("spawn"\)'):
        read_machines(pool)


def test_an_executor_that_is_shut_down_is_refused() -> None:
    with ThreadPoolExecutor(1) as pool:
        machines = read_machines(pool)
    with pytest.raises(ValueError, match="`executor` has been shut down"):
        read_machines(pool)
    assert machines.again is HERE
    # A report that is asked for later is made here.
    assert list(machines.map(Adder(Path()), "process", [()])) == [os.getpid()]


def test_what_was_made_here_is_shut_down_here(tmp_path: Path) -> None:
    made: list[ThreadPoolExecutor] = []

    def make() -> ThreadPoolExecutor:
        made.append(ThreadPoolExecutor(2))
        return made[-1]

    machines = read_machines(make)
    for _ in range(2):
        with machines:
            assert list(machines.map(Adder(tmp_path), "add", [(1, 2)])) == [3]
    assert len(made) == 2 and all(pool._shutdown for pool in made)


@pytest.mark.slow
def test_killed_workers_are_replaced(tmp_path: Path) -> None:
    with ProcessPoolExecutor(
        2, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        adder, calls = Adder(tmp_path, (3, 17)), [(k, 1) for k in range(30)]
        with Workers(pool, {}) as machines:
            found = list(machines.map(adder, "add", calls))
    assert found == list(range(1, 31))
    assert (tmp_path / "killed-3").exists() and (tmp_path / "killed-17").exists()


@pytest.mark.slow
def test_work_that_kills_is_given_up(tmp_path: Path) -> None:
    def make() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    with (
        pytest.raises(BrokenExecutor, match="4 times in a row"),
        Workers(make, {}) as machines,
    ):
        list(machines.map(Adder(tmp_path, (0,), always=True), "add", [(0, 1)]))


def test_errors_that_do_not_pickle_come_back_as_text() -> None:
    class OwnError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("mine")

    found = worker._portable(OwnError(1, 2))
    assert type(found) is RuntimeError and "OwnError: mine" in str(found)
    assert pickle.loads(pickle.dumps(found)).args == found.args


def test_a_pool_that_broke_before_is_told_once() -> None:
    """A caller who goes on with it learns why each later call waits for workers to start."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(BrokenExecutor):
            pool.submit(os._exit, 1).result()
        with pytest.warns(RuntimeWarning, match="`executor` is broken"):
            Workers(pool, {})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Workers(pool, {})
