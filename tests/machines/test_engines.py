"""Executors of other engines: Dask's distributed, MPI's pool, joblib and Ray, where they are."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgmcmc
from sgmcmc.engine.runner import Runner
from sgmcmc.machines import executors
from tests import seams
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
def test_dask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_a_kill: bool
) -> None:
    """A cluster of two processes, of which one may be killed; data in a file that both open."""
    distributed = pytest.importorskip("distributed")
    np.save(tmp_path / "x.npy", ROWS)
    given = {**CALL, "dataset": {"x": np.load(tmp_path / "x.npy", mmap_mode="r")}}
    short = seams.changed(seams.EXECUTOR_SETTINGS, segment_seconds=0.0)
    monkeypatch.setattr(seams.EXECUTOR_SETTINGS, short)
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

        monkeypatch.setattr(seams.TAKE_OVER, killing)
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
    np.testing.assert_array_equal(
        np.load(tmp_path / "found.npy"), sgmcmc.sgldcv(**CALL)["theta"]
    )


def test_joblib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, threads in place of loky's processes; chains and predictions."""
    joblib = pytest.importorskip("joblib")
    loky = pytest.importorskip("joblib.externals.loky")
    monkeypatch.setattr(
        loky, "ProcessPoolExecutor", lambda n, timeout: ThreadPoolExecutor(n)
    )
    monkeypatch.setattr(seams.EXECUTORS_POOLS, {})
    given = {k: v for k, v in CALL.items() if k not in ("opt_stepsize", "n_iters_opt")}
    with joblib.parallel_config(backend="loky", n_jobs=2):
        found = sgmcmc.sgld(**given, executor=joblib.Parallel())
    assert list(executors._pools) == [2]
    np.testing.assert_array_equal(found["theta"], sgmcmc.sgld(**given)["theta"])
    again = found.predict(_first, {"x": ROWS}, executor=joblib.Parallel(n_jobs=2))
    np.testing.assert_array_equal(again, found.predict(_first, {"x": ROWS}))
    executors._pools.pop(2).shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("with_a_kill", [False, True])
def test_joblib_with_two_workers(
    monkeypatch: pytest.MonkeyPatch, with_a_kill: bool
) -> None:
    """Of which one may be killed; joblib's own workers serve as before."""
    joblib = pytest.importorskip("joblib")
    short = seams.changed(seams.EXECUTOR_SETTINGS, segment_seconds=0.0)
    monkeypatch.setattr(seams.EXECUTOR_SETTINGS, short)
    take, killed = Runner.take_over, []

    def killing(self: Runner, *arguments: Any) -> None:
        take(self, *arguments)
        if with_a_kill and not killed:
            killed.append(next(iter(executors._pools[2]._processes)))
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(seams.TAKE_OVER, killing)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        found = sgmcmc.sgldcv(**CALL, executor=joblib.Parallel())
    np.testing.assert_array_equal(found["theta"], sgmcmc.sgldcv(**CALL)["theta"])
    assert bool(killed) == with_a_kill
    again = found.predict(_first, {"x": ROWS}, executor=joblib.Parallel(n_jobs=2))
    np.testing.assert_array_equal(again, found.predict(_first, {"x": ROWS}))
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(2, k) for k in range(3)) == [
        1,
        2,
        4,
    ]
    executors._pools.pop(2).shutdown()


def _first(params: dict[str, Any], dataset: dict[str, Any]) -> Any:
    return dataset["x"][:, 0] * params["theta"][0]


def test_what_joblib_cannot_do_here() -> None:
    joblib = pytest.importorskip("joblib")
    for backend in ("threading", "multiprocessing"):
        with pytest.raises(
            ValueError, match="`executor`.*TensorFlow does not survive.*loky"
        ):
            sgmcmc.sgldcv(**CALL, executor=joblib.Parallel(n_jobs=2, backend=backend))


@pytest.mark.slow
def test_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    with pytest.raises(ValueError, match=r"call ray.init\(\) before"):
        sgmcmc.sgldcv(**CALL, executor=ray)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    short = seams.changed(seams.EXECUTOR_SETTINGS, segment_seconds=0.0)
    monkeypatch.setattr(seams.EXECUTOR_SETTINGS, short)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    take, killed = Runner.take_over, []

    def killing(self: Runner, *arguments: Any) -> None:
        take(self, *arguments)
        if not killed:
            killed.append(ray.get(ray.remote(lambda: os.getpid()).remote()))
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(seams.TAKE_OVER, killing)
    try:
        found = sgmcmc.sgldcv(**CALL, executor=ray)
    finally:
        ray.shutdown()
    np.testing.assert_array_equal(found["theta"], sgmcmc.sgldcv(**CALL)["theta"])
    assert killed


@pytest.mark.slow
def test_the_script_on_the_page(tmp_path: Path) -> None:
    """The page's script with joblib's workers, which is no part of the blocks that are run."""
    pytest.importorskip("joblib")
    page = (ROOT / "docs" / "long-chains.md").read_text(encoding="utf-8")
    script = page.split("## joblib")[1].split("```python\n")[1].split("```")[0]
    (tmp_path / "script.py").write_text(script)
    np.save(tmp_path / "x.npy", ROWS[:, 0])
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=600,
        capture_output=True,
        text=True,
    )
    assert abs(float(done.stdout) - ROWS[:, 0].mean()) < 0.02
