"""Chains that have become NaN or infinite: where, and in what."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgmcmc.engine.recorder import Recorder


class Diverged(Exception):  # noqa: N818 - an event on the way to a DivergenceError
    """A chain has become NaN or infinite.

    Attributes:
        iterations: first and last iteration between which it happened.
        parameter: the parameter that was found so first.
        advice: what to do about it, where that is not to take a smaller stepsize.
    """

    def __init__(self, iterations: tuple[int, int], parameter: str, advice: str | None) -> None:
        super().__init__(f"{parameter!r} diverged in iterations {iterations}")
        self.iterations = iterations
        self.parameter = parameter
        self.advice = advice


def divergence(
    recorder: Recorder,
    position: Any,
    draws: np.ndarray | None,
    before: int,
    finite: int,
    iterations: tuple[int, int],
    advice: str | None,
) -> Diverged:
    """Return the event of a divergence.

    Args:
        recorder: what is written down of the draws.
        position: at the end, flat.
        draws: that were kept on the way; ``None`` if none are kept.
        before: draws kept before these.
        finite: how many of these come before the first that is not finite.
        iterations: the last of those before, and the last.
        advice: what to do about it, if something is known; else it is what the parameter's
            geometry has to say.
    """
    (start, end), space = iterations, recorder.target.space
    bad, layout = np.asarray(position), space.layout
    if draws is not None and finite < len(draws):
        bad, layout = draws[finite], recorder.draw_layout
        end = recorder.burn_in + (before + finite + 1) * recorder.thin
        if finite:
            start = end - recorder.thin
    first = int(np.flatnonzero(~np.isfinite(bad))[0])
    name = layout.parameter_at(first)
    return Diverged((start + 1, end), name, advice or space.geometries[name].advice)


def finite_rows(draws: np.ndarray | None, completed: int) -> int:
    """Return how many draws of a block there are before the first that is not finite."""
    if draws is None:
        return 0
    bad = np.flatnonzero(~np.isfinite(draws).all(axis=1))
    return int(bad[0]) if bad.size else completed
