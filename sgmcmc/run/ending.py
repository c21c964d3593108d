"""Where the chains of a run ended, for them to go on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.engine.runner import Runner, Snapshot
from sgmcmc.gradients import WholeData
from sgmcmc.results.schema import LOG_POST
from sgmcmc.target.geometry import Space


@dataclass(frozen=True)
class Ending:
    """Where the chains of a run in memory ended.

    Attributes:
        starts: where the chain started after the phases before it, flat, for each chain.
        modes: the positions that gradient estimates stay centred at, and the gradients there, for
            each chain that has one.
        states: where the chains are.
        arrays: what they have kept, by record, chains first.
    """

    starts: list[np.ndarray]
    modes: list[tuple[np.ndarray, np.ndarray]]
    states: list[Snapshot]
    arrays: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls,
        starts: Sequence[np.ndarray],
        runners: Sequence[Runner],
        arrays: Mapping[str, np.ndarray],
    ) -> Ending:
        """Return where these runners are now."""
        modes = [
            (np.asarray(position), np.asarray(gradient))
            for position, gradient in (r.mode for r in runners if r.mode is not None)
        ]
        return cls(list(starts), modes, [runner.snapshot() for runner in runners], dict(arrays))

    def remind(self, whole: Sequence[WholeData]) -> None:
        """Spare the gradients over the whole dataset that were taken before."""
        if self.modes:
            for each, mode in zip(whole, self.modes, strict=True):
                each.remember(*mode)

    def copy_to(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the draws to larger arrays."""
        draws = max(int(state["draws"]) for state in self.states)
        for name, old in self.arrays.items():
            if name != LOG_POST:
                arrays[name][:, :draws] = old[:, :draws]

    def resume(self, runners: Sequence[Runner], arrays: Mapping[str, np.ndarray]) -> None:
        """Take runners, and the arrays they write to, to where the chains are."""
        self.copy_to(arrays)
        for runner, state, old, new in zip(
            runners, self.states, self.arrays[LOG_POST], arrays[LOG_POST], strict=True
        ):
            runner.restore(state)
            # Estimates at ends that a longer run would not have had.
            kept = [row for row in old[: runner.blocks] if runner.stops_at(int(row[0]))]
            new[: len(kept)] = np.reshape(kept, (-1, 2))
            runner.blocks = len(kept)


def modes(runners: Sequence[Runner]) -> dict[str, np.ndarray]:
    """Return the chains' modes as the user sees them, and the gradients there, if they have any.

    The ``gradients`` are those with respect to the unconstrained parameters, the ``slopes`` what
    the gradient estimate adds to in the coordinates of the chain.
    """
    found = [runner.mode for runner in runners if runner.mode is not None]
    if not found:
        return {}
    space = runners[0].recorder.target.space
    return {
        "modes": constrained(space, [position for position, _ in found]),
        "gradients": np.stack([np.asarray(space.score(*pair)) for pair in found]),
        "slopes": np.stack([np.asarray(gradient) for _, gradient in found]),
    }


def constrained(space: Space, positions: Sequence[Any]) -> np.ndarray:
    """Return flat positions as the user sees them, flat, a row for each chain."""
    return np.stack([space.flat_user(tf.constant(position)) for position in positions])
