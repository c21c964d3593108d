"""The environment variables that switch a fast path off: the same bits, and the settings tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sgmcmc import switches
from sgmcmc.data import native
from sgmcmc.engine import buffers
from sgmcmc.graphs import direct_calls

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import sgmcmc
from tests.conftest import short_call
x = np.random.default_rng(1).normal(size=(5000, 20)).astype(np.float32)
import tensorflow as tf
def log_lik(params, dataset):
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
given = dict(log_lik=log_lik, dataset={"x": x}, params={"theta": np.zeros(20)}, stepsize=1e-5,
             minibatch_size=400, n_iters=30, jit_compile=None)
samples = {n_chains: short_call("sghmccv", **given, n_chains=n_chains) for n_chains in (None, 3)}
np.savez(sys.argv[2], one=samples[None]["theta"], several=samples[3]["theta"])
print(json.dumps(samples[None].settings["paths"]))
"""
PATHS = {
    "SGMCMC_NO_NATIVE": ("native code", "off"),
    "SGMCMC_COPY_BLOCKS": ("blocks", "copied"),
    "SGMCMC_PUBLIC_CALLS": ("graph calls", "public"),
}


def in_a_fresh_process(script: str, *arguments: str, **variables: str) -> tuple[str, str]:
    """Return what a script writes to its two outputs, with these variables and no other switch."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SGMCMC_")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**clean, **variables},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Return the paths and the draws without any switch."""
    return run(tmp_path_factory.mktemp("usual") / "draws.npz")


def run(path: Path, **variables: str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    out, err = in_a_fresh_process(SCRIPT, str(path), **variables)
    assert err == ""
    with np.load(path) as arrays:
        return json.loads(out), dict(arrays)


@pytest.mark.parametrize("name", PATHS)
def test_a_switch_changes_the_path_and_no_bit(
    name: str, usual: tuple[dict[str, str], dict[str, np.ndarray]], tmp_path: Path
) -> None:
    """Minibatches are heavy enough for native code, and chains as many as make them stay put."""
    paths, draws = run(tmp_path / "draws.npz", **{name: "1"})
    expected_paths, expected = usual
    label, value = PATHS[name]
    assert paths == {**expected_paths, label: value}
    for chains, array in expected.items():
        np.testing.assert_array_equal(draws[chains], array)


def test_the_settings_tell_what_is_so(usual: tuple[dict[str, str], dict[str, np.ndarray]]) -> None:
    expected = {
        "graph calls": "direct" if direct_calls.available() else "public",
        "native code": "on" if native.available() else "off",
        "blocks": "shared" if buffers.shared() else "copied",
    }
    assert expected.items() <= usual[0].items()


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("", False), (None, False)])
def test_what_switches_on(value: str | None, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, switch in {
        "SGMCMC_NO_NATIVE": switches.no_native,
        "SGMCMC_COPY_BLOCKS": switches.copy_blocks,
        "SGMCMC_PUBLIC_CALLS": switches.public_calls,
        "SGMCMC_TENSORFLOW_LOG": switches.tensorflow_log,
    }.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
        assert switch() is on


LOG = """
import os
from sgmcmc.graphs.quiet import without_chatter
with without_chatter():
    os.write(2, b"I0000 00:00:1.2 1 port.cc:1] all is well\\n")
os.write(2, b"after\\n")
"""


def test_tensorflows_log_is_left_alone_on_demand() -> None:
    """Lines that are held back otherwise come, TensorFlow's own on its import among them."""
    _, quiet = in_a_fresh_process(LOG)
    assert quiet == "after\n"
    _, log = in_a_fresh_process(LOG, SGMCMC_TENSORFLOW_LOG="1", TF_CPP_MIN_LOG_LEVEL="0")
    assert "all is well" in log and log.endswith("after\n")
    assert any(line.startswith(("I0", "I1", "20")) for line in log.splitlines()[:-2])
