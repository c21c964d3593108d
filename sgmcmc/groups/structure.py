"""A model with groups, as an ordinary model: a dataset of packs, and a log-likelihood of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import describe
from sgmcmc.data.dataset import ArrayColumn, Data, DenseColumn, digest
from sgmcmc.data.levels import Levels
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.tables import by_column
from sgmcmc.groups.labels import (
    Labeled,
    among_members,
    as_entry,
    labeled,
    numbers_of,
    shown,
)
from sgmcmc.groups.marginal import Marginal, Tensors
from sgmcmc.groups.packs import (
    FILLED,
    SLOT,
    Packs,
    large_groups,
    need_groups,
    pack,
    packed,
    without_large,
)
from sgmcmc.groups.spec import Groups, GroupTrial, is_quadratic, try_functions

LogLik = Callable[[Tensors, Tensors], tf.Tensor]
LogPrior = Callable[[Tensors], tf.Tensor]


def code_column(by: str) -> str:
    """Return the name of the column with the number of each row's group."""
    return f"groups/{by}"


@dataclass(frozen=True)
class IndexedLogLik:
    """The user's log-likelihood, with effects that are coordinates looked up for each row.

    Attributes:
        log_lik: User's log-likelihood.
        coordinates: Groups whose effects are parameters of the chain.
    """

    log_lik: LogLik
    coordinates: tuple[Groups, ...]

    def __call__(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the terms of rows."""
        row_params, rows = dict(params), dict(dataset)
        for groups in self.coordinates:
            codes = rows.pop(code_column(groups.by))
            for name in groups.shapes:
                row_params[name] = tf.gather(row_params[name], codes)
        return self.log_lik(row_params, rows)


@dataclass(frozen=True)
class _Settings:
    # Other coordinates up to which effects are always integrated out
    many_effects: int = 300
    quick_rows: int = 2_000_000  # over which a gradient is quick
    # Levels of another factor that a group has rows at, on average, if the two are crossed.
    crossed_levels: float = 2.0
    # Groups of a factor whose labels are stored with the draws
    max_stored: int = 100_000


_SETTINGS = _Settings()

# Column with the number of the large group that a row is of; -1 for rows of others.
LARGE = "groups/large"


def of_large(name: str) -> str:
    """Return the name of the parameter with an effect of the large groups."""
    return f"{name}_large"


@dataclass(frozen=True)
class LargeGroupsLogLik:
    """A log-likelihood, with effects of large groups looked up among the parameters.

    Attributes:
        log_lik: Log-likelihood of rows.
        groups: Groups, of which the large ones have effects that are parameters of the chain.
    """

    log_lik: LogLik
    groups: Groups

    def __call__(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the terms of rows."""
        row_params, rows = dict(params), dict(dataset)
        code = rows.pop(LARGE)
        for name in self.groups.shapes:
            effects_of_large = tf.gather(
                row_params.pop(of_large(name)), tf.maximum(code, 0)
            )
            effects_of_others = row_params[name]
            is_large = tf.reshape(
                code >= 0, [-1, *[1] * (len(effects_of_others.shape) - 1)]
            )
            row_params[name] = tf.where(is_large, effects_of_large, effects_of_others)
        return self.log_lik(row_params, rows)


@dataclass(frozen=True)
class EffectsLogPrior:
    """The user's log-prior, with the density of effects that are coordinates added.

    Attributes:
        log_prior: User's log-prior; ``None`` for a flat one.
        coordinates: Groups whose effects are parameters of the chain.
        large: Groups of which the large ones have effects that are parameters, if there are any.
    """

    log_prior: LogPrior | None
    coordinates: tuple[Groups, ...]
    large: Groups | None = None

    def __call__(self, params: Tensors) -> tf.Tensor:
        """Return the log prior density of parameters and effects."""
        names = {name for groups in self.coordinates for name in groups.shapes}
        if self.large is not None:
            names |= {of_large(name) for name in self.large.shapes}
        global_params = {
            name: value for name, value in params.items() if name not in names
        }
        total = tf.zeros([], next(iter(params.values())).dtype)
        if self.log_prior is not None:
            total += self.log_prior(dict(global_params))
        for groups in self.coordinates:
            effects = {name: params[name] for name in groups.shapes}
            total += tf.reduce_sum(groups.log_prior(effects, dict(global_params)))
        if self.large is not None:
            effects = {name: params[of_large(name)] for name in self.large.shapes}
            total += tf.reduce_sum(self.large.log_prior(effects, dict(global_params)))
        return total


@dataclass(frozen=True)
class Structure:
    """The groups of a model.

    Attributes:
        integrated: Groups whose effects are integrated out, if any.
        packs: Packs of their rows.
        coordinates: Groups whose effects are parameters of the chain.
        labels: Labels of the groups of each factor, as they are shown.
        factors: The same groups by their values.
        levels: Levels of other columns that hold categories.
        large: Numbers of the groups that are too large to be integrated out: their effects are
            parameters of the chain.
        found_normal: Whether functions seem quadratic in the integrated effects, which the user has
            not said.
    """

    integrated: Groups | None
    packs: Packs | None
    coordinates: tuple[Groups, ...]
    labels: dict[str, np.ndarray]
    factors: dict[str, Levels]
    levels: dict[str, Levels] = field(default_factory=dict)
    large: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    found_normal: bool = False

    @property
    def names_of_large(self) -> tuple[str, ...]:
        """Names of the parameters with the effects of groups that are too large."""
        if self.integrated is None or not len(self.large):
            return ()
        return tuple(of_large(name) for name in self.integrated.shapes)

    @property
    def all_factors(self) -> list[Groups]:
        """All factors: those whose effects are coordinates, then the one that is integrated."""
        integrated = [] if self.integrated is None else [self.integrated]
        return [*self.coordinates, *integrated]

    def factor(self, by: str) -> Groups:
        """Return the groups of a factor."""
        return next(factor for factor in self.all_factors if factor.by == by)

    def shown(self, by: str) -> np.ndarray:
        """Return the labels of a factor's groups, in the order of their effects."""
        members = self.factor(by).members
        return self.labels[by] if members is None else shown(list(members))

    def labels_to_json(self) -> dict[str, Any]:
        """Return the groups of each factor for ``settings``; of very many their digest."""
        labels: dict[str, Any] = {}
        for by, levels in self.factors.items():
            few = len(levels) <= _SETTINGS.max_stored
            labels[by] = (
                levels.to_json() if few else digest(self.labels[by].astype("S"))
            )
        return labels

    def to_json(self) -> dict[str, Any]:
        """Return the facts about each factor for ``settings``."""
        factors = [
            *([] if self.integrated is None else [self.integrated]),
            *self.coordinates,
        ]
        return {
            factor.by: {
                "levels": len(self.labels[factor.by]),
                "effects": {name: list(shape) for name, shape in factor.shapes.items()},
                "integrated": factor is self.integrated,
                **({"nodes": factor.nodes} if factor is self.integrated else {}),
                **(
                    {"large": self.labels[factor.by][self.large].tolist()}
                    if factor is self.integrated and len(self.large)
                    else {}
                ),
            }
            for factor in factors
        }


@dataclass(frozen=True)
class GroupedModel:
    """A model for a sampler, whose effects of groups are integrated out or coordinates.

    Attributes:
        log_lik: One term for each pack of groups; or the rows' own terms if all effects are
            coordinates.
        dataset: Dict of arrays: packs of groups, or rows.
        params: Starting values, including effects that are coordinates.
        log_prior: Log-prior of all these.
        structure: Description of the groups.
    """

    log_lik: Any
    dataset: dict[str, np.ndarray]
    params: Any
    log_prior: LogPrior | None
    structure: Structure

    @property
    def integers(self) -> tuple[str, ...]:
        """The entries of the dataset that are integers."""
        return tuple(
            name for name, array in self.dataset.items() if array.dtype.kind in "iu"
        )


def read_groups(
    groups: Any,
    log_lik: LogLik,
    dataset: Any,
    params: Any,
    log_prior: LogPrior | None,
    dtype: tf.DType = tf.float32,
    integers: Sequence[str] = (),
    whole: bool = False,
) -> GroupedModel:
    """Return a model with groups in the form of a sampler's arguments.

    The factor with the most levels is integrated out, if it has up to three numbers a group; given
    all other effects, which are coordinates of the chain, its groups are independent. Of large
    crossed factors none is, if a gradient over all rows is quick and may be used.

    Args:
        groups: User's groups: ``Groups``, or a list of them.
        log_lik: Log-likelihood, one term for each row.
        dataset: Dict of arrays, rows.
        params: Global parameters, or a list with those of each chain.
        log_prior: Log-prior of the global parameters.
        dtype: Dtype of the chain.
        integers: Columns that stay integers.
        whole: Whether chains may move by gradients over the whole dataset.

    Raises:
        ValueError, TypeError: Something is wrong; the message names the argument.
    """
    factors = _read(groups)
    checks.function("log_lik", log_lik, "of `params` and `dataset`")
    columns_given = by_column(dataset)
    if columns_given is None:
        raise TypeError(
            "`dataset` must be a dict of arrays, or a table in memory, if there are `groups`; it "
            f"is {describe(dataset)}."
        )
    dataset = columns_given
    labeled_by: dict[str, Labeled] = {}
    for factor in factors:
        checks.known_keys(
            "groups", [factor.by], dataset, "the entries of `dataset` are"
        )
        labeled_by[factor.by] = labeled(factor.by, dataset[factor.by])
        need_groups(factor.by, labeled_by[factor.by].labels)
    labels = {by: labeled_rows.labels for by, labeled_rows in labeled_by.items()}
    codes = {by: labeled_rows.codes for by, labeled_rows in labeled_by.items()}
    starts = list(params) if isinstance(params, list | tuple) else [params]
    for start in starts:
        _need_own_names(start, factors)
    rows = _rows(dataset, factors, dtype, integers)
    for by, row_codes in codes.items():
        if len(row_codes) != rows.size:
            raise ValueError(
                f"`dataset`: the first axis of every array counts the observations; {by!r} has "
                f"{len(row_codes)}, the others {rows.size}."
            )
    integrable = [factor for factor in factors if factor.integrated]
    integrated = (
        max(integrable, key=lambda factor: len(labels[factor.by]))
        if integrable
        else None
    )
    if whole and integrated is not None and _are_crossed(integrated, factors, codes):
        integrated = None
    coordinates = tuple(factor for factor in factors if factor is not integrated)
    trial = GroupTrial.of(log_lik, factors, rows, codes, starts[0], dtype)
    try_functions(trial, factors)
    found_normal = (
        integrated is not None
        and integrated.normal is None  # the user leaves it open
        and not integrated.nodes_given
        and is_quadratic(trial, integrated)
    )
    if integrated is not None and found_normal:
        integrated = replace(integrated, normal=True, nodes=None)
    columns: dict[str, Any] = dict(rows.columns)
    for factor in coordinates:
        if factor.members is not None:
            labeled_by[factor.by] = among_members(
                factor.by, labeled_by[factor.by], factor.members
            )
            labels[factor.by] = labeled_by[factor.by].labels
            codes[factor.by] = labeled_by[factor.by].codes
        columns[code_column(factor.by)] = ArrayColumn(codes[factor.by].astype(np.int32))
    likelihood: Any = IndexedLogLik(log_lik, coordinates) if coordinates else log_lik
    packs = None
    large = np.zeros(0, int)
    if integrated is not None:
        if integrated.members is not None:
            among_members(integrated.by, labeled_by[integrated.by], integrated.members)
        pack_codes = codes[integrated.by]
        large = large_groups(pack_codes)
        if len(large):
            _need_free_names(integrated, starts[0])
            likelihood = LargeGroupsLogLik(likelihood, integrated)
            number = np.full(len(labels[integrated.by]), -1, np.int32)
            number[large] = np.arange(len(large))
            columns[LARGE] = ArrayColumn(number[pack_codes])
            pack_codes = without_large(pack_codes, large)
        packs = pack(labels[integrated.by], pack_codes)
        columns = {name: packed(column, packs.rows) for name, column in columns.items()}
        columns |= {SLOT: packs.slots, FILLED: packs.filled}
        likelihood = Marginal(likelihood, integrated, packs)
    else:
        columns = {name: column.slice(0, rows.size) for name, column in columns.items()}
    with_effects = [_with_effects(start, coordinates, labels) for start in starts]
    if len(large):
        assert integrated is not None
        for start in with_effects:
            for name, value in integrated.named(tf.constant(integrated.start)).items():
                start[of_large(name)] = np.broadcast_to(
                    value, (len(large), *value.shape)
                ).copy()
    large_groups_of = integrated if len(large) else None
    log_prior_of_all = log_prior
    if coordinates or large_groups_of:
        log_prior_of_all = EffectsLogPrior(log_prior, coordinates, large_groups_of)
    by_value = {by: labeled_rows.levels for by, labeled_rows in labeled_by.items()}
    return GroupedModel(
        likelihood,
        columns,
        with_effects if isinstance(params, list | tuple) else with_effects[0],
        log_prior_of_all,
        Structure(
            integrated,
            packs,
            coordinates,
            labels,
            by_value,
            rows.levels,
            large,
            found_normal,
        ),
    )


def _are_crossed(
    largest: Groups, factors: Sequence[Groups], codes: Mapping[str, np.ndarray]
) -> bool:
    """Return whether chains are quicker with effects of every factor as coordinates.

    This is so if the other factors have many effects, which gradients over minibatches of groups
    would all be about, and most groups have rows at several levels of them; nested factors do not.
    """
    other_factors = [factor for factor in factors if factor is not largest]
    levels = [int(codes[factor.by].max()) + 1 for factor in other_factors]
    n_effects = sum(
        count * factor.size for count, factor in zip(levels, other_factors, strict=True)
    )
    largest_codes = codes[largest.by]
    if n_effects <= _SETTINGS.many_effects or len(largest_codes) > _SETTINGS.quick_rows:
        return False
    pairs = [
        len(np.unique(largest_codes.astype(np.int64) * count + codes[factor.by]))
        for count, factor in zip(levels, other_factors, strict=True)
    ]
    return max(pairs) >= _SETTINGS.crossed_levels * (int(largest_codes.max()) + 1)


def _need_free_names(factor: Groups, params: Mapping[str, Any]) -> None:
    for name in factor.shapes:
        if of_large(name) in params or of_large(name) in factor.shapes:
            raise ValueError(
                f"`params`: {of_large(name)!r} is the name that effects of large groups of "
                f"{factor.by!r} have. Use another."
            )


def _read(groups: Any) -> list[Groups]:
    factors = list(groups) if isinstance(groups, list | tuple) else [groups]
    if not factors:
        raise ValueError(
            "`groups` is an empty list: it must hold one sgmcmc.Groups or more."
        )
    names: set[str] = set()
    for factor in factors:
        if not isinstance(factor, Groups):
            raise TypeError(
                f"`groups` must be sgmcmc.Groups, or a list of them; it is {describe(factor)}."
            )
        for name in factor.shapes:
            if name in names:
                raise ValueError(f"`groups`: two factors have effects called {name!r}.")
            names.add(name)
    return factors


def _need_own_names(params: Any, factors: Sequence[Groups]) -> None:
    if not isinstance(params, Mapping):
        raise TypeError(
            f"`params` must be a dict of starting values; it is {describe(params)}."
        )
    for factor in factors:
        for name in factor.shapes:
            if name in params:
                raise ValueError(
                    f"`params` holds {name!r}, which is an effect of `groups` too: it must hold "
                    "global parameters alone."
                )


def _rows(
    dataset: Mapping[str, Any],
    factors: Sequence[Groups],
    dtype: tf.DType,
    integers: Sequence[str],
) -> Data:
    """Return the dataset without labels that are no numbers, or larger integers than int32."""
    columns = dict(dataset)
    integer_labels = []
    for name in dict.fromkeys(factor.by for factor in factors):
        numbers = numbers_of(columns[name])
        is_integer = numbers is not None and numbers.dtype.kind in "iu"
        if numbers is None or (is_integer and as_entry(numbers) is None):
            del columns[name]
        else:
            columns[name] = numbers
            integer_labels += [name] if is_integer else []
    rows = read_dataset(columns, dtype, [*integers, *integer_labels])
    for name, column in rows.columns.items():
        if not isinstance(column, DenseColumn):
            raise TypeError(
                f"`dataset[{name!r}]` is sparse, which models with `groups` do not support. Pass "
                "a dense array."
            )
    return rows


def _with_effects(
    params: Mapping[str, Any],
    coordinates: Sequence[Groups],
    labels: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    all_params = dict(params)
    for factor in coordinates:
        levels = len(labels[factor.by])
        for name, start in factor.named(tf.constant(factor.start)).items():
            all_params[name] = np.broadcast_to(
                start.numpy(), (levels, *start.shape)
            ).copy()
    return all_params
