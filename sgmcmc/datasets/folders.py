"""Folders that hold the data files."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import platformdirs

VARIABLE = "SGMCMC_DATA"


def own() -> Path | None:
    """Return the folder that the user has chosen by the environment variable, if any."""
    value = os.environ.get(VARIABLE)
    return Path(value).expanduser() if value else None


def user() -> Path:
    """Return the cache folder of the user, by the convention of the operating system."""
    return Path(platformdirs.user_cache_dir("sgmcmc", appauthor=False))


def candidates() -> list[Path]:
    """Return the folders that may hold files, in order of preference."""
    chosen = own()
    return [user()] if chosen is None else [chosen, user()]


def writable() -> Path | None:
    """Return the first folder where files can be made, itself made if need be; None if none."""
    for folder in candidates():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            # The administrator may write anywhere; a folder closed to all is still meant to be.
            if os.name == "posix" and not folder.stat().st_mode & 0o222:
                continue
            with tempfile.TemporaryFile(dir=folder):
                return folder
    return None
