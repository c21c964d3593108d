"""A prior that is zero outside an interval: refused, or warned of with the bijector that serves."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.inputs.support import find_support, overflows

tfd = tfp.distributions
Tensors = dict[str, tf.Tensor]

RNG = np.random.default_rng(2)
X = RNG.normal(-0.05, 1.0, 400).astype(np.float32)
FAR = (X + 5.0).astype(np.float32)


def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return -0.5 * (dataset["x"] - params["m"]) ** 2


PRIORS: dict[str, tuple[Any, float, str]] = {
    "half normal": (tfd.HalfNormal(1.0), 0.1, "tfp.bijectors.Exp()"),
    "gamma": (tfd.Gamma(2.0, 1.0), 0.1, "tfp.bijectors.Exp()"),
    "uniform": (tfd.Uniform(0.0, 1.0), 0.1, "tfp.bijectors.Sigmoid(0.0, 1.0)"),
    "beta": (tfd.Beta(2.0, 2.0), 0.1, "tfp.bijectors.Sigmoid(0.0, 1.0)"),
    "from below": (tfd.Uniform(-7.0, 0.0), -0.1, "tfp.bijectors.Sigmoid(-7.0, 0.0)"),
    "truncated": (tfd.TruncatedNormal(0.0, 1.0, 0.05, 1e9), 0.2, "Softplus(low=0.05)"),
}


@pytest.mark.parametrize("name", PRIORS)
def test_the_interval_and_its_bijector_are_found(name: str) -> None:
    prior, start, bijector = PRIORS[name]
    inside = {"m": np.float32(start), "other": np.ones(3, np.float32)}
    outside = {
        "m": np.float32(-0.3 if start > 0 else 0.3),
        "other": np.zeros(3, np.float32),
    }
    if name == "truncated":
        bijector = "Sigmoid" if np.isfinite(float(prior.log_prob(1e3))) else bijector
    found = find_support(lambda p: prior.log_prob(p["m"]), inside, outside)
    assert found is not None and found.label == "m"
    assert bijector in str(found.bijector)


def test_the_coordinate_is_named() -> None:
    def log_prior(params: Tensors) -> tf.Tensor:
        return tf.reduce_sum(tf.math.log(3.0 - params["b"]))

    inside = {"a": np.float32(0.0), "b": np.zeros((2, 2), np.float32)}
    outside = {
        "a": np.float32(9.0),
        "b": np.array([[0.0, 1.0], [5.0, 2.0]], np.float32),
    }
    found = find_support(log_prior, inside, outside)
    assert found is not None and found.label == "b[1, 0]" and found.high == 3.0
    assert "Shift(3.0)" in str(found.bijector) and "outside (-inf, 3)" in found.interval


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["sgld", "sghmc", "sgnht"])
def test_draws_outside_are_warned_of(method: str) -> None:
    prior, start, bijector = PRIORS["half normal"]
    with pytest.warns(
        UserWarning, match=r"of the draws lie where `log_prior`.*outside \(0, inf\)"
    ):
        samples = getattr(sgmcmc, method)(
            log_lik, {"x": X}, {"m": start}, 1e-4, lambda p: prior.log_prob(p["m"]),
            minibatch_size=40, n_iters=400, seed=1, verbose=False, jit_compile=False,
        )  # fmt: skip
    assert (samples["m"] < 0).mean() > 0.2
    assert any(bijector in text for text in samples.report["Warnings"])


def test_a_posterior_far_from_the_end_is_not_warned_of() -> None:
    prior = PRIORS["half normal"][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samples = sgmcmc.sgld(
            log_lik, {"x": FAR}, {"m": 4.0}, 1e-4, lambda p: prior.log_prob(p["m"]),
            minibatch_size=40, n_iters=400, n_chains=2, burn_in=100, seed=1, verbose=False,
            jit_compile=False,
        )  # fmt: skip
    assert not any("log_prior" in text for text in samples.report["Warnings"])


def test_what_is_chosen_by_the_mode_is_refused() -> None:
    prior = PRIORS["half normal"][0]
    with pytest.raises(
        ValueError, match=r"outside \(0, inf\).*tfp\.bijectors\.Exp\(\)"
    ):
        sgmcmc.sample(
            log_lik,
            {"x": X},
            {"m": 0.1},
            lambda p: prior.log_prob(p["m"]),
            seed=1,
            verbose=False,
        )
    samples = sgmcmc.sample(
        log_lik,
        {"x": FAR},
        {"m": 4.0},
        lambda p: prior.log_prob(p["m"]),
        n_iters=400,
        jit_compile=False,
        seed=1,
        verbose=False,
    )
    assert abs(samples["m"].mean() - FAR.sum() / (len(FAR) + 1)) < 0.02


def test_moves_that_are_accepted_by_values_stay_inside() -> None:
    prior = PRIORS["half normal"][0]
    samples = sgmcmc.nuts(
        log_lik, {"x": X}, {"m": 0.1}, lambda p: prior.log_prob(p["m"]), n_iters=400, seed=1,
        stepsize=0.03, preconditioner="none", burn_in=0, n_chains=2, dtype=tf.float32,
        verbose=False, jit_compile=False,
    )  # fmt: skip
    assert (samples["m"] > 0).all()


def test_a_number_that_overflows_is_no_end_of_the_support() -> None:
    """A flat prior on a log SD: in float32 exp(-87.4) is 0, in float64 exp(-745) is."""

    def of_effects(params: Any) -> tf.Tensor:
        z = params["effects"] * tf.exp(-params["log_sd"])
        return -0.5 * tf.reduce_sum(z**2) - 8.0 * params["log_sd"]

    def without(params: Any) -> tf.Tensor:
        return of_effects(params) + tf.math.log(
            tf.cast(params["log_sd"] > -20.0, tf.float32)
        )

    inside = {"effects": np.full(8, 1e-9, np.float32), "log_sd": np.float32(-10.0)}
    outside = {**inside, "log_sd": np.float32(-120.0)}
    inside, outside = (
        {k: np.asarray(v) for k, v in p.items()} for p in (inside, outside)
    )
    for log_prior, expected in ((of_effects, True), (without, False)):
        found = find_support(log_prior, inside, outside)
        assert found is not None and found.name == "log_sd"
        assert overflows(log_prior, found, inside, outside) == expected
