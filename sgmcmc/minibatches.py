"""The data stream: which observations each gradient sees, and how they get to it.

A stream prepares a block's worth of minibatches outside the compiled chain, and picks the
minibatch of one step out of that block inside it. On a CPU the blocks of a single chain are
gathered on another thread, if there is a core for that; several chains gather each minibatch
themselves when its step comes, so that its rows never leave the cache of one core. On a GPU the
data lie on the device and only the row numbers travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import numpy as np
import tensorflow as tf

from sgmcmc import native
from sgmcmc.data import Data
from sgmcmc.row_numbers import draw_rows, row_dtype
from sgmcmc.tracing import traced_for_xla

Arrays = dict[str, np.ndarray]
Tensors = dict[str, tf.Tensor]

_Stream = TypeVar("_Stream")

_COLUMN, _ROWS = "column/", "rows"
"""Names of a block's arrays."""

_WORTH_A_CALL = 16 * 2**10
"""Bytes of a minibatch from which on native code pays: lighter ones XLA fuses with what they are
used for."""

_WORTH_AHEAD = 2**20
"""Bytes of a minibatch up to which it pays to gather it on another core: the arithmetic of heavier
ones keeps all cores busy."""


class Minibatches(Protocol):
    """A stream of minibatches."""

    fixed: Tensors
    """Tensors that every block needs."""

    size: int
    """n, the observations in a minibatch."""

    bytes_per_step: int
    """What a step's minibatch weighs, to bound a block by."""

    @property
    def plain(self) -> Minibatches:
        """The same stream for graphs that XLA does not compile: itself, if it suits those."""

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the arrays of a block of so many steps."""

    def prepare(self, rng: np.random.Generator, out: Arrays) -> None:
        """Fill a block's arrays."""

    def minibatch(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the minibatch of one step, inside the compiled chain."""

    def rows(self, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Return the row numbers of that minibatch."""


class _AnyGraph:
    """What streams have in common that suit any graph."""

    @property
    def plain(self: _Stream) -> _Stream:
        """The stream itself."""
        return self


class _RowNumbers:
    """Minibatches whose rows are drawn a block at a time; the block holds their numbers alone."""

    def __init__(self, data: Data, size: int, replace: bool) -> None:
        self.data, self.size, self.replace = data, size, replace

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the row numbers of a block."""
        return {_ROWS: ((steps, self.size), row_dtype(self.data.size))}

    def prepare(self, rng: np.random.Generator, out: Arrays) -> None:
        """Draw the rows of each step."""
        steps = out[_ROWS].shape[0]
        out[_ROWS][...] = draw_rows(rng, self.data.size, self.size, steps, self.replace)

    def rows(self, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Return the row numbers of that minibatch."""
        return tf.gather(block[_ROWS], step)


class GatheredMinibatches(_RowNumbers, _AnyGraph):
    """Minibatches whose rows are gathered on the host, block by block.

    Args:
        data: the dataset.
        size: n.
        replace: draw with replacement.
        with_rows: hand over the row numbers too.
    """

    def __init__(self, data: Data, size: int, replace: bool, with_rows: bool = False) -> None:
        super().__init__(data, size, replace)
        self.with_rows = with_rows
        self.fixed: Tensors = {}
        self.bytes_per_step = size * data.row_bytes

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of the arrays of a block."""
        columns = {
            _COLUMN + name: ((steps, self.size, *column.row_shape), column.dtype)
            for name, column in self.data.columns.items()
        }
        return columns | super().shapes(steps) if self.with_rows else columns

    def prepare(self, rng: np.random.Generator, out: Arrays) -> None:
        """Draw the rows of each step and copy them."""
        steps = next(iter(out.values())).shape[0]
        rows = draw_rows(rng, self.data.size, self.size, steps, self.replace)
        for name, column in self.data.columns.items():
            column.take(rows, out[_COLUMN + name])
        if self.with_rows:
            out[_ROWS][...] = rows

    def minibatch(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the minibatch of one step."""
        return {name: _of_block(block[_COLUMN + name], step) for name in self.data.columns}


class DeviceMinibatches(_RowNumbers, _AnyGraph):
    """Minibatches whose rows are gathered on the device that holds the data."""

    def __init__(self, data: Data, size: int, replace: bool) -> None:
        super().__init__(data, size, replace)
        self.fixed = data.whole()
        self.bytes_per_step = 4 * size

    def minibatch(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the minibatch of one step."""
        rows = self.rows(block, step)
        return {name: tf.gather(fixed[name], rows) for name in self.data.columns}


class NeedsXLA(Exception):  # noqa: N818 - not an error: the stream has another form
    """A stream was asked for a minibatch in a graph that XLA does not compile."""


class InPlaceMinibatches(_RowNumbers):
    """Minibatches that the compiled chain gathers itself, from where the data lie.

    A minibatch is gathered and used by one core, whose cache it never leaves. Only XLA can call
    what gathers it, so for plain graphs blocks are prepared by ``plain``, and ``minibatch`` takes
    those too.

    Args:
        data: the dataset, each column of which has an address.
        size: n.
        replace: draw with replacement.
        with_rows: plain blocks are to hold the row numbers too.
    """

    def __init__(self, data: Data, size: int, replace: bool, with_rows: bool = False) -> None:
        super().__init__(data, size, replace)
        self.plain = GatheredMinibatches(data, size, replace, with_rows)
        self.fixed = {
            name: tf.constant(column.address, tf.int64) for name, column in data.columns.items()
        }
        # As if gathered, so that both forms draw the same numbers.
        self.bytes_per_step = self.plain.bytes_per_step

    def minibatch(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the minibatch of one step."""
        if block.keys() != {_ROWS}:
            return self.plain.minibatch(fixed, block, step)
        if not traced_for_xla():
            raise NeedsXLA
        return {
            name: native.gather_rows(
                fixed[name], block[_ROWS], step, column.row_shape, column.dtype
            )
            for name, column in self.data.columns.items()
        }


class WholeDataset(_AnyGraph):
    """The whole dataset at every step, in its own order: n = N, with no sampling noise."""

    def __init__(self, data: Data) -> None:
        self.size = data.size
        self.fixed = data.whole()
        self.bytes_per_step = data.size * data.row_bytes

    def shapes(self, steps: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return no arrays: a block needs none."""
        return {}

    def prepare(self, rng: np.random.Generator, out: Arrays) -> None:
        """Do nothing: there is nothing to draw."""

    def minibatch(self, fixed: Tensors, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> Tensors:
        """Return the dataset."""
        return dict(fixed)

    def rows(self, block: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Return all row numbers."""
        return tf.range(self.size)


def make_minibatches(
    data: Data, size: int, replace: bool, with_rows: bool = False, ahead: bool = True
) -> Minibatches:
    """Return the stream that suits the data and the device.

    Args:
        data: the dataset.
        size: n.
        replace: draw with replacement.
        with_rows: the chain wants the row numbers too.
        ahead: whole blocks should be gathered while a chain runs on another core.
    """
    if size == data.size and not replace:
        return WholeDataset(data)
    if tf.config.list_logical_devices("GPU"):
        return DeviceMinibatches(data, size, replace)
    ahead = ahead and size * data.row_bytes <= _WORTH_AHEAD
    if not ahead and _can_stay_in_place(data, size):
        return InPlaceMinibatches(data, size, replace, with_rows)
    return GatheredMinibatches(data, size, replace, with_rows)


def _can_stay_in_place(data: Data, size: int) -> bool:
    addresses = [column.address for column in data.columns.values()]
    heavy = size * data.row_bytes >= _WORTH_A_CALL
    return heavy and None not in addresses and native.callable_by_xla()


def _of_block(block: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Return the part of a block that belongs to a step."""
    weight = block.dtype.size * block.shape[1:].num_elements()
    if weight >= _WORTH_A_CALL and traced_for_xla() and native.callable_by_xla():
        return native.copy_minibatch(block, step)
    return tf.gather(block, step)
