"""Gamma parameters: their priors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.checks import is_number, known_keys
from sgmcmc.inputs.arrays import as_numbers, broadcast
from sgmcmc.target.geometry.half_line import OnHalfLine
from sgmcmc.words import describe


def gamma_parameters(gamma: Any, start: Mapping[str, np.ndarray]) -> dict[str, OnHalfLine]:
    """Return the geometries of the parameters with gamma priors.

    Args:
        gamma: the user's dict of (shape, rate) or (shape, rate, power); ``None`` for none.
        start: the starting values, for names and shapes.
    """
    if gamma is None:
        return {}
    if not isinstance(gamma, Mapping):
        raise TypeError(
            "`gamma` must be a dict that names parameters and their gamma priors, "
            f"{{'rate': (shape, rate)}}; it is {describe(gamma)}."
        )
    if not gamma:
        raise ValueError("`gamma` is an empty dict: it must name the gamma parameters.")
    known_keys("gamma", gamma, start, "the parameters are")
    return {name: _read_one(f"gamma[{name!r}]", p, start[name]) for name, p in gamma.items()}


def _read_one(label: str, prior: Any, start: np.ndarray) -> OnHalfLine:
    if not isinstance(prior, list | tuple) or len(prior) not in (2, 3):
        raise TypeError(
            f"`{label}` must be a pair (shape, rate), or with a power (shape, rate, power); it is "
            f"{describe(prior)}."
        )
    shape, rate = (
        _numbers(f"{label}[{place}]", value, start) for place, value in enumerate(prior[:2])
    )
    if not (shape > 0).all():
        raise ValueError(f"`{label}[0]`: shapes must be positive; it is {describe(prior[0])}.")
    if not (rate >= 0).all():
        raise ValueError(
            f"`{label}[1]`: rates must be positive, or 0 where `log_prior` has them; it is "
            f"{describe(prior[1])}."
        )
    power = prior[2] if len(prior) == 3 else 1.0
    if not (is_number(power) and np.isfinite(power) and power != 0):
        raise ValueError(
            f"`{label}[2]`: the power must be a number, and not 0; it is {describe(power)}."
        )
    return OnHalfLine(shape, rate, float(power))


def _numbers(label: str, value: Any, start: np.ndarray) -> np.ndarray:
    array = as_numbers(label, value).astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"`{label}` must be finite; it is {describe(value)}.")
    return broadcast(label, array, start.shape)
