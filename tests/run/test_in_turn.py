"""Parameters that move in turn: stopped, stored, step by step, reported on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgmcmc
from sgmcmc import Samples
from tests.ladder import IN_TURN, QUICK, Case, every, gaussian, logistic
from tests.run.stopping import StopError, said_of, same, short_blocks_of, stop_after

PROBLEM, NAMES = logistic(3, 30), {case.name for case in QUICK}
EACH = tuple(case for case in IN_TURN if case.name.removesuffix("-in-turn") in NAMES)


def run(case: Case, **keywords: Any) -> Samples:
    """Return a short chain."""
    given = {
        "n_iters": 40,
        "n_iters_opt": 10,
        "store_gradients": True,
        "jit_compile": False,
        **keywords,
    }
    return case.run(PROBLEM, 0.01, 6, **given)


@every(EACH, slow=lambda case: case not in EACH[:2])
@pytest.mark.some(1)
@pytest.mark.parametrize("gradient", [None, "saga", "svrg"])
def test_resumed_run_is_that_never_stopped(
    case: Case, gradient: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_blocks_of(2**9, monkeypatch)
    if gradient is None:

        def call(**keywords: Any) -> Samples:
            return run(case, n_chains=2, **keywords)
    else:

        def call(**keywords: Any) -> Samples:
            return sgmcmc.sample(
                PROBLEM.log_lik, PROBLEM.dataset, PROBLEM.split(PROBLEM.start), PROBLEM.log_prior,
                dynamics=case.dynamics(), gradient=gradient, minibatches="uniform",
                minibatch_size=6, preconditioner="none", stepsize=0.01, n_iters=40, burn_in=0,
                n_chains=2, seed=1, verbose=False, updates="in_turn", **keywords,
            )  # fmt: skip

    go_on = stop_after(5, monkeypatch)
    with pytest.raises(StopError):
        call(store=tmp_path / "chain")
    go_on()
    resumed = call(store=tmp_path / "chain")
    whole = call()
    same(resumed, whole)
    assert resumed.settings["updates"] == whole.settings["updates"] == "in_turn"


def test_stores_without_the_setting_are_of_joint_updates(tmp_path: Path) -> None:
    """As they were written before there was a choice."""
    problem = gaussian(3, 20)

    def call(**keywords: Any) -> Samples:
        return sgmcmc.sgld(
            problem.log_lik, problem.dataset, problem.split(problem.start), 1e-3, seed=1,
            n_iters=20, verbose=False, store=tmp_path / "chain", minibatch_size=5,
            jit_compile=False, **keywords,
        )  # fmt: skip

    before = call()
    about = said_of(tmp_path / "chain")
    del about["fingerprint"]["updates"]
    (tmp_path / "chain/about.json").write_text(json.dumps(about))
    same(call(), before)
    with pytest.raises(ValueError, match="`updates` was 'joint' and is 'in_turn'"):
        call(updates="in_turn")


@pytest.mark.slow
def test_sessions_go_on_bit_for_bit(tmp_path: Path) -> None:
    def set_up(updates: str = "in_turn") -> sgmcmc.StepwiseSampler:
        return sgmcmc.sghmc_setup(
            PROBLEM.log_lik, PROBLEM.dataset, PROBLEM.split(PROBLEM.start), 0.01,
            PROBLEM.log_prior, 6, 0.1, 3, seed=1, updates=updates,
        )  # fmt: skip

    sampler = set_up()
    session = sgmcmc.init_sess(sampler)
    sgmcmc.sgmcmc_step(sampler, session, n_steps=7)
    session.save(tmp_path / "session")
    sgmcmc.sgmcmc_step(sampler, session, n_steps=5)
    whole = sgmcmc.get_params(sampler, session)
    again = set_up()
    session = sgmcmc.init_sess(again, restore=tmp_path / "session")
    sgmcmc.sgmcmc_step(again, session, n_steps=5)
    for name, value in sgmcmc.get_params(again, session).items():
        np.testing.assert_array_equal(value, whole[name])
    one_call = sgmcmc.sghmc(
        PROBLEM.log_lik, PROBLEM.dataset, PROBLEM.split(PROBLEM.start), 0.01, PROBLEM.log_prior,
        6, 0.1, 3, n_iters=12, seed=1, verbose=False, updates="in_turn",
    )  # fmt: skip
    for name, value in whole.items():
        np.testing.assert_allclose(one_call[name][-1], value, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="`updates` was 'in_turn' and is 'joint'"):
        sgmcmc.init_sess(set_up("joint"), restore=tmp_path / "session")


# -------------------------------------------------------------------------------- reports


def reported(function: str, **keywords: Any) -> sgmcmc.Samples:
    """Return draws of a normal posterior with two parameters."""
    problem = gaussian(3, 200)
    given = {
        "minibatch_size": 20,
        "n_iters": 4000,
        "n_chains": 2,
        "seed": 1,
        "verbose": False,
    }
    return getattr(sgmcmc, function)(
        problem.log_lik, problem.dataset, problem.split(problem.mean), log_prior=problem.log_prior,
        **{**given, "updates": "in_turn", **keywords},
    )  # fmt: skip


@pytest.mark.slow
def test_a_report_predicts_sgld_and_nothing_of_others() -> None:
    samples = reported("sgld", stepsize=1e-3, n_iters=20_000)
    report = samples.report
    assert report["Chain"]["updates"] == "in turn"
    predicted = np.array(report["Predicted"]["SD error (noise along the chain)"])
    implied = np.array(report["Draws"]["SD of draws / Laplace SD"])
    assert predicted.max() > 0.05
    np.testing.assert_allclose(implied, 1 + predicted, rtol=0.1)
    report = reported("sghmc", stepsize=1e-4).report
    what = report["Predicted"]["SD error (noise along the chain)"]
    assert what == "not known for these dynamics with parameters that move in turn"


@pytest.mark.slow
def test_a_stepsize_is_chosen_for_sgld() -> None:
    samples = reported(
        "sgldcv", stepsize="auto", opt_stepsize="auto", preconditioner="diagonal"
    )
    assert samples.settings["updates"] == "in_turn"
    predicted = np.array(
        samples.report["Predicted"]["SD error (noise along the chain)"]
    )
    assert np.abs(predicted).max() < 0.06
