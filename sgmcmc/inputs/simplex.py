"""Points of the simplex: their concentrations and where they start."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, known_keys
from sgmcmc.dynamics.simplex import SimplexDynamics
from sgmcmc.inputs.arrays import as_numbers, broadcast, read_start
from sgmcmc.target.geometry.simplex import OnSimplex


def points_of_simplex(
    dynamics: SimplexDynamics,
    start: Mapping[str, np.ndarray],
    others: Container[str],
    dtype: tf.DType,
) -> dict[str, OnSimplex]:
    """Return the geometries of the parameters that are points of the simplex for the dynamics.

    Args:
        dynamics: Dynamics, with the user's settings for such points.
        start: Starting values, for names and shapes.
        others: Parameters that have another space.
        dtype: Dtype of the chain.
    """
    alpha = _read_alpha(dynamics.alpha, start, others)
    theta0 = _read_theta0(dynamics.theta0, alpha, dtype)
    return {name: OnSimplex(value, theta0.get(name)) for name, value in alpha.items()}


def _read_alpha(
    alpha: Any, start: Mapping[str, np.ndarray], others: Container[str]
) -> dict[str, np.ndarray]:
    """Return the concentrations of each parameter that is a point of the simplex.

    Args:
        alpha: Concentrations: a number or an array, for all parameters, or a dict.
        start: Starting values, for names and shapes.
        others: Parameters that have another space.
    """
    if alpha is None:
        if not any(name in others for name in start):
            raise ValueError(
                "`alpha` must be given, the Dirichlet concentrations of points of the simplex, or "
                "`gamma`, the priors of gamma parameters."
            )
        return {}
    if isinstance(alpha, Mapping):
        if not alpha:
            raise ValueError("`alpha` is an empty dict: it must name the points of the simplex.")
        known_keys("alpha", alpha, start, "the parameters are")
        for name in alpha:
            if name in others:
                raise ValueError(f"`alpha` names {name!r}, which has a gamma prior by `gamma`.")
        entries = {f"alpha[{name!r}]": (name, value) for name, value in alpha.items()}
        return {name: _read_one(label, v, start[name]) for label, (name, v) in entries.items()}
    return {
        name: _read_one("alpha", alpha, value)
        for name, value in start.items()
        if name not in others
    }


def _read_one(label: str, alpha: Any, start: np.ndarray) -> np.ndarray:
    array = as_numbers(label, alpha).astype(np.float64)
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError(
            f"`{label}`: Dirichlet concentrations must be positive and finite; it is "
            f"{describe(alpha)}."
        )
    return broadcast(label, array, start.shape)


def _read_theta0(
    theta0: Any, alpha: Mapping[str, np.ndarray], dtype: tf.DType
) -> dict[str, np.ndarray]:
    """Return where the unnormalized θ of some parameters start."""
    if theta0 is None:
        return {}
    if not isinstance(theta0, Mapping):
        raise TypeError(
            f"`theta0` must be a dict of the unnormalized starts of points of the simplex; it is "
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
