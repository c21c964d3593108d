"""Runs tracks side by side, on the cores that there are.

The thread that called compiles the chain, for that is where the user's functions are called and
not every function may be called elsewhere (R's may not). Then chains take turns, a block at a time,
on twice as many threads as there are cores; with a core to spare the next block is prepared ahead.
The thread that called only shows progress and waits, so Ctrl-C reaches it at once.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from sgmcmc import cores
from sgmcmc.progress import Progress
from sgmcmc.track import Track


def advance_all(tracks: list[Track], label: str, verbose: bool) -> bool:
    """Run all tracks to their ends; return ``False`` if Ctrl-C came first."""
    unfinished = [track for track in tracks if not track.finished]
    if not unfinished:
        return True
    # While one thread hands its block over and waits to be woken, another computes.
    workers = min(len(unfinished), 2 * cores.count())
    spare = cores.to_spare(len(unfinished))
    turns: queue.SimpleQueue[Track] = queue.SimpleQueue()
    for track in unfinished:
        turns.put(track)
    reports: queue.SimpleQueue[tuple[int, float] | BaseException | None] = queue.SimpleQueue()
    halt = threading.Event()

    def work() -> None:
        try:
            while not halt.is_set():
                try:
                    track = turns.get_nowait()
                except queue.Empty:
                    break
                done = track.advance()
                if not track.finished:
                    turns.put(track)
                reports.put((done, track.estimate))
        except BaseException as error:
            reports.put(error)
        reports.put(None)

    total = sum(track.total for track in tracks)
    done = sum(track.iteration for track in tracks)
    with (
        ThreadPoolExecutor(workers, "sgmcmc-chain") as chains,
        ThreadPoolExecutor(workers, "sgmcmc-feed") as ahead,
        Progress(label, total, verbose, done) as progress,
    ):
        for track in unfinished:
            track.prepare_on(ahead if spare else None)
        try:
            # They all run the same chain, which is compiled once.
            unfinished[0].compile()
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
