"""The machine, in a few words."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def facts() -> dict[str, str]:
    """Processor, cores, memory, operating system and Python."""
    return {
        "processor": _first("/proc/cpuinfo", "model name")
        or platform.processor()
        or "unknown",
        "cores": str(cores()),
        "memory": _memory(),
        "system": _system(),
        "Python": platform.python_version(),
    }


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _first(path: str, key: str) -> str | None:
    if Path(path).exists():
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    return None


def _memory() -> str:
    kibibytes = _first("/proc/meminfo", "MemTotal")
    return f"{int(kibibytes.split()[0]) / 2**20:.0f} GiB" if kibibytes else "unknown"


def _system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError, AttributeError):
        name = platform.platform(terse=True)
    return f"{name}, {platform.machine()}"
