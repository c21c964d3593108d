"""Whether float32 can hold a log posterior where its mass is."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.passes import cast
from sgmcmc.graphs.tracing import trace
from sgmcmc.graphs.user_functions import first_lines
from sgmcmc.inputs.silent_mistakes import rows_from_everywhere
from sgmcmc.interrupts import pass_on
from sgmcmc.target.geometry import root_of
from sgmcmc.target.target import Target

_MOST_ROWS = 1000
"""Largest number of rows on which it is tried."""

_DRAWS = 8
"""Number of draws from the normal approximation at which it is tried, next to the mode."""

_MOST_BAD = 2
"""Largest number of these at which it may fail."""


def need_precision(
    target: Target, data: Data, position: np.ndarray, covariance: np.ndarray
) -> None:
    """Raise an error if the log posterior has no value in float32 where it has one in float64.

    Examples are a Cholesky factor of a matrix that is nearly singular, and parameters so near to a
    pole that float32 does not tell them from it.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        position: Mode, flat.
        covariance: Covariance of the normal approximation.
    """
    if target.dtype != tf.float32 or data.sparse:
        return
    columns = data.rows(rows_from_everywhere(data.size, min(data.size, _MOST_ROWS)))
    moves = np.random.default_rng(1).standard_normal((_DRAWS, target.size))
    points = np.concatenate([np.zeros((1, target.size)), moves @ root_of(covariance).T]) + position
    found = _values(target, columns, points)
    bad = [k for k, (value, _) in enumerate(found) if not np.isfinite(value)]
    if not bad or (bad[0] > 0 and len(bad) <= _MOST_BAD):
        return
    double = Target(target.log_lik, target.log_prior, target.space, tf.float64)
    if not np.isfinite([value for value, _ in _values(double, columns, points[bad])]).all():
        return
    where = "at the mode" if bad[0] == 0 else f"at {len(bad)} of {_DRAWS} draws around the mode"
    reason = next((text for _, text in found if text), "")
    raise ValueError(
        f"`dtype` is float32, in which the log posterior has no finite value {where} of the "
        "posterior; in float64 it has. A Cholesky factor of a matrix that is nearly singular is "
        "lost to rounding, or a parameter near an end of its space is rounded to it. Use "
        f"dtype=tf.float64. {reason}".rstrip()
    )


def _values(target: Target, columns: Tensors, points: np.ndarray) -> list[tuple[float, str]]:
    """Return the log posterior of some rows at each point, NaN if that fails, and the reason."""
    batch = Minibatch(cast(columns, target.dtype))
    spec = tf.TensorSpec(points.shape[1:], target.dtype)
    found = []
    try:
        log_post = trace(lambda point: target.log_post(point, batch), spec)
    except (TypeError, ValueError) as error:  # constants in float32
        pass_on(error)
        return [(np.nan, "")] * len(points)
    for point in points:
        try:
            found.append((float(log_post(tf.constant(point, target.dtype))), ""))
        except tf.errors.OpError as error:
            pass_on(error)
            found.append((np.nan, first_lines(error)))
    return found
