"""Rows in order: permuted once an epoch, and used n at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sgmcmc.checks import flag, whole_number
from sgmcmc.minibatches.base import Minibatches
from sgmcmc.minibatches.uniform import draw_rows, row_dtype


class SequenceStart(NamedTuple):
    """The place in a chain's sequence of minibatches at which a block begins.

    Attributes:
        chain: Entropy that distinguishes this chain, in this phase of this run, from others.
        epoch: Generator of the order of an epoch, by its number from 0.
        first: Number of the first minibatch; that at the start of the chain is 0.
    """

    chain: tuple[int, ...]
    epoch: Callable[[int], np.random.Generator]
    first: int


@dataclass(frozen=True)
class Reshuffled(Minibatches):
    """Minibatches in order: rows are permuted once an epoch, and used n at a time.

    An epoch is a pass over the data, of R = N/n minibatches. If n does not divide N, the last
    minibatch of an epoch is completed from the next. The noise of a sum over an epoch vanishes, so
    that the noise of minibatches is negatively correlated: two of one epoch have covariance
    −V/(R − 1) if V is the variance of one. A term counts N/n.

    Args:
        block: Number of consecutive rows that stay together: blocks of rows are permuted.
            For data on disk or far larger than the caches, whose rows are then read in runs; rows
            must not be sorted by anything that matters.
        symmetric: Whether every other epoch is the one before, backwards.

    Raises:
        TypeError, ValueError: ``block`` is not a positive integer, or ``symmetric`` not a truth
            value.

    Example:
        >>> import numpy as np, sgmcmc
        >>> from sgmcmc.minibatches.reshuffled import SequenceStart
        >>> draws = sgmcmc.minibatches.Reshuffled().bind(rows=6, size=2)
        >>> place = SequenceStart((0,), np.random.default_rng, 0)
        >>> sorted(draws.in_order(place, 3).reshape(-1).tolist())  # an epoch
        [0, 1, 2, 3, 4, 5]

    Source:
        Shaw & Whalley, *Random reshuffling for stochastic gradient Langevin dynamics*, 2025;
        Paulin, Whalley, Chada & Leimkuhler, *Sampling from Bayesian neural network posteriors with
        symmetric minibatch splitting Langevin dynamics*, AISTATS 2025.
    """

    block: int = 1
    symmetric: bool = False

    def __post_init__(self) -> None:
        whole_number("block", self.block, 1)
        flag("symmetric", self.symmetric)

    def bind(self, rows: int, size: int) -> OrderedDraws:
        """Return the draws from a dataset of ``rows`` rows."""
        if self.block > rows:
            raise ValueError(
                f"`minibatches`: `block` is {self.block}, longer than an epoch: `dataset` has "
                f"{rows} rows."
            )
        return OrderedDraws(rows, size, int(self.block), self.symmetric)

    def to_json(self) -> Any:
        """Return the name of these minibatches, or their constants."""
        if self.block == 1:
            return "symmetric" if self.symmetric else "reshuffled"
        return {
            "name": "reshuffled",
            "block": int(self.block),
            "symmetric": self.symmetric,
        }


class _Order(NamedTuple):
    """The order of an epoch.

    Attributes:
        blocks: Blocks of rows.
        after: Number of rows up to the last block of the dataset, which may be short.
        short: Number of rows that it lacks.
    """

    blocks: np.ndarray
    after: int
    short: int


class OrderedDraws:
    """Minibatches of a permutation that is new in each epoch.

    Args:
        rows: Number of rows N.
        size: Minibatch size n.
        block: Number of consecutive rows that stay together.
        symmetric: Whether every other epoch is the one before, backwards.
    """

    weights: Any = None
    _kept_orders = 16  # of epochs, of all chains

    def __init__(self, rows: int, size: int, block: int, symmetric: bool) -> None:
        self.size = size
        self.every_row = size == rows
        self._rows, self._block, self._symmetric = rows, block, symmetric
        self._orders: OrderedDict[tuple[int, ...], _Order] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_orders": OrderedDict()}

    def in_order(self, block_start: SequenceStart, count: int) -> np.ndarray:
        """Return the rows of ``count`` minibatches one after another, (count, n), each sorted."""
        start = block_start.first * self.size
        stop = start + count * self.size
        rows = np.empty(stop - start, row_dtype(self._rows))
        done = start
        while done < stop:
            epoch, within = divmod(done, self._rows)
            of_epoch = min(stop - done, self._rows - within)
            number = epoch // 2 if self._symmetric else epoch
            key = (*block_start.chain, number)
            order = self._orders.get(key)
            if order is None:
                order = self._orders[key] = self._order(block_start.epoch(number))
                while len(self._orders) > self._kept_orders:
                    self._orders.popitem(last=False)
            target = rows[done - start : done - start + of_epoch]
            if self._symmetric and epoch % 2 == 1:  # the same order, backwards
                first = self._rows - within - of_epoch
                target[:] = self._rows_of(order, first, of_epoch)[::-1]
            else:
                target[:] = self._rows_of(order, within, of_epoch)
            done += of_epoch
        rows = rows.reshape(count, self.size)
        # They are gathered faster, and a row that comes twice has neighboring places.
        rows.sort(axis=1)
        return rows

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return the rows of ``count`` independent minibatches, each as one of an epoch is."""
        if self._block == 1:
            return draw_rows(rng, self._rows, self.size, count, replace=False)
        minibatches = np.empty((count, self.size), row_dtype(self._rows))
        for minibatch in minibatches:
            order = self._order(rng)
            start = int(rng.integers(0, self._rows - self.size + 1))
            minibatch[...] = np.sort(self._rows_of(order, start, self.size))
        return minibatches

    def _order(self, rng: np.random.Generator) -> _Order:
        blocks = -(-self._rows // self._block)
        order = rng.permutation(blocks).astype(row_dtype(self._rows))
        short = blocks * self._block - self._rows
        # Places after the last block of the dataset, which may be short, come earlier.
        last = int(np.flatnonzero(order == blocks - 1)[0]) if short else blocks - 1
        return _Order(order, (last + 1) * self._block - short, short)

    def _rows_of(self, order: _Order, start: int, count: int) -> np.ndarray:
        """Return the rows at some places of an epoch whose blocks have an order."""
        if self._block == 1:
            return order.blocks[start : start + count]
        positions = np.arange(start, start + count)
        positions += np.where(positions < order.after, 0, order.short)
        block, within = np.divmod(positions, self._block)
        return order.blocks[block] * self._block + within
