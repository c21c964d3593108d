"""Weights of draws whose stepsizes decrease, or that are of an exploring stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.after.summary import weighted_table
from sgmcmc.results.diagnostics import weighted_quantiles

X = np.random.default_rng(1).normal(3.0, 1.0, 50)


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


def run(stepsize: Any, **keywords: Any) -> sgmcmc.Samples:
    given = {
        "minibatch_size": 50,
        "n_iters": 40,
        "burn_in": 5,
        "seed": 1,
        "verbose": False,
    }
    return sgmcmc.sgld(
        log_lik, {"x": X}, {"theta": 3.0}, stepsize, **{**given, **keywords}
    )


def test_weights_are_the_stepsizes_of_the_draws() -> None:
    decay = sgmcmc.polynomial_decay(0.02, 10, 0.6)
    samples = run(decay, thin=3)
    expected = np.array([decay(5 + 3 * (k + 1)) for k in range(13)])
    np.testing.assert_allclose(samples.weights, expected / expected.mean(), rtol=1e-12)
    by_hand = run(lambda k: decay(k), thin=3)
    np.testing.assert_allclose(by_hand.weights, samples.weights, rtol=1e-12)
    np.testing.assert_allclose(
        samples[2::2].weights, expected[2::2] / expected[2::2].mean(), rtol=1e-12
    )
    longer = samples.extend(6, verbose=False)
    assert longer.weights is not None and longer.weights.shape == (15,)
    assert run(0.01).weights is None


def test_cyclical_draws_of_exploring_stages_have_no_weight() -> None:
    schedule = sgmcmc.cyclical(0.02, cycle=10)
    samples = run(schedule)
    counts = schedule.counts(40, 5)
    np.testing.assert_array_equal(samples.weights > 0, counts)
    used = samples["theta"][counts]
    table = sgmcmc.summary(samples)
    assert table["mean"].item() == pytest.approx(used.mean(), rel=1e-6)
    assert table["sd"].item() == pytest.approx(used.std(), rel=1e-6)
    with pytest.raises(ValueError, match="no draw that counts"):
        samples[5:6].weights  # noqa: B018


def test_schedules_by_parameter_need_be_in_proportion() -> None:
    def of_two(params: Any, dataset: Any) -> tf.Tensor:
        return log_lik({"theta": params["a"] + params["b"]}, dataset)

    def weights(**stepsizes: Any) -> Any:
        return sgmcmc.sgld(
            of_two, {"x": X}, {"a": 1.0, "b": 2.0}, stepsizes, minibatch_size=50, n_iters=5,
            log_prior=lambda params: -params["a"] ** 2, seed=1, verbose=False,
        ).weights  # fmt: skip

    decay = sgmcmc.polynomial_decay
    assert weights(a=decay(0.01, 10, 0.6), b=decay(0.02, 10, 0.6)) is not None
    assert weights(a=decay(0.01, 10, 0.6), b=decay(0.02, 10, 0.5)) is None
    assert weights(a=decay(0.01, 10, 0.6), b=0.01) is None


def test_files_keep_weights(tmp_path: Path) -> None:
    decay = sgmcmc.polynomial_decay(0.02, 10, 0.6)
    samples = run(lambda k: decay(k))
    samples.save(tmp_path / "file.npz")
    loaded = sgmcmc.Samples.load(tmp_path / "file.npz")
    np.testing.assert_array_equal(loaded.weights, samples.weights)
    np.testing.assert_allclose(loaded[::2].weights, samples[::2].weights, rtol=1e-12)
    run(decay, store=tmp_path / "store")
    opened = sgmcmc.Samples.open(tmp_path / "store")
    np.testing.assert_allclose(opened.weights, samples.weights, rtol=1e-12)
    assert sgmcmc.Samples.open(tmp_path / "store")[:3].weights.shape == (3,)


def test_summary_predictions_and_arviz() -> None:
    samples = run(sgmcmc.polynomial_decay(0.02, 10, 0.6), n_chains=2)
    w, theta = samples.weights, samples["theta"]
    mean = float((w * theta).mean())
    assert sgmcmc.summary(samples)["mean"].item() == pytest.approx(mean, rel=1e-9)
    line = lambda params, dataset: params["theta"] * dataset["x"]  # noqa: E731
    np.testing.assert_allclose(samples.predict(line), mean * X, rtol=1e-5)
    medians = samples.predict(line, reduce="quantiles", quantiles=[0.5])[0]
    median = weighted_quantiles(theta.reshape(-1), [0.5], np.tile(w, 2))[0]
    np.testing.assert_allclose(medians, median * X, rtol=1e-5)
    stats = samples.to_arviz().sample_stats
    np.testing.assert_array_equal(stats["weight"].values, np.tile(w, (2, 1)))


def test_quantiles_with_equal_weights_are_numpys() -> None:
    x, q = np.random.default_rng(2).normal(size=(17, 3)), [0.0, 0.05, 0.5, 0.9, 1.0]
    found = weighted_quantiles(x, q, np.full(17, 2.0))
    np.testing.assert_allclose(found, np.quantile(x, q, axis=0), rtol=1e-12)
    whole = weighted_quantiles(x, q, np.r_[np.zeros(7), np.ones(10)])
    np.testing.assert_allclose(whole, np.quantile(x[7:], q, axis=0), rtol=1e-12)


def test_quantiles_with_unequal_weights() -> None:
    """A weight of k is as k draws of one value: quantiles at the middle of each, from 0 to 1."""
    values, weights = np.array([2.0, 0.0, 1.0]), np.array([1.0, 1.0, 4.0])
    at = np.array([0.0, 2.5, 5.0]) / 5.0
    np.testing.assert_allclose(
        weighted_quantiles(values, at.tolist(), weights), [0, 1, 2]
    )
    assert weighted_quantiles(values, [0.25], weights) == pytest.approx(0.5)
    uneven = weighted_quantiles(np.arange(3.0), [0.25, 0.5], np.array([1.0, 2.0, 3.0]))
    # Middles at 0, 3 - 1.5 and 6 - 2, of 4.
    np.testing.assert_allclose(uneven, [1.0 / 1.5, 1.0 + 0.5 / 2.5])
    # Evenly spaced draws with density 2x as weights: the distribution function is x².
    grid = (np.arange(20_000) + 0.5) / 20_000
    found = weighted_quantiles(grid, [0.09, 0.5, 0.81], grid)
    np.testing.assert_allclose(found, np.sqrt([0.09, 0.5, 0.81]), atol=1e-4)


def test_the_error_of_a_weighted_mean() -> None:
    """The MCSE against the spread over 400 independent repetitions, and ESS by Kish's formula."""
    rng, w = np.random.default_rng(3), np.arange(1.0, 501.0) ** -0.5
    w /= w.mean()
    x = rng.normal(2.0, 1.5, (400, 500))
    table = weighted_table({"x": x[:4]}, w, [0.5]).iloc[0]
    exact = 1.5 * np.sqrt((w**2).sum()) / w.sum() / 2
    assert table["mcse_mean"] == pytest.approx(exact, rel=0.15)
    assert table["ess_bulk"] == pytest.approx(4 * w.sum() ** 2 / (w**2).sum(), rel=0.3)
    each = (w * x).mean(1).reshape(100, 4).mean(1)
    assert each.std(ddof=1) == pytest.approx(exact, rel=4.5 / np.sqrt(200))


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [np.nan, 1.0]])
def test_wrong_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="`weights` must"):
        sgmcmc.Samples({"x": np.zeros(2)}, weights=np.array(weights))
