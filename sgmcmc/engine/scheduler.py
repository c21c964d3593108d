"""Runs chains side by side, on the cores that there are.

Chains take turns, a block at a time, on twice as many threads as there are cores; with a core to
spare each prepares its next block ahead. The thread that called only shows progress and waits, so
Ctrl-C reaches it at once, and it notices when nothing comes any more.

Why nothing here can wait for ever: a chain is in the queue of turns, or in the hands of one thread.
A thread never waits for another: where the queue is empty, it ends. The caller waits for reports,
with a time limit, only while a thread is alive.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from sgmcmc.engine import cores
from sgmcmc.engine.progress import Progress
from sgmcmc.engine.runner import Runner
from sgmcmc.engine.watchdog import StandstillError, Watchdog
from sgmcmc.waits import TICK, Mailbox

Report = tuple[int, float] | BaseException | threading.Thread
"""Iterations done and the log posterior estimate; an error; or the thread that ends now."""


Advance = Callable[[Sequence[int], Sequence[Runner], Progress], None]
"""Runs each runner until it has done so many iterations, like :func:`advance_to`."""


def advance_all(
    runners: Sequence[Runner], label: str, verbose: bool, advance: Advance | None = None
) -> bool:
    """Run all runners to their ends; return ``False`` if Ctrl-C came first.

    Args:
        runners: the runners.
        label: what is shown beside their progress.
        verbose: show it.
        advance: who runs them, if not threads of this process.
    """
    unfinished = [runner for runner in runners if not runner.finished]
    if not unfinished:
        return True
    total = sum(runner.total for runner in runners)
    done = sum(runner.iteration for runner in runners)
    for runner in unfinished:
        runner.prepare_ahead(cores.to_spare(len(unfinished)))
    try:
        with Progress(label, total, verbose, done) as progress:
            (advance or advance_to)([runner.total for runner in unfinished], unfinished, progress)
    except KeyboardInterrupt:
        return False
    finally:
        for runner in unfinished:
            runner.prepare_ahead(False)
    return True


def advance_to(goals: Sequence[int], runners: Sequence[Runner], progress: Progress) -> None:
    """Run each runner until it has done so many iterations in all.

    At Ctrl-C, and where a chain fails, the others first end the blocks that they are at. A second
    Ctrl-C does not wait for that.

    Args:
        goals: for each runner.
        runners: that are not there yet.
        progress: is told of each block.

    Raises:
        StandstillError: nothing has come for too long; nobody waits for those who stand still.
    """
    crew = _Crew(goals, runners)
    try:
        crew.start()
        while (report := crew.next_report()) is not None:
            if isinstance(report, BaseException):
                raise report
            progress.advance(*report)
    except StandstillError:
        raise
    except BaseException:
        crew.halt.set()
        while crew.next_report() is not None:
            pass
        raise
    finally:
        crew.halt.set()


class _Crew:
    """Threads that advance chains, and what they have to report.

    They are daemons: one that stands still does not keep the process from ending.

    Attributes:
        halt: tells them to end after the blocks that they are at.
    """

    def __init__(self, goals: Sequence[int], runners: Sequence[Runner]) -> None:
        self.halt = threading.Event()
        self._turns: queue.SimpleQueue[tuple[int, Runner]] = queue.SimpleQueue()
        for turn in zip(goals, runners, strict=True):
            self._turns.put(turn)
        self._reports: Mailbox[Report] = Mailbox()
        # While one thread hands its block over and waits to be woken, another computes.
        self._threads = [
            threading.Thread(target=self._work, name=f"sgmcmc-chain-{number}", daemon=True)
            for number in range(min(len(runners), 2 * cores.count()))
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
                    goal, runner = self._turns.get_nowait()
                except queue.Empty:
                    break
                done = runner.advance(goal - runner.iteration)
                if runner.iteration < goal:
                    self._turns.put((goal, runner))
                self._reports.put((done, runner.estimate))
        except BaseException as error:
            self._reports.put(error)
        self._reports.put(threading.current_thread())
