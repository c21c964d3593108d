"""Posteriors that float32 cannot hold are found at the mode, and the message says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from sgmcmc.data.reading import read_dataset
from sgmcmc.dynamics import Underdamped
from sgmcmc.inputs.parameters import Constraints, read_geometries
from sgmcmc.inputs.support import need_precision
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target

tfb = tfp.bijectors
Tensors = dict[str, tf.Tensor]

N = 40
T = np.linspace(0.0, 1.0, N)
DATA = {"t": T, "y": np.sin(6.0 * T), "z": T + 1e-9}


def process(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return what is no sum: a Gaussian process with hardly any jitter."""
    gaps = dataset["t"][:, None] - dataset["t"]
    one = tf.eye(N, dtype=gaps.dtype)
    root = tf.linalg.cholesky(tf.exp(-(gaps**2) / params["r"] ** 2) + 1e-10 * one)
    white = tf.linalg.triangular_solve(root, dataset["y"][:, None])
    return -0.5 * tf.reduce_sum(white**2) - tf.reduce_sum(
        tf.math.log(tf.linalg.diag_part(root))
    )


def correlated(params: Tensors, dataset: Tensors) -> tf.Tensor:
    r, x, y = params["r"], dataset["t"], dataset["z"]
    return -0.5 * (x**2 - 2 * r * x * y + y**2) / (1 - r**2) - 0.5 * tf.math.log(
        1 - r**2
    )


def model(
    log_lik: Any, bijector: Any, dtype: tf.DType = tf.float32
) -> tuple[Target, Any]:
    start = {"r": np.asarray(0.5, dtype.as_numpy_dtype)}
    geometries = read_geometries(
        Constraints({"r": bijector}), Underdamped(), [start], dtype
    )
    space = Space({"r": ()}, geometries)
    return Target(log_lik, None, space, dtype), read_dataset(DATA, dtype)


CASES = {
    "a Cholesky factor": (process, tfb.Exp(), -1.0),
    "a pole": (correlated, tfb.Tanh(), 9.5),
}


@pytest.mark.parametrize("name", CASES)
def test_what_float32_cannot_hold(name: str) -> None:
    log_lik, bijector, place = CASES[name]
    position, covariance = np.array([place]), np.eye(1) * 0.01
    with pytest.raises(ValueError, match=r"`dtype` is float32.*Use dtype=tf\.float64"):
        need_precision(*model(log_lik, bijector), position, covariance)
    need_precision(*model(log_lik, bijector, tf.float64), position, covariance)
    need_precision(*model(log_lik, bijector), np.array([-4.0]), covariance)


def test_a_value_that_was_rounded_to_the_end_of_its_space() -> None:
    target, _ = model(correlated, tfb.Tanh())
    rounded = target.space.params(np.array([9.5]), tf.float32)
    assert rounded["r"] == 1.0
    start = target.space.start(rounded, tf.float32)
    assert np.isfinite(start).all() and start[0] > 8


@pytest.mark.parametrize(("jitter", "holds"), [(1e-6, False), (1e-2, True)])
def test_values_that_float32_has_but_gets_wrong(jitter: float, holds: bool) -> None:
    """The noise of a Gaussian process has an SD of 1e-3, or of 0.1."""

    def noisy(params: Tensors, dataset: Tensors) -> tf.Tensor:
        gaps = dataset["t"][:, None] - dataset["t"]
        kernel = tf.exp(-(gaps**2) / params["r"] ** 2) + jitter * tf.eye(
            N, dtype=gaps.dtype
        )
        root = tf.linalg.cholesky(kernel)
        y = dataset["y"][:, None] + jitter**0.5 * tf.cos(40 * dataset["t"][:, None])
        white = tf.linalg.triangular_solve(root, y)
        logs = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))
        return -0.5 * tf.reduce_sum(white**2) - logs

    given = *model(noisy, tfb.Exp()), np.array([-0.7]), np.eye(1) * 0.01
    if holds:
        need_precision(*given)
        return
    with pytest.raises(ValueError, match=r"`dtype` is float32.*Use dtype=tf\.float64"):
        need_precision(*given)
