"""The memory that thousands of chains take, and hundreds of calls."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.ladder import BY_NAME, Case, every

SCRIPT = """
import resource, time
import numpy as np
import sgmcmc
import tensorflow as tf
rng = np.random.default_rng(1)
data = {{"z": rng.multinomial(1, np.ones(4) / 4, 500).astype(np.float32)}}
def log_lik(params, dataset):
    return tf.reduce_sum(dataset["z"] * {of_params})
start = time.perf_counter()
chain = sgmcmc.{method}(log_lik, data, {{"theta": np.full(4, 0.25)}}, {stepsize},
                        minibatch_size=50, n_iters=4, n_chains=3000, verbose=False, seed=1,
                        **{keywords!r})
assert chain["theta"].shape == (3000, 4, 4) and np.isfinite(chain["theta"]).all()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak / 2**20, time.perf_counter() - start)
"""
MOST = 1.5
"""Gigabytes."""


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes there"
)
@every((BY_NAME["scir"], BY_NAME["sgld"]))
def test_three_thousand_short_chains(case: Case) -> None:
    """Four iterations each: buffers are shared, and nothing is kept of a chain but its state."""
    on_simplex = {
        "of_params": 'tf.math.log(params["theta"])',
        "stepsize": 0.1,
        "keywords": {"alpha": 0.5},
    }
    in_space = {"of_params": 'params["theta"]', "stepsize": 1e-4, "keywords": {}}
    script = SCRIPT.format(
        method=case.public, **(on_simplex if case.of_points else in_space)
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-2000:]
    peak, seconds = map(float, done.stdout.split())
    print(f"{case.name}: {peak:.2f} GB, {seconds:.0f} s")
    assert peak < MOST


CALLS = """
import ctypes, gc, resource
import numpy as np
import sgmcmc
import tensorflow as tf
x = np.random.default_rng(1).normal(size=(200, 2))
def made():
    def log_lik(params, dataset):
        return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
    return log_lik
once = made()
def call():
    sgmcmc.{method}({function}, {{"x": x}}, {{"theta": np.zeros(2)}}, {stepsizes},
                    minibatch_size=10, n_iters=20, verbose=False, seed=1)
def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free is given back
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() / 2**20
found = []
for count in (10, 100, 100):
    for _ in range(count):
        call()
    found.append(resident())
print(found[1] - found[0], found[2] - found[1])
"""
FIRST, LATER = 30.0, 2.0
"""Megabytes that a hundred calls after the tenth may add, which is when threads have got memory of
their own, and a hundred more: XLA alone would keep 270, did it compile again each time."""


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="by malloc_trim and statm"
)
@pytest.mark.parametrize("function", ["once", "made()"])
@pytest.mark.parametrize(
    ("method", "stepsizes"),
    [("sgld", "1e-3"), ("sgldcv", "1e-3, 1e-3, n_iters_opt=20")],
)
def test_two_hundred_calls(method: str, stepsizes: str, function: str) -> None:
    """Memory stays what it is soon after the tenth, also where functions are new each time."""
    script = CALLS.format(method=method, stepsizes=stepsizes, function=function)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-2000:]
    first, later = map(float, done.stdout.split())
    print(f"{method}, {function}: {first:.1f} MB, {later:.1f} MB")
    assert first < FIRST and later < LATER


NEW_GRAPHS = """
import ctypes, gc, resource
import numpy as np
import sgmcmc
import tensorflow as tf
from sgmcmc.graphs import tracing
from sgmcmc.inputs import dry_run
dry_run._SETTINGS = dry_run._Settings(models=6)  # caches that are full after a few calls
tracing._SETTINGS = tracing._Settings(graphs=6, models=1)
x = np.random.default_rng(1).normal(size=(200, 2))
def call(factor):
    def log_lik(params, dataset):
        return -factor * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
    sgmcmc.sgldcv(log_lik, {{"x": x}}, {{"theta": np.zeros(2)}}, 1e-3, 1e-3, n_iters_opt=20,
                  minibatch_size=10, n_iters=20, verbose=False, seed=1, jit_compile={xla})
def state():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(open("/proc/self/statm").read().split()[1])
    graphs = sum(type(thing).__name__ == "FuncGraph" for thing in gc.get_objects())
    return graphs, pages * resource.getpagesize() / 2**20
found = []
for first, last in ((0, 10), (10, 25)):
    for number in range(first, last):
        call(0.5 + number / 100)
    found.append(state())
print(found[1][0] - found[0][0], (found[1][1] - found[0][1]) / 15)
"""
A_CALL = {False: 1.5, True: 9.0}
"""Megabytes that a call of another model may add. XLA keeps the code of both of its programs as
long as the process lives, and TensorFlow has no way to have it forget them."""


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="by malloc_trim and statm"
)
@pytest.mark.parametrize("xla", [False, True])
def test_calls_of_models_that_differ(xla: bool) -> None:
    """No graph is kept beyond those of the last calls, and of memory only what XLA keeps."""
    done = subprocess.run(
        [sys.executable, "-c", NEW_GRAPHS.format(xla=xla)],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    graphs, added = done.stdout.split()
    print(f"XLA {xla}: {graphs} graphs, {float(added):.2f} MB a call")
    assert int(graphs) == 0 and float(added) < A_CALL[xla]
