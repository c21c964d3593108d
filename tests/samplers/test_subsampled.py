"""Zig-zag and Metropolis–Hastings with subsamples: exact, from a few rows at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.random_numbers import AliasTable
from sgmcmc.dynamics import MHSS, ZigZag
from sgmcmc.model.geometry import Space
from tests.ladder import Array, bound

N = 25
RNG = np.random.default_rng(4)
X = RNG.gamma(1.0, 2.0, size=(N, 1))
Y = (RNG.random(N) < 0.85).astype(float)
BOUND = sgmcmc.predictor_bound({"beta": "X"})
FUNCTIONS = {"zigzag": sgmcmc.zigzag, "mhss": sgmcmc.mhss}
BOTH = pytest.mark.parametrize("name", FUNCTIONS)


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)


def log_prior(params: Any) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(params["beta"] ** 2) / 0.3


def run(name: str, **given: Any) -> sgmcmc.Samples:
    arguments = {"curvature_bound": BOUND, "seed": 1, "verbose": False, **given}
    prior = arguments.pop("log_prior", log_prior)
    function = FUNCTIONS[name]
    return function(
        log_lik, {"X": X, "y": Y}, {"beta": np.zeros(1)}, prior, **arguments
    )


def exact_moments() -> Array:
    """Return mean, variance and third central moment of the posterior, by quadrature."""
    beta = np.linspace(-3, 4, 20_001)
    eta = X * beta
    log = (Y[:, None] * eta - np.logaddexp(0, eta)).sum(0) - beta**2 / 0.6
    p = np.exp(log - log.max())
    p /= p.sum()
    mean = p @ beta
    return np.array([mean, *(p @ (beta - mean) ** k for k in (2, 3))])


@BOTH
def test_the_moments_are_those_of_the_posterior(name: str) -> None:
    """A skewed one, of 25 rows: a normal approximation would be seen."""
    samples = run(name, n_chains=8, n_iters=6000, burn_in=50)
    beta, exact = samples["beta"][..., 0], exact_moments()
    powers = np.stack([beta, (beta - exact[0]) ** 2, (beta - exact[0]) ** 3])
    error = powers.mean(2).std(1, ddof=1) / np.sqrt(8)
    assert (np.abs(powers.mean((1, 2)) - exact) < bound(3, 8) * error).all()
    assert error[1] < 0.03 * exact[1]
    assert exact[2] > 4 * error[2]  # it is skewed
    chain = samples.report["Chain"]
    assert 0 < chain["rows per iteration"] < 100
    assert samples.report.warnings == []


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.05, 3.0])
def test_mhss_is_exact_at_any_gamma(gamma: float) -> None:
    beta = run("mhss", n_chains=8, n_iters=20_000, burn_in=50, gamma=gamma)["beta"][
        ..., 0
    ]
    exact = exact_moments()
    for power, value in ((beta, exact[0]), ((beta - exact[0]) ** 2, exact[1])):
        error = power.mean(1).std(ddof=1) / np.sqrt(8)
        assert abs(power.mean() - value) < bound(4, 8) * error
        assert error < 0.05 * abs(value)


@pytest.mark.slow
@BOTH
def test_a_hundredth_of_covertype(name: str) -> None:
    """5810 rows and 54 coefficients with a bias, against HMC: means, and sds."""
    data = sgmcmc.get_dataset("covertype")[::100]
    dataset = {"X": data[:, 1:], "y": data[:, 0]}
    params = {"beta": np.zeros(54), "bias": 0.0}

    def with_bias(params: Any, dataset: Any) -> tf.Tensor:
        logits = params["bias"] + tf.linalg.matvec(dataset["X"], params["beta"])
        return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)

    def prior(params: Any) -> tf.Tensor:
        return -0.5 * (tf.reduce_sum(params["beta"] ** 2) + params["bias"] ** 2)

    given: dict[str, Any] = {"seed": 1, "verbose": False}
    reference = sgmcmc.hmc(with_bias, dataset, params, prior, ess=2000, **given)
    samples = FUNCTIONS[name](
        with_bias, dataset, params, prior, ess=200,
        curvature_bound=sgmcmc.predictor_bound({"beta": "X", "bias": None}), **given,
    )  # fmt: skip
    tables = [sgmcmc.summary(each) for each in (samples, reference)]
    off = np.hypot(tables[0]["mcse_mean"], tables[1]["mcse_mean"])
    assert (np.abs(tables[0]["mean"] - tables[1]["mean"]) < bound(110) * off).all()
    off = np.hypot(tables[0]["mcse_sd"], tables[1]["mcse_sd"])
    assert (np.abs(tables[0]["sd"] - tables[1]["sd"]) < bound(110) * off).all()


def test_the_table_draws_rows_in_proportion_to_their_weights() -> None:
    weights = np.array([0.0, 3.0, 1.0, 0.5, 8.0, 0.5])
    table = AliasTable.of(weights)
    p = table.keep / len(weights)
    for place, keep in enumerate(table.keep):
        p[table.other[place]] += (1 - keep) / len(weights)
    np.testing.assert_allclose(p, weights / weights.sum(), atol=1e-15)


@pytest.mark.parametrize(
    "name", ["zigzag", pytest.param("mhss", marks=pytest.mark.slow)]
)
def test_a_bound_that_does_not_hold_is_found_and_said(name: str) -> None:
    small = sgmcmc.predictor_bound({"beta": "X"}, most=0.01)
    with pytest.raises(
        sgmcmc.DivergenceError, match=r"exceeded its bound [\d.]+ times"
    ):
        run(name, curvature_bound=small, n_iters=500, jit_compile=False)


@pytest.mark.slow
def test_a_prior_that_is_not_normal_needs_a_bound() -> None:
    """Second derivatives of log(1 + β²) are at most 2 in size, but smaller at the mode."""

    def cauchy(params: Any) -> tf.Tensor:
        return -20.0 * tf.reduce_sum(tf.math.log1p((params["beta"] / 0.2) ** 2))

    with pytest.raises(sgmcmc.DivergenceError, match="give `prior_bound`"):
        run("zigzag", log_prior=cauchy, n_iters=2000)
    samples = run(
        "zigzag", log_prior=cauchy, n_iters=500, prior_bound={"beta": 40 / 0.04}
    )
    assert samples.report["Chain"]["largest rate over its bound"] <= 1.0


@pytest.mark.slow
@BOTH
def test_a_store_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"n_chains": 2, "burn_in": 5, "jit_compile": False}
    whole = run(name, n_iters=200, **given)
    run(name, n_iters=100, store=tmp_path / "chain", **given)
    longer = run(name, n_iters=200, store=tmp_path / "chain", **given)
    np.testing.assert_array_equal(longer["beta"], whole["beta"])
    more = run(name, n_iters=100, **given).extend(100, verbose=False)
    np.testing.assert_array_equal(more["beta"], whole["beta"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"curvature_bound": 0.25}, "`curvature_bound` must be a function"),
        ({"curvature_bound": lambda params, data: data["X"]}, "must return a dict"),
        ({"curvature_bound": lambda params, data: {"b": data["X"]}}, "'b'"),
        (
            {"curvature_bound": lambda params, data: {"beta": np.ones(3)}},
            r"array of shape \(25, 1\)",
        ),
        (
            {"curvature_bound": lambda params, data: {"beta": data["X"] * np.nan}},
            "not finite",
        ),
        ({"prior_bound": 3.0}, "`prior_bound` must be a dict"),
        (
            {"prior_bound": {"beta": -1.0}},
            "`prior_bound` must be finite and not negative",
        ),
        ({"stepsize": -1.0}, "`stepsize` must be positive"),
        ({"preconditioner": "none"}, "`preconditioner`"),
        ({"minibatches": "uniform"}, "no argument `minibatches`"),
        ({"bijectors": {}}, "no argument `bijectors`"),
    ],
)
def test_what_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        run("zigzag", n_iters=100, **given)


def test_what_else_is_refused() -> None:
    with pytest.raises(ValueError, match="`gamma` must be positive"):
        MHSS(BOUND, gamma=0.0).bind(Space({"beta": (1,)}))
    with pytest.raises(TypeError, match="`columns` must be a dict"):
        sgmcmc.predictor_bound("X")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"which sgmcmc.zigzag\(\) finds"):
        sgmcmc.sample(
            log_lik, {"X": X, "y": Y}, {"beta": np.zeros(1)}, dynamics=ZigZag(BOUND),
            gradient="full", minibatches="uniform", preconditioner="none", stepsize=1.0,
            n_iters=100, burn_in=0, verbose=False,
        )  # fmt: skip
