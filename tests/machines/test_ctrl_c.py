"""Ctrl-C as a terminal sends it: to the process that waits and to all its workers at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import multiprocessing, signal, sys, warnings
from concurrent.futures import ProcessPoolExecutor

def main():
    # A shell that runs something in the background has it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import numpy as np
    import sgmcmc
    from sgmcmc.engine.runner import Runner
    from tests.machines.work import CALL
    take = Runner.take_over
    def told(self, *arguments):
        take(self, *arguments)
        print("running", flush=True)
    Runner.take_over = told
    given = {k: v for k, v in CALL.items() if k not in ("opt_stepsize", "n_iters_opt")}
    given["n_iters"] = 10_000_000
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = sgmcmc.sgld(**given, executor=pool)
        workers = list(pool._processes.values())
    said = [str(w.message) for w in caught if "Interrupted" in str(w.message)]
    draws = found["theta"].shape[1]
    assert np.isfinite(found["theta"]).all() and len(workers) == 2
    assert not any(worker.is_alive() for worker in workers)
    print("kept", draws, len(said), *(worker.exitcode for worker in workers), flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there are no process groups")
def test_ctrl_c_of_a_terminal(tmp_path: Path) -> None:
    """All workers end, by themselves, and the draws so far are returned."""
    (tmp_path / "script.py").write_text(SCRIPT)
    child = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert child.stdout is not None
    try:
        for _ in range(3):
            assert child.stdout.readline() == "running\n"
        os.killpg(child.pid, signal.SIGINT)
        said, errors = child.communicate(timeout=120)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 0, errors[-2000:]
    kept = said.splitlines()[-1].split()
    assert kept[0] == "kept" and int(kept[1]) > 0
    assert kept[2:] == ["1", "0", "0"]
    assert "Traceback" not in errors
