"""What runs in a worker: one function, and what the worker keeps between calls of it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sgmcmc.machines.parcels import Unpickler

_THINGS, _SHARED = 8, 2
"""How many objects, and how many of those that they share, are kept: those used last."""

at_hand: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""Shared objects of this very process: workers that are threads of it need no other."""

_things: OrderedDict[str, tuple[Any, tuple[str, ...]]] = OrderedDict()
_shared: OrderedDict[str, Any] = OrderedDict()
_lock = threading.RLock()


class Missing(NamedTuple):
    """The answer of a worker that lacks something.

    Attributes:
        worker: which.
        keys: what it lacks.
    """

    worker: str
    keys: tuple[str, ...]


def ready() -> bool:
    """Tell that a worker is there; to be called, it has to have imported the package."""
    _leave_interrupts()
    return True


def work(
    key: str, needs: Sequence[str], blobs: Mapping[str, bytes], method: str, arguments: Any
) -> Any:
    """Return what a method of an object returns, or say what is missing for it.

    Args:
        key: names the object.
        needs: names the shared objects that it is made with.
        blobs: what of these is sent along, pickled.
        method: name of the method.
        arguments: its arguments.
    """
    _leave_interrupts()
    with _lock:
        thing = _thing(key, tuple(needs), blobs)
    if isinstance(thing, Missing):
        return thing
    try:
        return getattr(thing, method)(*arguments)
    except Exception as error:
        raise _portable(error) from None


def _thing(key: str, needs: tuple[str, ...], blobs: Mapping[str, bytes]) -> Any:
    """Return an object that is kept, or was sent."""
    if key in _things:
        _things.move_to_end(key)
        return _things[key][0]
    shared = {need: at_hand.get(need, _shared.get(need)) for need in needs}
    lacking = [need for need in needs if shared[need] is None and need not in blobs]
    if key not in blobs or lacking:
        own = [] if key in blobs else [key]
        return Missing(f"{socket.gethostname()} {os.getpid()}", (*own, *lacking))
    for need in needs:
        if shared[need] is None:
            shared[need] = _shared[need] = Unpickler(blobs[need], {}).load()
            while len(_shared) > _SHARED:
                _drop(next(iter(_shared)))
        elif need in _shared:
            _shared.move_to_end(need)
    _things[key] = Unpickler(blobs[key], shared).load(), needs
    while len(_things) > _THINGS:
        _things.popitem(last=False)
    return _things[key][0]


def _drop(need: str) -> None:
    """Forget a shared object, and all that is made with it."""
    del _shared[need]
    for key in [key for key, (_, needs) in _things.items() if need in needs]:
        del _things[key]


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
