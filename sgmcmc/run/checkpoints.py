"""Where the runners of a phase are, written down as they go, so that a killed run resumes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sgmcmc.atomic_files import read_arrays, write_arrays
from sgmcmc.data.rng import RunPhase
from sgmcmc.engine.runner import Runner
from sgmcmc.results.arrays import Results
from sgmcmc.results.store import CHAIN, REDUCTION, Store, blamed, checkpoint, explained

SAVE_EVERY = 0.25
"""Seconds of a chain that a kill may cost."""

LARGE_BYTES = 2**20
"""Arrays from this size on, such as tables with a row for each observation, have files of their
own, which are written less often."""

_LARGE_SHARE = 0.05
"""What part of a chain's time writing such files may take."""

_SLOT = "large"


class Checkpoints:
    """A small file for each runner, which is replaced whole again and again.

    Large arrays go to one of two other files in turn, and the small file says which: at whatever
    instant a process is killed, the one that it names is whole.

    Args:
        store: where to; ``None`` writes nothing down.
        kind: of the phase.
    """

    def __init__(self, store: Store | None, kind: RunPhase) -> None:
        self._store = store
        self._folder = None if store is None else store.path
        self._kind = kind.name.lower()
        self._next: dict[int, float] = {}
        self._slots: dict[int, int] = {}

    def resume(self, runners: Sequence[Runner]) -> None:
        """Take runners to where they were when they were last saved."""
        if self._folder is None:
            return
        for number, runner in enumerate(runners):
            path = checkpoint(self._folder, self._kind, number)
            if path.exists():
                with blamed("store"):
                    state = read_arrays(path)
                    if _SLOT in state:
                        self._slots[number] = slot = int(state[_SLOT])
                        state |= read_arrays(self._large(self._folder, number, slot))
                runner.restore(state)

    def save(self, number: int, runner: Runner) -> None:
        """Write down where a runner is, unless that was done a moment ago."""
        if self._folder is None:
            return
        now = time.monotonic()
        if runner.finished or now >= self._next.setdefault(number, now):
            self._write(self._folder, number, runner)

    def save_now(self, runners: Sequence[Runner]) -> None:
        """Write down where all runners are."""
        if self._folder is None:
            return
        for number, runner in enumerate(runners):
            self._write(self._folder, number, runner)

    def _write(self, folder: Path, number: int, runner: Runner) -> None:
        began = time.monotonic()
        results = Results(runner.reductions()).flat()
        state = runner.snapshot() | {REDUCTION + name: value for name, value in results.items()}
        # Results of reductions are read from the small file, by those who open the store.
        large = {
            name: array
            for name, array in state.items()
            if array.nbytes >= LARGE_BYTES and not name.startswith(REDUCTION)
        }
        small: Mapping[str, np.ndarray] = {n: a for n, a in state.items() if n not in large}
        if self._store is not None and self._kind == CHAIN:
            small = {**small, **self._store.checksums(number, state)}
        with explained(folder):
            if large:
                slot = 1 - self._slots.get(number, 0)
                write_arrays(self._large(folder, number, slot), large)
                small = {**small, _SLOT: np.array(slot)}
                self._slots[number] = slot
            write_arrays(checkpoint(folder, self._kind, number), small)
        now = time.monotonic()
        wait = (now - began) / _LARGE_SHARE if large else 0.0
        self._next[number] = now + max(SAVE_EVERY, wait)

    def _large(self, folder: Path, number: int, slot: int) -> Path:
        return checkpoint(folder, self._kind, f"{number}-{_SLOT}-{slot}")
