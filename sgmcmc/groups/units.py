"""Units left out of a model with groups: rows, given the others of their group, or groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import tensorflow as tf

from sgmcmc.groups.marginal import Marginal, Tensors
from sgmcmc.groups.model import Structure

_NODES = {1: 21, 2: 11, 3: 7}
"""Nodes in each direction at the least, by the number of directions, where single rows are left
out: the density of a group without one of them is wider."""


@dataclass(frozen=True)
class Units:
    """Terms of rows or of groups, and where they are among those of packs.

    Attributes:
        function: Function of parameters and packs that returns the terms of their places, (n, k).
        pack, place: Pack of each unit, and its place there.
    """

    function: Callable[[Tensors, Tensors], tf.Tensor]
    pack: np.ndarray
    place: np.ndarray


def units(model: Structure, marginal: Marginal, by: str | None) -> Units:
    """Return the units that are left out.

    Args:
        model: Groups of the model, one factor of which is integrated out.
        marginal: Log-likelihood of packs.
        by: Name of that factor, for whole groups; ``None`` for rows.

    Raises:
        ValueError: There is no such factor, or its groups are too large to be left out.
    """
    assert model.integrated is not None and model.packs is not None
    packs = model.packs
    if by is None:
        there = packs.slots >= 0
        order = np.argsort(packs.rows[there], kind="stable")
        pack, place = (axis[order] for axis in np.nonzero(there))
        finer = marginal.with_nodes(max(marginal.nodes, _NODES[marginal.groups.size]))
        return Units(finer.of_rows, pack, place)
    if by != model.integrated.by:
        raise ValueError(
            f"`by` must be None, for rows, or {model.integrated.by!r}, whose effects are "
            f"integrated out; it is {by!r}."
        )
    if len(model.large):
        name = model.labels[by][model.large[0]].item()
        raise ValueError(
            f"`by`: group {name!r} of {by!r} is large: its effects are parameters, and it cannot "
            "be left out. Leave out rows."
        )
    count = len(packs.labels)
    return Units(partial(_of_slots, marginal), packs.pack[:count], packs.slot[:count])


def _of_slots(marginal: Marginal, params: Tensors, dataset: Tensors) -> tf.Tensor:
    return tf.reshape(marginal.of_slots(params, dataset), [-1, marginal.most])
