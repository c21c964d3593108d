"""An equation of a jaxpr, as the rules for its primitive see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Equation(NamedTuple):
    """An equation of a jaxpr, less its inputs.

    Attributes:
        primitive: Primitive.
        params: Its parameters.
        shapes: Shape of each output, where a length that is not known is a tensor.
        dtypes: Dtype of each output.
        replay: Function that computes another jaxpr from its inputs.
    """

    primitive: Any
    params: Mapping[str, Any]
    shapes: Sequence[list[Any]]
    dtypes: Sequence[Any]
    replay: Callable[..., list[Any]]


Rule = Callable[..., Any]


def equation_dtype(value: Any) -> np.dtype:
    """Return the dtype of a tensor or an array."""
    return np.dtype(value.dtype if isinstance(value, np.ndarray) else value.dtype.as_numpy_dtype)


def as_tensors(values: Sequence[Any]) -> list[tf.Tensor]:
    """Return tensors or arrays as tensors."""
    return [tf.convert_to_tensor(value) for value in values]
