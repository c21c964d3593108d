"""Columns made of others: in 16 bits, with other codes, and one followed by another."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import (
    PIECE_BYTES,
    ArrayColumn,
    Column,
    Data,
    DenseColumn,
    aligned,
    copy_rows,
    digest,
    digest_of_pieces,
    tensor_of,
)
from sgmcmc.data.entries import check_values
from sgmcmc.data.levels import Levels
from sgmcmc.data.sparse import SparseColumn

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
        self.array = np.ascontiguousarray(array)
        self.dtype = dtype
        self.storage = storage
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


class RecodedColumn(DenseColumn):
    """A column of codes that is read through a table.

    Args:
        codes: Column of codes from 0.
        table: Value for each code.
        rows: Length of the column.
    """

    def __init__(self, codes: DenseColumn, table: np.ndarray, rows: int) -> None:
        self._codes, self._table, self._rows = codes, table, rows
        self.dtype, self.row_shape = table.dtype, codes.row_shape

    def unpack(self) -> None:
        """Prepare random access to rows, if necessary."""
        self._codes.unpack()

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy these rows into ``out``."""
        codes = np.empty(rows.shape, self._codes.dtype)
        self._codes.take(rows, codes)
        np.take(self._table, codes, out=out, mode="clip")

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return the rows from ``start`` to ``stop``."""
        return self._table[self._codes.slice(start, stop)]

    def digest(self) -> str:
        """Return the digest of some pieces."""
        return digest_of_pieces(self, self._rows)


def recoded(column: Column, table: np.ndarray, rows: int) -> Column:
    """Return a column of codes with the value that a table has for each."""
    assert isinstance(column, DenseColumn)
    if table.dtype == column.dtype and np.array_equal(table, np.arange(len(table))):
        return column
    if isinstance(column, ArrayColumn):
        return ArrayColumn(table[column.array])
    return RecodedColumn(column, table, rows)


def coded_by(
    data: Data, levels: Mapping[str, Levels], dtype: tf.DType, integers: Collection[str]
) -> Data:
    """Return rows whose categories are numbered by the levels of a model.

    A column that is not one of categories in the model has its numbers there, so here it has them
    too: a category 10 is 10.

    Args:
        data: Rows, numbered by their own levels.
        levels: Levels of the model, by column.
        dtype: Dtype of the chain.
        integers: Names of columns that stay integers.

    Raises:
        ValueError: A row has a level that the model has not seen; the message names it.
    """
    columns = dict(data.columns)
    for name, data_levels in data.levels.items():
        label, column = f"dataset[{name!r}]", columns[name]
        if name in levels:
            table = levels[name].codes(data_levels.values)
            new = _first_code_without_value(column, table, data.size)
            if new is not None:
                raise ValueError(levels[name].unknown(label, data_levels.values[new]))
        else:
            kind = tf.int32 if name in integers else dtype
            table = _numbers(label, data_levels, kind)
        columns[name] = recoded(column, table, data.size)
    recoded_data = copy.copy(data)
    recoded_data.columns = columns
    recoded_data.levels = {name: levels[name] for name in data.levels if name in levels}
    return recoded_data


def _first_code_without_value(
    column: Column, table: np.ndarray, rows: int
) -> int | None:
    """Return the first code in a column that has no value in a table of codes; ``None`` if none.

    A level without rows does no harm.
    """
    if (table >= 0).all():
        return None
    assert isinstance(column, DenseColumn)
    step = PIECE_BYTES // column.row_bytes
    for start in range(0, rows, step):
        codes = column.slice(start, min(start + step, rows))
        new = table[codes] < 0
        if new.any():
            return int(codes[int(new.argmax())])
    return None


def _numbers(label: str, levels: Levels, dtype: tf.DType) -> np.ndarray:
    if not all(isinstance(value, bool | int | float) for value in levels.values):
        raise ValueError(
            f"`{label}` holds categories, such as {levels.values[0]!r}, where the model has "
            "numbers, or levels that are not known. Pass these numbers."
        )
    values = np.array(levels.values)
    check_values(label, values, dtype)
    return values.astype(dtype.as_numpy_dtype)


def joined(old: Data, new: Data) -> Data:
    """Return the rows of one dataset, then those of another.

    Arrays in memory and sparse matrices are copied; a file is left where it is.

    Args:
        old: Dataset.
        new: Dataset of columns of the same names and kinds.

    Raises:
        ValueError: Names, shapes of rows or dtypes differ; the message is on ``rows``.
    """
    need_same_columns(old.columns, new.columns)
    columns = {
        name: _joined(name, column, old.size, new.columns[name], new.size)
        for name, column in old.columns.items()
    }
    return Data(columns, old.size + new.size, None, old.levels).on(old.machines)


def _joined(
    name: str, old: Column, old_rows: int, new: Column, new_rows: int
) -> Column:
    need_like_rows(
        name, *(f"{c.row_shape} {c.dtype}{' sparse' * c.sparse}" for c in (old, new))
    )
    if isinstance(old, ArrayColumn):
        assert isinstance(new, DenseColumn)
        return ArrayColumn(np.concatenate([old.array, new.slice(0, new_rows)]))
    if isinstance(old, SparseColumn):
        assert isinstance(new, SparseColumn)
        return old.followed_by(new)
    if isinstance(old, DenseColumn) and old.stored_dtype != old.dtype:
        assert isinstance(old, HalfColumn) and isinstance(new, HalfColumn)
        return old.followed_by(new)
    assert isinstance(old, DenseColumn) and isinstance(new, DenseColumn)
    return JoinedColumn(old, old_rows, new, new_rows)


def need_same_columns(old: Iterable[str], new: Iterable[str]) -> None:
    """Raise an error unless new rows have the columns of the dataset."""
    if set(old) != set(new):
        raise ValueError(
            f"`rows` must have the columns of `dataset`, {sorted(old)}; it has {sorted(new)}."
        )


def need_like_rows(name: str, old: Any, new: Any) -> None:
    """Raise an error unless new rows of a column have the shape of the old."""
    if old != new:
        raise ValueError(
            f"`rows[{name!r}]` must have rows like those of `dataset[{name!r}]`, of shape {old}; "
            f"they are of shape {new}."
        )


class JoinedColumn(DenseColumn):
    """A column on disk, followed by another.

    Args:
        old: First column.
        old_rows: Its length.
        new: Second column.
        new_rows: Its length.
    """

    def __init__(
        self, old: DenseColumn, old_rows: int, new: DenseColumn, new_rows: int
    ) -> None:
        self.dtype, self.row_shape = old.dtype, old.row_shape
        self._old, self._new = old, new
        self._border, self._rows = old_rows, old_rows + new_rows

    def unpack(self) -> None:
        """Prepare random access to rows, if necessary."""
        self._old.unpack()
        self._new.unpack()

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy these rows into ``out``."""
        later = rows >= self._border
        for column, chosen, first in (
            (self._old, ~later, 0),
            (self._new, later, self._border),
        ):
            if chosen.any():
                values = np.empty((int(chosen.sum()), *self.row_shape), self.dtype)
                column.take(rows[chosen] - first, values)
                out[chosen] = values

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return the rows from ``start`` to ``stop``."""
        border = self._border
        return np.concatenate(
            [
                self._old.slice(min(start, border), min(stop, border)),
                self._new.slice(
                    max(start, border) - border, max(stop, border) - border
                ),
            ]
        )

    def digest(self) -> str:
        """Return the digest of some pieces."""
        return digest_of_pieces(self, self._rows)
