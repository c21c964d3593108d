"""Available and physical memory."""

from __future__ import annotations

import os
from pathlib import Path


def available_bytes() -> int:
    """Return the available memory in bytes; a large number if the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    physical = physical_bytes()
    return 2**62 if physical is None else physical


def physical_bytes() -> int | None:
    """Return the memory of the machine in bytes, if the system says."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
