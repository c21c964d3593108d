"""Packs of whole groups: rows sorted by group, a fixed number of rows and of groups in each.

A compiled chain needs fixed shapes, and groups have few rows or many. So groups are packed, largest
with smallest, into packs of as many rows as the largest group has: little is padded, whatever the
sizes are. If all groups are about equally large, a pack is a group.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import PIECE_BYTES, ArrayColumn, DenseColumn
from sgmcmc.data.stored import no_room

SLOT = "groups/slot"
"""Column of packs: the group of each row, by its place in the pack."""

FILLED = "groups/filled"
"""Column of packs: their numbers of groups."""

MODE, ROOT = "groups/mode", "groups/root"
"""Columns of packs that hold mode and root of the information of each group at some parameters,
(slots, q) and (slots, q, q): the place of the nodes of a quadrature, or where a closed form looks
for its own."""

CENTER, DRIFT = "groups/center", "groups/drift"
"""Columns of packs whose nodes follow the parameters: where these are when the nodes are where the
packs hold them, (P,), and the derivatives of mode and root with respect to them, (slots, numbers,
P)."""

SLOPE = "groups/slope"
"""Column of packs whose nodes follow the parameters: what is added to their gradients, (P,)."""

START = "groups/start"
"""Column of packs where the search for the modes of their groups begins, (slots, q)."""

COLUMNS = (SLOT, FILLED, MODE, ROOT, CENTER, DRIFT, SLOPE, START)
"""Columns that are not the user's."""

_ALIKE = 1.3
"""The largest group over the mean, up to which each group is a separate pack."""

_LARGE = 500
"""Smallest number of rows of a large group."""

_TIMES_MEDIAN = 50
"""Smallest number of rows of a large group, divided by the median of all groups."""

_MOST_LARGE = 50
"""Largest number of large groups: the effects of each are parameters."""


@dataclass(frozen=True)
class Packs:
    """Rows and groups of each pack.

    Attributes:
        labels: Labels of the groups, sorted, (groups,).
        rows: Rows of the dataset in each pack, (packs, width); places that are left over repeat
            the pack's first row.
        slots: Place of each row's group in its pack, (packs, width); -1 at places left over.
        filled: Groups in each pack, (packs,).
        pack, slot: Pack of each group, and its place in the pack, (groups and parts,).
    """

    labels: np.ndarray
    rows: np.ndarray
    slots: np.ndarray
    filled: np.ndarray
    pack: np.ndarray
    slot: np.ndarray

    @property
    def most(self) -> int:
        """The largest number of groups in a pack."""
        return int(self.filled.max())


def number_of_packs(slot: tf.Tensor) -> Any:
    """Return the number of packs, a tensor if it is not known before."""
    return tf.shape(slot)[0] if slot.shape[0] is None else slot.shape[0]


def slots_of_rows(slot: tf.Tensor, most: int) -> tf.Tensor:
    """Return the number of each row's slot, (n,); places left over have that of a pack's first."""
    first = most * tf.range(number_of_packs(slot))[:, tf.newaxis]
    return tf.reshape(first + tf.maximum(slot, 0), [-1])


def row_by_row(packs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the user's columns of packs, row by row."""
    return {
        name: tf.reshape(column, [-1, *column.shape[2:]])
        for name, column in packs.items()
        if name not in COLUMNS
    }


def need_groups(by: str, labels: np.ndarray) -> None:
    """Refuse a factor with too few levels for a distribution of effects."""
    if len(labels) < 2:
        raise ValueError(
            f"`groups`: `dataset[{by!r}]` has one level, {str(labels[0])!r}: effects of groups "
            "need two or more."
        )


def large_groups(codes: np.ndarray) -> np.ndarray:
    """Return the numbers of the groups that are too large for packs as wide as they are.

    Args:
        codes: Group of each row.
    """
    sizes = np.bincount(codes)
    order = np.argsort(-sizes, kind="stable")[:_MOST_LARGE]
    least = max(_LARGE, _TIMES_MEDIAN * float(np.median(sizes)))
    return np.sort(order[sizes[order] > least])


def without_large(codes: np.ndarray, large: np.ndarray) -> np.ndarray:
    """Return codes in which parts of large groups are further groups.

    The parts are as large as the largest of the other groups.
    """
    sizes = np.bincount(codes)
    of_row = np.full(len(sizes), -1)
    of_row[large] = np.arange(len(large))
    which = of_row[codes]
    rest = np.delete(sizes, large)
    length = max(int(rest.max()) if rest.size else 1, 32)
    found, number = codes.copy(), len(sizes)
    for k in range(len(large)):
        rows = np.flatnonzero(which == k)
        found[rows] = number + np.arange(len(rows)) // length
        number = int(found[rows[-1]]) + 1
    return found


def pack(labels: np.ndarray, codes: np.ndarray) -> Packs:
    """Pack groups.

    Args:
        labels: Labels of the groups.
        codes: Group of each row, (rows,); parts of large groups come after all groups.
    """
    count = max(len(labels), int(codes.max()) + 1)
    sizes = np.bincount(codes, minlength=count)
    order = np.argsort(codes, kind="stable")
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    width = int(sizes.max())
    if width <= _ALIKE * sizes.mean():
        place = np.arange(count), np.zeros(count, np.int64), np.zeros(count, int)
    else:
        place = _placed(sizes, width)
    at_pack, at_slot, at_row = place
    packs = int(at_pack.max()) + 1
    slots = np.full((packs, width), -1, np.int32)
    rows = np.zeros((packs, width), np.int32 if len(codes) < 2**31 else np.int64)
    group = codes[order]
    within = np.arange(len(codes)) - first[group]
    where = at_pack[group], at_row[group] + within
    rows[where] = order
    slots[where] = at_slot[group]
    empty = slots < 0
    rows[empty] = np.broadcast_to(rows[:, :1], rows.shape)[empty]
    filled = np.bincount(at_pack, minlength=packs).astype(np.int32)
    return Packs(labels, rows, slots, filled, at_pack, at_slot)


def _placed(sizes: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pack, slot and first row of each group: the largest first, then small ones that fit.

    A pack has no more than twice as many groups as it would have if all were of mean size.
    """
    most = max(2, int(2 * width / max(1.0, sizes.mean())))
    order = np.argsort(-sizes, kind="stable")
    ranked = sizes[order].tolist()
    found = np.zeros((3, len(sizes)), np.int64)
    largest, smallest, number = 0, len(ranked) - 1, 0
    while largest <= smallest:
        room, slot = width, 0
        while largest <= smallest and slot < most and ranked[largest] <= room:
            found[:, largest] = number, slot, width - room
            room -= ranked[largest]
            largest, slot = largest + 1, slot + 1
        while largest <= smallest and slot < most and ranked[smallest] <= room:
            found[:, smallest] = number, slot, width - room
            room -= ranked[smallest]
            smallest, slot = smallest - 1, slot + 1
        number += 1
    placed = np.empty_like(found)
    placed[:, order] = found
    return placed[0], placed[1], placed[2]


def packed(column: DenseColumn, rows: np.ndarray) -> np.ndarray:
    """Return the rows of a column in packs, (packs, width, *row_shape).

    Those of a file go to another file, in the temporary folder, sorted in one pass over the column
    and one over what it has become: rows go to the part of the file of their pack, and
    each part, which fits in memory, is put in order then.

    Args:
        column: Column.
        rows: Rows of each pack, (packs, width).
    """
    if isinstance(column, ArrayColumn):
        return column.array[rows]
    flat = rows.reshape(-1)
    length = rows.shape[1] * max(1, PIECE_BYTES // (rows.shape[1] * column.row_bytes))
    size, parts = int(rows.max()) + 1, -(-len(flat) // length)
    part_of = np.empty(size, np.int32)
    part_of[flat] = np.arange(len(flat)) // length
    filled = np.zeros(parts, np.int64)
    with tempfile.TemporaryFile(prefix="sgmcmc-") as file, no_room():
        step = max(1, PIECE_BYTES // column.row_bytes)
        for start in range(0, size, step):
            piece, of_rows = column.slice(start, start + step), part_of[start : start + step]
            order = np.argsort(of_rows, kind="stable")
            counts = np.bincount(of_rows, minlength=parts)
            for part, chosen in enumerate(np.split(order, np.cumsum(counts)[:-1])):
                file.seek((part * length + filled[part]) * column.row_bytes)
                file.write(piece[chosen].data)
            filled += counts
        for part in range(parts):
            wanted = flat[part * length : (part + 1) * length]
            there = np.empty((filled[part], *column.row_shape), column.dtype)
            file.seek(part * length * column.row_bytes)
            file.readinto(there.data)
            # They lie in the order of their numbers; places that are left over repeat some.
            file.seek(part * length * column.row_bytes)
            file.write(there[np.searchsorted(np.unique(wanted), wanted)].data)
        file.flush()
        return np.memmap(file, column.dtype, "r", shape=(*rows.shape, *column.row_shape))
