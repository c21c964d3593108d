"""Ends a call that stands still, with a picture of where each thread stands."""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import tempfile
import time

import tensorflow as tf

from sgmcmc import switches

PATIENCE = 300.0
"""Seconds of silence, unless the user sets others."""

_IDLE = 0.01
"""A process that computes for less than this share of the time is waiting for something."""


class StandstillError(TimeoutError):
    """Nothing has come for too long, and nothing was computed."""


class Watchdog:
    """Counts how long nothing has been heard, and raises when that is too long.

    A long block is no standstill: its threads use the processor. Only the time counts in which
    somebody waited here, so a process that was stopped for a day has not been silent for a day.
    """

    def __init__(self) -> None:
        # Nobody here sees what a GPU computes.
        default = 0.0 if tf.config.list_logical_devices("GPU") else PATIENCE
        asked = switches.silent_seconds()
        self._patience = default if asked is None else asked
        self.heard()

    def heard(self) -> None:
        """Take note that something has come."""
        self._silent, self._computed = 0.0, time.process_time()

    def waited(self, seconds: float) -> None:
        """Take note that nothing has come for some seconds more.

        Raises:
            StandstillError: nothing has come for too long, and nothing was computed.
        """
        self._silent += seconds
        if not self._patience or self._silent < self._patience:
            return
        if time.process_time() - self._computed > _IDLE * self._silent:
            self.heard()
            return
        _show_stacks()
        raise StandstillError(
            f"No chain has come forward for {self._silent:.0f} seconds, and nothing was computed "
            "in that time: something waits for what does not come, a file or a function of yours. "
            "Standard error shows where each thread stands. The environment variable "
            "SGMCMC_SILENT_SECONDS sets how long to wait, 0 for ever."
        )


def _show_stacks() -> None:
    """Write the stacks of all threads to standard error, whatever that is."""
    with contextlib.suppress(AttributeError, OSError, ValueError), tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        sys.stderr.write(file.read().decode(errors="replace"))
        sys.stderr.flush()
