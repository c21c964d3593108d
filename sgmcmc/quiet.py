"""Keeps TensorFlow's start-up chatter off the terminal without touching any setting of the user.

TensorFlow's C++ side writes information lines to file descriptor 2 when it is imported and when
it first compiles. Nothing in Python can filter them there, so the descriptor itself is turned
aside for that moment, and whatever is not known chatter is written to the real one afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator

_CHATTER = re.compile(
    rb"^(I\d{4} |WARNING: All log messages before absl|To enable the following instructions: "
    rb"|E\d{4} .*cuInit|W\d{4} .*(cudart|gpu_device|Cannot dlopen))"
)
# Re-entrant, since a user's function may run inside the block and come back here.
_lock = threading.RLock()


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Hold back TensorFlow's information lines on standard error inside the ``with`` block.

    Lines that are not TensorFlow's start-up chatter are passed on at the end, in order. Where
    standard error is not a plain descriptor nothing is held back.

    Example:
        >>> with without_chatter():
        ...     import tensorflow as tf
    """
    with _lock:
        try:
            sys.stderr.flush()
            real = os.dup(2)
        except (AttributeError, OSError, ValueError):
            yield
            return
        try:
            aside = tempfile.TemporaryFile()
        except OSError:  # nowhere to write to
            os.close(real)
            yield
            return
        try:
            with aside:
                os.dup2(aside.fileno(), 2)
                try:
                    yield
                finally:
                    with contextlib.suppress(AttributeError, OSError, ValueError):
                        sys.stderr.flush()
                    os.dup2(real, 2)
                    aside.seek(0)
                    for line in aside:
                        if not _CHATTER.match(line):
                            os.write(real, line)
        finally:
            os.close(real)
