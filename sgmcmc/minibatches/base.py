"""The interface of minibatches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np


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
