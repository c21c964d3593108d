"""Executors of other engines: Dask's distributed, and MPI's pool; skipped where there is none."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgmcmc
from sgmcmc.engine.runner import Runner
from sgmcmc.run import crews
from tests.machines.work import CALL, ROWS

ROOT = Path(__file__).parents[2]

_OF_MPI = """
from mpi4py.futures import MPIPoolExecutor
import numpy as np, sgmcmc
from tests.machines.work import CALL

if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        found = sgmcmc.sgldcv(**CALL, executor=pool)
    np.save("found.npy", found["theta"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("with_a_kill", [False, True])
def test_dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_a_kill: bool) -> None:
    """A cluster of two processes, of which one may be killed; data in a file that both open."""
    distributed = pytest.importorskip("distributed")
    np.save(tmp_path / "x.npy", ROWS)
    given = {**CALL, "dataset": {"x": np.load(tmp_path / "x.npy", mmap_mode="r")}}
    monkeypatch.setattr(crews, "_STRETCH", 0.0)
    take, killed = Runner.take_over, []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):

        def killing(self: Runner, *arguments: Any) -> None:
            take(self, *arguments)
            if with_a_kill and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        monkeypatch.setattr(Runner, "take_over", killing)
        found = sgmcmc.sgldcv(**given, executor=client.get_executor())
    np.testing.assert_array_equal(found["theta"], sgmcmc.sgldcv(**CALL)["theta"])
    assert bool(killed) == with_a_kill


@pytest.mark.slow
def test_mpi(tmp_path: Path) -> None:
    """Three processes under MPI, two of them workers."""
    if shutil.which("mpiexec") is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpiexec and mpi4py")
    (tmp_path / "script.py").write_text(_OF_MPI)
    subprocess.run(
        ["mpiexec", "-n", "3", sys.executable, "-m", "mpi4py.futures", "script.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            # Open MPI's, for machines with fewer cores, in containers.
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        },
        check=True,
        timeout=900,
    )
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), sgmcmc.sgldcv(**CALL)["theta"])
