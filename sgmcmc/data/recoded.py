"""Rows whose categories are numbered by the levels of a model, not by their own."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import (
    PIECE_BYTES,
    ArrayColumn,
    Column,
    Data,
    DenseColumn,
    digest_of_pieces,
)
from sgmcmc.data.entries import check_values
from sgmcmc.data.levels import Levels


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
            if (table < 0).any():
                _need_known(label, column, data.size, data_levels, levels[name], table)
        else:
            table = _numbers(
                label, data_levels, tf.int32 if name in integers else dtype
            )
        columns[name] = recoded(column, table, data.size)
    recoded_data = copy.copy(data)
    recoded_data.columns = columns
    recoded_data.levels = {name: levels[name] for name in data.levels if name in levels}
    return recoded_data


def _need_known(
    label: str,
    column: Column,
    rows: int,
    data_levels: Levels,
    levels: Levels,
    table: np.ndarray,
) -> None:
    """Refuse rows whose level is new; a level without rows does no harm."""
    assert isinstance(column, DenseColumn)
    step = PIECE_BYTES // column.row_bytes
    for start in range(0, rows, step):
        codes = column.slice(start, min(start + step, rows))
        new = table[codes] < 0
        if new.any():
            raise ValueError(
                levels.unknown(label, data_levels.values[codes[int(new.argmax())]])
            )


def _numbers(label: str, levels: Levels, dtype: tf.DType) -> np.ndarray:
    if not all(isinstance(value, bool | int | float) for value in levels.values):
        raise ValueError(
            f"`{label}` holds categories, such as {levels.values[0]!r}, where the model has "
            "numbers, or levels that are not known. Pass these numbers."
        )
    values = np.array(levels.values)
    check_values(label, values, dtype)
    return values.astype(dtype.as_numpy_dtype)
