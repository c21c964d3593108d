"""The minibatches of several chains that share a kernel.

Blocks hold the row numbers of all of them, and those of an iteration are gathered together: in
place, or from one tensor that holds the data for all chains.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from sgmcmc.data import native
from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.minibatches.base import RowDraws
from sgmcmc.minibatches.streams import (
    ROWS,
    GatheredAhead,
    InPlace,
    OnDevice,
    Stream,
    Whole,
    has_addresses,
)
from sgmcmc.minibatches.uniform import row_dtype

# Largest number of bytes of a row for which XLA's own gather is faster: XLA fuses it with the use
# of the rows.
_SHORT_ROW = 64

_MOST_BYTES = (
    2**26
)  # bytes of data of which there may be a tensor in addition to the array


class SharedStream:
    """A stream of minibatches for several chains at a time.

    ``gathered`` brings the rows of all chains, and ``single_chain`` picks the minibatch of one
    chain's step out of those of its iteration, which takes ``steps``.
    """

    def __init__(
        self, gathered: Stream, single_chain: Stream, chains: int, steps: int
    ) -> None:
        self._gathered, self.single_chain = gathered, single_chain
        self.chains, self._steps = chains, steps

    @property
    def fixed(self) -> Tensors:
        """Tensors that every block needs."""
        return self._gathered.fixed

    @property
    def draws_rows(self) -> bool:
        """Whether minibatches are drawn; else each is the whole dataset."""
        return not isinstance(self._gathered, Whole)

    def rows(self, length: int) -> tuple[tuple[int, ...], np.dtype]:
        """Return shape and dtype of the row numbers of a block, given its iterations."""
        of_chain = self._steps * self.single_chain.size if self.draws_rows else 0
        return (length, self.chains * of_chain), row_dtype(self.single_chain.data.size)

    def rows_by_chain(self, rows: np.ndarray) -> np.ndarray:
        """Return the same row numbers, (iterations, chains, steps, n)."""
        steps = self._steps if self.draws_rows else 0
        return rows.reshape(len(rows), self.chains, steps, self.single_chain.size)

    def of_iteration(self, fixed: Tensors, rows: tf.Tensor, i: tf.Tensor) -> Tensors:
        """Return a block of one iteration for each chain: arrays of (chains, steps, n, ...)."""
        if not self.draws_rows:
            return {}
        block: Mapping[str, tf.Tensor] = {ROWS: rows}
        arrays = dict(self._gathered.dense(fixed, block, i))
        if self.single_chain.with_rows:
            arrays[ROWS] = tf.gather(rows, i)
        head = (self.chains, self._steps, self.single_chain.size)
        return {
            name: tf.reshape(a, head + tuple(a.shape[1:])) for name, a in arrays.items()
        }


def make_shared_stream(
    data: Data,
    draws: RowDraws,
    dtype: tf.DType,
    *,
    with_rows: bool,
    chains: int,
    steps: int,
) -> SharedStream | None:
    """Return the stream of several chains that share a kernel, or ``None`` if there is none."""
    if data.sparse or tf.config.list_logical_devices("GPU"):
        return None
    arguments = data, draws, dtype, with_rows
    if draws.every_row:
        whole = Whole(*arguments)
        return SharedStream(whole, whole, chains, steps)
    in_place = has_addresses(data) and native.callable_by_xla()
    fits_in_tensor = data.size * data.row_bytes <= _MOST_BYTES
    if not (in_place or fits_in_tensor):
        return None
    in_place = in_place and (data.row_bytes > _SHORT_ROW or not fits_in_tensor)
    gathered = InPlace(*arguments) if in_place else OnDevice(*arguments)
    return SharedStream(gathered, GatheredAhead(*arguments, xla=False), chains, steps)
