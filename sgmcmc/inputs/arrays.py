"""The starting values, and the dataset through `sgmcmc.data.reading`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, known_keys
from sgmcmc.data.dataset import Data
from sgmcmc.data.entries import as_numbers, refuse_overflow
from sgmcmc.data.reading import read_dataset
from sgmcmc.gradients.latents import Gibbs, Latents
from sgmcmc.inputs.options import Options

__all__ = [
    "as_numbers",
    "broadcast",
    "read_columns",
    "read_dataset",
    "read_params",
    "read_start",
]


def read_columns(dataset: Any, options: Options) -> Data:
    """Return the dataset of the chains, with the user's executors for passes over it."""
    data = read_dataset(dataset, options.dtype, options.integers, options.storage)
    known_keys(
        "integers", options.integers, data.columns, "the columns of `dataset` are"
    )
    return data.on(options.executor)


def read_params(
    params: Any, n_chains: int | None, dtype: tf.DType
) -> list[dict[str, np.ndarray]]:
    """Return the starting values, a dict for each start."""
    if isinstance(params, Mapping):
        return [read_start("params", params, dtype)]
    if not isinstance(params, list | tuple):
        raise TypeError(
            f"`params` must be a dict of starting values, or a list of such dicts, one for each "
            f"chain; it is {describe(params)}."
        )
    if not params:
        raise ValueError(
            "`params` is an empty list: it must hold a dict for each chain."
        )
    if n_chains is None or len(params) != n_chains:
        raise ValueError(
            f"`params` is a list of {len(params)} starts, so `n_chains` must be {len(params)}; "
            f"it is {n_chains}."
        )
    for number, start in enumerate(params):
        if not isinstance(start, Mapping):
            raise TypeError(
                f"`params[{number}]` must be a dict; it is {describe(start)}."
            )
    starts = [
        read_start(f"params[{i}]", start, dtype) for i, start in enumerate(params)
    ]
    shapes = [{name: value.shape for name, value in start.items()} for start in starts]
    for number, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(
                f"`params`: every start must have the same names and shapes; params[0] has "
                f"{shapes[0]}, params[{number}] has {shape}."
            )
    return [{name: start[name] for name in starts[0]} for start in starts]


def broadcast(label: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array in the shape of its parameter.

    Raises:
        ValueError: It does not fit; ``label`` is what the user calls it.
    """
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"`{label}` has shape {array.shape}, which does not fit the parameter's {shape}."
        ) from None


def read_start(
    label: str, params: Mapping[Any, Any], dtype: tf.DType
) -> dict[str, np.ndarray]:
    """Return one dict of starting values."""
    if not params:
        raise ValueError(f"`{label}` is empty: it must name at least one parameter.")
    start = {}
    for name, value in params.items():
        if not isinstance(name, str):
            raise TypeError(f"`{label}`: its keys must be strings; {name!r} is not.")
        array = as_numbers(f"{label}[{name!r}]", value)
        if array.size == 0:
            raise ValueError(
                f"`{label}[{name!r}]` has shape {array.shape}: nothing to sample."
            )
        if array.dtype.kind == "f":
            refuse_overflow(f"{label}[{name!r}]", array, dtype)
        # A copy, so that the chain cannot change the user's array, or the reverse.
        start[name] = np.array(array, dtype=dtype.as_numpy_dtype, order="C")
        if not np.isfinite(start[name]).all():
            raise ValueError(
                f"`{label}[{name!r}]`: starting values must be finite; {value!r} is not."
            )
    _need_names(label, start)
    return start


# Axes of draws in ArviZ, which parameters cannot share their names with.
_AXES = ("chain", "draw")


def _need_names(label: str, start: Mapping[str, np.ndarray]) -> None:
    """Refuse names under which two coordinates would be one in summaries and reports."""
    for name in start:
        if not name.strip():
            raise ValueError(
                f"`{label}`: {name!r} is no name. Give the parameter another one."
            )
        if name in _AXES:
            raise ValueError(
                f"`{label}`: {name!r} is the name of an axis of the draws. Give the parameter "
                "another one."
            )
        match = re.fullmatch(r"(.+)\[(\d+(?:, \d+)*)\]", name, re.DOTALL)
        indices = tuple(map(int, match[2].split(", "))) if match else ()
        shape = start[match[1]].shape if match and match[1] in start else ()
        inside = all(index < size for index, size in zip(indices, shape, strict=False))
        if match and shape and len(indices) == len(shape) and inside:
            raise ValueError(
                f"`{label}`: {name!r} is also the name of a coordinate of {match[1]!r}. Give one "
                "of them another name."
            )
        axis = re.fullmatch(r"(.+)_dim_(\d+)", name, re.DOTALL)
        if axis and axis[1] in start and int(axis[2]) < start[axis[1]].ndim:
            raise ValueError(
                f"`{label}`: {name!r} is also the name of an axis of {axis[1]!r}. Give one of them "
                "another name."
            )


def read_latents(
    gibbs: Gibbs | None, latents: Mapping[str, Any], data: Data, dtype: tf.DType
) -> Latents | None:
    """Return the function that draws latent variables, or ``None`` if there are none.

    Kept values that are integers stay integers, because they are mostly labels; others become
    ``dtype``. A tensor keeps its own. A function may have an attribute ``advice`` for the user of a
    chain that became NaN.
    """
    if gibbs is None:
        return None
    starts = {}
    for name, values in latents.items():
        label = f"latents[{name!r}]"
        if name in data.columns:
            raise ValueError(f"`{label}`: `dataset` has a column of that name.")
        array = as_numbers(label, values)
        if array.ndim == 0 or array.shape[0] != data.size:
            raise ValueError(
                f"`{label}` must hold a value for each of the {data.size} observations; it is "
                f"{describe(array)}."
            )
        if array.dtype.kind == "f":
            if not np.isfinite(array).all():
                raise ValueError(f"`{label}`: starting values must be finite.")
            if not tf.is_tensor(values):
                array = array.astype(dtype.as_numpy_dtype)
        starts[name] = np.array(array, order="C")
    return Latents(gibbs, starts, getattr(gibbs, "advice", None))
