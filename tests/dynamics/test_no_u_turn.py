"""The length of trajectories of NUTS, where it is known."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.dynamics import NUTS
from sgmcmc.dynamics.hamiltonian import Motion, Point
from sgmcmc.model.geometry import Space

D = 4000


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("angle", "gradients"),
    [
        (0.5, 7),
        (0.3, 15),
        pytest.param(0.15, 31, marks=pytest.mark.slow),
        pytest.param(2.9 / 31, 63, marks=pytest.mark.slow),
    ],
)
def test_trajectories_end_after_half_a_turn(angle: float, gradients: int) -> None:
    """Of N(0, I) in many dimensions (Σν) · ν ∝ sin(angle between the ends), up to 1/√d.

    A tree of 2^k points turns back if its ends are more than π apart, and is then the last one.
    """
    rng = np.random.default_rng(1)
    start = tf.constant(rng.normal(size=D))
    dynamics = NUTS().bind(Space({"theta": (D,)}))

    def log_post(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        theta = start + z
        return -0.5 * tf.reduce_sum(theta**2), -theta

    here = Point(tf.zeros_like(start), *log_post(tf.zeros_like(start)))
    motion = Motion(log_post, start, tf.zeros([], tf.float64))
    # The leapfrog turns by 2 asin(ε/2) at each step.
    stepsize = tf.constant(2 * np.sin(angle / 2), tf.float64)
    for seed in range(4):
        moved = dynamics.move(motion, here, stepsize, tf.constant([seed, 1]))[1]
        assert int(moved.gradients) == gradients
        assert not bool(moved.divergences)
