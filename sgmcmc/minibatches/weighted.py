"""Rows drawn in proportion to given probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgmcmc.checks import describe
from sgmcmc.data.dataset import digest
from sgmcmc.minibatches.base import Minibatches
from sgmcmc.minibatches.uniform import row_dtype

_STEPS = 8
"""Rows that are compared one by one before a bisection."""


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
        lost = np.flatnonzero((lower + self.p <= lower) | (lower >= 1.0))
        if lost.size:
            raise ValueError(
                f"`p`: p[{lost[0]}] is {self.p[lost[0]]:g} of the sum, so small that its row "
                "would never be drawn, which would bias the gradient. Raise the smallest entries."
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
        """Return what identifies these probabilities."""
        return {"weighted": digest(self.p), "effective": float(1 / (self.p**2).sum())}

    def __repr__(self) -> str:
        return f"Weighted(p of {len(self.p)} rows, effectively {1 / (self.p**2).sum():.6g})"


def _numbers(p: Any) -> np.ndarray:
    """Return a copy in float64 of what must be numbers."""
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
        parts = np.arange(len(p)) / len(p)
        self._first = np.searchsorted(self._upper, parts, "right").astype(row_dtype(len(p)))

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return the rows of ``count`` independent minibatches, (count, n)."""
        at = rng.random((count, self.size))
        at += np.arange(self.size)
        at *= 1.0 / self.size
        return self._invert(at.reshape(-1)).reshape(count, self.size)

    def _invert(self, at: np.ndarray) -> np.ndarray:
        """Return the first row whose distribution function exceeds each value."""
        # Never begin too far, however products are rounded.
        parts = len(self._first) * (1.0 - 2.0**-50)
        rows = self._first[(at * parts).astype(self._first.dtype)]
        late = np.flatnonzero(self._upper[rows] <= at)
        for _ in range(_STEPS):
            if not late.size:
                return rows
            rows[late] += 1
            late = late[self._upper[rows[late]] <= at[late]]
        rows[late] = np.searchsorted(self._upper, at[late], "right")
        return rows
