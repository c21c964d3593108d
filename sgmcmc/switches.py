"""Environment variables for finding out what is to blame.

The first five switch something off that makes chains faster or quieter: ``1`` does it.

``SGMCMC_NO_NATIVE``
    NumPy and XLA copy minibatches and make random numbers, not the package's own native code.
``SGMCMC_COPY_BLOCKS``
    TensorFlow is handed a copy of each prepared block, not the memory that NumPy wrote.
``SGMCMC_PUBLIC_CALLS``
    Compiled graphs are called through TensorFlow's public interface alone.
``SGMCMC_NO_GROUPS``
    Each chain has its own kernel, however many there are.
``SGMCMC_TENSORFLOW_LOG``
    TensorFlow's own log lines reach the terminal as they come.
``SGMCMC_SILENT_SECONDS``
    How long a call may stand still, computing nothing, before it ends with a ``TimeoutError`` and
    the stacks of all threads; 0 is for ever. By itself 300, and for ever where there is a GPU.
"""

from __future__ import annotations

import os


def _on(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


def no_native() -> bool:
    """Return whether native code is switched off."""
    return _on("SGMCMC_NO_NATIVE")


def copy_blocks() -> bool:
    """Return whether prepared blocks are to be copied."""
    return _on("SGMCMC_COPY_BLOCKS")


def public_calls() -> bool:
    """Return whether graphs are to be called through the public interface alone."""
    return _on("SGMCMC_PUBLIC_CALLS")


def no_groups() -> bool:
    """Return whether each chain is to have its own kernel."""
    return _on("SGMCMC_NO_GROUPS")


def tensorflow_log() -> bool:
    """Return whether TensorFlow's log is to be left alone."""
    return _on("SGMCMC_TENSORFLOW_LOG")


def silent_seconds() -> float | None:
    """Return how long a call may stand still, or ``None`` where nobody has set it."""
    try:
        return max(0.0, float(os.environ["SGMCMC_SILENT_SECONDS"]))
    except (KeyError, ValueError):
        return None
