"""Time per iteration of a running chain: a long run less a short one, so compiling drops out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Run = Callable[[int], float]

FIRST, GROWTH = 20, 8


@dataclass(frozen=True)
class Seconds:
    """What a run took: on the clock, and on all cores together."""

    wall: float
    cpu: float

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall - other.wall, self.cpu - other.cpu)

    def __truediv__(self, count: float) -> Seconds:
        return Seconds(self.wall / count, self.cpu / count)


@dataclass(frozen=True)
class Lengths:
    """Iterations of the two runs."""

    short: int
    long: int

    @property
    def difference(self) -> int:
        return self.long - self.short


def choose_lengths(run: Run, seconds: float, most: int) -> Lengths:
    """Lengths whose difference takes about `seconds`.

    Args:
        run: runs a chain of so many iterations and returns how long that took.
        seconds: what is aimed at; 0 takes short lengths without trying any.
        most: no run is longer than that (its draws would not fit into memory).
    """
    if seconds <= 0:
        return Lengths(FIRST, 2 * FIRST)
    k, before = FIRST, min(run(FIRST), run(FIRST))
    while True:
        longer = min(k * GROWTH, most)
        after = min(run(longer), run(longer))
        gained = after - before
        if gained >= 0.3 * seconds or longer >= most:
            break
        k, before = longer, after
    per_iteration = max(gained, 1e-6) / max(longer - k, 1)
    long = _between(10, 1.25 * seconds / per_iteration, most)
    for _ in range(4):
        lengths = Lengths(max(long // 5, 1), long)
        (
            run(lengths.short),
            run(lengths.long),
        )  # where a package compiles for each length
        gained = run(lengths.long) - run(lengths.short)
        if gained >= 0.6 * seconds or long >= most:
            break
        # The time of compiling, or someone else on the machine, had passed for that of iterations.
        long = _between(10, long * max(1.5, min(seconds / max(gained, 1e-6), 8)), most)
    return lengths


def _between(least: float, x: float, most: float) -> int:
    return round(max(least, min(x, most)))
