"""What is left open is chosen, and what is given is kept."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.gradients import ControlVariate
from sgmcmc.minibatches import Weighted
from tests import seams

N = 3000
RNG = np.random.default_rng(3)
X = np.column_stack([np.ones(N), 10 * RNG.normal(size=N)])
Y = (RNG.uniform(size=N) < 1 / (1 + np.exp(-X @ [-0.5, 0.1]))).astype(float)
DATA = {"X": X, "y": Y}
QUICK: dict[str, Any] = {"verbose": False, "seed": 1, "jit_compile": False}


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    z = tf.linalg.matvec(dataset["X"], params["beta"])
    return dataset["y"] * z - tf.math.softplus(z)


def log_prior(params: Any) -> tf.Tensor:
    return -tf.reduce_sum(params["beta"] ** 2) / 200


def truth() -> tuple[np.ndarray, np.ndarray]:
    """Return mode and covariance by Newton's method."""
    beta = np.zeros(2)
    for _ in range(30):
        q = 1 / (1 + np.exp(-X @ beta))
        information = (X * (q * (1 - q))[:, np.newaxis]).T @ X + np.eye(2) / 100
        beta += np.linalg.solve(information, X.T @ (Y - q) - beta / 100)
    return beta, np.linalg.inv(information)


MODE, COVARIANCE = truth()
FACES = {"sgldcv": sgmcmc.sgldcv, "sghmccv": sgmcmc.sghmccv, "sgnhtcv": sgmcmc.sgnhtcv}


def call(method: str, **given: Any) -> sgmcmc.Samples:
    arguments = {
        "stepsize": "auto",
        "opt_stepsize": "auto",
        "minibatch_size": 300,
        "n_iters": 200,
    }
    face: Any = FACES[method]
    return face(
        log_lik,
        DATA,
        {"beta": np.zeros(2)},
        log_prior=log_prior,
        **{**arguments, **QUICK, **given},
    )


@functools.cache
def preconditioned(method: str, name: str) -> sgmcmc.Samples:
    """Return few draws of a short call; made once for all tests."""
    return call(method, preconditioner=name, n_iters=20)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", FACES)
def test_the_center_is_the_mode_and_the_chain_starts_there(method: str) -> None:
    found = preconditioned(method, "auto")
    assert found.mode is not None
    # Newton's method stops a tenth of an sd from the mode, and float32 rounds.
    sds = np.sqrt(np.diag(COVARIANCE))
    np.testing.assert_array_less(np.abs(found.mode["beta"] - MODE) / sds, 0.1)
    np.testing.assert_array_less(np.abs(found["beta"][0] - MODE) / sds, 1.5)
    assert found.settings["opt_stepsize"] == "auto" and found.settings["n"] == 300


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name, dense", [("auto", True), ("dense", True), ("diagonal", False)]
)
def test_preconditioners_by_name(name: str, dense: bool) -> None:
    """The information at the mode is known; the mode is, to a tenth of an sd."""
    setting = np.asarray(preconditioned("sgldcv", name).settings["preconditioner"])
    expected = COVARIANCE if dense else np.diag(COVARIANCE)
    np.testing.assert_allclose(setting, expected, rtol=0.02)


def test_leverage_by_name() -> None:
    """Rows by x'Mx q(1−q), with nine tenths of the probability."""
    chosen = sgmcmc.setup(
        log_lik, DATA, {"beta": np.zeros(2)}, log_prior, dynamics="sgld", gradient="minibatch",
        minibatches="leverage", minibatch_size=50, preconditioner="none", stepsize=1e-5,
        n_chains=None, **QUICK,
    )  # fmt: skip
    minibatches = chosen._sampler.request.keywords["minibatches"]
    q = 1 / (1 + np.exp(-X @ MODE))
    h = np.einsum("ni,ij,nj->n", X, COVARIANCE, X) * q * (1 - q)
    assert isinstance(minibatches, Weighted)
    found = minibatches.p
    # 48 probes: a relative error of √(2/48) for each row, and far less on average.
    assert np.corrcoef(found, h)[0, 1] > 0.9


def test_what_is_given_is_kept() -> None:
    found = sgmcmc.sample(
        log_lik, DATA, {"beta": np.zeros(2)}, log_prior, dynamics="sgld", gradient="saga",
        minibatches="replacement", minibatch_size=100, preconditioner="diagonal", stepsize=0.05,
        n_chains=2, n_iters=100, burn_in=10, **QUICK,
    )  # fmt: skip
    settings = found.settings
    assert (settings["method"], settings["gradient"]["name"]) == ("sgld", "SAGA")
    assert (settings["minibatches"], settings["n"]) == ("replacement", 100)
    assert (settings["stepsize"], settings["burn_in"]) == (0.05, 10)
    assert found["beta"].shape == (2, 100, 2)


def test_a_stepsize_alone_may_be_open() -> None:
    """Without a preconditioner: all SDs within the tolerance by the law, at its edge."""
    found = call("sgldcv", preconditioner=None)
    assert found.settings["preconditioner"] == "none"
    assert found.report is not None
    error = np.asarray(found.report["Predicted"]["SD error (noise along the chain)"])
    assert 0 < np.abs(error).max() < 0.06


@pytest.mark.slow
def test_only_the_length_may_be_open() -> None:
    found = sgmcmc.sample(
        log_lik, DATA, {"beta": MODE}, log_prior, dynamics="underdamped",
        gradient=ControlVariate("auto"), minibatches="uniform", minibatch_size=100,
        preconditioner=COVARIANCE, stepsize=0.2, ess=100, n_chains=2, **QUICK,
    )  # fmt: skip
    assert found.report is not None and found.report.warnings == []


def test_few_observations_and_a_gradient_from_minibatches() -> None:
    few = {"X": X[:50], "y": Y[:50]}
    chosen = sgmcmc.setup(
        log_lik, few, {"beta": np.zeros(2)}, log_prior, gradient="minibatch", **QUICK
    )
    assert chosen.n == 50


@pytest.mark.slow
def test_a_chain_of_few_observations_and_a_gradient_from_minibatches() -> None:
    few = {"X": X[:50], "y": Y[:50]}
    start = {"beta": np.zeros(2)}
    found = sgmcmc.sample(
        log_lik, few, start, log_prior, gradient="minibatch", n_iters=100, **QUICK
    )
    assert found.settings["n"] == 50


def sample(**given: Any) -> Any:
    return sgmcmc.sample(
        log_lik, DATA, {"beta": np.zeros(2)}, log_prior, **{**QUICK, **given}
    )


def test_what_cannot_be_chosen_is_refused() -> None:
    with pytest.raises(ValueError, match="`stepsize` must be given.*`gibbs`"):
        sample(gibbs=lambda params, data, seed: data)
    with pytest.raises(ValueError, match="`opt_stepsize` must be given.*`gibbs`"):
        call("sgldcv", stepsize=0.1, gibbs=lambda params, data, seed: data)
    with pytest.raises(TypeError, match="`stepsize` must be"):
        call("sgldcv", stepsize="automatic")
    with pytest.raises(ValueError, match="`preconditioner` must be .*'diagonl'"):
        sample(preconditioner="diagonl")
    with pytest.raises(ValueError, match="`minibatches` must be"):
        sample(minibatches="leverages")
    many = {"X": np.zeros((30, 2100)), "y": np.zeros(30)}
    with pytest.raises(ValueError, match="`stepsize` must be given.*2100 coordinates"):
        sgmcmc.sgld(log_lik, many, {"beta": np.zeros(2100)}, "auto", **QUICK)
    with pytest.raises(ValueError, match="`stepsize`: there are 2100 coordinates"):
        sgmcmc.sample(log_lik, many, {"beta": np.zeros(2100)}, stepsize=0.1, **QUICK)


STORED: dict[str, Any] = {"n_iters": 200, "n_chains": 2, "minibatch_size": 100}


@pytest.mark.parametrize(
    "face", ["sample", pytest.param("sgldcv", marks=pytest.mark.slow)]
)
def test_a_store_keeps_what_was_chosen(
    face: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call goes on with it, without choosing again, and ends with the same bits."""

    def run(name: str, **given: Any) -> sgmcmc.Samples:
        given = {**STORED, **QUICK, "store": tmp_path / name, **given}
        if face == "sgldcv":
            return call("sgldcv", preconditioner="dense", **given)
        return sgmcmc.sample(log_lik, DATA, {"beta": np.zeros(2)}, log_prior, **given)

    expected = run("whole", seed=None)
    seed = expected.settings["seed"]
    part = run("part", n_iters=100, seed=seed)
    assert (tmp_path / "part" / "warm-up.npz").exists()
    monkeypatch.setattr(seams.MAKE_PLAN, None)
    assert run("part", n_iters=100, seed=None).settings == part.settings
    longer = run("part", seed=None)
    np.testing.assert_array_equal(longer["beta"], expected["beta"])
    assert longer.settings == expected.settings
    with pytest.raises(ValueError, match=r"`store`.*another chain.*minibatch_size"):
        run("part", seed=None, minibatch_size=50)


@pytest.mark.parametrize(
    "other",
    [{"minibatches": "uniform"}, {"minibatches": None}, {"burn_in": 7}],
    ids=str,
)
def test_a_store_is_of_one_way_to_draw_rows_and_one_burn_in(
    other: dict[str, Any], tmp_path: Path
) -> None:
    """What a user gives is not replaced by what was chosen for an earlier call."""
    given = {"minibatches": "auto", "burn_in": 5, "minibatch_size": 100, "n_iters": 20}
    given |= {"store": tmp_path / "chain", "seed": 1, "verbose": False}
    call("sgldcv", **given)
    assert call("sgldcv", **given).settings["burn_in"] == 5
    (name,) = other
    with pytest.raises(ValueError, match=rf"`store`.*another chain.*{name}"):
        call("sgldcv", **{**given, **other})


def test_a_store_needs_a_length_and_a_mode(tmp_path: Path) -> None:
    given = {**QUICK, "store": tmp_path / "chain"}
    with pytest.raises(ValueError, match=r"`store`.*n_iters"):
        sgmcmc.sample(log_lik, DATA, {"beta": np.zeros(2)}, log_prior, **given)
    assert not (tmp_path / "chain").exists()
