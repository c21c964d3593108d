"""The environment variables that switch a fast path off: the same bits, and the settings tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.data import native
from sgmcmc.data.dataset import shares_memory
from sgmcmc.graphs import compiler
from tests import seams
from tests.conftest import short_call

ROOT = Path(__file__).parents[2]
PATHS = {
    "SGMCMC_NO_NATIVE": ("native code", "off"),
    "SGMCMC_COPY_BLOCKS": ("blocks", "copied"),
    "SGMCMC_PUBLIC_CALLS": ("graph calls", "public"),
}


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)


ChoiceLog = tuple[dict[str, str], dict[str, np.ndarray]]


def run() -> ChoiceLog:
    """Return the paths that chains took, and their draws."""
    x = np.random.default_rng(1).normal(size=(5000, 20)).astype(np.float32)
    given: dict[str, Any] = {
        # A function of its own each time, so that nothing traced before is used again.
        "log_lik": lambda params, dataset: log_lik(params, dataset),
        "dataset": {"x": x},
        "params": {"theta": np.zeros(20)},
        "stepsize": 1e-5,
        "minibatch_size": 400,
        "n_iters": 30,
        "jit_compile": None,
    }
    one, three = (
        short_call("sgld", **given, n_chains=n_chains) for n_chains in (None, 3)
    )
    return one.settings["paths"], {"one": one["theta"], "several": three["theta"]}


@pytest.fixture(scope="module")
def usual() -> ChoiceLog:
    """Return the paths and the draws without any switch."""
    with pytest.MonkeyPatch.context() as patch:
        for name in PATHS:
            patch.delenv(name, raising=False)
        return run()


@pytest.mark.parametrize("name", PATHS)
def test_a_switch_changes_the_path_and_no_bit(
    name: str, usual: ChoiceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minibatches are heavy enough for native code, and chains as many as make them stay put."""
    for other in PATHS:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "1")
    paths, draws = run()
    expected_paths, expected = usual
    label, value = PATHS[name]
    assert paths == {**expected_paths, label: value}
    for chains, array in expected.items():
        np.testing.assert_array_equal(draws[chains], array)


def test_the_settings_tell_what_is_so(usual: ChoiceLog) -> None:
    expected = {
        "graph calls": "direct" if compiler.calls_directly() else "public",
        "native code": "on" if native.available() else "off",
        "blocks": "shared" if shares_memory() else "copied",
    }
    assert expected.items() <= usual[0].items()


@pytest.mark.parametrize(
    ("value", "on"), [("1", True), ("0", False), ("", False), (None, False)]
)
def test_what_switches_on(
    value: str | None, on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, switch in {
        "SGMCMC_NO_NATIVE": libraries.no_native,
        "SGMCMC_COPY_BLOCKS": libraries.copy_blocks,
        "SGMCMC_PUBLIC_CALLS": libraries.public_calls,
        "SGMCMC_TENSORFLOW_LOG": libraries.tensorflow_log,
    }.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
        assert switch() is on


LOG = """
import os
from sgmcmc.graphs.tracing import without_chatter
with without_chatter():
    os.write(2, b"I0000 00:00:1.2 1 port.cc:1] all is well\\n")
os.write(2, b"after\\n")
"""


def said_in_a_fresh_process(script: str, **variables: str) -> str:
    """Return what a script writes to standard error, with these variables and no other switch."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SGMCMC_")
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**clean, "PYTHONPATH": str(ROOT), **variables},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


@pytest.mark.slow
def test_tensorflows_log_is_left_alone_on_demand() -> None:
    """Lines that are held back otherwise (test_quiet.py) come, TensorFlow's own among them."""
    log = said_in_a_fresh_process(
        LOG, SGMCMC_TENSORFLOW_LOG="1", TF_CPP_MIN_LOG_LEVEL="0"
    )
    assert "all is well" in log and log.endswith("after\n")
    assert any(line.startswith(("I0", "I1", "20")) for line in log.splitlines()[:-2])


COMPILED = """
import numpy as np
import tensorflow as tf
import sgmcmc

draws = sgmcmc.sgld(
    lambda params, data: -0.5 * tf.reduce_sum((data["x"] - params["theta"]) ** 2),
    {"x": np.ones(20, "float32")}, {"theta": 0.0}, 1e-3,
    minibatch_size=5, n_iters=20, seed=1, verbose=False,
)
import sys
print(draws["theta"].tobytes().hex(), file=sys.stderr)
"""


@pytest.mark.slow
def test_compiled_chains_are_kept_for_later_processes(tmp_path: Path) -> None:
    folder = tmp_path / "compiled chains"
    usual = said_in_a_fresh_process(COMPILED).splitlines()[-1]
    keeps = {"SGMCMC_COMPILED": str(folder)}
    first = said_in_a_fresh_process(COMPILED, **keeps).splitlines()[-1]
    files = {file: file.stat().st_mtime_ns for file in folder.rglob("*.pb")}
    second = said_in_a_fresh_process(COMPILED, **keeps).splitlines()[-1]
    assert usual == first == second
    assert len(files) == 1
    assert files == {file: file.stat().st_mtime_ns for file in folder.rglob("*.pb")}


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Restore TensorFlow's flags after a test that changes them."""
    monkeypatch.setenv("TF_XLA_FLAGS", "--before")
    return monkeypatch


def test_the_oldest_compiled_chains_go(
    tmp_path: Path, flags: pytest.MonkeyPatch
) -> None:
    flags.setattr(seams.LIBRARIES, seams.changed(seams.LIBRARIES, compiled_bytes=25))
    flags.setenv("SGMCMC_COMPILED", str(tmp_path))
    libraries.keep_compiled_chains("2")
    before, flag = os.environ["TF_XLA_FLAGS"].split(" ", 1)
    (folder,) = tmp_path.iterdir()
    assert (before, flag.endswith(f'="{folder}"')) == ("--before", True)
    for age in range(3):
        file = folder / f"{age}.pb"
        file.write_bytes(bytes(10))
        os.utime(file, (1000 - age, 1000 - age))
    libraries.keep_compiled_chains("2")
    assert sorted(file.name for file in folder.iterdir()) == ["0.pb", "1.pb"]
    libraries.keep_compiled_chains("3")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_to_is_said(
    tmp_path: Path, flags: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    flags.setenv("SGMCMC_COMPILED", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="SGMCMC_COMPILED"):
        libraries.keep_compiled_chains("2")
    assert os.environ["TF_XLA_FLAGS"] == "--before"
