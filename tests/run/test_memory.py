"""The memory that thousands of chains take."""

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
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes there")
@every((BY_NAME["scir"], BY_NAME["sgld"]))
def test_three_thousand_short_chains(case: Case) -> None:
    """Four iterations each: buffers are shared, and nothing is kept of a chain but its state."""
    on_simplex = {
        "of_params": 'tf.math.log(params["theta"])',
        "stepsize": 0.1,
        "keywords": {"alpha": 0.5},
    }
    in_space = {"of_params": 'params["theta"]', "stepsize": 1e-4, "keywords": {}}
    script = SCRIPT.format(method=case.public, **(on_simplex if case.of_points else in_space))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-2000:]
    peak, seconds = map(float, done.stdout.split())
    print(f"{case.name}: {peak:.2f} GB, {seconds:.0f} s")
    assert peak < MOST
