"""What every way of drawing minibatches has, and the checks of what a user's own one draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from sgmcmc.checks import from_outside
from sgmcmc.words import describe

_ROUNDING = 1e-3
"""How far the expected rows of a minibatch, by the weights, may be from n, as a part of n."""


class RowDraws(Protocol):
    """A way of drawing rows from a dataset of known size.

    Attributes:
        size: n, the observations in a minibatch.
        weights: what each row of the dataset counts for where it is drawn, (N,), in the sum that
            stands for the one over all N; ``None`` where every row counts N/n.
        every_row: whether a minibatch is the whole dataset in its own order.

    Example:
        >>> import numpy as np, sgmcmc
        >>> draws = sgmcmc.minibatches.Uniform().bind(rows=3, size=3)
        >>> draws.every_row, draws.draw(np.random.default_rng(1), 1).tolist()
        (True, [[0, 1, 2]])
    """

    size: int
    weights: np.ndarray | None
    every_row: bool

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return the rows of ``count`` independent minibatches, integers of shape (count, n).

        Where a row is in a minibatch twice, its places are neighbours.
        """


class Minibatches(ABC):
    """A way of drawing the rows of a minibatch, as a user asks for it.

    Your own subclass works wherever these do: ``bind`` says how rows are drawn.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.minibatches.Uniform(replace=True)
        Uniform(replace=True)
    """

    @abstractmethod
    def bind(self, rows: int, size: int) -> RowDraws:
        """Return how rows are drawn from a dataset.

        Args:
            rows: N, the rows of the dataset.
            size: n, the rows of a minibatch.

        Raises:
            ValueError: the two do not suit.
        """

    @abstractmethod
    def to_json(self) -> Any:
        """Return what distinguishes these draws from others, in a form that JSON can hold."""


def drawn(draws: RowDraws, rows: int, rng: np.random.Generator, count: int) -> np.ndarray:
    """Return the rows of some minibatches, (count, n), known to be rows of the dataset.

    What gathers them looks at no bounds: a row beyond the last is foreign memory.

    Args:
        draws: how rows are drawn; what the package's own classes draw needs no check.
        rows: N.
        rng: where the randomness comes from.
        count: the number of minibatches.

    Raises:
        TypeError, ValueError: a user's own class draws something else.
    """
    found = draws.draw(rng, count)
    if not from_outside(draws):
        return found
    label = f"`minibatches`: {type(draws).__name__}.draw"
    array = np.asarray(found)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"{label} must return row numbers, integers; it returned {describe(found)} of "
            f"{array.dtype.name}."
        )
    if array.shape != (count, draws.size):
        raise ValueError(
            f"{label} must return an array of shape (count, n) = ({count}, {draws.size}), a row of "
            f"it for each minibatch; it returned {array.shape}."
        )
    if array.size and (array.min() < 0 or array.max() >= rows):
        wrong = array[(array < 0) | (array >= rows)][0]
        raise ValueError(
            f"{label} returned row {wrong}; the rows of the dataset are 0 to {rows - 1}."
        )
    return array


def bound(minibatches: Minibatches, rows: int, size: int) -> RowDraws:
    """Return how rows are drawn from a dataset of ``rows`` rows, checked if a user wrote it."""
    draws = minibatches.bind(rows, size)
    if from_outside(draws):
        _check_bound(draws, rows)
    return draws


def _check_bound(draws: RowDraws, rows: int) -> None:
    """Raise an error if a user's own minibatches have a wrong size or wrong weights.

    A row is in a minibatch 1/w times on average if w is its weight, so 1/w add up to n.

    Args:
        draws: how rows are drawn.
        rows: N.
    """
    label = f"`minibatches`: {type(draws).__name__}"
    for name in ("size", "weights", "every_row", "draw"):
        if not hasattr(draws, name):
            raise TypeError(f"{label} has no `{name}`; what `bind` returns must have one.")
    size, weights = draws.size, draws.weights
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ValueError(f"{label}.size must be a whole number, 1 or more; it is {describe(size)}.")
    if draws.every_row and size != rows:
        raise ValueError(
            f"{label}.every_row says that a minibatch is the whole dataset of {rows} rows, and "
            f"`size` is {size}."
        )
    if weights is None:
        return
    if not isinstance(weights, np.ndarray) or weights.dtype.kind not in "iuf":
        raise TypeError(
            f"{label}.weights must be None or a NumPy array of numbers; it is {describe(weights)}."
        )
    if weights.shape != (rows,):
        raise ValueError(
            f"{label}.weights must have an entry for each of the {rows} rows of the dataset, shape "
            f"({rows},); it has shape {weights.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if bad.size:
        raise ValueError(
            f"{label}.weights must be positive and finite; that of row {bad[0]} is "
            f"{weights[bad[0]]:g}."
        )
    expected = float((1.0 / weights.astype(np.float64)).sum())
    if abs(expected - size) > _ROUNDING * size:
        raise ValueError(
            f"{label}.weights: the weight of a row must be one over the number of times that it is "
            f"in a minibatch on average (N/n = {rows / size:g} if all rows are equally likely). By "
            f"these weights a minibatch would have {expected:g} rows, and it has {size}: multiply "
            f"them by {expected / size:g}."
        )
