"""The noise of estimators whose center follows the chain, and of those with a memory."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.gradients import SAGA, SVRG, ControlVariate, Gradient
from sgmcmc.minibatches import Uniform
from sgmcmc.model.target import Target
from sgmcmc.plan.noise import NoiseMeter
from tests.plan.models import make

N, D = 2000, 3
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, D))
POSITIONS = RNG.normal(size=(2048, D))


def squares(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * tf.linalg.matvec(dataset["X"], params["beta"]) ** 2


def along_the_first_axis(gradient: Gradient) -> np.ndarray:
    """Return the noise of the first coordinate at each position."""
    target, rows = make(
        squares, {"X": X}, {"beta": (D,)}, lambda params: 0.0, dtype=tf.float64
    )
    assert isinstance(target, Target)
    meter = NoiseMeter(target, rows, Uniform().bind(N, 20), gradient)
    return meter.at(POSITIONS, np.zeros(D), 1)[:, 0]


@pytest.mark.some(1)
@pytest.mark.parametrize("gradient", [SVRG(100), SAGA()])
def test_a_center_that_follows_makes_twice_the_noise(gradient: Gradient) -> None:
    """Of a quadratic: the difference of two draws has twice the variance of one from the mode."""
    fixed, following = (
        along_the_first_axis(each) ** 2
        for each in (ControlVariate(center_at={}), gradient)
    )
    ratio = following.mean() / fixed.mean()
    errors = [
        values.std() / values.mean() / np.sqrt(len(values))
        for values in (following, fixed)
    ]
    assert abs(ratio - 2.0) < 4 * 2.0 * np.hypot(*errors)


class OwnControlVariate(ControlVariate):
    """A user's, whose noise is measured by its own estimates."""


def test_the_noise_of_a_users_control_variate_is_that_around_each_center() -> None:
    """That of the package's control variates, also at a second center of the same meter."""
    target, rows = make(
        squares, {"X": X}, {"beta": (D,)}, lambda params: 0.0, dtype=tf.float64
    )
    assert isinstance(target, Target)
    meter, known = (
        NoiseMeter(target, rows, Uniform().bind(N, 20), gradient)
        for gradient in (OwnControlVariate(), ControlVariate())
    )
    for center in (np.zeros(D), np.ones(D)):
        found = meter.at(POSITIONS[:64], center, 1)
        np.testing.assert_allclose(found, known.at(POSITIONS[:64], center, 1))


class Memory(NamedTuple):
    position: tf.Tensor
    estimate: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Storm(Gradient):
    """g' = ĝ(θ') + (1 − a) (g − ĝ(θ)), on the same minibatch: its errors stay for 1/a steps."""

    a: float = 0.05

    def init(self, whole: Any, position: np.ndarray) -> Memory:
        return Memory(tf.constant(position), whole.gradient(position))

    def estimate(
        self, target: Any, state: Memory, position: Any, minibatch: Any, at_center: Any
    ) -> tuple[tf.Tensor, Memory]:
        here, before = (
            target.gradient(at, minibatch)
            for at in (position, tf.reshape(state.position, [-1]))
        )
        estimate = here + (1.0 - self.a) * (state.estimate - before)
        return estimate, Memory(position, estimate)


def test_errors_that_last_are_named() -> None:
    """What is measured at single positions is a small part of what the chain meets."""
    y = RNG.normal(X @ np.ones(D), 1.0)

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return (
            -0.5 * (dataset["y"] - tf.linalg.matvec(dataset["X"], params["beta"])) ** 2
        )

    samples = sgmcmc.sample(
        log_lik, {"X": X, "y": y}, {"beta": np.zeros(D)}, gradient=Storm(), minibatches="uniform",
        minibatch_size=20, n_iters=20_000, seed=1, verbose=False,
    )  # fmt: skip
    exact = np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    ratio = samples["beta"].reshape(-1, D).std(0) / exact
    predicted = 1 + np.array(
        samples.report["Predicted"]["SD error (noise along the chain)"]
    )
    assert (ratio > 1.3 * predicted).all()
    assert any(
        "Storm" in warning and "SD of" in warning for warning in samples.report.warnings
    )
