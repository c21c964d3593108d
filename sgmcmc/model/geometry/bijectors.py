"""Bijectors of TensorFlow Probability, in the floating point type of a chain."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.model.geometry.base import Geometry

_CACHE_LOCK = threading.RLock()  # while bijectors cache in a storage of their own


@contextmanager
def _own_cache(bijector: Any) -> Iterator[None]:
    """Have a bijector forget at the end what it caches.

    TFP keeps the last inputs, outputs and Jacobians of all bijectors in one place, where those of
    one graph would be handed out in another, and keep it in memory as long as the process lives.
    """
    cache = inspect.getattr_static(type(bijector), "_cache", None)
    storage = getattr(cache, "storage", None)
    if cache is None or storage is None:
        yield
        return
    with _CACHE_LOCK:
        cache.storage = type(storage)()
        try:
            yield
        finally:
            cache.storage = storage


class Bijected(Geometry):
    """θ = f(u), with log |det f'(u)| added to the log posterior.

    Args:
        bijector: f, a TFP bijector.
        shape: Shape of θ.
    """

    in_place = False

    def __init__(self, bijector: Any, shape: tuple[int, ...]) -> None:
        self.bijector = bijector
        self._rank = len(self.coordinate_shape(shape))

    def coordinate_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of u for a parameter of this shape."""
        return tuple(self.bijector.inverse_event_shape(tf.TensorShape(shape)).as_list())

    def start(self, value: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return f⁻¹(θ)."""
        return self.bijector.inverse(tf.constant(value, dtype)).numpy()

    def constrain(self, u: tf.Tensor) -> tf.Tensor:
        """Return f(u)."""
        with _own_cache(self.bijector):
            return self.bijector.forward(u)

    def of_point(self, point: tf.Tensor) -> tf.Tensor:
        """Return f(u); gradients are computed with respect to u."""
        return self.constrain(point)

    def log_jacobian(self, u: tf.Tensor) -> tf.Tensor:
        """Return log |det f'(u)|."""
        with _own_cache(self.bijector):
            log_det = self.bijector.forward_log_det_jacobian(u, event_ndims=self._rank)
        return tf.reduce_sum(log_det)


# Parts of the names of parameters that stay integers.
_NO_CONSTANTS = ("axis", "ndims", "shape", "permutation", "num_", "size", "idx", "perm")


def fitting(bijector: Any, value: np.ndarray, dtype: tf.DType) -> Any:
    """Return the bijector, with its constants in a dtype if it cannot map values of it else.

    Constants of Python become float32 in TFP, which then refuses tensors of float64.

    Args:
        bijector: Bijector of TFP.
        value: Value in its range.
        dtype: Floating point type of the chain.

    Raises:
        Exception: It cannot map the value; the error is that of TFP.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> import tensorflow_probability as tfp
        >>> above = fitting(tfp.bijectors.Softplus(low=0.1), np.array(2.0), tf.float64)
        >>> float(above.forward(tf.constant(-100.0, tf.float64)))
        0.1
    """
    try:
        _try(bijector, value, dtype)
    except Exception:
        for integers in (False, True):
            converted = in_dtype(bijector, dtype, integers)
            try:
                _try(converted, value, dtype)
            except Exception:
                continue
            return converted
        raise
    return bijector


def _try(bijector: Any, value: np.ndarray, dtype: tf.DType) -> None:
    """Map a value there and back, and compute the Jacobian."""
    rank = len(bijector.inverse_event_shape(tf.TensorShape(value.shape)).as_list())
    free = bijector.inverse(tf.constant(value, dtype))
    bijector.forward(tf.identity(free))
    bijector.forward_log_det_jacobian(tf.identity(free), event_ndims=rank)


def in_dtype(bijector: Any, dtype: tf.DType, integers: bool = False) -> Any:
    """Return a bijector made of the same parameters, with constants in a dtype.

    Variables, and bijectors that cannot be made again, stay as they are.

    Args:
        bijector: Bijector of TFP.
        dtype: Floating point type.
        integers: Whether to convert integers too, such as those of ``Sigmoid(0, 1)``.
    """
    parameters = getattr(bijector, "parameters", None)
    if not isinstance(parameters, Mapping):
        return bijector
    parameters = {name: value for name, value in parameters.items() if name != "self"}
    changed = {}
    for name, value in parameters.items():
        are_constants = integers and not any(word in name for word in _NO_CONSTANTS)
        changed[name] = _converted(value, dtype, integers, are_constants)
    if all(changed[name] is parameters[name] for name in parameters):
        return bijector
    try:
        return type(bijector)(**changed)
    except Exception:
        return bijector  # the constructor has other arguments than it keeps


def _converted(value: Any, dtype: tf.DType, nested: bool, integers: bool) -> Any:
    """Return a parameter of a bijector with its numbers in a dtype.

    Args:
        value: Parameter.
        dtype: Floating point type.
        nested: Whether to convert the integers of bijectors within it.
        integers: Whether to convert integers.
    """
    if hasattr(value, "forward_log_det_jacobian"):
        return in_dtype(value, dtype, nested)
    if isinstance(value, list | tuple) and any(
        hasattr(entry, "forward_log_det_jacobian") for entry in value
    ):
        return type(value)(in_dtype(entry, dtype, nested) for entry in value)
    if isinstance(value, bool | str | tf.Variable) or value is None:
        return value
    if isinstance(value, tf.DType):
        return dtype if value.is_floating else value
    if isinstance(value, tf.Tensor):
        return tf.cast(value, dtype) if value.dtype.is_floating else value
    if not isinstance(value, int | float | list | tuple | np.ndarray | np.number):
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        return value
    return (
        tf.constant(array, dtype)
        if array.dtype.kind in ("fiu" if integers else "f")
        else value
    )
