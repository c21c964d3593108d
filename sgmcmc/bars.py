"""Progress bars: tqdm's, unless the call came through a front end that has its own."""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Callable, Iterator
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
