"""Runs that are killed by SIGKILL at random instants go on and end as if never stopped."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests import seams
from tests.ladder import BY_NAME, DISTINCT, EXACT, GEODESIC, Case, every
from tests.run.stopping import kill_again_and_again, same

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")


def check_after_kills(
    case: Case,
    folder: Path,
    kills: int,
    n_iters: int,
    monkeypatch: pytest.MonkeyPatch,
    longest: float = 2.5,
    executor: str | None = None,
    **given: Any,
) -> None:
    """Kill a run again and again; what it ends with is what one gives that was never stopped."""
    caller = "tests.samplers.test_simplex_runs" if case.of_points else "tests.conftest"
    given = {**({"n_iters_opt": n_iters // 2} if case.centered else {}), **given}
    store = folder / "chain"
    killed = kill_again_and_again(
        case, caller, store, kills, n_iters, given, longest, executor, SEED
    )
    print(f"{case.name}: killed at work {killed} times of {kills}")
    monkeypatch.setattr(seams.BLOCK_BYTES, 2**8)
    if kills:
        assert killed
    call = importlib.import_module(caller).short_call
    given |= {"method": case.name, "n_iters": n_iters, "store_gradients": True}
    same(call(**given, store=store), call(**given))


def test_killed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_after_kills(BY_NAME["sgldcv"], tmp_path, 2, 5_000, monkeypatch, longest=0.8)


@pytest.mark.slow
@every(tuple(case for case in DISTINCT if case.centered or case.of_points))
def test_killed_at_twenty_random_instants(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In mode-finding and in the chain, or with latent variables on the simplex."""
    n_iters = 120_000 if case.of_points else 60_000 // case.constants.get("L", 1)
    check_after_kills(case, tmp_path, 20, n_iters, monkeypatch)


@pytest.mark.slow
def test_killed_while_the_store_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls with more and more iterations, none of which is sure to have ended before the next."""
    killed = 0
    for n_iters in (500, 10_000, 11_000, 30_000):
        given = {"n_iters_opt": 50}
        folder = tmp_path / "chain"
        case = BY_NAME["sgldcv"]
        killed += kill_again_and_again(
            case, "tests.conftest", folder, 2, n_iters, given
        )
    print(f"killed at work {killed} times of 8")
    check_after_kills(
        BY_NAME["sgldcv"], tmp_path, 0, 30_000, monkeypatch, n_iters_opt=50
    )


ALL = (*DISTINCT, *EXACT, *GEODESIC)
ITERATIONS = {"hmc": 20_000, "nuts": 5_000}
"""Of samplers whose iterations take longer; of the others 60 000."""
KILLS, SEED = (
    int(os.environ.get(name, usual)) for name, usual in (("KILLS", 1000), ("SEED", 0))
)
"""How many kills there are over all samplers, and the seed of their instants:
``KILLS=250 SEED=1 make test-faults PYTEST_ARGS="tests/run/test_kills.py"``."""


@pytest.mark.faults
@every(ALL)
@pytest.mark.parametrize("n_chains", [None, 3])
def test_a_thousand_kills(
    case: Case, n_chains: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all samplers together; one chain, and three side by side with burn-in and thinning."""
    kills = -(-KILLS // (2 * len(ALL)))
    n_iters = ITERATIONS.get(case.name, 60_000) // case.constants.get("L", 1)
    given: dict[str, Any] = (
        {} if n_chains is None else {"n_chains": 3, "thin": 3, "burn_in": 500}
    )
    check_after_kills(case, tmp_path, kills, n_iters, monkeypatch, longest=1.2, **given)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("executor", "kills", "longest"),
    [
        ("threads", -(-KILLS * 60 // 1000), 1.2),
        ("processes", -(-KILLS * 15 // 1000), 20.0),
    ],
)
@every(tuple(BY_NAME[name] for name in ("sgld", "sgldcv")))
def test_killed_with_an_executor(
    case: Case,
    executor: str,
    kills: int,
    longest: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ends is a run without: wherever chains were advanced, their bits are the same."""
    check_after_kills(
        case,
        tmp_path,
        kills,
        60_000,
        monkeypatch,
        longest,
        executor=executor,
        n_chains=3,
    )
