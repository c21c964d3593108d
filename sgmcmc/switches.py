"""Environment variables that switch a fast path off, for finding out whether it is to blame.

Each is off by itself; ``1`` switches it on.

``SGMCMC_NO_NATIVE``
    Minibatches are copied by NumPy and XLA, not by the package's own native code.
``SGMCMC_COPY_BLOCKS``
    TensorFlow is handed a copy of each prepared block, not the memory that NumPy wrote.
``SGMCMC_PUBLIC_CALLS``
    Compiled graphs are called through TensorFlow's public interface alone.
``SGMCMC_TENSORFLOW_LOG``
    TensorFlow's own log lines reach the terminal as they come.
"""

from __future__ import annotations

import os


def _on(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


def no_native() -> bool:
    """Tell whether native code is switched off."""
    return _on("SGMCMC_NO_NATIVE")


def copy_blocks() -> bool:
    """Tell whether prepared blocks are to be copied."""
    return _on("SGMCMC_COPY_BLOCKS")


def public_calls() -> bool:
    """Tell whether graphs are to be called through the public interface alone."""
    return _on("SGMCMC_PUBLIC_CALLS")


def tensorflow_log() -> bool:
    """Tell whether TensorFlow's log is to be left alone."""
    return _on("SGMCMC_TENSORFLOW_LOG")
