"""Minibatches of a dataset for graphs outside of a chain: training, scales, predictions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.sparse import SparseColumn, gather_sparse
from sgmcmc.ensembles.network import Array

_ROWS = "rows"
"""Name of the row numbers, from which a graph gathers the rows of sparse columns."""


class Batches:
    """Rows of a dataset on their way into a graph.

    Args:
        data: Dataset.
    """

    def __init__(self, data: Data) -> None:
        self._dense = {n: c for n, c in data.columns.items() if not c.sparse}
        self._sparse = {n: c for n, c in data.columns.items() if isinstance(c, SparseColumn)}

    def given(self, rows: Array) -> dict[str, tf.Tensor]:
        """Return the arguments of a graph for row numbers of any shape."""
        found = {name: column.tensor_at(rows) for name, column in self._dense.items()}
        return {**found, _ROWS: tf.constant(rows)} if self._sparse else found

    def inside(self, given: dict[str, tf.Tensor], place: Any = None) -> dict[str, Any]:
        """Return the rows by column, in the graph; ``place`` picks one of several minibatches."""
        if place is not None:
            given = {name: tf.gather(each, place) for name, each in given.items()}
        found: dict[str, Any] = {name: given[name] for name in self._dense}
        for name, column in self._sparse.items():
            found[name] = gather_sparse(column.stored, given[_ROWS], column.row_shape[0])
        return found
