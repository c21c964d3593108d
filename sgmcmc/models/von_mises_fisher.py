"""The von Mises–Fisher distribution on the unit sphere, in any number of dimensions."""

from __future__ import annotations

import math

import tensorflow as tf

from sgmcmc import libraries


def log_normaliser(kappa: tf.Tensor | float, dimension: int) -> tf.Tensor:
    """Return log c_d(κ), where vMF(x | μ, κ) = c_d(κ) exp(κ μ'x) on the unit vectors of ℝᵈ.

    c_d(κ) = κ^ν / ((2π)^(d/2) I_ν(κ)) with ν = d/2 − 1, a density with respect to the area of the
    sphere. It is computed in float64: for thousands of dimensions log I_ν is in the tens of
    thousands, where SciPy's I_ν is 0. Its derivative is −I_{ν+1}(κ) / I_ν(κ).

    Args:
        kappa: κ, positive, of any shape.
        dimension: d, at least 2.

    Returns:
        float64, of the shape of ``kappa``.

    Example:
        >>> round(math.exp(-log_normaliser(1e-6, 3)) / math.pi, 4)  # the area of the sphere, 4π
        4.0

    Source:
        Liu, Zhu & Song, NeurIPS 2016, section 4; Mardia & Jupp, Directional Statistics, 2000.
    """
    wide = tf.cast(kappa, tf.float64)
    order = 0.5 * dimension - 1
    log_bessel = libraries.tensorflow_probability().math.log_bessel_ive(order, wide) + wide
    return order * tf.math.log(wide) - 0.5 * dimension * math.log(2 * math.pi) - log_bessel


def mean_cosine(kappa: tf.Tensor | float, dimension: int) -> tf.Tensor:
    """Return A_d(κ) = I_{d/2}(κ) / I_{d/2 − 1}(κ), the mean of μ'x over vMF(x | μ, κ), in float64.

    Args:
        kappa: κ, positive, of any shape.
        dimension: d, at least 2.

    Example:
        >>> round(float(mean_cosine(2.0, 3)), 6), round(1 / math.tanh(2) - 1 / 2, 6)
        (0.537315, 0.537315)

    Source:
        Mardia & Jupp, Directional Statistics, 2000, section 9.3.
    """
    ratio = libraries.tensorflow_probability().math.bessel_iv_ratio
    return ratio(tf.constant(0.5 * dimension, tf.float64), tf.cast(kappa, tf.float64))
