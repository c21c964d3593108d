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

# Columns of packs.
SLOT = "groups/slot"  # the group of each row, by its position in the pack
FILLED = "groups/filled"  # number of groups in the pack
# Mode and root of the information of each group at some parameters, (slots, q) and (slots, q, q):
# quadrature nodes lie around the mode, or a closed form starts from it.
MODE, ROOT = "groups/mode", "groups/root"
# If nodes follow the parameters: the parameters to which mode and root belong, (P,), and the
# derivatives of mode and root with respect to them, (slots, numbers, P).
CENTER, DRIFT = "groups/center", "groups/drift"
# If nodes follow the parameters: correction of the gradient, (P,)
SLOPE = "groups/slope"
START = "groups/start"  # where the search for the modes of groups begins, (slots, q)
# Columns that are not the user's.
COLUMNS = (SLOT, FILLED, MODE, ROOT, CENTER, DRIFT, SLOPE, START)


@dataclass(frozen=True)
class _Settings:
    # Largest group over the mean, up to which each group is a separate pack.
    equal_sizes: float = 1.3
    # The least of a large group, in rows and in the median of all groups.
    large_rows: int = 500
    large_medians: float = 50.0
    max_large: int = 50  # large groups: the effects of each are parameters
    min_part: int = 32  # rows of a part of a large group


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Packs:
    """Rows and groups of each pack.

    Attributes:
        labels: Labels of the groups, sorted, (groups,).
        rows: Rows of the dataset in each pack, (packs, width); padding repeats its first row.
        slots: Position of each row's group in its pack, (packs, width); -1 for padding.
        filled: Groups in each pack, (packs,).
        pack, slot: Pack of each group, and its position in the pack, (groups and parts,).
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


def slots_of_rows(slot: tf.Tensor, slots_per_pack: int) -> tf.Tensor:
    """Return the number of each row's slot, (n,); padding has that of a pack's first."""
    first = slots_per_pack * tf.range(number_of_packs(slot))[:, tf.newaxis]
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
    order = np.argsort(-sizes, kind="stable")[: _SETTINGS.max_large]
    in_medians = _SETTINGS.large_medians * float(np.median(sizes))
    threshold = max(_SETTINGS.large_rows, in_medians)
    return np.sort(order[sizes[order] > threshold])


def without_large(codes: np.ndarray, large: np.ndarray) -> np.ndarray:
    """Return codes in which parts of large groups are further groups.

    The parts are as large as the largest of the other groups.
    """
    sizes = np.bincount(codes)
    number_of_large = np.full(len(sizes), -1)
    number_of_large[large] = np.arange(len(large))
    large_code = number_of_large[codes]
    other_sizes = np.delete(sizes, large)
    largest = int(other_sizes.max()) if other_sizes.size else 1
    length = max(largest, _SETTINGS.min_part)
    new_codes = codes.copy()
    number = len(sizes)
    for k in range(len(large)):
        rows = np.flatnonzero(large_code == k)
        new_codes[rows] = number + np.arange(len(rows)) // length
        number = int(new_codes[rows[-1]]) + 1
    return new_codes


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
    if width <= _SETTINGS.equal_sizes * sizes.mean():
        placement = np.arange(count), np.zeros(count, np.int64), np.zeros(count, int)
    else:
        placement = _place_groups(sizes, width)
    at_pack, at_slot, at_row = placement
    packs = int(at_pack.max()) + 1
    slots = np.full((packs, width), -1, np.int32)
    rows = np.zeros((packs, width), np.int32 if len(codes) < 2**31 else np.int64)
    group = codes[order]
    within = np.arange(len(codes)) - first[group]
    positions = at_pack[group], at_row[group] + within
    rows[positions] = order
    slots[positions] = at_slot[group]
    empty = slots < 0
    rows[empty] = np.broadcast_to(rows[:, :1], rows.shape)[empty]
    filled = np.bincount(at_pack, minlength=packs).astype(np.int32)
    return Packs(labels, rows, slots, filled, at_pack, at_slot)


def _place_groups(
    sizes: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pack, slot and first row of each group: the largest first, then small ones that fit.

    A pack has no more than twice as many groups as it would have if all were of mean size.
    """
    max_groups = max(2, int(2 * width / max(1.0, sizes.mean())))
    order = np.argsort(-sizes, kind="stable")
    ranked = sizes[order].tolist()
    ranked_placement = np.zeros((3, len(sizes)), np.int64)
    largest = 0
    smallest = len(ranked) - 1
    number = 0
    while largest <= smallest:
        room, slot = width, 0
        while largest <= smallest and slot < max_groups and ranked[largest] <= room:
            ranked_placement[:, largest] = number, slot, width - room
            room -= ranked[largest]
            largest, slot = largest + 1, slot + 1
        while largest <= smallest and slot < max_groups and ranked[smallest] <= room:
            ranked_placement[:, smallest] = number, slot, width - room
            room -= ranked[smallest]
            smallest, slot = smallest - 1, slot + 1
        number += 1
    placement = np.empty_like(ranked_placement)
    placement[:, order] = ranked_placement
    return placement[0], placement[1], placement[2]


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
    size = int(rows.max()) + 1
    n_sections = -(-len(flat) // length)
    section_of = np.empty(size, np.int32)
    section_of[flat] = np.arange(len(flat)) // length
    filled = np.zeros(n_sections, np.int64)
    with tempfile.TemporaryFile(prefix="sgmcmc-") as file, no_room():
        step = max(1, PIECE_BYTES // column.row_bytes)
        for start in range(0, size, step):
            values = column.slice(start, start + step)
            sections = section_of[start : start + step]
            order = np.argsort(sections, kind="stable")
            counts = np.bincount(sections, minlength=n_sections)
            for section, chosen in enumerate(np.split(order, np.cumsum(counts)[:-1])):
                file.seek((section * length + filled[section]) * column.row_bytes)
                file.write(values[chosen].data)
            filled += counts
        for section in range(n_sections):
            section_rows = flat[section * length : (section + 1) * length]
            shape = filled[section], *column.row_shape
            section_values = np.empty(shape, column.dtype)
            file.seek(section * length * column.row_bytes)
            file.readinto(section_values.data)
            # They lie in the order of their numbers; padding repeats some.
            file.seek(section * length * column.row_bytes)
            order = np.searchsorted(np.unique(section_rows), section_rows)
            file.write(section_values[order].data)
        file.flush()
        shape = *rows.shape, *column.row_shape
        return np.memmap(file, column.dtype, "r", shape=shape)
