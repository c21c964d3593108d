"""Which models were found without silent mistakes before, so that they need not be tried again."""

from __future__ import annotations

import functools
import hashlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors

_MOST, _ROWS = 64, 512
"""How many models are kept, and how many of their rows tell them apart."""

Functions = tuple[Callable[..., Any] | None, ...]

_contents: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_of_data: weakref.WeakKeyDictionary[Data, list[tuple[list[Callable[[], Any]], bool]]]
_of_data = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Tried:
    """A model, for which the same one in an earlier call stands.

    The same are: the same functions with the same dataset, as a call comes by them more than once;
    and functions of the same code that made the same graph, on the same rows. What draws random
    numbers makes another graph each time.

    Args:
        functions: the user's.
        data: the dataset.
        graph: that of the functions on some rows.
        columns: these rows.
        in_parts: whether the dataset is taken in parts, which more is asked of.
    """

    def __init__(
        self, functions: Functions, data: Data, graph: Any, columns: Tensors, in_parts: bool
    ) -> None:
        self._functions, self._data, self._graph = functions, data, graph
        self._in_parts = in_parts
        self._content: tuple[Any, ...] | None = None
        codes = [_code(function) for function in functions]
        if None not in codes:
            self._content = (id(graph), tuple(codes), _digest(columns), in_parts)

    @property
    def before(self) -> bool:
        """Whether it was."""
        with _lock:
            for references, in_parts in _of_data.get(self._data, ()):
                pairs = zip(references, self._functions, strict=True)
                if in_parts >= self._in_parts and all(a() is b for a, b in pairs):
                    return True
            return self._content is not None and self._content in _contents

    def remember(self) -> None:
        """Take it for one that was."""
        with _lock:
            references = [_reference(function) for function in self._functions]
            _of_data.setdefault(self._data, []).append((references, self._in_parts))
            if self._content is not None:
                _contents[self._content] = self._graph  # as long as it lives none else has its id
                if len(_contents) > _MOST:
                    _contents.popitem(last=False)


def _reference(function: Callable[..., Any] | None) -> Callable[[], Any]:
    """Return what gives a function as long as somebody else holds it."""
    try:
        return weakref.ref(function) if function is not None else lambda: None
    except TypeError:  # there are no weak references to some objects
        return object


def _code(function: Callable[..., Any] | None) -> CodeType | str | None:
    """Return the code of a function, or ``None`` where there is no telling."""
    if function is None:
        return "none"
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _digest(columns: Tensors) -> bytes:
    """Return what distinguishes the first rows from others."""
    found = hashlib.sha256()
    for tensor in tf.nest.flatten(columns, expand_composites=True):
        array = np.ascontiguousarray(tensor.numpy()[:_ROWS] if tensor.shape.rank else tensor)
        found.update(f"{tensor.shape} {array.dtype}".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.digest()
