"""Small data whose posterior is far from normal: `sample` goes on with NUTS, and says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.dataset import Tensors
from sgmcmc.plan.cost import Cost
from sgmcmc.plan.stopping import Goal
from tests import seams

SD, WIDTH = 1.5, 4
Y = np.random.default_rng(1).normal(2.0, 1.0, 30)


def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return -0.5 * (dataset["y"] - params["w"]) ** 2


def funnel(params: Tensors) -> tf.Tensor:
    """v ~ N(0, SD²), x_j | v ~ N(0, e^v): the top is in the neck, the mass is not."""
    v, x = params["v"], params["x"]
    return (
        -0.5 * (v / SD) ** 2 - 0.5 * WIDTH * v - 0.5 * tf.exp(-v) * tf.reduce_sum(x**2)
    )


def draw(**keywords: Any) -> sgmcmc.Samples:
    params = {"w": 0.0, "v": 0.0, "x": np.zeros(WIDTH)}
    return sgmcmc.sample(
        log_lik, {"y": Y}, params, funnel, seed=2, verbose=False, **keywords
    )


@pytest.fixture(scope="module")
def samples() -> sgmcmc.Samples:
    return draw(ess=50)


@pytest.mark.slow
def test_exact_law() -> None:
    """Means and sds within four standard errors of what they are."""
    samples = draw()
    errors = sgmcmc.summary(samples)
    for name, mean, sd in (("v", 0.0, SD), ("w", Y.mean(), 1 / np.sqrt(len(Y)))):
        assert abs(errors.loc[name, "mean"] - mean) < 4 * errors.loc[name, "mcse_mean"]
        assert abs(errors.loc[name, "sd"] - sd) < 4 * errors.loc[name, "mcse_sd"]


def test_said(samples: sgmcmc.Samples) -> None:
    """The sampler and the reason stand in settings and report."""
    assert samples.settings["dynamics"]["name"] == "NUTS"
    assert str(samples.report).startswith("Sampling report: nuts")
    reason = samples.report["Dynamics"]["reason for NUTS"]
    assert "far from normal" in reason or "diverged" in reason or "no mode" in reason
    assert reason in str(samples.report).replace("\n", " ")


def test_goes_on(samples: sgmcmc.Samples) -> None:
    """More draws can be had as of every chain."""
    more = samples.extend(100)
    assert more["v"].shape[1] == samples["v"].shape[1] + 100


@pytest.mark.slow
def test_not_where_a_constant_is_given() -> None:
    """Who names the dynamics gets them."""
    samples = draw(dynamics="underdamped", n_iters=1000)
    assert samples.settings["dynamics"]["name"] != "NUTS"


def test_not_where_it_is_normal() -> None:
    """A normal posterior stays with the dynamics whose laws are known."""
    samples = sgmcmc.sample(log_lik, {"y": Y}, {"w": 0.0}, seed=1, verbose=False)
    assert samples.settings["dynamics"]["name"] != "NUTS"
    assert "Dynamics" not in samples.report


def _started_again(monkeypatch: pytest.MonkeyPatch, seconds: float) -> sgmcmc.Samples:
    """Return draws if chains would start again, of a gradient that was not timed before.

    They do not get their effective draws: a few are soon reached.
    """
    monkeypatch.setattr(seams.UNTIL_FAR_REACHED, property(lambda _: False))
    monkeypatch.setattr(seams.NUTS_IS_AFFORDABLE, lambda *_: False)
    monkeypatch.setattr(seams.POSTERIOR_PREDICTED, lambda *_: seconds)
    return draw(ess=50)


@pytest.mark.slow
def test_chains_that_would_take_long_go_on_by_nuts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = _started_again(monkeypatch, 1e4)
    assert samples.settings["dynamics"]["name"] == "NUTS"
    assert (
        "chains of minibatches need very many"
        in samples.report["Dynamics"]["reason for NUTS"]
    )


@pytest.fixture
def slow_nuts(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Cost(1e3, 1e6, Goal(0.05, 50, 4, None, None, None))
    monkeypatch.setattr(seams.COST_OF_NUTS, lambda *_: slow)


@pytest.mark.slow
def test_chains_that_take_long_all_the_same_say_so(
    slow_nuts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UserWarning, match="will take about 17 more minutes"):
        samples = _started_again(monkeypatch, 1e3)
    assert samples.settings["dynamics"]["name"] != "NUTS"


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*will take about")
def test_they_say_so_before_they_run(
    slow_nuts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserWarning, match="will take about 17 more minutes"):
        _started_again(monkeypatch, 1e3)


@pytest.mark.slow
def test_hmc_where_minibatches_would_need_very_many_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By counts; where all rows are affordable it is NUTS that follows, else HMC is the last."""
    monkeypatch.setattr(seams.FAR_GRADIENTS, 0.0)
    monkeypatch.setattr(seams.NUTS_IS_AFFORDABLE, lambda *given: False)
    y = np.random.default_rng(3).normal(2.0, 1.0, 5000)
    samples = sgmcmc.sample(log_lik, {"y": y}, {"w": 0.0}, seed=1, verbose=False)
    assert "very many iterations" in samples.report["Dynamics"]["reason for HMC"]
    errors = sgmcmc.summary(samples).loc["w"]
    assert abs(errors["mean"] - y.mean()) < 4 * errors["mcse_mean"]
    assert abs(errors["sd"] - 5000**-0.5) < 4 * errors["mcse_sd"]
