"""Two datasets one after the other, as those of a table that has grown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sgmcmc.data.dataset import ArrayColumn, Column, Data, DenseColumn, digest_of_pieces
from sgmcmc.data.sparse import SparseColumn


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
        from sgmcmc.data.halves import HalfColumn  # most datasets are joined without it

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
