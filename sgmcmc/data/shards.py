"""The whole dataset in parts, for sums over all of it: they depend on nothing but the data.

A piece is what fits in memory with what is computed of it; a shard is a run of pieces, which one
process passes over. Sums are added in the order of the pieces within a shard, and of the shards,
wherever they were computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sgmcmc.data.dataset import PIECE_BYTES, Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.machines import HERE

_MOST = 4096
"""Largest number of shards, so that their results stay small."""

_TERMS = 2**19
"""Terms of the user's log-likelihood in a piece of which each row has several."""


class Shard(NamedTuple):
    """The rows from ``start`` to ``stop``, in pieces of so many."""

    start: int
    stop: int
    piece: int


def shards(data: Data, most: int | None = None, row_terms: int = 1) -> list[Shard]:
    """Return the shards of a dataset, in order.

    Args:
        data: Dataset.
        most: Most terms of the log-likelihood in a piece.
        row_terms: Terms of the user's log-likelihood that a row's own is made of.
    """
    piece = max(1, PIECE_BYTES // max(1, data.row_bytes))
    if row_terms > 1:
        most = min(_TERMS, _TERMS if most is None else most)
    if most is not None:
        piece = max(1, min(piece, most // row_terms))
    rows = piece * max(1, math.ceil(data.size / piece / _MOST))
    return [Shard(k, min(k + rows, data.size), piece) for k in range(0, data.size, rows)]


def map_over(
    data: Data, thing: Any, method: str, calls: Sequence[tuple[Any, ...]]
) -> Iterator[Any]:
    """Yield a method's result for each part of the data, in the order of the calls.

    The machines of the dataset call it; a single call is made here.
    """
    machines = data.machines if len(calls) > 1 else HERE
    return machines.map(thing, method, calls)


def pieces(data: Data, shard: Shard) -> Iterator[tuple[int, int, Tensors]]:
    """Yield the pieces of a shard: first row, number of rows, and columns."""
    for start in range(shard.start, shard.stop, shard.piece):
        stop = min(start + shard.piece, shard.stop)
        yield start, stop - start, data.slice(start, stop)
