"""Rows that are all equally likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.checks import flag
from sgmcmc.minibatches.base import Minibatches
from sgmcmc.minibatches.rows import draw_rows


@dataclass(frozen=True)
class Uniform(Minibatches):
    """Minibatches in which every row of the dataset is equally likely; a term counts N/n.

    Without replacement every subset of n rows has the same chance, and the variance of the
    minibatch gradient is N(N − n)/n times the sample variance of the terms' gradients; with
    replacement it is N²/n times their variance.

    Args:
        replace: draw with replacement.

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
        """Return how rows are drawn from a dataset of ``rows`` rows."""
        return UniformDraws(rows, size, self.replace)

    def to_json(self) -> str:
        """Return the name that these minibatches go by."""
        return "replacement" if self.replace else "uniform"


class UniformDraws:
    """Uniform draws of rows.

    Args:
        rows: N.
        size: n.
        replace: draw with replacement.
    """

    weights: Any = None

    def __init__(self, rows: int, size: int, replace: bool) -> None:
        self.size = size
        self.every_row = size == rows and not replace
        self._rows, self.replace = rows, replace

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return the rows of ``count`` independent minibatches, (count, n)."""
        return draw_rows(rng, self._rows, self.size, count, self.replace)
