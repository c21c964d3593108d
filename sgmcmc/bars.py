"""Progress bars: tqdm's, unless the call came through a front end that has its own; and seconds."""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_makers: list[Callable[..., Any]] = []
"""Functions that make a bar instead of tqdm; the last one is used."""


def make_bar(**options: Any) -> Any:
    """Return a bar; the options are those of ``tqdm.tqdm``."""
    return (_makers[-1] if _makers else _tqdm())(**options)


@functools.cache
def _tqdm() -> Callable[..., Any]:
    # Imported here, for the time that it takes.
    with warnings.catch_warnings():
        # In a notebook without ipywidgets tqdm warns and falls back to text, which is all we want.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    class SteadyBar(tqdm):
        """A bar of tqdm that is not affected by jumps of the system's clock."""

        @property
        def _time(self) -> Callable[[], float]:
            return time.monotonic

        @_time.setter
        def _time(self, clock: Callable[[], float]) -> None:
            """Ignore tqdm's own clock."""

    return SteadyBar


@contextlib.contextmanager
def made_by(maker: Callable[..., Any]) -> Iterator[None]:
    """Have all bars inside the ``with`` block made by this instead of tqdm.

    ``maker`` takes the arguments of ``tqdm.tqdm`` and returns what has its methods.
    """
    _makers.append(maker)
    try:
        yield
    finally:
        _makers.pop()


def are_replaced() -> bool:
    """Return whether bars are made by something other than tqdm."""
    return bool(_makers)


class Clock:
    """Seconds of a call, by activity.

    Args:
        began: Start of the call, by the monotonic clock; by default now.
        seconds: Seconds that are entered already.
        earlier: Seconds before the start that belong to the call, by what was done.

    Attributes:
        began: Start of the call, by the monotonic clock.
        seconds: Seconds by name; a name that comes again is added to.
    """

    def __init__(
        self,
        began: float | None = None,
        seconds: Mapping[str, float] | None = None,
        earlier: Mapping[str, float] | None = None,
    ) -> None:
        self.began = time.monotonic() if began is None else began
        self.seconds = dict(seconds or {})
        self._earlier = dict(earlier or {})
        self._since = self.began + sum(self.seconds.values())

    def done(self, name: str) -> None:
        """Enter the seconds since the last entry."""
        now = time.monotonic()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    @property
    def all(self) -> float:
        """Seconds since the start, and those before it."""
        return time.monotonic() - self.began + sum(self._earlier.values())

    def facts(self) -> dict[str, float]:
        """Return the section of the report."""
        return {**self._earlier, **self.seconds, "all": self.all}
