"""Columns whose numbers lie in memory in 16 bits, and are read as those of the chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import (
    ArrayColumn,
    Column,
    DenseColumn,
    aligned,
    copy_rows,
    digest,
    tensor_of,
)

FORMATS = {"float16": tf.float16, "bfloat16": tf.bfloat16}
"""Formats by name."""


def in_halves(name: str, column: Column, dtype: tf.DType, storage: str) -> Column:
    """Return a column in 16 bits, or as it is: one of single numbers, of integers, or in a file.

    Args:
        name: Name of the column.
        column: Column that was read.
        dtype: Dtype of the chain.
        storage: Name of the format.

    Raises:
        ValueError: The format cannot hold a number.
    """
    floats = np.dtype(dtype.as_numpy_dtype)
    if (
        type(column) is not ArrayColumn
        or column.dtype != floats
        or not column.row_shape
    ):
        return column
    largest = float(FORMATS[storage].max)
    low, high = float(column.array.min()), float(column.array.max())
    if not -largest <= low <= high <= largest:
        hint = ", or use storage='bfloat16'" if storage == "float16" else ""
        raise ValueError(
            f"`storage`: `dataset[{name!r}]` holds {high if high > largest else low:g}, which "
            f"{storage} cannot hold (its limit is {largest:g}). Rescale the column{hint}."
        )
    halves = column.array.astype(FORMATS[storage].as_numpy_dtype)
    return HalfColumn(halves.view(np.uint16), floats, storage)


class HalfColumn(DenseColumn):
    """A column in memory whose numbers have 16 bits each.

    A minibatch is gathered as it lies there, and becomes numbers of the chain's dtype in the
    compiled chain.

    Args:
        array: Numbers, their bits as unsigned integers.
        dtype: Dtype of the chain.
        storage: Name of their format.
    """

    stored_dtype = np.dtype(np.uint16)

    def __init__(self, array: np.ndarray, dtype: np.dtype, storage: str) -> None:
        self.array, self.dtype, self.storage = (
            np.ascontiguousarray(array),
            dtype,
            storage,
        )
        self.row_shape = array.shape[1:]
        self.address = self.array.ctypes.data

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process the array lies elsewhere.
        return HalfColumn, (self.array, self.dtype, self.storage)

    @property
    def row_bytes(self) -> int:
        """Bytes of one observation."""
        return self.stored_dtype.itemsize * int(np.prod(self.row_shape))

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy these rows into ``out``: their bits, or the numbers if it holds such."""
        if out.dtype == self.stored_dtype:
            copy_rows(self.array, rows, out)
            return
        bits = np.empty(out.shape, self.stored_dtype)
        copy_rows(self.array, rows, bits)
        out[...] = self._numbers(bits)

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return the rows from ``start`` to ``stop``."""
        return self._numbers(self.array[start:stop])

    def tensor(self, start: int, stop: int) -> tf.Tensor:
        """Return the rows from ``start`` to ``stop``."""
        return self.seen(self.stored_tensor(start, stop))

    def stored_tensor(self, start: int, stop: int) -> tf.Tensor:
        """Return the bits of the rows from ``start`` to ``stop``."""
        out = aligned((stop - start, *self.row_shape), self.stored_dtype)
        out[...] = self.array[start:stop]
        return tensor_of(out)

    def tensor_at(self, rows: np.ndarray) -> tf.Tensor:
        """Return a copy of these rows, of any shape."""
        out = aligned(rows.shape + self.row_shape, self.stored_dtype)
        self.take(rows, out)
        return self.seen(tensor_of(out))

    def seen(self, stored: tf.Tensor) -> tf.Tensor:
        """Return the numbers of bits."""
        return tf.cast(tf.bitcast(stored, FORMATS[self.storage]), self.dtype)

    def _numbers(self, bits: np.ndarray) -> np.ndarray:
        return bits.view(FORMATS[self.storage].as_numpy_dtype).astype(self.dtype)

    def followed_by(self, following: HalfColumn) -> HalfColumn:
        """Return the column with the rows of another behind its own."""
        return HalfColumn(
            np.concatenate([self.array, following.array]), self.dtype, self.storage
        )

    def digest(self) -> str:
        """Return the digest of all values."""
        return f"{self.storage} {digest(self.array)}"
