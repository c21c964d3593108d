"""Arrays of draws with and without a leading chain axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def has_chains(settings: Mapping[str, Any]) -> bool:
    """Tell whether the arrays of samples with these settings have a leading chain axis."""
    return settings.get("n_chains") is not None


def by_chain(
    settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return arrays of such samples with a leading chain axis, whether or not they had one."""
    chains = has_chains(settings)
    return {name: array if chains else array[np.newaxis] for name, array in arrays.items()}


def matrix(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return arrays of draws as one matrix in float64, a row for each draw."""
    return np.concatenate(
        [np.asarray(a, np.float64).reshape(len(a), -1) for a in arrays.values()], axis=1
    )
