"""Runs chains side by side, on the cores that there are.

Chains take turns, a block at a time,
on twice as many threads as there are cores; with a core to spare the next block is prepared ahead.
The thread that called only shows progress and waits, so Ctrl-C reaches it at once.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from sgmcmc.engine import cores
from sgmcmc.engine.progress import Progress
from sgmcmc.engine.runner import Runner


def advance_all(runners: list[Runner], label: str, verbose: bool) -> bool:
    """Run all runners to their ends; return ``False`` if Ctrl-C came first."""
    unfinished = [runner for runner in runners if not runner.finished]
    if not unfinished:
        return True
    # While one thread hands its block over and waits to be woken, another computes.
    workers = min(len(unfinished), 2 * cores.count())
    spare = cores.to_spare(len(unfinished))
    turns: queue.SimpleQueue[Runner] = queue.SimpleQueue()
    for runner in unfinished:
        turns.put(runner)
    reports: queue.SimpleQueue[tuple[int, float] | BaseException | None] = queue.SimpleQueue()
    halt = threading.Event()

    def work() -> None:
        try:
            while not halt.is_set():
                try:
                    runner = turns.get_nowait()
                except queue.Empty:
                    break
                done = runner.advance()
                if not runner.finished:
                    turns.put(runner)
                reports.put((done, runner.estimate))
        except BaseException as error:
            reports.put(error)
        reports.put(None)

    total = sum(runner.total for runner in runners)
    done = sum(runner.iteration for runner in runners)
    with (
        ThreadPoolExecutor(workers, "sgmcmc-chain") as chains,
        ThreadPoolExecutor(workers, "sgmcmc-prefetch") as ahead,
        Progress(label, total, verbose, done) as progress,
    ):
        for runner in unfinished:
            runner.prepare_on(ahead if spare else None)
        try:
            for _ in range(workers):
                chains.submit(work)
            _wait(reports, workers, progress)
        except KeyboardInterrupt:
            return False
        finally:
            halt.set()
    return True


def _wait(
    reports: queue.SimpleQueue[tuple[int, float] | BaseException | None],
    workers: int,
    progress: Progress,
) -> None:
    """Show progress until every worker has ended, and raise the first error that one met."""
    working = workers
    while working:
        try:
            # Some systems let Ctrl-C through only between waits.
            report = reports.get(timeout=0.5)
        except queue.Empty:
            continue
        if report is None:
            working -= 1
        elif isinstance(report, BaseException):
            raise report
        else:
            progress.advance(*report)
