"""Uniform minibatches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.checks import flag
from sgmcmc.data.numbers import below
from sgmcmc.minibatches.base import Minibatches

_AT_A_TIME = 1 << 15
"""Row numbers that are drawn, sorted and corrected together: they stay in the cache."""

_COMPARED = 1 << 17
"""Up to how many comparisons each repeat is compared with all of its minibatch; more are looked
up."""


def row_dtype(rows: int) -> np.dtype:
    """Return the smallest integer dtype that numbers so many rows."""
    return np.dtype(np.int32 if rows < 2**31 else np.int64)


def draw_rows(
    rng: np.random.Generator, rows: int, size: int, count: int, replace: bool
) -> np.ndarray:
    """Return ``count`` independent minibatches of ``size`` of the rows, (count, size).

    Without replacement every subset of ``size`` of the rows is equally likely. The order within
    a minibatch has no meaning: most are in rising order, in which they are gathered faster.

    Example:
        >>> rows = draw_rows(np.random.default_rng(1), 5, 3, 2, replace=False)
        >>> rows.shape, [len(set(row)) for row in rows.tolist()]
        ((2, 3), [3, 3])
    """
    if replace or size == 1:
        drawn = _below(rng, rows, (count, size))
        flat = drawn.reshape(-1)
        while (again := np.flatnonzero(flat < 0)).size:
            flat[again] = _below(rng, rows, again.shape)
        drawn.sort(axis=1)
        return drawn
    if 2 * size > rows:
        return _complement(rng, rows, size, count)
    if rows > 10_000 and 8 * size > rows:
        # So many repeats would be drawn again that a shuffle is cheaper.
        drawn = np.empty((count, size), row_dtype(rows))
        for row in drawn:
            row[:] = rng.choice(rows, size, replace=False, shuffle=False)
        drawn.sort(axis=1)
        return drawn
    return _mended(rng, rows, size, count)


def _mended(rng: np.random.Generator, rows: int, size: int, count: int) -> np.ndarray:
    """Draw with replacement, then draw each repeat again until its minibatch lacks it.

    What is drawn again depends only on which entries are equal, so renaming the rows renames
    the result: all subsets are equally likely.
    """
    drawn = np.empty((count, size), row_dtype(rows))
    some = max(1, _AT_A_TIME // size)
    for first in range(0, count, some):
        part = drawn[first : first + some]
        part[...] = _below(rng, rows, part.shape)
        part.sort(axis=1)
        _mend(rng, rows, part)
    return drawn


def _below(rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return independent row numbers, and -1 for those to be drawn again."""
    if rows < 2**31:
        return below(rng, rows, shape)
    return rng.integers(0, rows, shape, dtype=row_dtype(rows))


def _mend(rng: np.random.Generator, rows: int, drawn: np.ndarray) -> None:
    """Draw the repeats of sorted minibatches again, and what was not drawn at all."""
    size, flat = drawn.shape[1], drawn.reshape(-1)
    repeats = np.flatnonzero(flat[1:] == flat[:-1]) + 1
    repeats = repeats[repeats % size > 0]  # else the equal one ends the minibatch before
    missing = np.flatnonzero(drawn[:, 0] < 0) * size  # of several, all but one are repeats
    again = np.sort(np.concatenate([missing, repeats])) if missing.size else repeats
    apart = np.int64(rows + 1)  # one more: there may be a -1
    looked_up = again.size * size > _COMPARED
    if looked_up:
        # A repeat's value stays in its minibatch, as that of its twin: what was drawn at first is
        # known for good, and what is drawn again is known once it has taken its place.
        first = (drawn + apart * np.arange(len(drawn))[:, np.newaxis]).reshape(-1)
        placed = np.empty(0, np.int64)
    while again.size:
        fresh = _below(rng, rows, again.shape)
        minibatch = again // size
        keys = minibatch * apart + fresh
        if looked_up:
            known = _one_of(first, keys) | _one_of(placed, keys)
        else:
            known = (drawn[minibatch] == fresh[:, np.newaxis]).any(axis=1)
        known |= (fresh < 0) | _seen_before(keys)
        flat[again[~known]] = fresh[~known]
        if looked_up:
            placed = np.sort(np.concatenate([placed, keys[~known]]))
        again = again[known]


def _one_of(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each value whether it is one of those known, which are in rising order."""
    if not known.size:
        return np.zeros(values.size, bool)
    return known[np.minimum(np.searchsorted(known, values), known.size - 1)] == values


def _seen_before(values: np.ndarray) -> np.ndarray:
    """Return for each value whether an earlier one is equal."""
    seen = np.ones(values.size, bool)
    seen[np.unique(values, return_index=True)[1]] = False
    return seen


def _complement(rng: np.random.Generator, rows: int, size: int, count: int) -> np.ndarray:
    """Draw the rows to leave out, if they are the fewer."""
    if size == rows:
        return np.broadcast_to(np.arange(rows, dtype=row_dtype(rows)), (count, rows))
    left_out = draw_rows(rng, rows, rows - size, count, replace=False)
    kept = np.ones((count, rows), bool)
    np.put_along_axis(kept, left_out.astype(np.intp), False, axis=1)
    return np.nonzero(kept)[1].reshape(count, size).astype(row_dtype(rows))


@dataclass(frozen=True)
class Uniform(Minibatches):
    """Minibatches in which every row of the dataset is equally likely; a term counts N/n.

    Without replacement every subset of n rows has the same chance, and the variance of the
    minibatch gradient is N(N − n)/n times the sample variance of the terms' gradients; with
    replacement it is N²/n times their variance.

    Args:
        replace: Whether to draw with replacement.

    Raises:
        TypeError: ``replace`` is not a truth value.

    Example:
        >>> import numpy as np, sgmcmc
        >>> draws = sgmcmc.minibatches.Uniform().bind(rows=5, size=3)
        >>> rows = draws.draw(np.random.default_rng(1), 2)
        >>> rows.shape, [len(set(row)) for row in rows.tolist()]
        ((2, 3), [3, 3])

    Source:
        Welling & Teh, ICML 2011.
    """

    replace: bool = False

    def __post_init__(self) -> None:
        flag("replace", self.replace)

    def bind(self, rows: int, size: int) -> UniformDraws:
        """Return the draws from a dataset of ``rows`` rows."""
        return UniformDraws(rows, size, self.replace)

    def to_json(self) -> str:
        """Return the name of these minibatches."""
        return "replacement" if self.replace else "uniform"


class UniformDraws:
    """Uniform draws of rows.

    Args:
        rows: Number of rows N.
        size: Minibatch size n.
        replace: Whether to draw with replacement.
    """

    weights: Any = None

    def __init__(self, rows: int, size: int, replace: bool) -> None:
        self.size = size
        self.every_row = size == rows and not replace
        self._rows, self.replace = rows, replace

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return the rows of ``count`` independent minibatches, (count, n)."""
        return draw_rows(rng, self._rows, self.size, count, self.replace)
