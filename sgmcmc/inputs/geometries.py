"""The spaces that parameters live in: bijectors, and what the dynamics say of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics import Dynamics
from sgmcmc.dynamics.simplex import SimplexDynamics
from sgmcmc.graphs.user_functions import first_lines
from sgmcmc.inputs.gamma import gamma_parameters
from sgmcmc.inputs.simplex import points_of_simplex
from sgmcmc.manifolds import Manifold
from sgmcmc.target.geometry import Bijected, Geometry
from sgmcmc.target.geometry.simplex import OnSimplex


def read_geometries(
    bijectors: Mapping[str, Any],
    manifolds: Mapping[str, Manifold],
    dynamics: Dynamics,
    starts: list[dict[str, np.ndarray]],
    dtype: tf.DType,
) -> dict[str, Geometry]:
    """Return the geometry of each parameter that does not live in the whole of ℝᵈ.

    The starting values are known to be of these spaces then.
    """
    geometries: dict[str, Geometry] = {}
    if isinstance(dynamics, SimplexDynamics):
        gamma = getattr(dynamics, "gamma", None)
        geometries |= gamma_parameters(gamma, starts[0])
        geometries |= points_of_simplex(dynamics, starts[0], geometries, dtype)
    geometries |= manifolds
    for name, bijector in bijectors.items():
        if name in geometries:
            if name in manifolds:
                raise ValueError(
                    f"`bijectors` names {name!r}, which `manifolds` names too; a parameter on a "
                    "manifold needs no bijector."
                )
            raise ValueError(
                f"`bijectors` names {name!r}, which `alpha` says is a point of the simplex; "
                "such a parameter needs no bijector."
                if isinstance(geometries[name], OnSimplex)
                else f"`bijectors` names {name!r}, which has a gamma prior by `gamma`; such a "
                "parameter needs no bijector."
            )
        for number, start in enumerate(starts):
            _try_bijector(_label(starts, number, name), name, bijector, start[name], dtype)
        geometries[name] = Bijected(bijector, starts[0][name].shape)
    for number, start in enumerate(starts):
        for name, geometry in geometries.items():
            geometry.check(_label(starts, number, name), start[name], dtype)
    return geometries


def _label(starts: list[dict[str, np.ndarray]], number: int, name: str) -> str:
    """Return what a starting value is called in messages."""
    return f"params[{name!r}]" if len(starts) == 1 else f"params[{number}][{name!r}]"


def _try_bijector(start: str, name: str, bijector: Any, value: np.ndarray, dtype: tf.DType) -> None:
    try:
        rank = len(bijector.inverse_event_shape(tf.TensorShape(value.shape)).as_list())
        free = bijector.inverse(tf.constant(value, dtype))
        back = bijector.forward(tf.identity(free)).numpy()
        bijector.forward_log_det_jacobian(tf.identity(free), event_ndims=rank)
    except Exception as error:
        raise ValueError(
            f"`bijectors[{name!r}]` cannot be applied to `{start}`, of shape {value.shape} and "
            f"dtype {dtype.name}. {first_lines(error)}"
        ) from error
    good = np.isfinite(free.numpy()).all() and back.shape == value.shape
    if not (good and np.allclose(back, value, rtol=1e-2, atol=1e-4)):
        raise ValueError(
            f"`{start}` must start inside the range of its bijector {bijector.name!r}; "
            f"{value.tolist()!r} is not."
        )
