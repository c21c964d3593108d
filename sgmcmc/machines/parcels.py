"""Objects in the form in which they are sent to workers, with the functions that users wrote.

Such functions are lambdas and closures, which only cloudpickle can send. What is large and shared
by many objects, a dataset, is not sent with each of them: they name it by a key, under which a
worker keeps it.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import cloudpickle
import tensorflow as tf

from sgmcmc.words import describe

Courier = Callable[[Any], tuple[str, Callable[[], Any]]]
"""Tells of a shared object the key, and how to make what unpickles to it."""


class Parcel(NamedTuple):
    """An object that is ready to be sent.

    Attributes:
        key: names it.
        blob: the object, pickled.
        needs: the shared objects that it names, by key, each with what makes its own blob.
    """

    key: str
    blob: bytes
    needs: Mapping[str, Callable[[], bytes]]


def pack(thing: Any, couriers: Mapping[type, Courier]) -> Parcel:
    """Return an object as a parcel.

    Raises:
        TypeError: something of it cannot leave the process.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, couriers)
    try:
        pickler.dump(thing)
    except Exception as error:
        raise TypeError(
            "`executor`: something that your functions use cannot be sent to workers: "
            f"{_reason(error)}. Functions may use numbers, arrays, tensors, variables and other "
            "functions; locks, open files, sessions and traced graphs stay in their process: make "
            "them inside the function."
        ) from error
    blob = file.getvalue()
    return Parcel(hashlib.sha256(blob).hexdigest(), blob, pickler.needs)


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text else describe(error)


class _Pickler(cloudpickle.Pickler):
    """Pickles functions and classes by value where need be, and shared objects by their keys."""

    def __init__(self, file: io.BytesIO, couriers: Mapping[type, Courier]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._couriers = couriers
        self.needs: dict[str, Callable[[], bytes]] = {}

    def persistent_id(self, obj: Any) -> str | None:
        """Return the key of a shared object; ``None`` for all others."""
        courier = self._couriers.get(type(obj))
        if courier is None:
            return None
        key, recipe = courier(obj)
        self.needs[key] = lambda: pack(recipe(), {}).blob
        return key

    def reducer_override(self, obj: Any) -> Any:
        """Return how to make those objects again that do not pickle by themselves."""
        if isinstance(obj, tf.types.experimental.PolymorphicFunction):
            return _compiled, (obj.python_function, getattr(obj, "_autograph", True))
        probability = sys.modules.get("tensorflow_probability")
        if probability is not None and isinstance(obj, probability.bijectors.Invert):
            return type(obj), (obj.bijector,)
        return super().reducer_override(obj)


def _compiled(function: Callable[..., Any], autograph: bool) -> Any:
    return tf.function(function, autograph=autograph)


class Unpickler(pickle.Unpickler):
    """Makes an object of its blob.

    Args:
        blob: the object, pickled.
        shared: the shared objects that it names, by key.
    """

    def __init__(self, blob: bytes, shared: Mapping[str, Any]) -> None:
        super().__init__(io.BytesIO(blob))
        self._shared = shared

    def persistent_load(self, key: str) -> Any:
        """Return a shared object."""
        return self._shared[key]
