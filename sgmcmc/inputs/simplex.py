"""Points of the simplex: their concentrations and where they start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.inputs.arrays import as_numbers, read_start
from sgmcmc.inputs.numbers import describe, flag, known_keys

_ROUNDING = 1e-4
"""How far the sum of a point of the simplex may be from one."""


@dataclass(frozen=True)
class SimplexArguments:
    """What a user says of the points of the simplex.

    Attributes:
        alpha: their concentrations.
        theta0: where their unnormalised θ starts, or ``None``.
        store_unnormalised: keep θ with each draw.
    """

    alpha: Any
    theta0: Any = None
    store_unnormalised: bool = False

    def __post_init__(self) -> None:
        flag("store_unnormalised", self.store_unnormalised)


def read_simplex(
    given: SimplexArguments | None, params: list[dict[str, np.ndarray]], dtype: tf.DType
) -> tuple[dict[str, np.ndarray] | None, dict[str, np.ndarray]]:
    """Return the concentrations of the points of the simplex, and where their θ start.

    Args:
        given: what the user says of them; ``None`` for methods that know no such points.
        params: the starting values, a dict for each start.
        dtype: of the chain.
    """
    if given is None:
        return None, {}
    alpha = read_alpha(given.alpha, params[0])
    check_starts(params, alpha)
    return alpha, read_theta0(given.theta0, alpha, dtype)


def read_alpha(alpha: Any, start: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the concentrations of each parameter that is a point of the simplex.

    Args:
        alpha: a number or an array, for all parameters, or a dict.
        start: the starting values, for names and shapes.
    """
    if isinstance(alpha, Mapping):
        if not alpha:
            raise ValueError("`alpha` is an empty dict: it must name the points of the simplex.")
        known_keys("alpha", alpha, start, "the parameters are")
        entries = {f"alpha[{name!r}]": (name, value) for name, value in alpha.items()}
        return {name: _read_one(label, v, start[name]) for label, (name, v) in entries.items()}
    return {name: _read_one("alpha", alpha, value) for name, value in start.items()}


def _read_one(label: str, alpha: Any, start: np.ndarray) -> np.ndarray:
    array = as_numbers(label, alpha).astype(np.float64)
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError(
            f"`{label}`: Dirichlet concentrations must be positive and finite; it is "
            f"{describe(alpha)}."
        )
    try:
        return np.broadcast_to(array, start.shape)
    except ValueError:
        raise ValueError(
            f"`{label}` has shape {array.shape}, which does not fit the parameter's {start.shape}."
        ) from None


def check_starts(starts: list[dict[str, np.ndarray]], names: Mapping[str, Any]) -> None:
    """Raise an error where a start is off the simplex.

    Args:
        starts: the starting values, a dict for each start.
        names: the parameters that are points of the simplex.
    """
    for number, start in enumerate(starts):
        for name in names:
            value = start[name]
            label = f"params[{name!r}]" if len(starts) == 1 else f"params[{number}][{name!r}]"
            if value.ndim == 0:
                raise ValueError(
                    f"`{label}` is a single number; a point of the simplex, which `alpha` says "
                    "it is, has its components along the last axis."
                )
            sums = value.sum(-1, dtype=np.float64)
            if (value < 0).any() or (np.abs(sums - 1.0) > _ROUNDING).any():
                worst = float(sums.flat[np.argmax(np.abs(sums - 1.0))])
                found = (
                    f"its smallest component is {float(value.min()):g}"
                    if (value < 0).any()
                    else f"its components sum to {worst:g}"
                )
                raise ValueError(
                    f"`{label}` must start on the simplex, along its last axis: components not "
                    f"negative, with sum 1; {found}. A parameter that is no point of the simplex "
                    "must not be named in `alpha`, which then has to be a dict."
                )


def read_theta0(
    theta0: Any, alpha: Mapping[str, np.ndarray], dtype: tf.DType
) -> dict[str, np.ndarray]:
    """Return where the unnormalised θ of some parameters start."""
    if theta0 is None:
        return {}
    if not isinstance(theta0, Mapping):
        raise TypeError(
            f"`theta0` must be a dict of the unnormalised starts of points of the simplex; it is "
            f"{describe(theta0)}."
        )
    known_keys("theta0", theta0, alpha, "`alpha` names")
    start = read_start("theta0", theta0, dtype)
    for name, value in start.items():
        if value.shape != alpha[name].shape:
            raise ValueError(
                f"`theta0[{name!r}]` has shape {value.shape}; the parameter has "
                f"{alpha[name].shape}."
            )
        if not (value > 0).all():
            raise ValueError(
                f"`theta0[{name!r}]` must be positive; its smallest component is "
                f"{float(value.min()):g}."
            )
    return start
