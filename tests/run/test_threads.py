"""Ctrl-C, threads, and warnings in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from tests.conftest import EACH_ESTIMATOR, log_lik, short_setup

Run = Callable[..., sgmcmc.Samples]
ROOT = Path(__file__).parents[2]


def interrupt(script: str, after: float) -> tuple[int, str, str]:
    """Run a script, press Ctrl-C some seconds after its first words, and return what it said.

    It keeps no compiled chains: TensorFlow writes a line when it reads one.
    """
    process = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            OF_OTHERS,
            "-c",
            HEED_CTRL_C + script,
            str(ROOT),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SGMCMC_COMPILED": "", "TF_XLA_FLAGS": ""},
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


HEED_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
"""
# TensorFlow Probability compares versions with distutils when it is imported.
OF_OTHERS = "ignore:distutils Version classes are deprecated:DeprecationWarning"
CTRL_C = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
import sgmcmc  # before TensorFlow, which it keeps quiet
import numpy as np
from tests.conftest import short_call

warnings.simplefilter("default")

def stepsize(iteration):
    if iteration == 20_000:
        print("running", flush=True)
    return 1e-3

samples = short_call(
    "sgld", jit_compile=None, n_iters=30_000_000, stepsize=stepsize, n_chains=2
)
draws = samples["theta"]
print(draws.ndim, draws.shape[0], 1_000 < draws.shape[1] < 30_000_000, np.isfinite(draws).all())
print(samples.log_post.iterations[-1] == draws.shape[1], len(np.unique(draws[1])) > 1_000)
"""


@pytest.mark.skipif(
    sys.platform == "win32", reason="SIGINT is sent in another way there"
)
def test_ctrl_c_returns_what_has_been_drawn(run: Run) -> None:
    """Of all chains as many, with a warning; Ctrl-C comes once, while they run."""
    press = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))

    def stepsize(iteration: int) -> float:
        if iteration >= 20_000 and press.ident is None:
            press.start()
        return 1e-3

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.warns(UserWarning, match=r"Interrupted: the \d+ draws so far"):
            samples = run(
                jit_compile=None, n_iters=30_000_000, stepsize=stepsize, n_chains=2
            )
    finally:
        signal.signal(signal.SIGINT, before)
    draws = samples["theta"]
    assert draws.shape[0] == 2 and 1_000 < draws.shape[1] < 30_000_000
    assert np.isfinite(draws).all() and len(np.unique(draws[1])) > 1_000
    assert samples.log_post.iterations[-1] == draws.shape[1]


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform == "win32", reason="SIGINT is sent in another way there"
)
def test_ctrl_c_in_a_process_of_its_own() -> None:
    """Nothing is said but that, from the import of TensorFlow on; any warning is an error."""
    code, out, err = interrupt(CTRL_C, 0.3)
    assert code == 0, err[-1000:]
    assert out.replace("running", "").split() == [
        "2",
        "2",
        "True",
        "True",
        "True",
        "True",
    ]
    said, *line_of_code = err.splitlines()
    assert re.search(
        r"UserWarning: Interrupted: the \d+ draws so far are returned", said
    )
    assert len(line_of_code) <= 1 and "Traceback" not in err


class Pressed:
    """A log-likelihood in one of whose calls Ctrl-C comes, inside TensorFlow.

    There it comes as an error of the interpreter's own, and `log_lik` was at it.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0

    def __call__(self, *given: Any) -> tf.Tensor:
        self.calls += 1
        if self.calls == self.at:
            raise SystemError(
                "returned a result with an exception set"
            ) from KeyboardInterrupt()
        return log_lik(*given)


@pytest.mark.parametrize(
    "given",
    [
        {"method": "sgldcv", "params": {"theta": 0.5}},
        pytest.param({"method": "sgld", "jit_compile": None}, marks=pytest.mark.slow),
        pytest.param(
            {"method": "sgldcv", "opt_stepsize": "auto"}, marks=pytest.mark.slow
        ),
        pytest.param({"method": "sgld", "stepsize": "auto"}, marks=pytest.mark.slow),
        pytest.param(
            {"method": "sghmccv", "jit_compile": None, "n_chains": 40},
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.parametrize(
    "stepwise", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_ctrl_c_inside_tensorflow_is_ctrl_c(
    given: dict[str, Any], stepwise: bool, run: Run
) -> None:
    """Whichever of the calls of `log_lik` it is: nothing takes it for a model that fails."""

    def call(function: Pressed) -> None:
        if stepwise:
            sgmcmc.init_sess(short_setup(log_lik=function, **given))
        else:
            run(log_lik=function, **given)

    call(counted := Pressed(0))
    assert counted.calls > 5
    for at in range(1, counted.calls + 1):
        with pytest.raises(KeyboardInterrupt):
            call(Pressed(at))


def test_two_threads(run: Run) -> None:
    """Chains of different models in two threads at a time are as they are alone."""
    calls: list[dict[str, Any]] = [
        {"method": "sgld", "n_iters": 3_000},
        {
            "method": "sghmccv",
            "params": {"theta": 0.3},
            "n_iters": 3_000,
            "n_chains": 2,
        },
    ]
    alone = [run(**call, jit_compile=None)["theta"] for call in calls]
    together: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        together[number] = run(**calls[number], jit_compile=None)["theta"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(2):
        np.testing.assert_array_equal(together[number], alone[number])


@pytest.mark.some(1)
@pytest.mark.parametrize("n_chains", [5, 2, None])
@pytest.mark.parametrize("method", EACH_ESTIMATOR[::-1])
def test_functions_are_called_in_the_thread_that_called(
    method: str, n_chains: int | None, run: Run
) -> None:
    """Some functions may be called in no other: R's, and those that use what is a thread's own."""
    threads: dict[str, set[int]] = {"log_lik": set(), "log_prior": set(), "test": set()}

    def called(name: str, value: tf.Tensor) -> tf.Tensor:
        threads[name].add(threading.get_ident())
        return value

    run(
        method,
        log_lik=lambda params, dataset: called("log_lik", log_lik(params, dataset)),
        log_prior=lambda params: called("log_prior", -(params["theta"] ** 2)),
        test_functions={"test": lambda params: called("test", params["theta"])},
        n_chains=n_chains,
        jit_compile=None,
        n_iters=10_000,
    )
    assert set.union(*threads.values()) == {threading.get_ident()}
    assert all(threads.values())


WARNINGS = """
import sys
sys.path.insert(0, sys.argv[1])
import sgmcmc
from tests.conftest import METHODS, short_call
for method in METHODS:
    short_call(method, jit_compile=None, n_chains=2, store_gradients=True, n_iters=3)
"""


@pytest.mark.slow
def test_no_word_and_no_warning_in_a_fresh_process() -> None:
    """From the import of TensorFlow to the last call, on either output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", OF_OTHERS, "-c", WARNINGS, str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr[-1000:]) == (0, "", "")
