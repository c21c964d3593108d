"""Where the tracks of a run are, written down as they go, so that a killed run goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sgmcmc.arrays import Results
from sgmcmc.store.files import explained
from sgmcmc.track import Track
from sgmcmc.whole_files import read_arrays, write_arrays

SAVE_EVERY = 0.25
"""Seconds of a chain that a kill may cost."""

MODE, CHAIN = "mode", "chain"
_REDUCTION = "reduction/"


class Checkpoints:
    """A small file for each track, which is replaced whole again and again.

    Args:
        folder: of the store; ``None`` writes nothing down.
        kind: what the tracks are run for, ``MODE`` or ``CHAIN``.
    """

    def __init__(self, folder: Path | None, kind: str) -> None:
        self._folder = folder
        self._kind = kind
        self._saved: dict[int, float] = {}

    def resume(self, tracks: Sequence[Track]) -> None:
        """Take tracks to where they were when they were last saved."""
        if self._folder is None:
            return
        for number, track in enumerate(tracks):
            path = checkpoint(self._folder, self._kind, number)
            if path.exists():
                track.restore(read_arrays(path))

    def save(self, number: int, track: Track) -> None:
        """Write down where a track is, unless that was done a moment ago."""
        if self._folder is None:
            return
        now = time.monotonic()
        if track.finished or now - self._saved.get(number, now - SAVE_EVERY) >= SAVE_EVERY:
            self._write(self._folder, number, track)

    def save_now(self, tracks: Sequence[Track]) -> None:
        """Write down where all tracks are."""
        if self._folder is None:
            return
        for number, track in enumerate(tracks):
            self._write(self._folder, number, track)

    def _write(self, folder: Path, number: int, track: Track) -> None:
        results = Results(track.reductions()).flat()
        results = {_REDUCTION + name: value for name, value in results.items()}
        with explained(folder):
            write_arrays(checkpoint(folder, self._kind, number), {**track.snapshot(), **results})
        self._saved[number] = time.monotonic()


def checkpoint(folder: Path, kind: str, number: int | str) -> Path:
    """Return the file that says where a track is; ``"*"`` stands for any number."""
    return folder / f"{kind}-{number}.npz"


def saved_results(state: Mapping[str, np.ndarray]) -> Results:
    """Return the results of reductions among what a checkpoint holds."""
    return Results.nested(
        {
            name[len(_REDUCTION) :]: value
            for name, value in state.items()
            if name.startswith(_REDUCTION)
        }
    )
