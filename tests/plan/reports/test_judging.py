"""Reports on draws whose constants the user gave: what is wrong with them is named."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.dynamics import SGLD
from sgmcmc.plan.prediction import NoisyQuadratic
from sgmcmc.plan.reports import judging
from tests.run.test_choices import COVARIANCE, DATA, MODE, log_lik, log_prior

WHITE: dict[str, Any] = {
    "minibatch_size": 300, "n_iters": 6000, "burn_in": 200, "n_chains": 4, "verbose": False,
    "seed": 1,
}  # fmt: skip


@functools.cache
def of_stepsize(stepsize: float) -> sgmcmc.Samples:
    """Return draws that are fine but for their stepsize; of each sampled once."""
    return sgldcv(stepsize)


def sgldcv(
    stepsize: Any = 0.1, opt_stepsize: Any = "auto", **given: Any
) -> sgmcmc.Samples:
    arguments = {"preconditioner": COVARIANCE, "log_prior": log_prior, **WHITE, **given}
    return sgmcmc.sgldcv(
        log_lik, DATA, {"beta": MODE}, stepsize, opt_stepsize, **arguments
    )


def warnings_of(samples: sgmcmc.Samples) -> str:
    assert samples.report is not None
    return "\n".join(samples.report.warnings)


def test_good_draws_have_no_warnings() -> None:
    found = of_stepsize(0.1)
    assert warnings_of(found) == ""
    assert "!" not in repr(found)


@pytest.mark.slow
@pytest.mark.parametrize("dynamics", ["sgld", "sghmc", "underdamped"])
def test_prediction_and_draws_agree(dynamics: str) -> None:
    """With a tenth of the rows, uniform, and no control variates the noise is what counts."""
    stepsize = {"sgld": 0.3, "sghmc": 0.05, "underdamped": 0.05}[dynamics]
    found = sgmcmc.sample(
        log_lik, DATA, {"beta": MODE}, log_prior, dynamics=dynamics, gradient="minibatch",
        minibatches="uniform", preconditioner=COVARIANCE, stepsize=stepsize,
        **{**WHITE, "n_iters": 20_000},
    )  # fmt: skip
    assert found.report is not None
    predicted = 1 + np.asarray(
        found.report["Predicted"]["SD error (noise along the chain)"]
    )
    sds = found["beta"].reshape(-1, 2).std(0) / np.sqrt(np.diag(COVARIANCE))
    ess = min(found.report["Draws"]["ESS, bulk"])
    # Noise from 256 pairs of minibatches: its variance to √(2/256), of which an sd has half; four
    # standard errors, and the sd of the draws beside.
    assert predicted.max() > 1.1
    error = 4 * (np.sqrt(2 / 256) / 2 * (1 - 1 / predicted**2) + 1 / np.sqrt(2 * ess))
    np.testing.assert_array_less(np.abs(sds / predicted - 1), error + 0.01)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "change, says",
    [
        ({"stepsize": 3.0}, "`?The predicted error of the SD of beta.*too large"),
        ({"stepsize": 10.0}, "too large for the curvature"),
        ({"stepsize": 1e-3}, "smallest effective sample size"),
        ({"stepsize": 1e-6, "burn_in": 0}, "explored the posterior"),
        (
            {"opt_stepsize": 1e-12, "far": True},
            "centered .* posterior SDs from the mode",
        ),
        ({"n_chains": None}, "There is a single chain"),
    ],
    ids=["large", "unstable", "small", "tiny", "center", "one chain"],
)
def test_each_is_named(change: dict[str, Any], says: str) -> None:
    if change.pop("far", False):
        found = sgmcmc.sgldcv(
            log_lik, DATA, {"beta": MODE + 0.3}, 0.1, change["opt_stepsize"], log_prior,
            preconditioner=COVARIANCE, **WHITE,
        )  # fmt: skip
    else:
        found = (
            of_stepsize(**change) if list(change) == ["stepsize"] else sgldcv(**change)
        )
    assert re.search(says, warnings_of(found)), warnings_of(found)
    assert re.search(says, repr(found))
    with pytest.warns(UserWarning, match=says):
        table = sgmcmc.summary(found)
    assert table.attrs["warnings"] == found.report.warnings  # type: ignore[union-attr]


@pytest.mark.slow
def test_noise_is_named() -> None:
    found = sgmcmc.sgld(
        log_lik, DATA, {"beta": MODE}, 0.3, log_prior, preconditioner=COVARIANCE,
        **{**WHITE, "minibatch_size": 30},
    )  # fmt: skip
    assert "gradient noise is too large" in warnings_of(found)


@pytest.mark.parametrize("least, suits", [(1.0, True), (1e-11, False)])
def test_no_stepsize_is_named_where_none_suits(least: float, suits: bool) -> None:
    """With V = cλ the variance of SGLD is (1 + εcλ/4)/(1 − ελ/4) times what it should be."""
    curvatures = np.diag([least, 1.0])
    around = NoisyQuadratic(curvatures, 100 * curvatures, np.ones(2))
    exact = 4 * (1.05**2 - 1) / (100 + 1.05**2)
    expected = exact if suits else 0.0
    assert judging._largest_within_tolerance(
        SGLD(), around, 0.05, None
    ) == pytest.approx(expected, rel=1e-4)


def test_draws_from_a_file_keep_their_report(tmp_path: Any) -> None:
    found = of_stepsize(3.0)
    text = warnings_of(found)
    found.save(tmp_path / "draws.npz")
    loaded = sgmcmc.Samples.load(tmp_path / "draws.npz")
    assert warnings_of(loaded) == text and loaded.origin is None


def test_where_curvature_says_nothing_the_draws_are_judged() -> None:
    found = sgldcv(
        store_params=False,
        test_functions={"sum": lambda p: p["beta"][0] + p["beta"][1]},
    )
    assert found.report is None
    counts = np.repeat(np.eye(3), [50, 30, 20], axis=0)
    points = sgmcmc.scir(
        lambda p, d: tf.reduce_sum(d["z"] * tf.math.log(p["omega"])), {"z": counts},
        {"omega": np.full(3, 1 / 3)}, 0.01, alpha=0.5, minibatch_size=10, n_iters=300,
        verbose=False, seed=1,
    )  # fmt: skip
    assert "points of the simplex" in str(points.report)
    assert "smallest effective sample size" in warnings_of(points)
