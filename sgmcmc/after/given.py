"""The samples that a user hands over: checked, and in the forms that all of ``after`` works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgmcmc.inputs.numbers import describe, known_keys
from sgmcmc.samples import Samples


def need_samples(samples: Any) -> None:
    """Raise an error if these are not samples."""
    if not isinstance(samples, Samples):
        raise TypeError(f"`samples` must be what a sampler returned; it is {describe(samples)}.")


def need_draws(samples: Any, var_names: Sequence[str] | None = None) -> list[str]:
    """Return the names of the parameters that are meant, once they are known to be there."""
    need_samples(samples)
    if not len(samples):
        raise ValueError("`samples` holds no draws of parameters.")
    if var_names is None:
        return list(samples)
    if isinstance(var_names, str):
        raise TypeError("`var_names` must be a list of names; it is a string.")
    known_keys("var_names", var_names, samples, "the parameters are")
    return list(var_names)


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
