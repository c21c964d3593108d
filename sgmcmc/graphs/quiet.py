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
from collections.abc import Iterable, Iterator

from sgmcmc import switches

# A message begins "I0000 00:00:17..." in new releases, "2024-05-01 12:00:00.123: I ..." in older
# ones.
_START = r"^(?:{0}\d{{4}} |\d{{4}}-\d\d-\d\d [\d:.]+: {0} )"
_CHATTER = re.compile(
    "|".join(
        [
            _START.format("I"),
            _START.format("E") + ".*(?:cuInit|Unable to register cu)",
            _START.format("W") + ".*(?:cudart|gpu_device|Cannot dlopen|TF-TRT)",
            "^WARNING: All log messages before absl",
            "^To enable the following instructions: ",
        ]
    ).encode()
)
# What XLA says, at length, of an op that it cannot compile; the exception says it again.
_CANNOT_COMPILE = re.compile((_START.format("W") + ".*OP_REQUIRES failed").encode())
_ITS_DETAILS = re.compile(
    rb'^(\s|File "|Stack trace for op|The op is created at|XLA compilation requires)'
)
# Re-entrant, since a user's function may run inside the block and come back here.
_lock = threading.RLock()


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Hold back TensorFlow's information lines on standard error inside the ``with`` block.

    Lines that are not TensorFlow's start-up chatter are passed on at the end, in order. Where
    standard error is not a plain descriptor, or the environment variable
    ``SGMCMC_TENSORFLOW_LOG`` asks for them, nothing is held back.

    Example:
        >>> with without_chatter():
        ...     import tensorflow as tf
    """
    if switches.tensorflow_log():
        yield
        return
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
                    for line in _worth_reading(aside):
                        os.write(real, line)
        finally:
            os.close(real)


def _worth_reading(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that are not chatter."""
    in_details = False
    for line in lines:
        if _CANNOT_COMPILE.match(line):
            in_details = True
        elif not (in_details and _ITS_DETAILS.match(line)):
            in_details = False
            if not _CHATTER.match(line):
                yield line
