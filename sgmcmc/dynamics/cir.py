"""The transition law of the Cox–Ingersoll–Ross process."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics.variates import gamma, poisson


class Law(NamedTuple):
    """dλ = (a − bλ) ds + √(2λ) dW over a time s, whose stationary law is Gamma(a, b).

    Attributes:
        u: log λ, a vector.
        degrees: a.
        time: bs, so that λ forgets by the factor e^(−bs).
        log_rate: log b; ``None`` where b is one.
    """

    u: tf.Tensor
    degrees: tf.Tensor
    time: tf.Tensor
    log_rate: tf.Tensor | None = None


def transition(law: Law, seeds: tf.Tensor) -> tf.Tensor:
    """Return a draw of log λ after that time; ``seeds`` has shape (6, 2)."""
    u, degrees, time, log_rate = law
    scaled = u if log_rate is None else u + log_rate
    rate = tf.exp(scaled) / tf.math.expm1(time)
    # TensorFlow's Poisson draws never return from what is not finite.
    good = tf.math.is_finite(rate) & tf.math.is_finite(degrees)
    rate, degrees = tf.where(good, rate, 1.0), tf.where(good, degrees, 1.0)
    degrees += poisson(rate, seeds[:2])
    moved = tf.math.log(-tf.math.expm1(-time)) + log_gamma(degrees, seeds[2:6])
    if log_rate is not None:
        moved -= log_rate
    return tf.where(good, moved, np.nan)


def log_gamma(shape: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Return logs of numbers with the laws Gamma(shape, 1), however small; seeds are (4, 2)."""
    # TensorFlow's gamma draws never return from what is not finite.
    good = tf.math.is_finite(shape)
    shape = tf.where(good, shape, 1.0)
    # 1 − V is as uniform as V, and never zero.
    uniform = tf.random.stateless_uniform(shape.shape, seeds[0], dtype=shape.dtype)
    drawn = tf.math.log(gamma(shape + 1.0, seeds[1:])) + tf.math.log1p(-uniform) / shape
    return tf.where(good, drawn, np.nan)
