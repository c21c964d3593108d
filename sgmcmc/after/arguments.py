"""Checks of the samples that a user hands over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sgmcmc.checks import describe, known_keys
from sgmcmc.results.samples import Samples


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
