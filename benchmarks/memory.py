"""Resident memory of this process, in bytes."""

from __future__ import annotations

import ctypes
import resource
import sys
import threading
from pathlib import Path

_STATUS, _MAPS = Path("/proc/self/status"), Path("/proc/self/smaps")


def _field(name: str) -> int | None:
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith(name + ":"):
                return 1024 * int(line.split()[1])
    return None


def peak() -> int:
    """The most that was ever resident."""
    found = _field("VmHWM")
    if found is None:
        unit = 1 if sys.platform == "darwin" else 1024
        found = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found


def resident() -> int:
    """What is resident now (where the system does not tell: the most that ever was)."""
    return _field("VmRSS") or peak()


class Anonymous:
    """The most that is resident and not of mapped files, while a block runs, in bytes."""

    def __init__(self) -> None:
        self.most = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            self.most = max(self.most, _field("RssAnon") or 0)

    def __enter__(self) -> Anonymous:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def mapped(ending: str) -> int:
    """What is resident of mapped files of that ending: the system can take it back at any time."""
    if not _MAPS.exists():
        return 0
    total, counting = 0, False
    for line in _MAPS.read_text().splitlines():
        words = line.split()
        if not words[0].endswith(
            ":"
        ):  # the head of a mapping: addresses, ..., its file
            counting = line.endswith(ending)
        elif counting and words[0] == "Rss:":
            total += 1024 * int(words[1])
    return total


def keep() -> None:
    """Have the C library keep what is freed, so that what a run needs is there from the run before.

    A virtual machine may give free memory back to its host, and take milliseconds for each megabyte
    to get it again: more than the iterations that fill it.
    """
    trim_threshold, mmap_max = -1, -4  # as glibc's malloc.h names and numbers them
    if sys.platform == "linux":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(trim_threshold, -1)
        mallopt(mmap_max, 0)
