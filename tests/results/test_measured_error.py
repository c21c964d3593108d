"""Errors measured at two stepsizes, against the closed distribution of the chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from tests.conftest import log_lik, observations

N, n = 200, 40
X = np.random.default_rng(5).normal(1.0, 1.0, N)


def terms(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


def chain(**given: Any) -> sgmcmc.Samples:
    arguments = {
        "n_chains": 4,
        "n_iters": 20_000,
        "minibatch_size": n,
        "seed": 1,
        "burn_in": 200,
    }
    return sgmcmc.sgld(
        terms,
        {"x": X},
        {"theta": 1.0},
        **{"stepsize": 1e-3, **arguments, **given},
        verbose=False,
    )


def test_the_error_of_sgld_is_the_closed_one() -> None:
    """θ' = (1 − hN/2) θ + …: variance (h + h²V/4) / (1 − (1 − hN/2)²), V the gradient's noise."""
    h = 1e-3
    noise = N**2 / n * (1 - n / N) * X.var(ddof=1)
    variance = (h + h**2 * noise / 4) / (1 - (1 - h * N / 2) ** 2)
    exact = np.sqrt(variance * N) - 1
    found = chain().check(verbose=False)
    row = found.table.loc["theta"]
    assert exact > 0.1
    # The error itself is not quite in proportion to h: by h²N²/4, of the mode's curvature.
    assert abs(row.sd_error - exact) < 4 * row.sd_error_se + (h * N) ** 2 / 4
    assert abs(row.mean_error) < 4 * row.mean_error_se
    assert len(found.warnings) == 1 and "SD of theta is off by +" in found.warnings[0]
    assert (
        found.at_half.settings["stepsize"] == h / 2
        and found.at_half.settings["thin"] == 2
    )
    assert "SD of theta" in repr(found)


def test_what_is_right_is_left_alone() -> None:
    found = chain(stepsize=2e-4, n_iters=8000, thin=4, minibatch_size=100)
    assert found.check(verbose=False, tolerance=0.2).warnings == []


def test_large_parameters_and_test_functions_are_watched() -> None:
    def many(params: Any, dataset: Any) -> tf.Tensor:
        theta = tf.reduce_mean(params["theta"])
        return (
            -0.5 * (dataset["x"] - theta) ** 2
            - 0.5 * tf.reduce_sum(params["theta"] ** 2) / N
        )

    found = sgmcmc.sgld(
        many, {"x": X}, {"theta": np.zeros((6, 5))}, {"theta": 1e-3}, minibatch_size=n,
        n_iters=200, test_functions={"first": lambda params: params["theta"][0, 0]}, seed=1,
        verbose=False, jit_compile=False,
    )  # fmt: skip
    names = list(found.check(verbose=False, seed=3).table.index)
    assert (
        names[:2] == ["mean of theta", "mean square of theta"] and names[-1] == "first"
    )
    assert len(names) == 8 and all(name.startswith("theta[") for name in names[2:-1])


@pytest.mark.slow
def test_manifolds_too() -> None:
    """Where nothing is predicted, noise that nobody takes up is measured."""
    x = np.random.default_rng(1).normal([0.6, 0.0, 0.8], 1.0, (10_000, 3))

    def direction(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * tf.reduce_sum((dataset["x"] - params["v"]) ** 2, 1)

    found = sgmcmc.sggmc(
        direction, {"x": x}, {"v": [0.6, 0.0, 0.8]}, 2e-5, minibatch_size=100, n_chains=4,
        n_iters=5000, manifolds={"v": sgmcmc.manifolds.Sphere()}, seed=1, verbose=False,
    ).check(verbose=False)  # fmt: skip
    assert any("SD of v[1] is off by +" in warning for warning in found.warnings)


def test_what_cannot_be_checked_is_refused_and_short_chains_tell_nothing() -> None:
    exact = sgmcmc.hmc(
        log_lik, {"x": observations()}, {"theta": 0.0}, stepsize=0.1, preconditioner="none",
        n_iters=100, burn_in=0, verbose=False, jit_compile=False,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"`samples`.*hmc have no error"):
        exact.check(verbose=False)
    short = chain(n_iters=30, burn_in=0, jit_compile=False)
    found = short.check(verbose=False)
    assert any("too short" in warning for warning in found.warnings)
    with pytest.raises(ValueError, match="slice"):
        short[10:].check(verbose=False)
    with pytest.raises(ValueError, match="`tolerance`"):
        short.check(tolerance=2.0, verbose=False)
