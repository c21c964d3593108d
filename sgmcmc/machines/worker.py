"""Code that runs in a worker, and the form in which objects are sent there.

The functions that users wrote are lambdas and closures, which only cloudpickle can send. What is
large and shared by many objects, a dataset, is not sent with each of them: they name it by a key,
under which a worker keeps it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import tensorflow as tf

from sgmcmc.checks import describe

PickleRecipe = Callable[[Any], tuple[str, Callable[[], Any]]]
"""Gives the key of a shared object, and the recipe for making what unpickles to it."""


class PickledObject(NamedTuple):
    """An object that is ready to be sent.

    Attributes:
        key: Key of the object.
        blob: Pickled object.
        needs: Shared objects that it refers to, by key, each with the function that makes its own
            blob.
    """

    key: str
    blob: bytes
    needs: Mapping[str, Callable[[], bytes]]


def pack(obj: Any, recipes: Mapping[type, PickleRecipe]) -> PickledObject:
    """Return an object as it is sent.

    Raises:
        TypeError: Something of it cannot leave the process.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, recipes)
    try:
        pickler.dump(obj)
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = lines[0].rstrip(".") if lines else describe(error)
        raise TypeError(
            "`executor`: something that your functions use cannot be sent to workers: "
            f"{reason}. Functions may use numbers, arrays, tensors, variables and other "
            "functions; locks, open files, sessions and traced graphs stay in their process: make "
            "them inside the function."
        ) from error
    blob = file.getvalue()
    return PickledObject(hashlib.sha256(blob).hexdigest(), blob, pickler.needs)


class _Pickler(cloudpickle.Pickler):
    """Pickles functions and classes by value if need be, and shared objects by their keys."""

    def __init__(self, file: io.BytesIO, recipes: Mapping[type, PickleRecipe]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._recipes = recipes
        self.needs: dict[str, Callable[[], bytes]] = {}

    def persistent_id(self, obj: Any) -> str | None:
        """Return the key of a shared object; ``None`` for all others."""
        recipe_of = self._recipes.get(type(obj))
        if recipe_of is None:
            return None
        key, recipe = recipe_of(obj)
        self.needs[key] = lambda: pack(recipe(), {}).blob
        return key

    def reducer_override(self, obj: Any) -> Any:
        """Return the recipes for objects that do not pickle by themselves."""
        if isinstance(obj, tf.types.experimental.PolymorphicFunction):
            return _compiled, (obj.python_function, getattr(obj, "_autograph", True))
        probability = sys.modules.get("tensorflow_probability")
        if probability is not None and isinstance(obj, probability.bijectors.Invert):
            return type(obj), (obj.bijector,)
        return super().reducer_override(obj)


def _compiled(function: Callable[..., Any], autograph: bool) -> Any:
    return tf.function(function, autograph=autograph)


class Unpickler(pickle.Unpickler):
    """Makes an object of its blob and of the shared objects that it names, by key."""

    def __init__(self, blob: bytes, shared: Mapping[str, Any]) -> None:
        super().__init__(io.BytesIO(blob))
        self._shared = shared

    def persistent_load(self, key: str) -> Any:
        """Return a shared object."""
        return self._shared[key]


@dataclass(frozen=True)
class _Settings:
    objects: int = 8  # that a worker keeps, the ones used last
    shared: int = 2  # shared parts of objects that it keeps, the ones used last


_SETTINGS = _Settings()

at_hand: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""Shared objects of this very process: workers that are threads of it need no other."""

_objects: OrderedDict[str, tuple[Any, tuple[str, ...]]] = OrderedDict()
_shared: OrderedDict[str, Any] = OrderedDict()
_lock = threading.RLock()


class Missing(NamedTuple):
    """The answer of a worker that lacks something, by keys."""

    worker: str
    keys: tuple[str, ...]


def ready() -> bool:
    """Return that a worker is there; to be called, it has to have imported the package."""
    _leave_interrupts()
    return True


def work(
    key: str,
    needs: Sequence[str],
    blobs: Mapping[str, bytes],
    method: str,
    arguments: Any,
) -> Any:
    """Return the result of a method of the object ``key``, or the objects that are missing for it.

    ``needs`` names the shared objects that it is made with; ``blobs`` has what was sent along.
    """
    _leave_interrupts()
    with _lock:
        obj = _find_object(key, tuple(needs), blobs)
    if isinstance(obj, Missing):
        return obj
    try:
        return getattr(obj, method)(*arguments)
    except Exception as error:
        raise _portable(error) from None


def _find_object(key: str, needs: tuple[str, ...], blobs: Mapping[str, bytes]) -> Any:
    """Return an object that is kept, or was sent."""
    if key in _objects:
        _objects.move_to_end(key)
        return _objects[key][0]
    shared = {need: at_hand.get(need, _shared.get(need)) for need in needs}
    lacking = [need for need in needs if shared[need] is None and need not in blobs]
    if key not in blobs or lacking:
        missing_key = [] if key in blobs else [key]
        return Missing(
            f"{socket.gethostname()} {os.getpid()}", (*missing_key, *lacking)
        )
    for need in needs:
        if shared[need] is None:
            shared[need] = _shared[need] = Unpickler(blobs[need], {}).load()
            while len(_shared) > _SETTINGS.shared:
                oldest, _ = _shared.popitem(last=False)
                for made in [k for k, (_, used) in _objects.items() if oldest in used]:
                    del _objects[made]
        elif need in _shared:
            _shared.move_to_end(need)
    _objects[key] = Unpickler(blobs[key], shared).load(), needs
    while len(_objects) > _SETTINGS.objects:
        _objects.popitem(last=False)
    return _objects[key][0]


def _portable(error: Exception) -> Exception:
    """Return an error that can go back to the caller."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the process that waits; a terminal sends it to all processes at once."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if multiprocessing.parent_process() is not None and in_main_thread:
        with contextlib.suppress(ValueError, OSError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
