"""Quadrature whose nodes stay in place: at the modes that groups have at the posterior's mode.

The posterior of the global parameters is narrow against the density of a group's effects once there
are some hundred groups. So a group's nodes at the mode θ̂ serve everywhere
in the posterior, and no chain has to look for modes of groups. How far off that is, and how many
nodes it takes, is measured: against modes that are searched for, with more than twice the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import ArrayColumn, Column, Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.data.shards import Shard, map_over, pieces, shards
from sgmcmc.graphs.tracing import trace
from sgmcmc.groups.marginal import MODE, ROOT, START, Marginal

_NUMBERS = 2**22
"""Numbers in a piece of packs whose modes are searched for at once."""


class Anchor:
    """The search for the modes of all groups, at one place after the other.

    A search begins at the modes of the last place.

    Args:
        marginal: Log-likelihood of packs.
        data: Packs.
    """

    def __init__(self, marginal: Marginal, data: Data) -> None:
        self._marginal = marginal
        self._data = free(data)
        self._graphs: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A worker traces its own graphs.
        return {**self.__dict__, "_graphs": {}}

    def at(self, params: Mapping[str, np.ndarray]) -> Data:
        """Return packs that hold the mode and information of each group at some parameters."""
        marginal = self._marginal
        q, most = marginal.groups.size, marginal.most
        if START not in self._data.columns:
            kind = next(
                np.asarray(a).dtype for a in params.values() if np.asarray(a).dtype.kind == "f"
            )
            start = np.empty((self._data.size, most, q), kind)
            start[...] = marginal.groups.start
            self._data = _with(self._data, {START: start})
        data = self._data
        per_pack = data.row_bytes // 4 + 4 * most * (q + 1) ** 2
        calls = [(params, shard) for shard in shards(data, max(1, _NUMBERS // per_pack))]
        parts = list(map_over(data, self, "of_shard", calls))
        modes, roots = (np.concatenate(each) for each in zip(*parts, strict=True))
        self._data = _with(data, {START: np.where(np.isfinite(modes), modes, 0.0)})
        return held(free(data), modes, roots)

    def of_shard(
        self, params: Mapping[str, np.ndarray], shard: Shard
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return modes and roots of a part of the packs."""
        found = []
        for _, length, columns in pieces(self._data, shard):
            point = {name: tf.constant(value) for name, value in params.items()}
            if length not in self._graphs:
                self._graphs[length] = trace(self._normal, point, columns)
            found.append([part.numpy() for part in self._graphs[length](point, columns)])
        modes, roots = (np.concatenate(each) for each in zip(*found, strict=True))
        return modes, roots

    def _normal(self, params: Tensors, columns: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        normal = self._marginal.normal(params, columns)
        q, most = self._marginal.groups.size, self._marginal.most
        root = tf.stack([tf.stack(row, -1) for row in normal.root], 1)
        return tf.reshape(normal.mode, [-1, most, q]), tf.reshape(root, [-1, most, q, q])


def held(data: Data, modes: np.ndarray, roots: np.ndarray) -> Data:
    """Return packs with the modes and roots that their nodes are held at."""
    return _with(data, {MODE: modes, ROOT: roots})


def free(data: Data) -> Data:
    """Return packs whose groups' modes are searched for."""
    kept = {name: c for name, c in data.columns.items() if name not in (MODE, ROOT, START)}
    return data if len(kept) == len(data.columns) else _of_columns(data, kept)


def _with(data: Data, arrays: Mapping[str, np.ndarray]) -> Data:
    return _of_columns(data, {**data.columns, **{n: ArrayColumn(a) for n, a in arrays.items()}})


def _of_columns(data: Data, columns: Mapping[str, Column]) -> Data:
    found = Data(columns, data.size, data.given)
    found.machines = data.machines
    return found


class Gauge:
    """The error of quadratures, at some parameters, over some packs.

    Args:
        marginal: Log-likelihood of packs.
        data: Packs.
        params: Several parameters, (k, *shape) each.
        most: How many packs are looked at.
    """

    def __init__(
        self, marginal: Marginal, data: Data, params: Mapping[str, np.ndarray], most: int
    ) -> None:
        self._count = len(next(iter(params.values())))
        self._params, self._marginal = params, marginal
        size = min(data.size, most)
        self._packs = data.rows(np.linspace(0, data.size - 1, size).astype(int))
        self._scale = data.size / size
        finer = marginal.with_nodes(2 * marginal.nodes + 1)
        searched = {name: c for name, c in self._packs.items() if name not in (MODE, ROOT)}
        self._exact = self._values(finer, searched)

    def error(self, nodes: int) -> float:
        """Return by how much the error of the log posterior differs from place to place, its SD.

        An error that is the same everywhere leaves the posterior as it is.
        """
        error = self._values(self._marginal.with_nodes(nodes), self._packs) - self._exact
        return float(np.std(error.sum(1))) * self._scale

    def _values(self, marginal: Marginal, packs: Tensors) -> np.ndarray:
        """Return the log-likelihood of each pack, (k, packs)."""
        points = [
            {name: tf.constant(array[k]) for name, array in self._params.items()}
            for k in range(self._count)
        ]
        graph = trace(marginal, points[0], packs)
        return np.stack([graph(point, packs).numpy().astype(np.float64) for point in points])
