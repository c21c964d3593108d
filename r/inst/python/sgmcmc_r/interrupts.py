"""Ctrl-C while Python runs inside R.

R and reticulate share one signal handler, and whichever of R and Python looks first takes the
interrupt. If R does, it jumps out of the middle of a running chain. So during a call Ctrl-C is
Python's alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
from collections.abc import Iterator

# What the process itself calls, which `signal.signal` replaces without telling what was there.
_get = ctypes.pythonapi.PyOS_getsig
_get.restype, _get.argtypes = ctypes.c_void_p, (ctypes.c_int,)
_set = ctypes.pythonapi.PyOS_setsig
_set.restype, _set.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)


@contextlib.contextmanager
def are_pythons() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` inside the ``with`` block, and be R's again after."""
    of_process = _get(signal.SIGINT)
    of_python = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, of_python)
        _set(signal.SIGINT, of_process)
