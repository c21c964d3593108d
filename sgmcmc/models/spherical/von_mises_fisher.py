"""The von Mises–Fisher distribution on the unit sphere, in any number of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_LEAST_ORDER = 15
"""From this order on the expansion of log I_ν is right to 1e-6; smaller ones are stepped down to.

TensorFlow Probability has log I_ν too, and exactly, but for each kind of order a loop of its own:
a chain whose prior has it takes seconds longer to compile.
"""


def log_normaliser(kappa: tf.Tensor | float, dimension: int) -> tf.Tensor:
    """Return log c_d(κ), where vMF(x | μ, κ) = c_d(κ) exp(κ μ'x) on the unit vectors of ℝᵈ.

    c_d(κ) = κ^ν / ((2π)^(d/2) I_ν(κ)) with ν = d/2 − 1, a density with respect to the area of the
    sphere. It is computed in float64: for thousands of dimensions log I_ν is in the tens of
    thousands, where SciPy's I_ν is 0. Its derivative is −A_d(κ), the mean of μ'x.

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
    wide, order = tf.cast(kappa, tf.float64), 0.5 * dimension - 1
    powers = order * tf.math.log(wide) - 0.5 * dimension * math.log(2 * math.pi)
    return powers - _log_bessel(order)(wide)


def _log_bessel(order: float) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return log I_ν, from large orders down by I_{μ−1}/I_μ = 2μ/x + I_{μ+1}/I_μ.

    Its derivative is I_{ν+1}/I_ν + ν/x.
    """
    steps = max(0, math.ceil(_LEAST_ORDER - order))
    top = order + steps

    @tf.custom_gradient
    def log_bessel(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        value = _expanded(top, x)
        ratio = tf.exp(_expanded(top + 1, x) - value)
        for step in range(steps):
            grown = 2 * (top - step) / x + ratio
            value, ratio = value + tf.math.log(grown), 1 / grown
        return value, lambda upstream: upstream * (ratio + order / x)

    return log_bessel


def _expanded(order: float, x: tf.Tensor) -> tf.Tensor:
    """Return log I_ν(x) by the uniform expansion for large orders.

    With z = x/ν, s = √(1 + z²), p = 1/s: ν(s + log(z/(1 + s))) − log(2πνs)/2 + log Σ_k U_k(p)/ν^k.

    Source:
        NIST Digital Library of Mathematical Functions, equations 10.41.3 and 10.41.10.
    """
    z = x / order
    s = tf.sqrt(1 + z * z)
    p, q = 1 / s, 1 / (1 + z * z)
    series = (
        p * (3 - 5 * q) / 24 / order
        + q * (81 + q * (-462 + q * 385)) / 1152 / order**2
        + p * q * (30375 + q * (-369603 + q * (765765 - q * 425425))) / 414720 / order**3
        + q**2
        * (4465125 + q * (-94121676 + q * (349922430 + q * (-446185740 + q * 185910725))))
        / 39813120
        / order**4
    )
    exponent = order * (s + tf.math.log(z / (1 + s)))
    return exponent - 0.5 * tf.math.log(2 * math.pi * order * s) + tf.math.log1p(series)
