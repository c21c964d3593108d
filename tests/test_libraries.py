"""What an import costs: which libraries are loaded, and when; what runs on other versions."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import tensorflow_probability as tfp
from packaging.version import Version

from sgmcmc import libraries

_PROCESS = """
import sys

def loaded(*names):
    return sorted(set(names) & set(sys.modules))

# Keras loads scikit-learn where it is installed, and that loads SciPy.
sys.modules["sklearn"] = None
# Keras may have loaded these.
PERHAPS = "matplotlib", "tqdm", "pandas", "scipy.sparse"
import tensorflow as tf
before = loaded(*PERHAPS)
# An old Keras loads parts of SciPy for itself.
SLOW = {
    "tensorflow_probability", "tf_keras", "arviz", "xarray", "pooch",
    "scipy.optimize", "scipy.linalg", "scipy.stats", "scipy.signal",
} - {name for name in sys.modules if name.startswith("scipy.")}
import sgmcmc
assert not loaded(*SLOW), loaded(*SLOW)
assert loaded(*PERHAPS) == before, loaded(*PERHAPS)

def log_lik(params, dataset):
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)

data, start = {"x": [0.0, 1.0, 2.0]}, {"theta": 0.0}
options = dict(n_iters=40, seed=1, verbose=False, jit_compile=False)
chain = sgmcmc.sgld(log_lik, data, start, 1e-3, minibatch_size=2, n_chains=2, **options)
assert not loaded(*SLOW), loaded(*SLOW)

# Loaded while a graph is traced, as by hmc and nuts, of which nothing may stay behind in the graph.
from sgmcmc import libraries

@tf.function(autograph=False)
def traced():
    return libraries.tensorflow_probability().distributions.Normal(0.0, 1.0).log_prob(0.0)

first = traced().numpy()
assert "tensorflow_probability" in loaded(*SLOW)
assert libraries.tensorflow_probability().distributions.Normal(0.0, 1.0).log_prob(0.0) == first
print("done")

# What needs ArviZ and Matplotlib, which write into folders of the user's, where they can.
print(len(sgmcmc.summary(chain)), chain.to_arviz() is not None)
"""


def test_libraries_are_loaded_when_they_are_needed_in_a_home_that_cannot_be_written_to(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    file.touch()
    names = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR")
    environment = {
        name: value for name, value in os.environ.items() if name not in names
    }
    environment |= {"HOME": str(file / "home"), "USERPROFILE": str(file / "home")}
    ran = subprocess.run(
        [sys.executable, "-c", _PROCESS],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout.split() == ["done", "1", "True"], ran.stderr
    assert ran.returncode == 0, ran.stderr
    assert os.environ.get("HOME") != str(file / "home")


def test_the_version_is_that_of_the_library() -> None:
    # A nightly build writes 0.26.0-dev in one place and 0.26.0.dev in the other.
    assert Version(libraries.probability_version()) == Version(tfp.__version__)


def test_the_version_of_a_build_with_another_name(monkeypatch) -> None:
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(libraries.metadata, "version", unknown)
    assert libraries.probability_version.__wrapped__() == tfp.__version__


def test_probability_works_with_any_numpy() -> None:
    """SoftmaxCentered pads by what NumPy 2.4 has removed, in the last stable release of TFP."""
    import numpy as np
    import tensorflow_probability as tfp

    found = tfp.bijectors.SoftmaxCentered().forward(np.zeros(2, np.float32))
    np.testing.assert_allclose(found, [1 / 3] * 3, rtol=1e-6)


def test_what_runs_on_other_versions_is_there() -> None:
    """`make test-versions` is run less often than names change."""
    sources = Path(__file__).parents[1]
    if not (sources / "noxfile.py").exists():
        pytest.skip("the package is installed without its noxfile")
    named = {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse((sources / "noxfile.py").read_text()).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id in ("QUICK", "DOCTESTS", "TREE")
    }
    assert all((sources / name).exists() for name in (*named["QUICK"], *named["TREE"]))
    assert all(importlib.util.find_spec(name) for name in named["DOCTESTS"])
