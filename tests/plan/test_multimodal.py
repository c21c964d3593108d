"""Posteriors with several modes, and with none, without tuning constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from tests.plan.models import gaussian_prior, logistic_terms
from tests.plan.test_modes import mixed, two_means

Tensors = Mapping[str, tf.Tensor]


def mixture(first: float, second: float, N: int, **given: Any) -> sgmcmc.Samples:
    """Sample the means of a mixture of two normals."""
    keywords = {"seed": 1, "verbose": False, **given}
    return sgmcmc.sample(
        two_means,
        mixed(first, second, N),
        {"m1": 0.0, "m2": 0.5},
        gaussian_prior(3.0),
        **keywords,
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("N", [400, 5000])
def test_both_modes_are_reported(N: int) -> None:
    samples = mixture(-4, 4, N)
    report = samples.report
    modes = report["Modes"]
    assert modes["found"] == 2
    found = {
        (round(float(modes[f"mode {k}: m1"])), round(float(modes[f"mode {k}: m2"])))
        for k in (1, 2)
    }
    assert found == {(-4, 4), (4, -4)}
    assert modes["mode 1: Laplace weight"] == pytest.approx(0.5, abs=0.01)
    assert modes["mode 1: log posterior"] == pytest.approx(
        modes["mode 2: log posterior"], abs=0.01
    )
    assert modes["mode 1: chains that start there"] == "1, 3"
    (warning,) = report.warnings
    assert "2 modes" in warning and "do not cross" in warning
    assert "chains 1, 3" in warning and "chains 2, 4" in warning
    assert warning in repr(samples) and warning in str(report)
    # Each chain is right about its own mode: means about ∓4, sds that of half the data.
    m1, sd = samples["m1"].astype(float), (N / 2 + 1 / 9) ** -0.5
    assert (
        np.sign(m1.mean(1)).prod() == 1
        and np.abs(np.abs(m1.mean(1)) - 4).max() < 5 * sd
    )
    np.testing.assert_allclose(m1.std(1), sd, rtol=0.15)
    assert min(report["Draws"]["ESS within modes (worst mode), bulk"]) >= 200
    assert samples.settings["gradient"]["name"] == (
        "FullGradient" if N == 400 else "ControlVariate"
    )


@pytest.mark.slow
def test_chains_that_cross_are_one_posterior() -> None:
    """Modes that chains leave by themselves are listed, and nothing warns of them."""

    def wells(params: Tensors, dataset: Tensors) -> tf.Tensor:
        t = params["t"]
        return dataset["one"] * tf.reduce_logsumexp(
            tf.stack([-((t - 1.5) ** 2), -((t + 1.5) ** 2)])
        )

    samples = sgmcmc.sample(
        wells, {"one": np.ones(1)}, {"t": 0.5}, seed=1, verbose=False
    )
    assert samples.report["Modes"]["found"] == 2
    assert samples.report.warnings == []
    assert max(samples.report["Draws"]["R-hat"]) <= 1.01
    # ½ N(1.5, ½) + ½ N(−1.5, ½)
    assert samples["t"].std() == pytest.approx(np.sqrt(1.5**2 + 0.5), rel=0.05)


@pytest.mark.slow
def test_fewer_chains_than_modes() -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(m, 1.0, 100) for m in (-6.0, 0.0, 6.0)])

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return tf.reduce_logsumexp(
            -0.5 * (dataset["x"][:, None] - params["mu"]) ** 2, 1
        )

    samples = sgmcmc.sample(
        log_lik, {"x": x}, {"mu": [-1.0, 0.0, 1.0]}, gaussian_prior(5.0), seed=1, n_iters=300,
        verbose=False,
    )  # fmt: skip
    assert samples.report["Modes"]["found"] == 6
    assert any(
        "6 modes, and only 4 chains" in warning for warning in samples.report.warnings
    )
    orders = {tuple(np.argsort(mean)) for mean in samples["mu"].mean(1)}
    assert len(orders) == 4


@pytest.mark.slow
def test_same_seed_same_bits() -> None:
    first, again = (mixture(-4, 4, 400, n_iters=200) for _ in range(2))
    assert all(np.array_equal(first[name], again[name]) for name in first)


@pytest.mark.slow
def test_an_improper_posterior_is_named() -> None:
    X = np.random.default_rng(6).normal(size=(100, 2))
    samples = sgmcmc.sample(
        logistic_terms, {"X": X, "y": (X[:, 0] > 0).astype(float)}, {"beta": np.zeros(2)},
        seed=1, n_iters=200, verbose=False,
    )  # fmt: skip
    assert any(
        "There is no mode" in w and "'beta'" in w for w in samples.report.warnings
    )
