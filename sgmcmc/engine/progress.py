"""Progress bars, on a terminal and in a notebook."""

from __future__ import annotations

import sys
from types import TracebackType

from sgmcmc.bars import make_bar


class Progress:
    """A bar that counts iterations and shows the current log posterior estimate.

    Args:
        label: what is being done.
        total: the iterations in all, over all chains.
        verbose: ``False`` shows nothing at all.
        done: iterations that were run before.
    """

    def __init__(self, label: str, total: int, verbose: bool, done: int = 0) -> None:
        # A process without a console (pythonw) has no standard error.
        silent = not verbose or sys.stderr is None
        self._bar = make_bar(total=total, initial=done, desc=label, unit="it", disable=silent)

    def describe(self, what: str) -> None:
        """Say what is done now."""
        self._bar.set_description_str(what)

    def advance(self, iterations: int, log_post: float | None = None) -> None:
        """Move the bar on."""
        self._bar.update(iterations)
        if not self._bar.disable and log_post is not None:
            self._bar.set_postfix_str(f"log posterior estimate {log_post:.6g}", refresh=False)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
