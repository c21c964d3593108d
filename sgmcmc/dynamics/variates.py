"""Gamma and Poisson numbers, many at a time, each with its own parameter.

TensorFlow's own draws take 50 to 100 ns a number. If there are many, most are drawn here by
vector arithmetic on normals and uniforms, which cost a tenth of that, and only the few that it
does not settle are drawn by TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

FEW = 4096
"""Number of values below which the calls cost more than the arithmetic saves."""

_PROPOSALS = 16
"""Each is accepted with a probability of at least 0.95."""

_LARGEST_RATE = 3.0
_TERMS = 20
"""A Poisson number of rate 3 is larger than that once in 10^11 times."""


def gamma(shape: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Return draws of Gamma(shape, 1).

    One round of rejection settles 95 % and more; what it rejects is drawn again, which is what a
    second round would do.

    Args:
        shape: Shape parameters, finite and at least 1; a vector.
        seeds: Seeds, (3, 2).

    Source:
        Marsaglia & Tsang, ACM Transactions on Mathematical Software 26, 2000.
    """
    if shape.shape[0] <= FEW:
        return tf.random.stateless_gamma(shape.shape, seeds[0], shape, dtype=shape.dtype)
    normals = tf.random.stateless_normal(shape.shape, seeds[1], dtype=shape.dtype)
    uniforms = tf.random.stateless_uniform(shape.shape, seeds[2], dtype=shape.dtype)
    proposed, accepted = _compiled(_propose_gamma)(shape, normals, uniforms)
    return _redraw(
        proposed,
        ~accepted,
        lambda places: tf.random.stateless_gamma(
            [tf.shape(places)[0]], seeds[0], tf.gather(shape, places), dtype=shape.dtype
        ),
    )


def gamma_number(shape: float, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return one draw of Gamma(shape, 1), by operations that XLA compiles.

    It is the first accepted one of many proposals; NaN if none is, which happens less than once in
    10^20 times.

    Args:
        shape: Shape parameter, at least 1.
        seed: Two int32.
        dtype: Dtype of the number.

    Source:
        Marsaglia & Tsang, ACM Transactions on Mathematical Software 26, 2000.
    """
    seeds = tf.random.split(seed, 2, alg="philox")
    normals = tf.random.stateless_normal([_PROPOSALS], seeds[0], dtype=dtype, alg="philox")
    uniforms = tf.random.stateless_uniform([_PROPOSALS], seeds[1], dtype=dtype, alg="philox")
    proposed, accepted = _propose_gamma(tf.constant(shape, dtype), normals, uniforms)
    first = tf.argmax(tf.cast(accepted, tf.int32))
    return tf.where(tf.reduce_any(accepted), tf.gather(proposed, first), np.nan)


def poisson(rate: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Return draws of Poisson(rate), as floats.

    Small rates by inversion of the distribution function, large ones by TensorFlow.

    Args:
        rate: Rates, finite; a vector.
        seeds: Seeds, (2, 2).
    """
    dtype = rate.dtype
    if rate.shape[0] <= FEW:
        return tf.random.stateless_poisson(rate.shape, seeds[0], rate, dtype=dtype)
    uniforms = tf.random.stateless_uniform(rate.shape, seeds[1], dtype=dtype)
    large = rate > _LARGEST_RATE
    return _redraw(
        _compiled(_invert_poisson)(tf.where(large, tf.zeros_like(rate), rate), uniforms),
        large,
        lambda places: tf.random.stateless_poisson(
            [tf.shape(places)[0]], seeds[0], tf.gather(rate, places), dtype=dtype
        ),
    )


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled by XLA, for one use within a graph."""
    return tf.function(function, autograph=False, jit_compile=True)


def _propose_gamma(
    shape: tf.Tensor, normals: tf.Tensor, uniforms: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return proposals, and which of them are accepted."""
    d = shape - 1 / 3
    root = 1.0 + normals * tf.math.rsqrt(9.0 * d)
    cube = root * root * root
    least = tf.math.log1p(-uniforms)
    good = least < 0.5 * normals * normals + d * (1.0 - cube + tf.math.log(cube))
    return d * cube, (root > 0.0) & good


def _invert_poisson(rate: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
    """Return the number of first values of the distribution function that a uniform exceeds."""
    probability = tf.exp(-rate)
    below, number = probability, tf.zeros_like(rate)
    for k in range(1, _TERMS + 1):
        number += tf.cast(uniforms > below, rate.dtype)
        probability *= rate / k
        below += probability
    return number


def _redraw(
    values: tf.Tensor, again: tf.Tensor, draw: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Return the values, with those marked drawn again."""
    places = tf.where(again)
    return tf.tensor_scatter_nd_update(values, places, draw(places[:, 0]))
