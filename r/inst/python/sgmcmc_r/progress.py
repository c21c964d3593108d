"""Progress for R, which shows it as its own messages."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

from tqdm.std import tqdm

_tell: list[Callable[..., Any]] = []
_check: list[Callable[[], bool]] = []
_BETWEEN_CHECKS = 0.1


def is_shown_by(tell: Callable[..., Any]) -> None:
    """Have an R function show progress.

    Args:
        tell: function of label, iterations done, iterations in all, seconds, a note, the unit, and
            whether this is the last that it hears of them.
    """
    _tell[:] = [tell]


def limits_are_checked_by(check: Callable[[], bool]) -> None:
    """Have an R function look at R's time limits.

    Args:
        check: function that returns whether there is time left.
    """
    _check[:] = [check]


class Bar(tqdm):
    """A bar that R draws; when it is drawn, and how fast it moves, are tqdm's."""

    _next_check = 0.0

    monitor_interval = 0  # tqdm's monitor would call R from a thread of its own

    def __init__(self, **options: Any) -> None:
        """Make one, with the options of tqdm."""
        self._ended = False
        super().__init__(**options, file=io.StringIO())

    def update(self, n: float | None = 1) -> bool | None:
        """Move on, also where nothing is shown, unless R's time is over: that ends the call."""
        if time.monotonic() >= Bar._next_check:
            if not all(check() for check in _check):
                raise KeyboardInterrupt
            Bar._next_check = time.monotonic() + _BETWEEN_CHECKS
        return super().update(n)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Tell R, unless it has heard the last of this."""
        if not self._ended:
            self._report()
        return True

    def close(self) -> None:
        """Tell R that this was the last."""
        tells, self._ended = not (self.disable or self._ended), True
        super().close()
        if tells:
            self._report()

    def _report(self) -> None:
        state = self.format_dict
        _tell[0](
            self.desc.removesuffix(": "),
            int(self.n),
            int(self.total),
            float(state["elapsed"]),
            self.postfix or "",
            self.unit,
            self._ended,
        )
