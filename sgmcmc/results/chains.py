"""Arrays of draws with and without a leading chain axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sgmcmc.results.samples import Samples


def has_chains(samples: Samples) -> bool:
    """Tell whether the arrays have a leading chain axis."""
    return samples.settings.get("n_chains") is not None


def by_chain(samples: Samples, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays of these samples with a leading chain axis, whether or not they had one."""
    chains = has_chains(samples)
    return {name: array if chains else array[np.newaxis] for name, array in arrays.items()}


def matrix(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return arrays of draws as one matrix in float64, a row for each draw."""
    return np.concatenate(
        [np.asarray(a, np.float64).reshape(len(a), -1) for a in arrays.values()], axis=1
    )
