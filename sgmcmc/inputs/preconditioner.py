"""The preconditioner: numbers over the whole position, or by parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.checks import known_keys
from sgmcmc.data.dataset import digest
from sgmcmc.inputs.arrays import as_numbers
from sgmcmc.target.geometry import Preconditioner, Space
from sgmcmc.words import describe

_ROUNDING = 1e-6
"""How far from symmetric a matrix may be, as a part of its largest entry."""


def read_preconditioner(value: Any, space: Space, start: np.ndarray) -> Preconditioner | None:
    """Return the preconditioner M = CCᵀ, or ``None`` for none.

    Args:
        value: the user's: "none" or ``None``, p or p × p numbers, or a dict of such by parameter.
        space: where the parameters live, without a preconditioner.
        start: where the chain starts, which becomes the origin.
    """
    if value is None or (isinstance(value, str) and value == "none"):
        return None
    if isinstance(value, Preconditioner):
        return value
    if isinstance(value, str):
        raise ValueError(
            "`preconditioner` must be 'none', 'dense', 'diagonal', an array of p or p × p numbers "
            f"(p = {space.layout.size}), or a dict of arrays by parameter; it is {value!r}."
        )
    if isinstance(value, Mapping):
        matrix = _by_parameter(value, space)
    else:
        matrix = _one_array("preconditioner", value, space.layout.size, ())
    _need_whole_space(value, space)
    return Preconditioner(_root(matrix), _origin(value, space, start))


def _by_parameter(value: Mapping[str, Any], space: Space) -> np.ndarray:
    """Return the numbers of all coordinates: the identity where a parameter is not named."""
    layout = space.layout
    known_keys("preconditioner", value, layout.names, "the parameters are")
    blocks = {
        name: _one_array(
            f"preconditioner[{name!r}]", entry, layout.sizes[name], layout.shapes[name]
        )
        for name, entry in value.items()
    }
    diagonal = np.ones(layout.size)
    if all(block.ndim == 1 for block in blocks.values()):
        for name, block in blocks.items():
            diagonal[layout.slices[name]] = block
        return diagonal
    matrix = np.diag(diagonal)
    for name, block in blocks.items():
        place = layout.slices[name]
        matrix[place, place] = block if block.ndim == 2 else np.diag(block)
    return matrix


def _one_array(label: str, value: Any, size: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return one entry as a vector or a matrix in float64, known to be positive."""
    array = as_numbers(label, value).astype(np.float64)
    if array.shape == shape:
        array = array.reshape(-1)
    if array.shape not in ((size,), (size, size)):
        raise ValueError(
            f"`{label}` must hold {size} or {size} × {size} numbers; it is {describe(array)}."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"`{label}` must hold finite numbers.")
    if array.ndim == 1:
        if not (array > 0).all():
            raise ValueError(
                f"`{label}` must hold positive numbers, variances; its smallest is "
                f"{float(array.min()):g}."
            )
        return array
    if np.abs(array - array.T).max() > _ROUNDING * np.abs(array).max():
        raise ValueError(f"`{label}` must be a symmetric matrix, a covariance.")
    if np.linalg.eigvalsh(array)[0] <= 0:
        raise ValueError(
            f"`{label}` must be positive definite; its smallest eigenvalue is "
            f"{float(np.linalg.eigvalsh(array)[0]):g}."
        )
    return (array + array.T) / 2


def _origin(value: Any, space: Space, start: np.ndarray) -> np.ndarray:
    """Return û: the start, but zero where a parameter is not named, whose coordinates stay."""
    origin = np.array(start)
    if isinstance(value, Mapping):
        for name in set(space.layout.names) - set(value):
            origin[space.layout.slices[name]] = 0.0
    return origin


def _need_whole_space(value: Any, space: Space) -> None:
    """Raise an error where a parameter is preconditioned that has coordinates of its own kind."""
    for name in value if isinstance(value, Mapping) else space.layout.names:
        if not space.geometries[name].affine:
            raise ValueError(
                f"`preconditioner`: {name!r} moves in coordinates of its own, which cannot be "
                "preconditioned. Give a dict that names the other parameters."
            )


def _root(matrix: np.ndarray) -> np.ndarray:
    return np.sqrt(matrix) if matrix.ndim == 1 else np.linalg.cholesky(matrix)


def preconditioner_setting(preconditioner: Preconditioner | None) -> Any:
    """Return variances or covariance, if few, else what distinguishes them from others."""
    if preconditioner is None:
        return "none"
    root = preconditioner.root
    covariance = root @ root.T if preconditioner.dense else root**2
    return covariance.tolist() if root.size <= 64 else digest(covariance)
