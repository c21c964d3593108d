"""Rows drawn uniformly, or in proportion to given probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.checks import describe, flag
from sgmcmc.data.dataset import digest
from sgmcmc.data.random_numbers import below
from sgmcmc.minibatches.base import Minibatches


@dataclass(frozen=True)
class _Settings:
    # Row numbers that are drawn, sorted and corrected together: they stay in the cache.
    drawn_together: int = 1 << 15
    # Comparisons of repeats with all of their minibatches; from more on they are looked up.
    max_comparisons: int = 1 << 17
    steps: int = 8  # rows that are compared one by one before a bisection


_SETTINGS = _Settings()


def row_dtype(rows: int) -> np.dtype:
    """Return the smallest integer dtype for the numbers of all rows."""
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
        while (rejected := np.flatnonzero(flat < 0)).size:
            flat[rejected] = _below(rng, rows, rejected.shape)
        drawn.sort(axis=1)
        return drawn
    if 2 * size > rows:
        if size == rows:
            order = np.arange(rows, dtype=row_dtype(rows))
            return np.broadcast_to(order, (count, rows))
        left_out = draw_rows(rng, rows, rows - size, count, replace=False)
        included = np.ones((count, rows), bool)
        np.put_along_axis(included, left_out.astype(np.intp), False, axis=1)
        return np.nonzero(included)[1].reshape(count, size).astype(row_dtype(rows))
    if rows > 10_000 and 8 * size > rows:
        # So many repeats would be drawn again that a shuffle is cheaper.
        drawn = np.empty((count, size), row_dtype(rows))
        for row in drawn:
            row[:] = rng.choice(rows, size, replace=False, shuffle=False)
        drawn.sort(axis=1)
        return drawn
    # Each is drawn with replacement, then each repeat again until its minibatch lacks it. What is
    # drawn again depends only on which entries are equal, so renaming the rows renames the result:
    # all subsets are equally likely.
    drawn = np.empty((count, size), row_dtype(rows))
    chunk_size = max(1, _SETTINGS.drawn_together // size)
    for first in range(0, count, chunk_size):
        chunk = drawn[first : first + chunk_size]
        chunk[...] = _below(rng, rows, chunk.shape)
        chunk.sort(axis=1)
        _redraw_repeats(rng, rows, chunk)
    return drawn


def _below(rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return independent row numbers, and -1 for those to be drawn again."""
    if rows < 2**31:
        return below(rng, rows, shape)
    return rng.integers(0, rows, shape, dtype=row_dtype(rows))


def _redraw_repeats(rng: np.random.Generator, rows: int, drawn: np.ndarray) -> None:
    """Draw repeats of sorted minibatches again, and missing rows."""
    size, flat = drawn.shape[1], drawn.reshape(-1)
    repeats = np.flatnonzero(flat[1:] == flat[:-1]) + 1
    repeats = repeats[repeats % size > 0]  # else the equal one ends another minibatch
    missing = np.flatnonzero(drawn[:, 0] < 0) * size  # of several, all but one repeat
    pending = np.sort(np.concatenate([missing, repeats])) if missing.size else repeats
    stride = np.int64(rows + 1)  # one more: there may be a -1
    looked_up = pending.size * size > _SETTINGS.max_comparisons
    if looked_up:
        # A repeat's value stays in its minibatch, as that of its twin: what was drawn at first is
        # known for good, and what is drawn again is known once it has taken its place.
        numbers = np.arange(len(drawn))[:, np.newaxis]
        first_keys = (drawn + stride * numbers).reshape(-1)
        accepted_keys = np.empty(0, np.int64)
    while pending.size:
        fresh = _below(rng, rows, pending.shape)
        minibatch = pending // size
        keys = minibatch * stride + fresh
        if looked_up:
            repeated = _one_of(first_keys, keys) | _one_of(accepted_keys, keys)
        else:
            repeated = (drawn[minibatch] == fresh[:, np.newaxis]).any(axis=1)
        # For each value whether an earlier one is equal.
        seen = np.ones(keys.size, bool)
        seen[np.unique(keys, return_index=True)[1]] = False
        repeated |= (fresh < 0) | seen
        flat[pending[~repeated]] = fresh[~repeated]
        if looked_up:
            accepted_keys = np.sort(np.concatenate([accepted_keys, keys[~repeated]]))
        pending = pending[repeated]


def _one_of(sorted_values: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each value whether it is one of the others, which are in rising order."""
    if not sorted_values.size:
        return np.zeros(values.size, bool)
    indices = np.minimum(np.searchsorted(sorted_values, values), sorted_values.size - 1)
    return sorted_values[indices] == values


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


class Weighted(Minibatches):
    """Minibatches in which row i is drawn with probability pᵢ, and its term counts 1/(n pᵢ).

    Rows are drawn with replacement, stratified: the k-th of the n rows comes from the k-th n-th of
    the probability, so that a row with n pᵢ ≥ 1 is in nearly every minibatch. The estimate of the
    sum over the dataset is unbiased, and its variance at most that of n independent draws,
    (Σ ‖gᵢ‖²/pᵢ − ‖Σ gᵢ‖²)/n. It is small if pᵢ is large for terms with large gradients gᵢ (or,
    with control variates, terms that change much).

    Args:
        p: N positive numbers, an entry for each row of the dataset; they need not sum to one.

    Raises:
        TypeError: ``p`` is not an array of numbers.
        ValueError: It is not a vector, or holds zeros, negatives, NaN or infinities, or numbers
            so small compared with the others that their rows would never be drawn.

    Example:
        >>> import numpy as np, sgmcmc
        >>> draws = sgmcmc.minibatches.Weighted([1, 1, 2]).bind(rows=3, size=2)
        >>> draws.weights.tolist()
        [2.0, 2.0, 1.0]
        >>> draws.draw(np.random.default_rng(1), 4)[:, 1].tolist()  # the upper half is row 2
        [2, 2, 2, 2]

    Source:
        J. Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster
        2018, section 3.3.1.
    """

    def __init__(self, p: Any) -> None:
        array = _numbers(p)
        if array.ndim != 1 or array.size == 0:
            raise ValueError(
                f"`p` must be a vector, with an entry for each row; it has shape {array.shape}."
            )
        bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
        if bad.size:
            raise ValueError(
                f"`p` must hold positive, finite numbers; p[{bad[0]}] is {array[bad[0]]:g}. A row "
                "that is never drawn would bias the gradient."
            )
        array /= array.max()  # the sum of huge numbers would be infinite
        self.p = array / array.sum()
        lower = np.append(0.0, np.cumsum(self.p)[:-1])
        unreachable = np.flatnonzero((lower + self.p <= lower) | (lower >= 1.0))
        if unreachable.size:
            raise ValueError(
                f"`p`: p[{unreachable[0]}] is {self.p[unreachable[0]]:g} of the sum, so small that "
                "its row would never be drawn, which would bias the gradient. Raise the smallest "
                "entries."
            )
        self.p.flags.writeable = False

    def bind(self, rows: int, size: int) -> WeightedDraws:
        """Return the draws from a dataset of ``rows`` rows."""
        if len(self.p) != rows:
            raise ValueError(
                f"`minibatches`: `p` holds {len(self.p)} probabilities, and `dataset` has {rows} "
                "observations."
            )
        return WeightedDraws(self.p, size)

    def to_json(self) -> dict[str, Any]:
        """Return facts that identify these probabilities."""
        return {"weighted": digest(self.p), "effective": float(1 / (self.p**2).sum())}

    def __repr__(self) -> str:
        return f"Weighted(p of {len(self.p)} rows, effectively {1 / (self.p**2).sum():.6g})"


def _numbers(p: Any) -> np.ndarray:
    """Return a copy of numbers in float64, or raise an error."""
    try:
        array = np.asarray(p)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"`p` must hold a probability for each row of the dataset; it is {describe(p)}."
        )
    return array.astype(np.float64)


class WeightedDraws:
    """Stratified draws by inversion of the distribution function.

    Where to begin looking for a value of it is read from a table with an entry for each N-th.

    Args:
        p: Probabilities, with sum one.
        size: Minibatch size n.
    """

    every_row = False

    def __init__(self, p: np.ndarray, size: int) -> None:
        self.size = size
        self.weights: np.ndarray | None = 1.0 / (size * p)
        self._upper = np.cumsum(p)
        self._upper[-1] = np.inf  # whatever rounding did to the sum
        grid = np.arange(len(p)) / len(p)
        self._first = np.searchsorted(self._upper, grid, "right").astype(
            row_dtype(len(p))
        )

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return the rows of ``count`` independent minibatches, (count, n)."""
        uniforms = rng.random((count, self.size))
        uniforms += np.arange(self.size)
        uniforms *= 1.0 / self.size
        # The first row whose distribution function exceeds each value. Never begin too far,
        # however products are rounded.
        uniforms = uniforms.reshape(-1)
        scale = len(self._first) * (1.0 - 2.0**-50)
        rows = self._first[(uniforms * scale).astype(self._first.dtype)]
        behind = np.flatnonzero(self._upper[rows] <= uniforms)
        for _ in range(_SETTINGS.steps):
            if not behind.size:
                break
            rows[behind] += 1
            behind = behind[self._upper[rows[behind]] <= uniforms[behind]]
        rows[behind] = np.searchsorted(self._upper, uniforms[behind], "right")
        return rows.reshape(count, self.size)
