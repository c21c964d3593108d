"""Predicted seconds, from counts: the same seed gives the same draws on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.plan.cost import Cost, seconds_of_gradient
from sgmcmc.plan.stopping import Goal
from tests.plan.models import make

Params = Mapping[str, tf.Tensor]


def log_lik(params: Params, dataset: Params) -> tf.Tensor:
    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)


def log_prior(params: Params) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(params["beta"] ** 2)


def dataset(n: int, d: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, d)) / np.sqrt(d)
    return {"X": X, "y": (rng.random(n) < 0.5).astype(float)}


@pytest.mark.filterwarnings("ignore:.*more minutes:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("factor", [pytest.param(1e-3, marks=pytest.mark.slow), 1e3])
@pytest.mark.parametrize(
    ("n", "d"),
    [(400, 301), pytest.param(20_000, 400, marks=pytest.mark.slow),
     pytest.param(2_000, 2_100, marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_clock_does_not_choose(
    n: int, d: int, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand times as fast, or as slow: the same method, the same draws."""

    def draws() -> Any:
        return sgmcmc.sample(
            log_lik, dataset(n, d), {"beta": np.zeros(d)}, log_prior,
            ess=20, seed=2, verbose=False,
        )  # fmt: skip

    expected = draws()
    for name in ("monotonic", "perf_counter"):
        clock = getattr(time, name)
        monkeypatch.setattr(time, name, lambda clock=clock: factor * clock())
    samples = draws()
    monkeypatch.undo()
    np.testing.assert_array_equal(samples["beta"], expected["beta"])
    assert samples.settings["dynamics"] == expected.settings["dynamics"]


def test_seconds_of_a_gradient_grow_with_rows_and_columns() -> None:
    """Twice the rows, beyond those that are counted: twice the operations, to rounding."""

    def seconds(n: int, d: int) -> float:
        return seconds_of_gradient(
            *make(log_lik, dataset(n, d), {"beta": (d,)}, log_prior)
        )

    none = seconds_of_gradient(
        *make(
            lambda params, dataset: dataset["y"] * 0.0,
            {"y": np.zeros(2)},
            {"beta": (1,)},
        )
    )
    small, large, wide = seconds(60_000, 4), seconds(120_000, 4), seconds(60_000, 40)
    assert large - none == pytest.approx(2 * (small - none), rel=1e-3)
    # Of 4 and 40 columns there are two products; what the logits need is the same.
    assert small < wide < 10 * small


def test_predicted_seconds_of_hmc() -> None:
    """Gradients of all moves of all chains, and what is affordable of that."""
    goal = Goal(0.05, 400, 4, None, None, None)
    cost = Cost.of_hmc(1e-3, 10_000, goal)
    assert cost.gradients == 4 * (600 + (200 + 250) * 9)  # 0.9 · 10 steps
    assert cost.seconds == 1e-3 * cost.gradients / 2
    assert cost.affordable and not Cost.of_hmc(1.0, 10_000, goal).affordable
    hurried = Goal(0.05, 400, 4, None, None, 1.0)
    assert not Cost.of_hmc(1e-3, 10_000, hurried).affordable
    with pytest.warns(UserWarning, match="minutes.*`max_seconds`"):
        Cost.of_hmc(0.1, 10_000, goal).warn("sample")


def test_gradients_that_full_data_chains_may_compute() -> None:
    """Those of three minutes, or four times the predicted ones."""
    goal = Goal(0.05, 400, 4, None, None, None)
    quick, slow = Cost(1e-3, 100.0, goal), Cost(1.0, 1000.0, goal)
    assert quick.max_gradients == pytest.approx(180 / 1e-3 * 2)
    assert slow.max_gradients == 4000
