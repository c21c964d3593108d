"""Sparse tables of counts: which words each document holds, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Counts"]

Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Counts:
    """A table of nonnegative integers of which only those above 0 are stored.

    Row i holds the counts ``data[indptr[i]:indptr[i + 1]]`` in the columns
    ``indices[indptr[i]:indptr[i + 1]]``: the compressed sparse rows of SciPy, whose attributes
    have the same names.

    Args:
        data: Counts, int32.
        indices: Columns of the counts, int32, ascending within a row.
        indptr: Start of each row, and the end of the last, int32 (rows + 1,).
        shape: Rows and columns.

    Example:
        >>> counts = Counts.read([[2, 0, 1], [0, 0, 0], [0, 3, 0]])
        >>> counts.shape, len(counts), counts.total
        ((3, 3), 3, 6)
        >>> counts[1:].toarray()
        array([[0, 0, 0],
               [0, 3, 0]], dtype=int32)
    """

    data: Ints
    indices: Ints
    indptr: Ints
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        rows, columns = self.shape
        return (
            f"Counts({rows} × {columns}, {len(self.data)} above 0, total {self.total})"
        )

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return int(self.data.sum(dtype=np.int64))

    @property
    def row_totals(self) -> NDArray[np.int64]:
        """The sum of each row."""
        sums = np.concatenate([[0], np.cumsum(self.data, dtype=np.int64)])
        return sums[self.indptr[1:]] - sums[self.indptr[:-1]]

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> Counts:
        """Return some of the rows: a slice, a mask, or a list of row numbers."""
        numbers = np.arange(len(self))
        chosen = numbers[rows if isinstance(rows, slice) else np.asarray(rows)]
        if chosen.ndim != 1:
            raise TypeError(
                f"rows must be a slice, a mask or a list of row numbers, not {rows!r}"
            )
        sizes = np.diff(self.indptr)[chosen]
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        places = np.arange(indptr[-1]) + np.repeat(
            self.indptr[chosen] - indptr[:-1], sizes
        )
        shape = (len(chosen), self.shape[1])
        return Counts(self.data[places], self.indices[places], indptr, shape)

    def toarray(self) -> Ints:
        """Return the table with its zeros, int32 (rows, columns)."""
        table = np.zeros(self.shape, np.int32)
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        table[rows, self.indices] = self.data
        return table

    @classmethod
    def from_triples(
        cls,
        rows: ArrayLike,
        columns: ArrayLike,
        values: ArrayLike,
        shape: tuple[int, int],
    ) -> Counts:
        """Return the table with the given counts at the given places.

        Args:
            rows: Row of each count.
            columns: Column of each count.
            values: Counts. Zeros are dropped; those at the same place are added.
            shape: Rows and columns of the table.
        """
        place = np.asarray(rows, np.int64) * shape[1] + np.asarray(columns, np.int64)
        places, inverse = np.unique(place, return_inverse=True)
        sums = np.bincount(inverse.ravel(), np.asarray(values), len(places)).astype(
            np.int64
        )
        places, sums = places[sums > 0], sums[sums > 0]
        starts = np.searchsorted(places, np.arange(shape[0] + 1) * shape[1])
        return cls(
            sums.astype(np.int32),
            (places % shape[1]).astype(np.int32),
            starts.astype(np.int32),
            (int(shape[0]), int(shape[1])),
        )

    @classmethod
    def read(cls, counts: Any, label: str = "counts") -> Counts:
        """Return counts of any form as such a table.

        Args:
            counts: A :class:`Counts`, a sparse matrix of SciPy, or an array (rows, columns).
            label: Name of the argument, for messages.

        Raises:
            TypeError: It is none of these, or holds no real numbers.
            ValueError: A count is negative or not an integer, or there are no rows or columns.
        """
        if isinstance(counts, cls):
            return counts
        if hasattr(counts, "tocoo"):
            triples = counts.tocoo()
            rows = triples.row
            columns = triples.col
            values = triples.data
            shape = triples.shape
        else:
            table = as_table(counts, label)
            if table.ndim != 2:
                raise ValueError(
                    f"`{label}` must have two axes, documents and words; its shape is "
                    f"{table.shape}."
                )
            rows, columns = np.nonzero(table)
            values, shape = table[rows, columns], table.shape
        _check(label, np.asarray(values), shape)
        return cls.from_triples(rows, columns, values, shape)


def as_table(counts: Any, label: str) -> NDArray[Any]:
    """Return an array, or raise an error if rows have unequal lengths.

    Args:
        counts: Array, frame, or list of rows.
        label: Name of the argument, for messages.
    """
    try:
        return np.asarray(counts)
    except ValueError as error:
        raise ValueError(
            f"`{label}` must be a table with a row for each document and a column for each word of "
            "the vocabulary; its rows have unequal lengths. For documents that are lists of word "
            "numbers use np.bincount(document, minlength=words) for each."
        ) from error


def _check(label: str, values: NDArray[Any], shape: tuple[int, int]) -> None:
    if values.dtype.kind not in "iufb":
        raise TypeError(f"`{label}` must hold integers; its dtype is {values.dtype}.")
    if 0 in shape:
        raise ValueError(f"`{label}` is empty: its shape is {tuple(shape)}.")
    wrong = ~((values >= 0) & (values < 2**31) & (values == np.floor(values)))
    if wrong.any():
        raise ValueError(
            f"`{label}` must hold integers of at least 0; it holds {values[wrong][0]}."
        )
