"""What an import costs: which libraries are loaded, and when."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import tensorflow_probability as tfp

from sgmcmc import libraries

_PROCESS = """
import sys

def loaded(*names):
    return sorted(set(names) & set(sys.modules))

SLOW = "tensorflow_probability", "tf_keras", "arviz", "xarray", "pooch"
PERHAPS = "matplotlib", "pandas", "scipy.stats", "scipy.signal", "sklearn"  # Keras may have them
import tensorflow as tf
before = loaded(*PERHAPS)
import sgmcmc
assert not loaded(*SLOW), loaded(*SLOW)
assert loaded(*PERHAPS) == before, loaded(*PERHAPS)

def log_lik(params, dataset):
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)

arguments = dict(n_iters=100, seed=1, verbose=False, jit_compile=False)
data, start = {"x": [0.0, 1.0, 2.0]}, {"theta": 0.0}
chain = sgmcmc.sgld(log_lik, data, start, 1e-3, minibatch_size=2, **arguments)
assert not loaded(*SLOW), loaded(*SLOW)
# Loaded while a graph is traced.
chain = sgmcmc.hmc(log_lik, data, start, stepsize=0.1, burn_in=0, n_chains=2, **arguments)
assert "tensorflow_probability" in loaded(*SLOW)
import tensorflow_probability as tfp
assert tfp.distributions.Normal(0.0, 1.0).log_prob(0.0).numpy() < 0
print("done")
"""


def test_libraries_are_loaded_when_they_are_needed() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == ["done"], ran.stderr


def test_the_version_is_that_of_the_library() -> None:
    assert libraries.probability_version() == tfp.__version__


def test_the_version_of_a_build_with_another_name(monkeypatch) -> None:
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(libraries.metadata, "version", unknown)
    assert libraries.probability_version.__wrapped__() == tfp.__version__
