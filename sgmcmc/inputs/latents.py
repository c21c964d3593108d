"""Latent variables: the user's function and the starts of those that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.gradients.latents import Gibbs, Latents
from sgmcmc.inputs.arrays import as_numbers
from sgmcmc.words import describe


def read_latents(
    gibbs: Gibbs | None, latents: Mapping[str, Any], data: Data, dtype: tf.DType
) -> Latents | None:
    """Return what draws the latent variables, or ``None`` where there are none.

    Kept values that are whole numbers stay whole numbers, for they are mostly labels; others
    become ``dtype``. A tensor keeps its own. A function may have an attribute ``advice``: what to
    tell the user of a chain that became NaN.
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
