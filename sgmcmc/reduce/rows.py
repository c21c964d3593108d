"""Identical rows: each distinct row once, with the number of rows that it stands for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc import checks
from sgmcmc.checks import describe
from sgmcmc.data.entries import by_label, need_one_order
from sgmcmc.data.levels import as_categorical, read_categories
from sgmcmc.libraries import library_of


@dataclass(frozen=True)
class _Settings:
    min_rows: int = 2000  # of which identical ones are looked for
    sample: int = 20_000  # rows that tell whether it may pay
    max_share: float = 0.5  # of distinct rows with which it pays


_SETTINGS = _Settings()


class CountedRows(dict[str, Any]):
    """A dataset whose rows stand for several each, with a column of their number.

    ``log_lik`` multiplies the terms by it.

    Attributes:
        counts: Name of that column.
        places: Row of this dataset that stands for each row of the user's, (N,); ``None`` if the
            user's own rows have the counts.
    """

    def __init__(
        self, columns: Mapping[str, Any], counts: str, places: np.ndarray | None = None
    ) -> None:
        super().__init__(columns)
        self.counts, self.places = counts, places

    def every_row(self) -> dict[str, Any]:
        """Return the user's rows, each of which counts once."""
        assert self.places is not None
        columns = {name: np.asarray(v)[self.places] for name, v in self.items()}
        return columns | {self.counts: np.ones_like(columns[self.counts])}


def number_of_rows(dataset: Any, size: int) -> float:
    """Return the number of rows that a dataset of some size stands for."""
    if not isinstance(dataset, CountedRows):
        return size
    return float(np.sum(dataset[dataset.counts], dtype=np.float64))


def distinct_rows(dataset: Mapping[str, Any], counts: str) -> CountedRows | None:
    """Return the distinct rows of a dataset, if they are few; see :func:`collapse`.

    Args:
        dataset: Dict of arrays, without counts.
        counts: Name of the column of counts that is added, in the floating point type of others.
    """
    arrays = {name: np.asarray(values) for name, values in dataset.items()}
    size = len(next(iter(arrays.values())))
    if size < _SETTINGS.min_rows:
        return None
    some = np.linspace(0, size - 1, min(size, _SETTINGS.sample)).astype(np.int64)
    for rows in (some, slice(None)):
        codes = _kinds([array[rows] for array in arrays.values()], _SETTINGS.max_share)
        if codes is None:
            return None
    assert codes is not None
    _, first = np.unique(codes, return_index=True)
    floats = [array for array in arrays.values() if array.dtype.kind == "f"]
    dtype = np.result_type(*floats) if floats else np.dtype(np.float64)
    columns = {name: array[first] for name, array in arrays.items()}
    return CountedRows(
        {**columns, counts: np.bincount(codes).astype(dtype)}, counts, codes
    )


def collapse(dataset: Any, weights: str = "n") -> Any:
    """Return the distinct rows of a dataset, with a column of counts.

    The log-likelihood of a dataset is Σ_i log p(x_i | θ) = Σ_k n_k log p(x_k | θ), where k runs
    over the distinct rows and n_k is the number of times that row k occurs. A ``log_lik`` that
    multiplies each term by the count has the same posterior, from fewer rows. Rows are distinct
    if they differ in any column, so leave out columns that ``log_lik`` does not use.

    Args:
        dataset: Dict of arrays whose first axis is the N rows, a frame of pandas or polars, or an
            Arrow table. It is not changed.
        weights: Name of the column of counts. A column of that name that is already there holds
            the number of rows that each row stands for: these are added up.

    Returns:
        The same kind of object with K ≤ N rows, in the order in which each occurs first. The counts
        are float64, (K,). Missing values are equal to each other.

    Raises:
        TypeError: ``dataset`` is none of these, or ``weights`` is no string.
        ValueError: There are no rows, columns differ in length, or a count is negative or missing.

    Example:
        >>> import numpy as np, sgmcmc
        >>> sgmcmc.collapse({"x": np.array([2, 5, 2, 2]), "y": np.array([1, 0, 1, 0])})
        {'x': array([2, 5, 2]), 'y': array([1, 0, 0]), 'n': array([2., 1., 1.])}
    """
    if not isinstance(weights, str):
        raise TypeError(
            f"`weights` must be the name of a column; it is {describe(weights)}."
        )
    if isinstance(dataset, Mapping):
        columns = checks.by_name("dataset", dataset, "of arrays by name")
        need_one_order(by_label("dataset", columns))
        arrays = {name: _array(name, values) for name, values in columns.items()}
        first, counts = _distinct_rows(arrays, weights)
        return {
            **{name: array[first] for name, array in arrays.items()},
            weights: counts,
        }
    library = library_of(dataset)
    if library == "pandas" and hasattr(dataset, "iloc") and dataset.ndim == 2:
        series = {name: dataset[name] for name in dataset.columns}
        first, counts = _distinct_rows(series, weights)
        frame = dataset.iloc[first].reset_index(drop=True)
        frame[weights] = counts
        return frame
    if library == "polars" and hasattr(dataset, "with_columns"):
        if hasattr(dataset, "collect"):
            dataset = dataset.collect()
        series = {name: dataset[name].to_numpy() for name in dataset.columns}
        first, counts = _distinct_rows(series, weights)
        counted = type(dataset)({weights: counts})
        return dataset[first.tolist()].with_columns(counted[weights])
    if library == "pyarrow" and hasattr(dataset, "append_column"):
        arrow = importlib.import_module("pyarrow")
        series = {name: dataset[name].to_pandas() for name in dataset.column_names}
        first, counts = _distinct_rows(series, weights)
        table = dataset.take(first)
        if weights in table.column_names:
            table = table.drop_columns([weights])
        return table.append_column(weights, arrow.array(counts))
    raise TypeError(
        "`dataset` must be a dict of arrays, a frame of pandas or polars, or an Arrow table; it is "
        f"{describe(dataset)}."
    )


def _array(name: str, values: Any) -> Any:
    """Return a column as an array, and as pandas' categories if it holds categories."""
    categories = read_categories(values, f"dataset[{name!r}]")
    if categories is not None:
        return as_categorical(categories)
    if isinstance(values, np.ma.MaskedArray) or hasattr(values, "tocsr"):
        kind = "masked" if isinstance(values, np.ma.MaskedArray) else "sparse"
        raise TypeError(f"`dataset[{name!r}]` is a {kind} array; give a dense one.")
    array = np.asarray(values)
    if array.ndim == 0:
        raise ValueError(
            f"`dataset[{name!r}]` must have an entry for each row; it is {describe(values)}."
        )
    return array


def _distinct_rows(
    columns: Mapping[str, Any], weights: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each kind, in order, and the number of rows of that kind."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"`dataset`: columns differ in length: {lengths}.")
    size = next(iter(lengths.values()), 0)
    if not size:
        raise ValueError("`dataset` has no rows.")
    counts = np.ones(size)
    if weights in columns:
        counts = _counts(weights, columns[weights])
    others = [column for name, column in columns.items() if name != weights]
    codes = np.zeros(size, np.int64) if not others else _kinds(others)
    assert codes is not None
    _, first = np.unique(codes, return_index=True)
    return first, np.bincount(codes, counts)


def _counts(weights: str, column: Any) -> np.ndarray:
    counts = np.asarray(column)
    if counts.dtype.kind not in "biuf" or counts.ndim != 1:
        raise ValueError(f"`dataset[{weights!r}]` must be a number for each row.")
    if not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError(
            f"`dataset[{weights!r}]` must be numbers of rows, 0 or more; some are negative or "
            "missing."
        )
    return counts.astype(np.float64)


def _kinds(columns: Sequence[Any], max_share: float = 1.0) -> np.ndarray | None:
    """Return the number of each row's kind, from 0, in the order in which kinds occur.

    ``None`` if there are more than this share of the rows.
    """
    import pandas as pd

    size = len(columns[0])
    codes = np.zeros(size, np.int64)
    for column in columns:
        entries = [column]
        if np.ndim(column) > 1:
            entries = list(np.reshape(column, (len(column), -1)).T)
        for entry in entries:
            dtype = getattr(entry, "dtype", None)
            if isinstance(dtype, np.dtype) and not dtype.isnative:
                entry = entry.astype(dtype.newbyteorder("="))  # as pandas reads it
            labels, levels = pd.factorize(entry, use_na_sentinel=False)
            codes, _ = pd.factorize(codes * len(levels) + labels)
        if int(codes.max()) >= max_share * size:
            return None
    return codes
