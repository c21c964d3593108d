"""Draws of the effects of groups given the global parameters, predictions, and units left out."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.data.dataset import ArrayColumn, Column, Data
from sgmcmc.data.levels import Categories, Levels, text_of
from sgmcmc.data.tables import by_column
from sgmcmc.graphs.tracing import trace, vectorized_map
from sgmcmc.groups.labels import as_entry, find, labeled
from sgmcmc.groups.marginal import DEGREES, PROPOSALS, Marginal, Random, Tensors
from sgmcmc.groups.packs import COLUMNS, FILLED, SLOT, Packs
from sgmcmc.groups.spec import Groups
from sgmcmc.groups.structure import LARGE, Structure, code_column, of_large
from sgmcmc.results.evaluation import spans


@dataclass(frozen=True)
class _Settings:
    max_numbers: int = 2**23  # that the draws of a piece of packs may take
    # Terms of rows at the nodes of groups that are taken together, at most.
    max_terms: int = 2**22
    padding: int = 4  # sizes of groups that are taken together, over the smallest
    # Acceptance of the moves that draw effects below which a warning says so:
    min_acceptance: float = 0.1


_SETTINGS = _Settings()

# Nodes in each direction at the least, by the number of directions, if single rows are left out:
# the density of a group without one of them is wider.
_MIN_NODES_OF_ROWS = {1: 21, 2: 11, 3: 7}


@dataclass(frozen=True)
class EffectDraws:
    """Draws of the effects of one factor.

    Attributes:
        effects: Draws of the effects by name, (chains, draws, groups, *shape).
        labels: Labels of the groups, (groups,).
    """

    effects: dict[str, np.ndarray]
    labels: np.ndarray


@dataclass(frozen=True)
class EffectSampler(ABC):
    """The distribution of effects given draws of the global parameters.

    Effects of groups that the chain has not seen are drawn from their distribution given θ: those
    of a group are the same wherever it comes, for the same seed.

    Attributes:
        structure: Groups of the model.
        draws: Draws of all parameters, (chains, draws, *shape).
        seed: Seed of the random numbers.
    """

    structure: Structure
    draws: Mapping[str, np.ndarray]
    seed: int

    def draw(self, by: str, groups: Any = None) -> EffectDraws:
        """Return draws of the effects of some groups, each given its global draw.

        Args:
            by: Name of the factor.
            groups: Labels of the groups; ``None`` for all.

        Raises:
            ValueError: There is no such factor, or no such group.
        """
        structure = self.structure
        if by not in structure.labels:
            listed = ", ".join(map(repr, structure.labels))
            raise ValueError(
                f"`by` must be a factor of `groups`, {listed}; it is {by!r}."
            )
        factor = structure.factor(by)
        members = structure.factors[by]
        if factor.members is not None:
            members = Levels(tuple(factor.members))
        selected = np.arange(len(members))
        if groups is not None:
            selected = find(by, members, groups)
        levels = [members.values[number] for number in selected]
        return EffectDraws(self.of_levels(by, levels), structure.shown(by)[selected])

    def of_levels(self, by: str, levels: Sequence[Any]) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups by name, (chains, draws, groups, *shape).

        Args:
            by: Name of the factor.
            levels: Groups, each once.
        """
        numbers = self.structure.factors[by].codes(levels)
        has_rows = numbers >= 0
        if has_rows.all():
            return self._of_groups(by, numbers)
        without_rows = [levels[k] for k in np.flatnonzero(~has_rows).tolist()]
        new = self._of_new(self.structure.factor(by), without_rows)
        if not has_rows.any():
            return new
        old = self._of_groups(by, numbers[has_rows])
        return _joined(old, new, has_rows)

    def _of_groups(self, by: str, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups that have rows, or are coordinates, by name."""
        structure, draws = self.structure, self.draws
        for factor in structure.coordinates:
            if factor.by == by:
                return {
                    name: np.asarray(draws[name])[:, :, numbers]
                    for name in factor.shapes
                }
        rank = np.full(len(structure.labels[by]), -1)
        rank[structure.large] = np.arange(len(structure.large))
        rank = rank[numbers]
        is_large = rank >= 0
        if not is_large.any():
            return self._of_integrated(by, numbers)
        # Effects of large groups are parameters of the chain.
        assert structure.integrated is not None
        large = {
            name: np.asarray(draws[of_large(name)])[:, :, rank[is_large]]
            for name in structure.integrated.shapes
        }
        if is_large.all():
            return large
        return _joined(self._of_integrated(by, numbers[~is_large]), large, ~is_large)

    def for_rows(
        self, f: Callable[[Tensors, Tensors], tf.Tensor], dataset: Mapping[str, Any]
    ) -> tuple[
        Callable[[Tensors, Tensors], tf.Tensor], dict[str, np.ndarray], dict[str, Any]
    ]:
        """Return function, draws and dataset for predictions of rows, effects included.

        Args:
            f: Function of ``params`` and rows, in which an effect has an entry for each row.
            dataset: Rows to predict, with the entries that name their groups.
        """
        structure = self.structure
        columns = by_column(dataset)
        if columns is None:
            raise TypeError(
                "`dataset` must be a dict of arrays, or a table in memory, for predictions with "
                f"`groups`; it is {describe(dataset)}."
            )
        all_draws = dict(self.draws)
        rows = dict(columns)
        indexed = []
        for factor in structure.all_factors:
            by = factor.by
            if by not in rows:
                raise ValueError(
                    f"`dataset` must have an entry {by!r} with the group of each row, known or "
                    "new."
                )
            labeled_rows = labeled(by, rows[by])
            levels = labeled_rows.levels.values
            numbers = structure.factors[by].codes(levels)
            labels, codes = structure.labels[by], labeled_rows.codes
            is_number = labels.dtype.kind in "iu"
            if is_number and (numbers >= 0).all():
                rows[by] = as_entry(labels[numbers][codes])
            elif is_number and labeled_rows.labels.dtype.kind in "iu":
                rows[by] = as_entry(labeled_rows.labels[codes])
            else:
                rows[by] = None
            if rows[by] is None:
                del rows[by]
            all_draws |= self.of_levels(by, levels)
            rows[code_column(by)] = tf.constant(codes.astype(np.int32))
            indexed.append((code_column(by), tuple(factor.shapes)))

        def of_rows(params: Tensors, columns: Tensors) -> tf.Tensor:
            row_params, row_columns = dict(params), dict(columns)
            for column, names in indexed:
                row_codes = row_columns.pop(column)
                for name in names:
                    row_params[name] = tf.gather(row_params[name], row_codes)
            return f(row_params, row_columns)

        return of_rows, all_draws, rows

    @abstractmethod
    def _of_integrated(self, by: str, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return draws of the effects, integrated out, of groups with rows, by name."""

    @abstractmethod
    def _of_new(self, factor: Groups, levels: Sequence[Any]) -> dict[str, np.ndarray]:
        """Return draws of the effects of groups without rows: of their distribution given θ."""


@dataclass(frozen=True)
class PackedEffects(EffectSampler):
    """Effects given draws, by moves of an independence sampler over the rows of each group.

    Attributes:
        marginal: Log-likelihood of the chain.
        data: Dataset of the chain, packs of groups.
    """

    marginal: Any
    data: Data

    def _of_integrated(self, by: str, numbers: np.ndarray) -> dict[str, np.ndarray]:
        packs, marginal, data = self.structure.packs, self.marginal, self.data
        assert isinstance(marginal, Marginal) and packs is not None
        pack, slot = packs.pack[numbers], packs.slot[numbers]
        needed, pack_index = np.unique(pack, return_inverse=True)
        columns: dict[str, Column] = {
            name: ArrayColumn(np.asarray(column.tensor_at(needed)))
            for name, column in data.columns.items()
        }
        levels = self.structure.factors[by].values
        keys = np.zeros((packs.filled.size, packs.most, 2), np.uint64)
        positions = pack.astype(np.int64) * packs.most + slot
        keys.reshape(-1, 2)[positions] = keys_of(
            by, [levels[number] for number in numbers], self.seed
        )
        samples = _draw_packs(
            marginal, self.draws, Data(columns, len(needed)), keys[needed]
        )
        chosen = samples[:, :, pack_index.reshape(-1), slot]
        acceptance, least = chosen[..., -1].mean((0, 1)), _SETTINGS.min_acceptance
        if acceptance.size and acceptance.min() < least:
            warnings.warn(
                f"Effects of {by!r}: {int((acceptance < least).sum())} of {len(acceptance)} groups "
                f"accept fewer than {least:.0%} of the moves that draw them; their draws are "
                "approximate.",
                stacklevel=2,
            )
        named = marginal.groups.named(tf.constant(chosen[..., :-1]))
        return {name: np.asarray(value) for name, value in named.items()}

    def _of_new(self, factor: Groups, levels: Sequence[Any]) -> dict[str, np.ndarray]:
        count = len(levels)
        packs = Packs(
            labels=np.arange(count),
            rows=np.zeros((count, 1), int),
            slots=np.zeros((count, 1), np.int32),
            filled=np.ones(count, np.int32),
            pack=np.arange(count),
            slot=np.zeros(count, int),
        )
        columns: dict[str, Column] = {
            SLOT: ArrayColumn(np.full((count, 1), -1, np.int32)),
            FILLED: ArrayColumn(np.ones(count, np.int32)),
        }
        coordinates = self.structure.coordinates
        names = {name for coordinate in coordinates for name in coordinate.shapes}
        global_draws = {n: v for n, v in self.draws.items() if n not in names}
        keys = keys_of(factor.by, levels, self.seed)[:, np.newaxis]
        marginal = Marginal(_nothing, factor, packs)
        samples = _draw_packs(marginal, global_draws, Data(columns, count), keys)
        named = factor.named(tf.constant(samples[:, :, :, 0, :-1]))
        return {name: np.asarray(value) for name, value in named.items()}


def _joined(
    first: Mapping[str, np.ndarray],
    second: Mapping[str, np.ndarray],
    is_first: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return draws of the effects of two sets of groups, in the order of all groups."""
    positions = np.concatenate([np.flatnonzero(is_first), np.flatnonzero(~is_first)])
    order = np.argsort(positions)
    return {
        name: np.concatenate([first[name], second[name]], 2)[:, :, order]
        for name in second
    }


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


def _nothing(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return 0.0 * tf.reduce_sum(tf.reshape(next(reversed(params.values())), [1, -1]), 1)


def _draw_packs(
    marginal: Marginal, draws: Mapping[str, np.ndarray], data: Data, keys: np.ndarray
) -> np.ndarray:
    """Return draws of each slot of some packs and acceptance, (chains, draws, packs, slots, q + 1).

    They are made in pieces of packs and of draws, for which there is memory. Random numbers of a
    slot have its key, (packs, slots, 2), so that they do not depend on the pieces.
    """
    chains, count = next(iter(draws.values())).shape[:2]
    q, slots = marginal.groups.size, marginal.most
    dtype = next(array.dtype for array in draws.values() if array.dtype.kind == "f")
    samples = np.empty((chains, count, data.size, slots, q + 1), dtype)
    numbers_per_slot = (PROPOSALS + 1) * (q + 2)
    numbers_of_rows = (PROPOSALS + 1) * data.row_bytes // 4
    per_pack = numbers_per_slot * slots + numbers_of_rows
    length = _SETTINGS.max_numbers // (per_pack * count)
    length = max(1, min(data.size, length))
    draws_at_once = _SETTINGS.max_numbers // (per_pack * length)
    draws_at_once = max(1, min(count, draws_at_once))

    def draw_at_all(params: Tensors, random: Random, packs: Tensors) -> tf.Tensor:
        return vectorized_map(
            lambda draw: marginal.draw(draw[0], packs, draw[1]), (params, random)
        )

    graph: Any = None
    for rows in spans(data.size, length):
        packs = data.slice(rows.start, rows.stop)
        row_keys = keys[rows.start : rows.stop].reshape(-1, 2)
        for chain in range(chains):
            # The random numbers of slots with these keys, at all draws of a chain.
            shape = count, PROPOSALS + 1, len(row_keys)
            standard = np.empty((*shape, q))
            squared = np.empty(shape)
            bars = np.empty((count, PROPOSALS, len(row_keys)))
            for k, key in enumerate(row_keys):
                rng = np.random.Generator(
                    np.random.Philox(key=key, counter=[0, 0, 0, chain])
                )
                standard[:, :, k] = rng.standard_normal((count, PROPOSALS + 1, q))
                squared[:, :, k] = rng.chisquare(DEGREES, (count, PROPOSALS + 1))
                bars[:, :, k] = -rng.standard_exponential((count, PROPOSALS))
            random = standard, squared, bars
            for span in spans(count, draws_at_once):
                selection = slice(span.start, span.stop)
                chunk_random = Random(
                    *(tf.constant(numbers[selection], dtype) for numbers in random)
                )
                params = {
                    name: tf.constant(np.ascontiguousarray(array[chain, selection]))
                    for name, array in draws.items()
                }
                if graph is None:
                    graph = trace(draw_at_all, params, chunk_random, packs)
                values = np.asarray(graph(params, chunk_random, packs))
                values = values.reshape(span.stop - span.start, length, slots, q + 1)
                new_values = values[span.new - span.start :, rows.new - rows.start :]
                samples[chain, span.new : span.stop, rows.new : rows.stop] = new_values
    return samples


def own_rows(model: Structure, data: Data) -> dict[str, Any]:
    """Return the rows of the chain's dataset, in the user's order, labels of groups included."""
    assert model.integrated is not None and model.packs is not None
    is_filled, group_of_row = _groups_of_rows(model, data)
    order = np.argsort(model.packs.rows[is_filled], kind="stable")
    rows: dict[str, Any] = {}
    for name, column in data.columns.items():
        if name in COLUMNS or name == LARGE:
            continue
        array = np.asarray(column.tensor(0, data.size))[is_filled][order]
        if name in model.levels:
            rows[name] = Categories(array, model.levels[name])
        else:
            rows[name] = array if array.dtype.kind == "f" else tf.constant(array)
    rows[model.integrated.by] = model.packs.labels[group_of_row[order]]
    return rows


def _groups_of_rows(model: Structure, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Return which places of packs are rows, (packs, width), and the group of each row, (rows,)."""
    packs = model.packs
    assert packs is not None
    is_filled = packs.slots >= 0
    group = np.zeros(packs.filled.shape + (packs.most,), np.int64)
    count = len(packs.labels)
    group[packs.pack[:count], packs.slot[:count]] = np.arange(count)
    group_of_row = np.take_along_axis(group, np.maximum(packs.slots, 0), 1)
    if LARGE in data.columns:
        large_code = np.asarray(data.columns[LARGE].tensor(0, data.size))
        large_group = model.large[np.maximum(large_code, 0)]
        group_of_row = np.where(large_code >= 0, large_group, group_of_row)
    return is_filled, group_of_row[is_filled]


def whole_groups(
    model: Structure, marginal: Marginal, data: Data, most: int | None = None
) -> Iterator[tuple[Marginal, Iterator[tuple[dict[str, np.ndarray], int]]]]:
    """Yield the likelihood of groups of about one size, and pieces of their packs.

    A pack is a group. All pieces of a likelihood have one shape; behind the packs of the last
    others fill it up, so that each comes with the number of its own.

    Large groups, whose effects are coordinates of the chain, are integrated out like the others.

    Args:
        model: Groups of the model, of one factor.
        marginal: Log-likelihood of the chain's packs.
        data: Dataset of the chain.
        most: Number of groups, drawn at random, if there are more; ``None`` for all.
    """
    assert model.packs is not None
    is_filled, group_of_row = _groups_of_rows(model, data)
    order = np.argsort(group_of_row, kind="stable")
    sizes = np.bincount(group_of_row)
    first = np.cumsum(sizes) - sizes
    columns = {
        name: np.asarray(column.tensor(0, data.size))[is_filled]
        for name, column in data.columns.items()
        if name not in COLUMNS
    }
    if LARGE in columns:
        columns[LARGE] = np.full_like(columns[LARGE], -1)
    chosen = np.flatnonzero(sizes)
    if most is not None and len(chosen) > most:
        rng = np.random.default_rng(0)
        chosen = np.sort(rng.choice(chosen, most, replace=False))
    nodes = marginal.nodes**marginal.groups.size
    size_class = np.log(sizes[chosen]) // np.log(_SETTINGS.padding)
    for number in np.unique(size_class):
        alike = chosen[size_class == number]
        width = int(sizes[alike].max())
        count = min(len(alike), max(1, _SETTINGS.max_terms // (width * nodes)))
        slots = np.zeros((count, width), np.int32)
        ones, numbers = np.ones(count, np.int32), np.arange(count)
        packs = Packs(numbers, slots, slots, ones, numbers, np.zeros_like(numbers))
        likelihood = Marginal(marginal.log_lik, marginal.groups, packs, marginal.nodes)

        def pieces(
            alike: np.ndarray = alike, count: int = count, width: int = width
        ) -> Iterator[tuple[dict[str, np.ndarray], int]]:
            for start in range(0, len(alike), count):
                own = alike[start : start + count]
                groups = np.resize(own, count)
                is_row = np.arange(width) < sizes[groups, np.newaxis]
                places = np.where(is_row, np.arange(width), 0)
                rows = order[first[groups, np.newaxis] + places]
                packed_columns = {name: v[rows] for name, v in columns.items()}
                slots = np.where(is_row, 0, -1).astype(np.int32)
                filled = np.ones(count, np.int32)
                yield {**packed_columns, SLOT: slots, FILLED: filled}, len(own)

        yield likelihood, pieces()


@dataclass(frozen=True)
class Units:
    """Terms of rows or of groups, and where they are among those of packs.

    Attributes:
        function: Function of parameters and packs that returns the terms of their slots, (n, k).
        pack, place: Pack of each unit, and its position there.
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
        is_filled = packs.slots >= 0
        order = np.argsort(packs.rows[is_filled], kind="stable")
        pack, place = (axis[order] for axis in np.nonzero(is_filled))
        finer = marginal.with_nodes(
            max(marginal.nodes, _MIN_NODES_OF_ROWS[marginal.groups.size])
        )
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
    return Units(marginal.of_groups, packs.pack[:count], packs.slot[:count])
