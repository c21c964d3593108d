"""What goes wrong: divergence, Ctrl-C, threads, warnings, ops that XLA cannot compile."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.graphs.quiet import without_chatter
from tests.conftest import log_lik

Run = Callable[..., sgmcmc.Samples]
ROOT = Path(__file__).parents[2]


def two_parameters(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood in which only the second parameter has data to disagree with."""
    return log_lik(params, dataset) - 0.5 * tf.reduce_sum(params["calm"] ** 2)


DIVERGENT: dict[str, Any] = {
    "log_lik": two_parameters,
    "params": {"calm": [0.0, 0.0], "theta": 0.0},
    "stepsize": {"calm": 1e-4, "theta": 0.5},
    "n_iters": 10_000,
}


def check_divergence(error: sgmcmc.DivergenceError, argument: str) -> None:
    """Check what a divergence of theta says."""
    first, last = error.iterations
    assert 1 <= first <= last <= 10_000
    assert error.parameter == "theta"
    for part in (f"{first} and {last}", "'theta'", f"`{argument}`", "smaller"):
        assert part in str(error)


@pytest.mark.parametrize(
    ("method", "n_chains"), [("sgld", None), ("sgld", 2), ("sghmc", None), ("sgnht", 2)]
)
def test_divergence(method: str, n_chains: int | None, run: Run) -> None:
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(method, **DIVERGENT, n_chains=n_chains)
    check_divergence(caught.value, "stepsize")
    samples = caught.value.samples
    assert samples is not None
    leading = () if n_chains is None else (n_chains,)
    draws = samples["theta"].shape[-1]
    assert 1 <= draws < 10_000
    assert samples["theta"].shape == (*leading, draws)
    assert samples["calm"].shape == (*leading, draws, 2)
    assert all(np.isfinite(array).all() for array in samples.values())


def test_the_last_finite_draw_is_the_one_before_the_range(run: Run) -> None:
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(**DIVERGENT, burn_in=10, thin=3)
    first, last = caught.value.iterations
    draws = len(caught.value.samples["theta"])
    assert first == 10 + 3 * draws + 1 and last == 10 + 3 * (draws + 1)


def test_divergence_during_burn_in(run: Run) -> None:
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(**DIVERGENT, burn_in=9_999)
    check_divergence(caught.value, "stepsize")
    assert len(caught.value.samples["theta"]) == 0


@pytest.mark.parametrize("store_params", [False, ["calm"]])
def test_divergence_of_what_is_not_stored(store_params: Any, run: Run) -> None:
    functions = {"calm": lambda params: params["calm"]}
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(**DIVERGENT, store_params=store_params, test_functions=functions)
    check_divergence(caught.value, "stepsize")
    assert all(np.isfinite(array).all() for array in caught.value.samples.values())


@pytest.mark.parametrize("n_chains", [None, 2])
def test_divergence_of_the_mode_finding(n_chains: int | None, run: Run) -> None:
    with pytest.raises(sgmcmc.DivergenceError, match="(?i)mode-finding") as caught:
        run(
            "sgldcv",
            **{**DIVERGENT, "stepsize": 1e-4},
            opt_stepsize={"calm": 1e-4, "theta": 0.5},
            n_iters_opt=10_000,
            n_chains=n_chains,
        )
    check_divergence(caught.value, "opt_stepsize")
    assert caught.value.samples is None


def test_one_chain_of_two_diverges(run: Run) -> None:
    """A double well that has no floor far out: the start decides which chain falls."""

    def quartic(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        return 0.0 * tf.reduce_sum(dataset["x"]) - params["theta"] ** 4

    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(
            log_lik=quartic,
            params=[{"theta": 0.0}, {"theta": 1e3}],
            n_chains=2,
            stepsize=1e-3,
            n_iters=50,
        )
    assert caught.value.parameter == "theta"
    assert np.isfinite(caught.value.samples["theta"]).all()


def test_divergence_error_survives_a_pickle() -> None:
    samples = sgmcmc.Samples({"theta": np.arange(3.0)})
    error = sgmcmc.DivergenceError("gone", iterations=(3, 5), parameter="theta", samples=samples)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.iterations, again.parameter) == ("gone", (3, 5), "theta")
    assert again.samples["theta"].tolist() == [0.0, 1.0, 2.0]


def interrupt(script: str, after: float) -> tuple[int, str, str]:
    """Run a script, press Ctrl-C some seconds after its first words, and return what it said."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEED_CTRL_C + script, str(ROOT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
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
CTRL_C = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from tests.conftest import short_call

def stepsize(iteration):
    if iteration == 20_000:
        print("running", flush=True)
    return 1e-3

samples = short_call("sgld", n_iters=30_000_000, stepsize=stepsize, n_chains=2)
draws = samples["theta"]
print(draws.ndim, draws.shape[0], 1_000 < draws.shape[1] < 30_000_000, np.isfinite(draws).all())
print(samples.log_post.iterations[-1] == draws.shape[1], len(np.unique(draws[1])) > 1_000)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent in another way there")
def test_ctrl_c_returns_what_has_been_drawn() -> None:
    code, out, err = interrupt(CTRL_C, 0.3)
    assert code == 0, err[-1000:]
    assert out.replace("running", "").split() == ["2", "2", "True", "True", "True", "True"]
    assert re.search(r"Interrupted: the \d+ draws so far are returned", err)
    assert "Traceback" not in err


def test_two_threads(run: Run) -> None:
    """Chains of different models in two threads at a time are as they are alone."""
    calls: list[dict[str, Any]] = [
        {"method": "sgld", "n_iters": 3_000},
        {"method": "sghmccv", "params": {"theta": 0.3}, "n_iters": 3_000, "n_chains": 2},
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


@pytest.mark.parametrize("n_chains", [None, 2, 5])
@pytest.mark.parametrize("method", ["sgld", "sghmccv"])
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
from tests.conftest import short_call
for method in ("sgld", "sghmccv", "sgnhtcv"):
    short_call(method, jit_compile=None, n_chains=2, store_gradients=True, n_iters=3)
"""
# TensorFlow Probability compares versions with distutils when it is imported.
OF_OTHERS = "ignore:distutils Version classes are deprecated:DeprecationWarning"


def test_no_warnings_in_a_fresh_process() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", OF_OTHERS, "-c", WARNINGS, str(ROOT)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr[-1000:]) == (0, "", "")


def uncompilable(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log-likelihood by way of an op that XLA does not know."""
    as_text = tf.strings.as_string(dataset["x"], precision=9)
    return log_lik(params, {"x": tf.strings.to_number(as_text)})


@pytest.mark.parametrize(("method", "n_chains"), [("sgld", None), ("sghmccv", 2)])
def test_fallback(
    method: str, n_chains: int | None, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        samples = run(method, log_lik=uncompilable, n_chains=n_chains, jit_compile=None)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 1, messages
    assert "XLA" in messages[0] and "AsString" in messages[0] and "jit_compile=False" in messages[0]
    expected = run(method, n_chains=n_chains)
    np.testing.assert_allclose(samples["theta"], expected["theta"], rtol=1e-5)
    assert capfd.readouterr() == ("", "")


def test_no_fallback_from_compilation_on_demand(run: Run) -> None:
    with pytest.raises(ValueError, match=r"`jit_compile=True`.*AsString.*`jit_compile=False`"):
        run(log_lik=uncompilable, jit_compile=True)


def test_no_compilation_no_warning(run: Run) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(log_lik=uncompilable, jit_compile=False)


OPS: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "where": lambda x, theta: tf.reduce_sum((tf.gather(x, tf.where(x > 1.0)) - theta) ** 2),
    "boolean_mask": lambda x, theta: tf.reduce_sum((tf.boolean_mask(x, x > 1.0) - theta) ** 2),
    "unique": lambda x, theta: tf.reduce_sum((tf.unique(tf.round(x))[0] - theta) ** 2),
    "cond": lambda x, theta: tf.cond(theta > 0.0, lambda: theta**2, lambda: -theta),
    "special": lambda x, theta: tf.math.lgamma(1.0 + theta**2) + tf.math.softplus(theta),
}


@pytest.mark.parametrize("op", OPS)
def test_compiled_or_not_the_draws_are_the_same(op: str, run: Run) -> None:
    def model(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        return -OPS[op](dataset["x"], params["theta"])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tried = run(log_lik=model, jit_compile=None)
    plain = run(log_lik=model, jit_compile=False)
    np.testing.assert_allclose(tried["theta"], plain["theta"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["sgld", "sghmccv", "sgnht"])
def test_compiled_or_not_every_method_draws_the_same(method: str, run: Run) -> None:
    compiled, plain = (run(method, jit_compile=jit)["theta"] for jit in (True, False))
    np.testing.assert_allclose(compiled, plain, rtol=1e-4, atol=1e-6)


def test_with_replacement(run: Run) -> None:
    """With replacement the gradient's variance is N^2/n times that of one, without less."""
    x = np.random.default_rng(3).normal(size=10)
    given: dict[str, Any] = {
        "dataset": {"x": x},
        "stepsize": 1e-12,
        "minibatch_size": 5,
        "n_iters": 4_000,
        "store_gradients": True,
    }
    with_it = run(**given, replace=True).gradients["theta"].astype(float)
    without = run(**given, replace=False).gradients["theta"].astype(float)
    for gradients, expected in (
        (with_it, 10**2 / 5 * x.var()),
        (without, 10 * (10 - 5) / 5 * x.var(ddof=1)),
    ):
        squares = (gradients - x.sum()) ** 2
        error = squares.std() / np.sqrt(len(squares))
        assert abs(squares.mean() - expected) < 4 * error
        assert abs(gradients.mean() - x.sum()) < 4 * np.sqrt(expected / len(gradients))


def test_with_replacement_n_may_be_all(run: Run) -> None:
    draws = run(minibatch_size=20, replace=True, stepsize=1e-12, store_gradients=True)
    assert len(np.unique(draws.gradients["theta"])) > 10


def test_chatter_is_held_back_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    with without_chatter():
        os.write(2, b"I0000 00:00:1.2 1 port.cc:1] all is well\nfirst\n")
        with without_chatter():
            os.write(2, b"2024-05-01 12:00:00.1: I core/x.cc:1] all is well\nsecond\n")
    os.write(2, b"third\n")
    assert capfd.readouterr().err.split() == ["first", "second", "third"]


def test_what_follows_a_failed_compilation_is_passed_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with without_chatter():
        os.write(2, b"W0000 00:00:1.2 1 op.cc:1] OP_REQUIRES failed at x.cc:2 : no\n\n")
        os.write(2, b'Stack trace for op definition: \nFile 1\nFile "a", line 1\n\t [[a]]\n')
        os.write(2, b"W0000 00:00:1.2 1 op.cc:1] something else\n")
    words = capfd.readouterr().err.split("\n")
    assert words[0] == "File 1" and words[-2].endswith("something else")


def test_an_error_passes_through_what_holds_back(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), without_chatter():
        os.write(2, b"before\n")
        raise ZeroDivisionError
    os.write(2, b"after\n")
    assert capfd.readouterr().err.split() == ["before", "after"]


@pytest.mark.parametrize("n_iters", [1, 2, 4096, 4097])
def test_lengths_around_a_block(n_iters: int, run: Run) -> None:
    samples = run(n_iters=n_iters)
    assert samples["theta"].shape == (n_iters,)
    assert len(np.unique(samples["theta"])) > 0.99 * n_iters
    assert samples.log_post.iterations[-1] == n_iters


def test_one_observation(run: Run) -> None:
    assert run(dataset={"x": [1.0]}, minibatch_size=1)["theta"].shape == (20,)


NAMES = ("a b", "ä", "a/b", "test/theta", "draws", "gradients", "", "1", "__0", "scale:0")


def test_any_name_will_do(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    def model(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        return -tf.add_n([tf.reduce_sum((dataset[n] - params[n]) ** 2) for n in NAMES])

    def add_one(name: str) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
        return lambda params: params[name] + 1.0

    samples = run(
        "sgldcv",
        log_lik=model,
        params=dict.fromkeys(NAMES, 0.0),
        dataset={name: np.ones(20) for name in NAMES},
        test_functions={name: add_one(name) for name in NAMES},
        store_gradients=True,
    )
    assert tuple(samples) == tuple(samples.gradients) == tuple(samples.mode) == NAMES
    for name in NAMES:
        np.testing.assert_allclose(samples.test_functions[name], samples[name] + 1.0, rtol=1e-6)
    assert capfd.readouterr() == ("", "")
