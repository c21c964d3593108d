"""Runs chains side by side, on the available cores.

Chains take turns, a block at a time, on twice as many threads as there are cores; with a core to
spare each prepares its next block ahead. The thread that called only shows progress and waits, so
Ctrl-C reaches it at once, and a watchdog aborts a call that makes no progress.

Why nothing here can wait for ever: a chain is in the queue of turns, or in the hands of one thread.
A thread never waits for another: if the queue is empty, it ends. The caller waits for reports,
with a time limit, only while a thread is alive.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.bars import make_bar
from sgmcmc.engine.prefetcher import available_cores, core_to_spare
from sgmcmc.engine.runner import Runner
from sgmcmc.interrupts import TICK, Mailbox, need_time, time_left


@dataclass(frozen=True)
class _Settings:
    # Seconds after the start between which iterations are counted, to predict the rest
    count_from: float = 10.0
    count_to: float = 30.0

    # Seconds that iterations take between two looks at the clock, if the time is limited
    min_look: float = 0.3
    max_look: float = 1.0

    patience: float = 300.0  # seconds without progress, unless the user sets others
    # Share of the time below which a process waits rather than computes
    idle: float = 0.01


_SETTINGS = _Settings()


class Progress:
    """A bar that counts the iterations of all chains and shows the log posterior estimate.

    ``done`` iterations were run before. Unless ``verbose``, nothing at all is shown. After half a
    minute ``announce`` is called with the seconds that the rest will take.
    """

    def __init__(
        self,
        label: str,
        total: int,
        verbose: bool,
        done: int = 0,
        announce: Callable[[float], None] | None = None,
    ) -> None:
        self._left = total - done
        self._start_time = time.monotonic()
        self._announce = announce
        self._settled: tuple[float, int] | None = None
        # A process without a console (pythonw) has no standard error.
        silent = not verbose or sys.stderr is None
        self._bar = make_bar(
            total=total, initial=done, desc=label, unit="it", disable=silent
        )

    def describe(self, what: str) -> None:
        """Show the present task."""
        self._bar.set_description_str(what)

    def advance(self, iterations: int, log_post: float | None = None) -> None:
        """Move the bar on.

        Raises:
            TimeUpError: The time of the chains, whose estimate is given, is over.
        """
        self._left -= iterations
        self._predict()
        self._bar.update(iterations)
        if not self._bar.disable and log_post is not None:
            self._bar.set_postfix_str(
                f"log posterior estimate {log_post:.6g}", refresh=False
            )
        if log_post is not None:
            need_time()

    def _predict(self) -> None:
        """Say once how long the rest will take; compilation is over when counting begins."""
        passed = time.monotonic() - self._start_time
        if self._announce is None or passed < _SETTINGS.count_from:
            return
        if self._settled is None:
            self._settled = passed, self._left
        elif passed >= _SETTINGS.count_to:
            then, left = self._settled
            announce, self._announce = self._announce, None
            if left > self._left:
                announce((passed - then) * self._left / (left - self._left))

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()


class StandstillError(TimeoutError):
    """No progress for too long, and no computation."""


class Watchdog:
    """Aborts a hung call, and dumps all thread stacks.

    A long block does not count as hung: its threads use the processor. Only time spent waiting here
    counts, so a process that was stopped for a day has not waited for a day.
    """

    def __init__(self) -> None:
        # The work of a GPU cannot be observed here.
        default = 0.0 if tf.config.list_logical_devices("GPU") else _SETTINGS.patience
        user_seconds = libraries.silent_seconds()
        self._patience = default if user_seconds is None else user_seconds
        self.heard()

    def heard(self) -> None:
        """Count a report."""
        self._silent, self._computed = 0.0, time.process_time()

    def waited(self, seconds: float) -> None:
        """Count some more seconds without progress; raise StandstillError if there are too many."""
        self._silent += seconds
        if not self._patience or self._silent < self._patience:
            return
        if time.process_time() - self._computed > _SETTINGS.idle * self._silent:
            self.heard()
            return
        _show_stacks()
        raise StandstillError(
            f"No chain has made progress for {self._silent:.0f} seconds, and nothing was computed "
            "in that time: something is blocked, such as a file or your function. Standard error "
            "shows the stack of each thread. The environment variable SGMCMC_SILENT_SECONDS sets "
            "the time limit, 0 for none."
        )


def _show_stacks() -> None:
    with (
        contextlib.suppress(AttributeError, OSError, ValueError),
        tempfile.TemporaryFile() as file,
    ):
        faulthandler.dump_traceback(file)
        file.seek(0)
        sys.stderr.write(file.read().decode(errors="replace"))
        sys.stderr.flush()


ThreadReport = tuple[int, float] | BaseException | threading.Thread
"""Iterations done and the log posterior estimate; an error; or the thread that ends now."""


Advance = Callable[[Sequence[int], Sequence[Runner], Progress], None]
"""Runs each runner up to a number of iterations, like :func:`advance_to`."""


def advance_all(
    runners: Sequence[Runner],
    label: str,
    verbose: bool,
    advance: Advance | None = None,
    announce: Callable[[float], None] | None = None,
) -> bool:
    """Run all runners to their ends, by ``advance`` if not by threads of this process.

    ``announce`` is that of :class:`Progress`. Returns ``False`` if Ctrl-C came first.
    """
    unfinished = [runner for runner in runners if not runner.finished]
    if not unfinished:
        return True
    total = sum(runner.total for runner in runners)
    done = sum(runner.iteration for runner in runners)
    for runner in unfinished:
        runner.prepare_ahead(core_to_spare(len(unfinished)))
    try:
        with Progress(label, total, verbose, done, announce) as progress:
            (advance or advance_to)(
                [runner.total for runner in unfinished], unfinished, progress
            )
    except KeyboardInterrupt:
        return False
    finally:
        for runner in unfinished:
            runner.prepare_ahead(False)
    return True


def advance_to(
    goals: Sequence[int], runners: Sequence[Runner], progress: Progress
) -> None:
    """Run each runner until it has done ``goals`` iterations in all.

    At Ctrl-C, at the end of the time, and if a chain fails, the others first finish their present
    blocks. A second Ctrl-C does not wait for that.

    Raises:
        StandstillError: There was no progress for too long; hung threads are abandoned.
    """
    threads = _ChainThreads(goals, runners)
    try:
        threads.start()
        while (report := threads.next_report()) is not None:
            if isinstance(report, BaseException):
                raise report
            progress.advance(*report)
    except StandstillError:
        raise
    except BaseException:
        threads.halt.set()
        while threads.next_report() is not None:
            pass
        raise
    finally:
        threads.halt.set()


class _IterationsPerLook:
    """Number of iterations that chains run before they look at the clock again."""

    def __init__(self) -> None:
        self.count = 1

    def see(self, seconds: float) -> None:
        """Adapt the number to the time that the last of them took."""
        if seconds < _SETTINGS.min_look:
            self.count *= 2
        elif seconds > _SETTINGS.max_look and self.count > 1:
            self.count //= 2


class _ChainThreads:
    """Threads that advance chains, and their reports.

    They are daemons: one that hangs does not keep the process from ending. ``halt`` ends them after
    their present blocks.
    """

    def __init__(self, goals: Sequence[int], runners: Sequence[Runner]) -> None:
        self.halt = threading.Event()
        self._queue: queue.SimpleQueue[tuple[int, Runner]] = queue.SimpleQueue()
        for goal_and_runner in zip(goals, runners, strict=True):
            self._queue.put(goal_and_runner)
        self._reports: Mailbox[ThreadReport] = Mailbox()
        # While one thread hands its block over and waits to be woken, another computes.
        self._per_look = None if math.isinf(time_left()) else _IterationsPerLook()
        self._threads = [
            threading.Thread(
                target=self._work, name=f"sgmcmc-chain-{number}", daemon=True
            )
            for number in range(min(len(runners), 2 * available_cores()))
        ]
        self._watchdog = Watchdog()

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def next_report(self) -> tuple[int, float] | BaseException | None:
        """Wait for a report: iterations done and the log posterior estimate, or an error.

        Returns:
            ``None`` when every thread has ended and nothing is left to report.
        """
        while True:
            # Looked at before the queue: a thread that has ended has reported all.
            ended = not any(thread.is_alive() for thread in self._threads)
            try:
                report = self._reports.take(0 if ended else TICK)
            except queue.Empty:
                if ended:
                    return None
                self._watchdog.waited(TICK)
                continue
            self._watchdog.heard()
            if not isinstance(report, threading.Thread):
                return report
            report.join()

    def _work(self) -> None:
        try:
            while not self.halt.is_set():
                try:
                    goal, runner = self._queue.get_nowait()
                except queue.Empty:
                    break
                remaining = goal - runner.iteration
                if self._per_look is None:
                    done = runner.advance(remaining)
                else:  # as much as a limited time allows before the next look at it
                    start, count = time.monotonic(), self._per_look.count
                    done = runner.advance(min(remaining, count), part=count < remaining)
                    self._per_look.see(time.monotonic() - start)
                if runner.iteration < goal:
                    self._queue.put((goal, runner))
                self._reports.put((done, runner.estimate))
        except BaseException as error:
            self._reports.put(error)
        self._reports.put(threading.current_thread())
