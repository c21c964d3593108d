"""Draws of the effects of groups given the global parameters, predictions, and units left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.data.dataset import ArrayColumn, Column, Data
from sgmcmc.data.levels import Categories, Levels, text_of
from sgmcmc.data.tables import by_column
from sgmcmc.graphs.tracing import trace
from sgmcmc.graphs.vectorization import vectorized_map
from sgmcmc.groups.labels import Labeled, find, labeled
from sgmcmc.groups.marginal import MOVES, Marginal, Random, Tensors
from sgmcmc.groups.model import LARGE, Structure, code_column, of_large
from sgmcmc.groups.packs import COLUMNS, FILLED, SLOT, Packs
from sgmcmc.groups.spec import Groups
from sgmcmc.results.evaluation import spans

_NUMBERS = 2**23
"""Numbers that the draws of a piece of packs may take."""

_LOW = 0.1
"""Acceptance of the moves that draw effects below which a warning says so."""

_NODES = {1: 21, 2: 11, 3: 7}
"""Nodes in each direction at the least, by the number of directions, if single rows are left
out: the density of a group without one of them is wider."""


@dataclass(frozen=True)
class Drawn:
    """Draws of the effects of one factor.

    Attributes:
        effects: Draws of the effects by name, (chains, draws, groups, *shape).
        labels: Labels of the groups, (groups,).
    """

    effects: dict[str, np.ndarray]
    labels: np.ndarray


def draw_effects(
    model: Structure,
    marginal: Any,
    draws: Mapping[str, np.ndarray],
    data: Data,
    by: str,
    groups: Any = None,
    seed: int = 0,
) -> Drawn:
    """Return draws of the effects of some groups, each given its global draw.

    Effects of members without rows are drawn from their distribution.

    Args:
        model: Groups of the model.
        marginal: Log-likelihood of the chain.
        draws: Draws of all parameters, (chains, draws, *shape).
        data: Dataset of the chain, packs of groups.
        by: Name of the factor.
        groups: Labels of the groups; ``None`` for all.
        seed: Seed of the random numbers.

    Raises:
        ValueError: There is no such factor, or no such group.
    """
    if by not in model.labels:
        listed = ", ".join(map(repr, model.labels))
        raise ValueError(f"`by` must be a factor of `groups`, {listed}; it is {by!r}.")
    factor = model.factor(by)
    members = model.factors[by] if factor.members is None else Levels(tuple(factor.members))
    wanted = np.arange(len(members)) if groups is None else find(by, members, groups)
    labels = model.shown(by)[wanted]
    places = model.factors[by].codes(members.values[number] for number in wanted)
    there = places >= 0
    if there.all():
        return Drawn(_of_places(model, marginal, draws, data, by, places, seed), labels)
    chosen = [members.values[number] for number in wanted]
    return Drawn(effects_of_labels(model, marginal, draws, data, by, chosen, seed), labels)


def _of_places(
    model: Structure,
    marginal: Any,
    draws: Mapping[str, np.ndarray],
    data: Data,
    by: str,
    places: np.ndarray,
    seed: int,
) -> dict[str, np.ndarray]:
    """Return draws of the effects of groups that have rows, or are coordinates, by name."""
    for factor in model.coordinates:
        if factor.by == by:
            return {name: np.asarray(draws[name])[:, :, places] for name in factor.shapes}
    assert isinstance(marginal, Marginal) and model.packs is not None
    rank = np.full(len(model.labels[by]), -1)
    rank[model.large] = np.arange(len(model.large))
    alone = rank[places] >= 0
    found: dict[str, np.ndarray] = {}
    if not alone.all():
        found = _of_packs(model, marginal, draws, data, places[~alone], by, seed)
    if alone.any():
        # Effects of large groups are parameters of the chain.
        own = {
            name: np.asarray(draws[of_large(name)])[:, :, rank[places[alone]]]
            for name in marginal.groups.shapes
        }
        order = np.argsort(np.concatenate([np.flatnonzero(~alone), np.flatnonzero(alone)]))
        found = {
            name: np.concatenate([found[name], value], 2)[:, :, order] if found else value
            for name, value in own.items()
        }
    return found


def _of_packs(
    model: Structure,
    marginal: Marginal,
    draws: Mapping[str, np.ndarray],
    data: Data,
    places: np.ndarray,
    by: str,
    seed: int,
) -> dict[str, np.ndarray]:
    """Return draws of the effects of groups that are integrated out, by name."""
    assert model.packs is not None
    packs, slots = model.packs.pack[places], model.packs.slot[places]
    needed, at = np.unique(packs, return_inverse=True)
    part = Data({name: _rows(column, needed) for name, column in data.columns.items()}, len(needed))
    keys = np.zeros((model.packs.filled.size, model.packs.most, 2), np.uint64)
    asked = packs.astype(np.int64) * model.packs.most + slots
    levels = model.factors[by].values
    keys.reshape(-1, 2)[asked] = keys_of(by, [levels[place] for place in places], seed)
    found = _drawn(marginal, draws, part, keys[needed])
    chosen = found[:, :, at.reshape(-1), slots]
    low = chosen[..., -1].mean((0, 1))
    if low.size and low.min() < _LOW:
        warnings.warn(
            f"Effects of {by!r}: {int((low < _LOW).sum())} of {len(low)} groups accept fewer than "
            f"{_LOW:.0%} of the moves that draw them; their draws are approximate.",
            stacklevel=2,
        )
    named = marginal.groups.named(tf.constant(chosen[..., :-1]))
    return {name: np.asarray(value) for name, value in named.items()}


def keys_of(by: str, levels: Sequence[Any], seed: int) -> np.ndarray:
    """Return keys of the random numbers of groups, (groups, 2).

    A group has the same numbers in whatever rows, pieces and order it comes, and other ones than
    every other group.
    """
    whole = (int(v) if isinstance(v, float) and v.is_integer() else v for v in levels)
    keys = [
        blake2b(f"{seed}\0{by}\0{text_of(level)}".encode(), digest_size=16).digest()
        for level in whole
    ]
    return np.frombuffer(b"".join(keys), np.uint64).reshape(-1, 2)


def draw_new(
    model: Structure,
    factor: Groups,
    draws: Mapping[str, np.ndarray],
    levels: Sequence[Any],
    seed: int,
) -> dict[str, np.ndarray]:
    """Return draws of the effects of groups without rows: of their distribution given θ."""
    count = len(levels)
    packs = Packs(
        np.arange(count), np.zeros((count, 1), int), np.zeros((count, 1), np.int32),
        np.ones(count, np.int32), np.arange(count), np.zeros(count, int),
    )  # fmt: skip
    alone = Marginal(_nothing, factor, packs)
    columns: dict[str, Column] = {
        SLOT: ArrayColumn(np.full((count, 1), -1, np.int32)),
        FILLED: ArrayColumn(np.ones(count, np.int32)),
    }
    names = {name for other in model.coordinates for name in other.shapes}
    own = {name: value for name, value in draws.items() if name not in names}
    keys = keys_of(factor.by, levels, seed)[:, np.newaxis]
    found = _drawn(alone, own, Data(columns, count), keys)[:, :, :, 0, :-1]
    return {name: np.asarray(v) for name, v in factor.named(tf.constant(found)).items()}


def _nothing(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return 0.0 * tf.reduce_sum(tf.reshape(next(reversed(params.values())), [1, -1]), 1)


def effects_of_labels(
    model: Structure,
    marginal: Any,
    draws: Mapping[str, np.ndarray],
    data: Data,
    by: str,
    levels: Sequence[Any],
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return draws of the effects of groups by name, (chains, draws, groups, *shape).

    Effects of groups that the chain has not seen are drawn from their distribution given θ.

    Args:
        model: Groups of the model.
        marginal: Log-likelihood of the chain.
        draws: Draws of all parameters, (chains, draws, *shape).
        data: Dataset of the chain.
        by: Name of the factor.
        levels: Groups, each once.
        seed: Seed of the random numbers.
    """
    places = model.factors[by].codes(levels)
    known = places >= 0
    old: dict[str, np.ndarray] = {}
    if known.any():
        old = _of_places(model, marginal, draws, data, by, places[known], seed)
        if known.all():
            return old
    others = [level for level, there in zip(levels, known, strict=True) if not there]
    new = draw_new(model, model.factor(by), draws, others, seed)
    if not old:
        return new
    order = np.argsort(np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)]))
    return {name: np.concatenate([old[name], new[name]], 2)[:, :, order] for name in new}


def for_rows(
    model: Structure,
    marginal: Any,
    f: Callable[[Tensors, Tensors], tf.Tensor],
    draws: Mapping[str, np.ndarray],
    data: Data,
    dataset: Mapping[str, Any],
    seed: int = 0,
) -> tuple[Callable[[Tensors, Tensors], tf.Tensor], dict[str, np.ndarray], dict[str, Any]]:
    """Return function, draws and dataset for predictions of rows, effects of known groups included.

    Effects of groups that the chain has not seen are drawn from their distribution given θ: those
    of a group are the same wherever it comes, for the same seed.

    Args:
        model: Groups of the model.
        marginal: Log-likelihood of the chain.
        f: Function of ``params`` and rows, in which an effect has an entry for each row.
        draws: Draws of all parameters, (chains, draws, *shape).
        data: Dataset of the chain.
        dataset: Rows to predict, with the entries that name their groups.
        seed: Seed of the random numbers.
    """
    columns = by_column(dataset)
    if columns is None:
        raise TypeError(
            "`dataset` must be a dict of arrays, or a table in memory, for predictions with "
            f"`groups`; it is {describe(dataset)}."
        )
    found, rows, looked = dict(draws), dict(columns), []
    every = [*model.coordinates, *([] if model.integrated is None else [model.integrated])]
    for factor in every:
        by = factor.by
        if by not in rows:
            raise ValueError(
                f"`dataset` must have an entry {by!r} with the group of each row, known or new."
            )
        asked = labeled(by, rows[by])
        at = model.factors[by].codes(asked.levels.values)
        rows[by] = _numbers_of(model.labels[by], asked, at)
        if rows[by] is None:
            del rows[by]
        levels = asked.levels.values
        found |= effects_of_labels(model, marginal, draws, data, by, levels, seed)
        rows[code_column(by)] = tf.constant(asked.codes.astype(np.int32))
        looked.append((code_column(by), tuple(factor.shapes)))

    def of_rows(params: Tensors, columns: Tensors) -> tf.Tensor:
        given, own = dict(params), dict(columns)
        for column, names in looked:
            codes = own.pop(column)
            for name in names:
                given[name] = tf.gather(given[name], codes)
        return f(given, own)

    return of_rows, found, rows


def _numbers_of(labels: np.ndarray, asked: Labeled, at: np.ndarray) -> np.ndarray | None:
    """Return the labels of rows, if those of the model are numbers, else ``None``.

    Args:
        labels: Labels of the model.
        asked: Groups of the rows.
        at: Number of each of these groups in the model; -1 for new ones.
    """
    if labels.dtype.kind not in "iu":
        return None
    if (at >= 0).all():
        return labels[at][asked.codes]
    return asked.labels[asked.codes] if asked.labels.dtype.kind in "iu" else None


def _drawn(
    marginal: Marginal, draws: Mapping[str, np.ndarray], data: Data, keys: np.ndarray
) -> np.ndarray:
    """Return draws of each slot of some packs and acceptance, (chains, draws, packs, slots, q + 1).

    They are made in pieces of packs and of draws, for which there is memory. Random numbers of a
    slot have its key, (packs, slots, 2), so that they do not depend on the pieces.
    """
    chains, count = next(iter(draws.values())).shape[:2]
    q, most = marginal.groups.size, marginal.most
    dtype = next(array.dtype for array in draws.values() if array.dtype.kind == "f")
    found = np.empty((chains, count, data.size, most, q + 1), dtype)
    of_pack = (MOVES + 1) * most * (q + 2) + (MOVES + 1) * data.row_bytes // 4
    length = max(1, min(data.size, _NUMBERS // (of_pack * count)))
    some = max(1, min(count, _NUMBERS // (of_pack * length)))
    graph: Any = None
    for rows in spans(data.size, length):
        packs = data.slice(rows.start, rows.stop)
        own = keys[rows.start : rows.stop].reshape(-1, 2)
        for chain in range(chains):
            random = _random_of(own, chain, count, q)
            for span in spans(count, some):
                part = slice(span.start, span.stop)
                given = Random(*(tf.constant(numbers[part], dtype) for numbers in random))
                params = {
                    name: tf.constant(np.ascontiguousarray(array[chain, part]))
                    for name, array in draws.items()
                }
                if graph is None:
                    graph = trace(_of_all(marginal), params, given, packs)
                values = np.asarray(graph(params, given, packs))
                values = values.reshape(span.stop - span.start, length, most, q + 1)
                found[chain, span.new : span.stop, rows.new : rows.stop] = values[
                    span.new - span.start :, rows.new - rows.start :
                ]
    return found


def _random_of(
    keys: np.ndarray, chain: int, count: int, q: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the random numbers of slots with these keys, at all draws of a chain."""
    shape = count, MOVES + 1, len(keys)
    standard, squared = np.empty((*shape, q)), np.empty(shape)
    bars = np.empty((count, MOVES, len(keys)))
    for place, key in enumerate(keys):
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, chain]))
        standard[:, :, place] = rng.standard_normal((count, MOVES + 1, q))
        squared[:, :, place] = rng.chisquare(4.0, (count, MOVES + 1))
        bars[:, :, place] = -rng.standard_exponential((count, MOVES))
    return standard, squared, bars


def _of_all(marginal: Marginal) -> Callable[..., tf.Tensor]:
    """Return the function that draws the effects of some packs at several draws."""

    def of_all(params: Tensors, random: Random, packs: Tensors) -> tf.Tensor:
        return vectorized_map(lambda each: marginal.draw(each[0], packs, each[1]), (params, random))

    return of_all


def _rows(column: Column, rows: np.ndarray) -> Column:
    return ArrayColumn(np.asarray(column.tensor_at(rows)))


def own_rows(model: Structure, data: Data) -> dict[str, Any]:
    """Return the rows of the chain's dataset, in the user's order, labels of groups included."""
    assert isinstance(model.packs, Packs)
    there = model.packs.slots >= 0
    order = np.argsort(model.packs.rows[there], kind="stable")
    found: dict[str, Any] = {}
    for name, column in data.columns.items():
        if name in COLUMNS or name == LARGE:
            continue
        array = np.asarray(column.tensor(0, data.size))[there][order]
        if name in model.levels:
            found[name] = Categories(array, model.levels[name])
        else:
            found[name] = array if array.dtype.kind == "f" else tf.constant(array)
    assert model.integrated is not None
    group = np.zeros(model.packs.filled.shape + (model.packs.most,), np.int64)
    count = len(model.packs.labels)
    group[model.packs.pack[:count], model.packs.slot[:count]] = np.arange(count)
    of_rows = np.take_along_axis(group, np.maximum(model.packs.slots, 0), 1)[there][order]
    if LARGE in data.columns:
        which = np.asarray(data.columns[LARGE].tensor(0, data.size))[there][order]
        of_rows = np.where(which >= 0, model.large[np.maximum(which, 0)], of_rows)
    found[model.integrated.by] = model.packs.labels[of_rows]
    return found


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
