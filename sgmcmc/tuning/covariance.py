"""The covariance of few or dependent draws."""

from __future__ import annotations

import numpy as np


def shrunk_covariance(draws: np.ndarray, effective: float) -> np.ndarray:
    """Return the covariance of draws, drawn towards the identity as far as they are few.

    Args:
        draws: in coordinates where it may be the identity, (k, d).
        effective: how many independent draws they are worth.
    """
    d = draws.shape[1]
    covariance = np.atleast_2d(np.cov(draws.T))
    return (effective * covariance + 2 * d * np.eye(d)) / (effective + 2 * d)
