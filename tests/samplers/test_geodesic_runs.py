"""Runs on manifolds: step by step, thinned, in chains, on disk, by any parts; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.manifolds import Simplex, Sphere, Stiefel
from tests.ladder import GEODESIC, Case, every
from tests.run.stopping import StopError, same, short_blocks_of, stop_after

Tensors = dict[str, tf.Tensor]
RNG = np.random.default_rng(1)
X = RNG.normal([0.6, 0.0, 0.8], 1.0, (40, 3))
MANIFOLDS = {"v": Sphere(), "omega": Simplex()}
START = {"b": 0.5, "v": np.array([1.0, 0.0, 0.0]), "omega": np.array([0.2, 0.5, 0.3])}
STEPSIZE = {"b": 1e-3, "v": 2e-3, "omega": 1e-3}
FRAMES = {
    "params": {**START, "F": np.eye(3, 2)},
    "manifolds": {**MANIFOLDS, "F": Stiefel()},
    "stepsize": {**STEPSIZE, "F": 3e-3},
}
"""What adds an orthonormal frame, whose geodesics take long to trace."""


def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return terms in which every parameter stands."""
    x, v = dataset["x"], params["v"]
    plane = tf.reduce_sum(tf.matmul(x, params["F"]) ** 2, -1) if "F" in params else 0.0
    mixed = tf.reduce_logsumexp(tf.math.log(params["omega"]) + 0.3 * x, -1)
    return -0.5 * tf.reduce_sum((x - v - params["b"]) ** 2, -1) + 0.2 * plane + mixed


def arguments(**given: Any) -> dict[str, Any]:
    return {
        "log_lik": log_lik,
        "dataset": {"x": X},
        "params": START,
        "stepsize": STEPSIZE,
        "minibatch_size": 10,
        "manifolds": MANIFOLDS,
        "seed": 1,
        "jit_compile": False,
        **given,
    }


def short_call(case: Case, **given: Any) -> sgmcmc.Samples:
    return case.function(**arguments(**{"n_iters": 40, "verbose": False, **given}))


def on_manifolds(samples: Any) -> bool:
    v = samples["v"].astype(np.float64)
    gaps = [(v * v).sum(-1) - 1, samples["omega"].astype(np.float64).sum(-1) - 1]
    if "F" in samples:
        F = samples["F"].astype(np.float64)
        gaps.append(np.swapaxes(F, -1, -2) @ F - np.eye(2))
    return all(np.abs(gap).max() < 1e-6 for gap in gaps) and bool(
        (samples["omega"] > 0).all()
    )


@every(GEODESIC, slow=lambda case: case.name == "sggmc")
def test_step_by_step_stopped_and_resumed(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_blocks_of(2**9, monkeypatch)
    draws = short_call(case, n_chains=2, store_gradients=True)
    assert on_manifolds(draws)
    assert draws.gradients is not None
    assert (
        np.abs((draws.gradients["v"] * draws["v"]).sum(-1)).max() < 1e-3
    )  # of about 30
    sampler = case.setup(**arguments(n_chains=2))
    sess = sgmcmc.init_sess(sampler, verbose=False)
    for n_steps in (1, 2, 37):
        sgmcmc.sgmcmc_step(sampler, sess, n_steps=n_steps)
    for name, value in sgmcmc.get_params(sampler, sess).items():
        np.testing.assert_array_equal(value, draws[name][:, -1])
    stored = {"n_chains": 2, "store_gradients": True, "store": tmp_path / "chain"}
    with monkeypatch.context() as patch, pytest.raises(StopError):
        stop_after(3, patch)
        short_call(case, **stored)
    same(short_call(case, **stored), draws)
    assert sgmcmc.Samples.open(tmp_path / "chain").settings["manifolds"] == {
        "v": "Sphere()",
        "omega": "Simplex()",
    }


@pytest.mark.parametrize(
    "dynamics, gradient, more",
    [
        pytest.param("sggmc", "svrg", {}, marks=pytest.mark.slow),
        pytest.param("sggmc", "minibatch", FRAMES, marks=pytest.mark.slow),
        pytest.param(
            "gsgnht", "svrg", {**FRAMES, "n_chains": 64}, marks=pytest.mark.slow
        ),
        pytest.param("gsgnht", "saga", {}, marks=pytest.mark.slow),
        pytest.param(
            "gsgnht", "full", {"minibatch_size": None}, marks=pytest.mark.slow
        ),
        pytest.param(
            "sggmc",
            "minibatch",
            {"minibatches": sgmcmc.minibatches.Weighted(1 + np.abs(X[:, 0]))},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "sggmc",
            "minibatch",
            {"preconditioner": {"b": [0.1]}},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "gsgnht", "minibatch", {"updates": "in_turn"}, marks=pytest.mark.slow
        ),
        pytest.param(
            "sggmc",
            "minibatch",
            {"n_chains": 64, "jit_compile": None},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            sgmcmc.dynamics.SGGMC(noise_variance="fisher"),
            "control_variate",
            {"gradient": sgmcmc.gradients.ControlVariate(1e-4, 50)},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_any_parts(dynamics: Any, gradient: str, more: dict[str, Any]) -> None:
    parts = {
        "gradient": gradient,
        "minibatches": "uniform",
        "preconditioner": "none",
        "n_chains": 2,
        "n_iters": 30,
        "burn_in": 5,
        "verbose": False,
    }
    samples = sgmcmc.sample(**arguments(dynamics=dynamics, **{**parts, **more}))
    assert on_manifolds(samples)
    assert samples.report is not None


def test_control_variates_at_a_mode_on_the_sphere() -> None:
    """The ascent stays on the sphere and finds the mean direction, and terms that are linear in v
    have no noise."""
    chain = sgmcmc.sample(
        lambda params, dataset: tf.linalg.matvec(dataset["x"], params["v"]),
        {"x": X},
        {"v": [0.0, 1.0, 0.0]},
        dynamics="gsgnht",
        gradient=sgmcmc.gradients.ControlVariate(2e-3, 1000),
        minibatches="uniform",
        minibatch_size=20,
        manifolds={"v": Sphere()},
        preconditioner="none",
        stepsize=1e-3,
        n_chains=1,
        n_iters=20,
        burn_in=0,
        store_gradients=True,
        verbose=False,
        seed=1,
        jit_compile=False,
    )
    mean = X.sum(0)
    assert chain.mode is not None and chain.gradients is not None
    mode = chain.mode["v"][0].astype(np.float64)
    assert abs(mode @ mode - 1) < 1e-6
    assert mode @ mean / np.linalg.norm(mean) > 0.99  # noise of the ascent is left
    v = chain["v"][0].astype(np.float64)
    expected = mean - v * (v @ mean)[:, np.newaxis]
    np.testing.assert_allclose(chain.gradients["v"][0], expected, atol=1e-4)
    with pytest.raises(ValueError, match="^`samples`: 'v' is on a manifold, Sphere"):
        sgmcmc.zero_variance(chain)
    with pytest.raises(ValueError, match="^`samples`"):
        sgmcmc.ksd(chain)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (sgmcmc.sgld, {}, r"`manifolds`: sgld\(\) moves in ℝᵈ.*sggmc"),
    (sgmcmc.scir, {"alpha": 1.0}, r"`manifolds`: scir\(\) moves in ℝᵈ.*sggmc"),
    (sgmcmc.sgnht_setup, {}, r"`manifolds`: sgnht_setup\(\) moves in ℝᵈ"),
    (sgmcmc.hmc, {"minibatch_size": None}, r"`manifolds`: hmc\(\) moves in ℝᵈ.*sggmc"),
    (
        sgmcmc.nuts,
        {"minibatch_size": None},
        r"`manifolds`: nuts\(\) moves in ℝᵈ.*sggmc",
    ),
    (sgmcmc.sample, {}, "`dynamics`: Underdamped moves in ℝᵈ.*'sggmc'"),
    (
        sgmcmc.sample,
        {"dynamics": "hmc", "minibatch_size": None},
        "`dynamics`: HMC moves in ℝᵈ.*'sggmc'",
    ),
    (sgmcmc.setup, {"dynamics": "sgld"}, "`dynamics`: SGLD moves in ℝᵈ.*'sggmc'"),
    (sgmcmc.sample, {"dynamics": "sggmc"}, ".* must be given.*'v' is on a manifold"),
    (
        sgmcmc.sggmc,
        {"stepsize": "auto"},
        "`stepsize` must be given.*'v' is on a manifold",
    ),
    (
        sgmcmc.sggmc,
        {"preconditioner": "dense"},
        "`preconditioner` must be given.*manifold",
    ),
    (
        sgmcmc.sggmc,
        {"preconditioner": {"v": [1.0] * 3}},
        "`preconditioner`: 'v' moves in",
    ),
    (sgmcmc.sggmc, {"manifolds": {"u": Sphere()}}, "`manifolds` names 'u'"),
    (
        sgmcmc.sggmc,
        {"manifolds": {"b": Sphere()}},
        r"`params\['b'\]` must have a last axis",
    ),
    (
        sgmcmc.sggmc,
        {"manifolds": {"v": Sphere}},
        r"`manifolds\['v'\]`.*Did you mean Sphere\(\)",
    ),
    (sgmcmc.sggmc, {"manifolds": Sphere()}, "`manifolds` must be a dict"),
    (
        sgmcmc.sggmc,
        {"params": {**START, "v": [1.0, 1.0, 0.0]}},
        r"`params\['v'\]` must start",
    ),
    (
        sgmcmc.sggmc,
        {"bijectors": {"v": tfp.bijectors.Exp()}},
        "`bijectors` names 'v', which",
    ),
    (
        sgmcmc.sggmc,
        {"stepsize": {"b": 1e-3, "v": [1e-3, 1e-3, 2e-3], "omega": 1e-3}},
        "`stepsize`: 'v' is on a manifold",
    ),
    (sgmcmc.sggmc, {"alpha": 0.0}, "`alpha` must be positive"),
    (sgmcmc.sggmc, {"noise_variance": -1.0}, "`noise_variance` must not be negative"),
    (sgmcmc.sggmc, {"noise_variance": "hessian"}, "`noise_variance` must be a number"),
    (
        sgmcmc.sggmc,
        {"noise_variance": lambda params: params["v"]},
        "`noise_variance` must return",
    ),
    (
        sgmcmc.sggmc,
        {"noise_variance": lambda params: {"u": 1.0}},
        "`noise_variance` names 'u'",
    ),
    (
        sgmcmc.sggmc,
        {"noise_variance": "fisher", "minibatch_size": 1},
        "`noise_variance` cannot",
    ),
    (
        sgmcmc.setup,
        {
            "dynamics": sgmcmc.dynamics.SGGMC(noise_variance="fisher"),
            "gradient": "saga",
            "minibatches": "uniform",
            "preconditioner": "none",
        },
        "`noise_variance` cannot be estimated: SAGA",
    ),
    (
        sgmcmc.sggmc,
        {"noise_variance": "fisher", "updates": "in_turn"},
        "`updates`: the state of SGGMC",
    ),
]


@pytest.mark.parametrize("function, given, message", REFUSED)
def test_refused(function: Any, given: dict[str, Any], message: str) -> None:
    whole = arguments(verbose=False, **given)
    if function in (sgmcmc.sgnht_setup,):
        whole.pop("verbose")
    if function in (sgmcmc.hmc, sgmcmc.nuts):
        whole.pop("minibatch_size")
    with pytest.raises((TypeError, ValueError), match=f"(?s)^{message}"):
        function(**whole)
