"""Processes that were forked after TensorFlow was used: in them its calls would hang."""

from __future__ import annotations

import os
import sys

_FORKED = (
    "This process was forked from one in which TensorFlow had run, and TensorFlow does not survive "
    "that: its threads are gone, and a call would wait for them for ever. Start processes with "
    'multiprocessing.get_context("spawn") or "forkserver", or joblib\'s backend="loky"; or fork '
    "before the first call of sgmcmc and TensorFlow."
)

_lost = False


def need_no_fork() -> None:
    """Raise an error in a process that was forked after TensorFlow had started its threads.

    Raises:
        RuntimeError: It is one.
    """
    if _lost:
        raise RuntimeError(_FORKED)


def _note() -> None:
    global _lost
    _lost = _lost or _has_started()


def _has_started() -> bool:
    """Return whether TensorFlow has threads in this process, by an attribute that is not public."""
    module = sys.modules.get("tensorflow.python.eager.context")
    context = getattr(module, "_context", None)
    return bool(getattr(context, "_initialized", False))


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_note)
