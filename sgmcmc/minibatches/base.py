"""The interface of minibatches, and tests of user-defined ones."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sgmcmc.checks import describe
from sgmcmc.graphs.user_functions import naming


class RowDraws(Protocol):
    """A way of drawing rows from a dataset of known size.

    Attributes:
        size: Minibatch size n.
        weights: Weight of each row of the dataset if it is drawn, (N,), in the sum that estimates
            the one over all N; ``None`` if every row counts N/n.
        every_row: Whether a minibatch is the whole dataset in its own order.

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

        If a row is in a minibatch twice, its places are neighbors.
        """


class Minibatches(ABC):
    """A way of drawing the rows of a minibatch, before it is bound to a dataset.

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
            rows: Number of rows N of the dataset.
            size: Minibatch size n.

        Raises:
            ValueError: The two are not compatible.
        """

    @abstractmethod
    def to_json(self) -> Any:
        """Return facts that identify these draws, as JSON can store them."""


@dataclass(frozen=True)
class _Settings:
    size_error: float = 1e-3  # of the size of a minibatch by the weights, relative to n
    rows_drawn: int = 100_000  # twice, to count how often each appears
    max_minibatches: int = 400  # that are drawn for that
    min_minibatches: int = 16  # of fewer, weights are not tested
    too_often: float = 8.0  # standard errors above which a row is drawn too often


_SETTINGS = _Settings()


def drawn(
    draws: RowDraws, rows: int, rng: np.random.Generator, count: int
) -> np.ndarray:
    """Return the rows of ``count`` minibatches, (count, n), known to be rows of the dataset.

    The code that gathers them checks no bounds: a row beyond the last would be foreign memory.
    """
    returned = draws.draw(rng, count)
    label = f"`minibatches`: {type(draws).__name__}.draw"
    array = np.asarray(returned)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"{label} must return row numbers, integers; it returned {describe(returned)} of "
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


def check_bound(draws: RowDraws, rows: int) -> None:
    """Raise an error if a user's own minibatches have a wrong size or wrong weights.

    A row is in a minibatch 1/w times on average if w is its weight, so 1/w add up to n.
    """
    label = f"`minibatches`: {type(draws).__name__}"
    for name in ("size", "weights", "every_row", "draw"):
        if not hasattr(draws, name):
            raise TypeError(
                f"{label} has no `{name}`; what `bind` returns must have one."
            )
    size, weights = draws.size, draws.weights
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ValueError(
            f"{label}.size must be an integer, 1 or more; it is {describe(size)}."
        )
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
    if abs(expected - size) > _SETTINGS.size_error * size:
        raise ValueError(
            f"{label}.weights: the weight of a row must be one over the number of times that it is "
            f"in a minibatch on average (N/n = {rows / size:g} if all rows are equally likely). By "
            f"these weights a minibatch would have {expected:g} rows, and it has {size}: multiply "
            f"them by {expected / size:g}."
        )


def try_minibatches(
    minibatches: Minibatches, draws: RowDraws, rows: int, neighbours: bool
) -> None:
    """Test user-defined minibatches.

    Args:
        minibatches: User's minibatches.
        draws: Same, bound to the dataset and checked for shapes.
        rows: Number of rows N.
        neighbours: Whether a row that is in a minibatch twice must have neighboring places.
    """
    with naming(minibatches, "to_json"):
        json.dumps(minibatches.to_json())
    if draws.every_row:
        return
    count = max(2, min(_SETTINGS.max_minibatches, _SETTINGS.rows_drawn // draws.size))
    label = f"`minibatches`: {type(draws).__name__}.draw"
    with naming(draws, "draw"):
        first, repeated = (
            drawn(draws, rows, np.random.default_rng(1), count) for _ in range(2)
        )
    if not np.array_equal(first, repeated):
        raise ValueError(
            f"{label} gives different rows for the same generator. All randomness must come from "
            "the `rng` that it receives, and nothing may be kept between calls: a block is drawn "
            "again when a chain is resumed."
        )
    if neighbours:
        runs = 1 + (np.diff(first, axis=1) != 0).sum(1)
        distinct = 1 + (np.diff(np.sort(first, axis=1), axis=1) != 0).sum(1)
        bad = np.flatnonzero(runs != distinct)
        if bad.size:
            raise ValueError(
                f"{label} puts a row into a minibatch twice at places that are no neighbours: "
                f"{describe(first[bad[0]].tolist())}. Sort each minibatch, np.sort(rows, axis=1)."
            )
    if count >= _SETTINGS.min_minibatches:
        second = drawn(draws, rows, np.random.default_rng(2), count)
        _need_right_weights(label, draws.weights, rows, first, second)


def _need_right_weights(
    label: str,
    weights: np.ndarray | None,
    rows: int,
    first: np.ndarray,
    second: np.ndarray,
) -> None:
    """Raise an error if rows come more often than their weights say.

    The rows that came too often in one half of the minibatches are counted in the other half,
    who come as often as they should if the weights are right.
    """
    count, size = second.shape
    seen, times = np.unique(first, return_counts=True)
    expected = (
        np.full(len(seen), size / rows) if weights is None else 1.0 / weights[seen]
    )
    often = times > count * expected
    seen = seen[often]
    mean = float(expected[often].sum())
    if not seen.size:
        return
    indices = np.minimum(np.searchsorted(seen, second), len(seen) - 1)
    counts = (seen[indices] == second).sum(1)
    error = max(float(counts.std(ddof=1)), 1e-3 * mean) / np.sqrt(count)
    if counts.mean() - mean > _SETTINGS.too_often * error:
        raise ValueError(
            f"{label}: some rows, such as {int(seen[0])}, come more often than "
            f"`weights` says: {counts.mean():.3g} of them are in a minibatch of {size} on average, "
            f"but should be {mean:.3g}, so that sums over the dataset are biased. The weight "
            "of a row must be one over the number of times that it is in a minibatch on average; "
            f"`weights = None` says that each row is in n/N = {size / rows:.3g} of them."
        )
