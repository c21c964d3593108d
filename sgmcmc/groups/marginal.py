"""The likelihood of whole groups, with their effects integrated out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.graphs.tracing import spec_of, trace, vectorized_map
from sgmcmc.groups.normal import (
    Normal,
    closed_form,
    find_normal,
    fit_quadratic,
    laplace,
    move_if_narrow,
    refit_quadratic,
)
from sgmcmc.groups.packs import (
    CENTER,
    COLUMNS,
    DRIFT,
    FILLED,
    MODE,
    ROOT,
    SLOPE,
    SLOT,
    START,
    Packs,
    number_of_packs,
    row_by_row,
    slots_of_rows,
)
from sgmcmc.groups.predictors import GroupedPredictors, find_predictors
from sgmcmc.groups.spec import Groups
from sgmcmc.model.target import Target

Tensors = dict[str, tf.Tensor]

# Moves of the sampler that draws effects: its error is about (1 − acceptance)^8.
PROPOSALS = 8
DEGREES = 4.0  # of freedom of the proposals of effects


@dataclass(frozen=True)
class _Settings:
    # Groups of a pack up to which rows and groups meet by comparison, which has no scattered sums.
    max_compared: int = 8
    max_repeated: int = 16  # numbers in a row that is repeated for every node


_SETTINGS = _Settings()


def gauss_hermite(nodes: int, q: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes for the standard normal density, (k, q), and logarithms of weights, (k,).

    The weights are up to a constant.

    Args:
        nodes: Number of nodes in each direction.
        q: Number of directions.
    """
    x, w = np.polynomial.hermite.hermgauss(nodes)
    grid = np.meshgrid(*[x] * q, indexing="ij")
    logs = np.meshgrid(*[np.log(w) + x**2] * q, indexing="ij")
    flat = np.stack([axis.reshape(-1) for axis in grid], -1)
    return 2.0**0.5 * flat, np.asarray(sum(axis.reshape(-1) for axis in logs))


class Rule(NamedTuple):
    """A quadrature for the standard normal density, up to a constant.

    Attributes:
        x: Nodes, (k, q).
        log_w: Logarithms of their weights, (k,).
    """

    x: tf.Tensor
    log_w: tf.Tensor


class Random(NamedTuple):
    """Random numbers for a draw of the effects of each slot.

    Attributes:
        standard: Standard normal numbers, (PROPOSALS + 1, m, q).
        squared: χ² numbers with 4 degrees of freedom, (PROPOSALS + 1, m).
        bars: Logarithms of uniform numbers, (PROPOSALS, m).
    """

    standard: tf.Tensor
    squared: tf.Tensor
    bars: tf.Tensor


class Marginal:
    """The log-likelihood of packs of groups, which a chain samples instead of the user's.

    Args:
        log_lik: User's log-likelihood, one term for each row.
        groups: Groups.
        packs: Packs of the groups' rows.
        nodes: Nodes of the quadrature in each direction, by default those of ``groups``; 1 for
            Laplace's approximation.

    Attributes:
        log_lik, groups, packs, nodes: Arguments, as given.
        most: Largest number of groups in a pack.
    """

    def __init__(
        self,
        log_lik: Callable[[Tensors, Tensors], tf.Tensor],
        groups: Groups,
        packs: Packs,
        nodes: int | None = None,
    ) -> None:
        self.log_lik = log_lik
        self.groups = groups
        self.packs = packs
        self.most = packs.most
        self.nodes = int(nodes or groups.nodes or 1)
        self._graphs: dict[Any, Any] = {}

    @property
    def row_terms(self) -> int:
        """The number of terms of ``log_lik`` that go into the likelihood of a pack."""
        return self.packs.rows.shape[1] * self.nodes**self.groups.size

    def rule(self, dtype: tf.DType, nodes: int | None = None) -> Rule:
        """Return the nodes and weights in all directions.

        Args:
            dtype: Dtype.
            nodes: Nodes in each direction, if not its own.
        """
        x, log_w = gauss_hermite(nodes or self.nodes, self.groups.size)
        return Rule(tf.constant(x, dtype), tf.constant(log_w, dtype))

    def __getstate__(self) -> dict[str, Any]:
        # A worker traces its own graphs.
        return {**self.__dict__, "_graphs": {}}

    def with_nodes(self, nodes: int) -> Marginal:
        """Return the same with another number of nodes."""
        return Marginal(self.log_lik, self.groups, self.packs, nodes)

    def __call__(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each pack, (n,).

        Unless its operations are few it is traced once for all graphs that call it with such packs.
        """
        if has_few_operations(dataset):
            return self._of_packs(params, dataset)
        specs = tf.nest.map_structure(spec_of, (params, dataset))
        key = tuple(
            (name, spec.shape, spec.dtype)
            for spec_by_name in specs
            for name, spec in spec_by_name.items()
        )
        if key not in self._graphs:
            self._graphs[key] = trace(self._of_packs, *specs)
        return self._graphs[key](params, dataset)

    def _of_packs(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        values = self.of_packs(params, dataset, None)
        if SLOPE not in dataset:
            return values
        offset = _offset_from_center(params, dataset)
        return values + tf.reduce_sum(dataset[SLOPE] * offset, -1)

    def of_packs(
        self, params: Tensors, dataset: Tensors, rule: Rule | None
    ) -> tf.Tensor:
        """Return the log-likelihood of each pack, (n,), by another quadrature unless it is None."""
        values = self.of_groups(params, dataset, rule)
        if self.most == 1:
            return values[:, 0]
        is_filled = tf.range(self.most)[tf.newaxis] < dataset[FILLED][:, tf.newaxis]
        return tf.reduce_sum(tf.where(is_filled, values, tf.zeros_like(values)), 1)

    def of_groups(
        self, params: Tensors, dataset: Tensors, rule: Rule | None = None
    ) -> tf.Tensor:
        """Return log p(y_g | θ) of the slots of each pack, (packs, most)."""
        return tf.reshape(self.of_slots(params, dataset, rule), [-1, self.most])

    def of_slots(
        self, params: Tensors, dataset: Tensors, rule: Rule | None = None
    ) -> tf.Tensor:
        """Return log p(y_g | θ) of every slot of some packs, (m,).

        Nodes that were searched for stay where they are in derivatives: the rule is exact to its
        own order wherever they are, so that the derivatives of what it gives are those of the
        integral.
        """
        if rule is None and self.groups.normal:
            heights = partial(self.heights, params, dataset)
            return closed_form(heights, self.nearest(params, dataset))
        normal = self.normal(params, dataset)
        if rule is None:
            if self.nodes == 1:
                return laplace(self.joint(params, dataset), normal)
            rule = self.rule(normal.mode.dtype)
        nodes = normal.mode + normal.from_standard(rule.x[:, tf.newaxis, :])
        weighted = self.heights(params, dataset, nodes) + rule.log_w[:, tf.newaxis]
        constant = 0.5 * self.groups.size * np.log(2.0)
        return tf.reduce_logsumexp(weighted, 0) - normal.log_root + constant

    def draw(self, params: Tensors, dataset: Tensors, random: Random) -> tf.Tensor:
        """Return a draw of p(z_g | y_g, θ) for each slot, and the acceptance rate, (m, q + 1).

        An independence sampler makes ``PROPOSALS`` moves. Proposals are Student-t with 4 degrees of
        freedom around the mode, wider than the density in its tails.
        """
        normal = self.normal(params, dataset)
        q = self.groups.size
        dtype = normal.mode.dtype
        x = random.standard * tf.sqrt(DEGREES / random.squared)[..., tf.newaxis]
        proposals = normal.mode + normal.from_standard(x)
        weights = self.heights(params, dataset, proposals)
        distances = tf.reduce_sum(x**2, -1)
        weights += 0.5 * (DEGREES + q) * tf.math.log1p(distances / DEGREES)
        lowest = dtype.min * tf.ones_like(weights)
        weights = tf.where(tf.math.is_finite(weights), weights, lowest)
        effects, weight = proposals[0], weights[0]
        acceptance = tf.zeros_like(weight)
        for k in range(1, PROPOSALS + 1):
            accepted = random.bars[k - 1] < weights[k] - weight
            effects = tf.where(accepted[:, tf.newaxis], proposals[k], effects)
            weight = tf.where(accepted, weights[k], weight)
            acceptance += tf.cast(accepted, dtype) / PROPOSALS
        return tf.concat([effects, acceptance[:, tf.newaxis]], 1)

    def heights(
        self, params: Tensors, dataset: Tensors, effects: tf.Tensor
    ) -> tf.Tensor:
        """Return log p(y_g, z_g | θ) at several effects of each slot, (k, m), of (k, m, q).

        Narrow rows are repeated, which XLA compiles well. Of wide ones, what does not depend on the
        effects is computed once.
        """
        if not (_are_narrow(dataset) and effects.shape.is_fully_defined()):
            return vectorized_map(self.joint(params, dataset), effects)
        k, m, q = effects.shape
        repeated = {
            name: tf.tile(column, [k, *[1] * (column.shape.rank - 1)])
            for name, column in dataset.items()
            if name == SLOT or name not in COLUMNS
        }
        heights = self.joint(params, repeated)(tf.reshape(effects, [k * m, q]))
        return tf.reshape(heights, [k, m])

    def of_rows(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return log p(y_i | the other rows of its group, θ) of the rows of packs, (packs, width).

        It is log p(y_g | θ) less the same without the row, at the same nodes, of which there should
        be more than for the group alone: a row that is left out widens the density.
        """
        normal = self.normal(params, dataset)
        rule = self.rule(normal.mode.dtype)
        nodes = normal.mode + normal.from_standard(rule.x[:, tf.newaxis, :])
        terms_of, row_slots = self._terms(params, dataset)
        density = self.groups.log_prior
        terms = vectorized_map(terms_of, nodes)
        slots = tf.shape(nodes)[1]
        heights = vectorized_map(
            lambda pair: (
                tf.math.unsorted_segment_sum(pair[1], row_slots, slots)
                + density(self.groups.named(pair[0]), dict(params))
            ),
            (nodes, terms),
        )
        weighted = heights + rule.log_w[:, tf.newaxis]
        of_others = tf.reduce_logsumexp(
            tf.gather(weighted, row_slots, axis=1) - terms, 0
        )
        difference = tf.gather(tf.reduce_logsumexp(weighted, 0), row_slots) - of_others
        return tf.reshape(difference, dataset[SLOT].shape)

    def joint(
        self, params: Tensors, dataset: Tensors
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return the function of effects, (m, q), that is log p(y_g, z_g | θ), (m,)."""
        terms_of, row_slots = self._terms(params, dataset)
        slot, slots_per_pack = dataset[SLOT], self.most
        slots = slots_per_pack * number_of_packs(slot)

        def height(effects: tf.Tensor) -> tf.Tensor:
            terms = terms_of(effects)
            if slots_per_pack == 1:
                data = tf.reduce_sum(tf.reshape(terms, [-1, slot.shape[1]]), 1)
            elif slots_per_pack <= _SETTINGS.max_compared:
                row_terms = tf.reshape(terms, [-1, slot.shape[1], 1])
                match = _matches(slot, slots_per_pack)
                chosen = tf.where(match, row_terms, tf.zeros_like(row_terms))
                data = tf.reshape(tf.reduce_sum(chosen, 1), [-1])
            else:
                data = tf.math.unsorted_segment_sum(terms, row_slots, slots)
            return data + self._log_density(params)(effects)

        return height

    def _log_density(self, params: Tensors) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return the function of effects, (m, q), that is log p(z_g | θ), (m,)."""
        return lambda effects: self.groups.log_prior(
            self.groups.named(effects), dict(params)
        )

    def _terms(
        self, params: Tensors, dataset: Tensors
    ) -> tuple[Callable[[tf.Tensor], tf.Tensor], tf.Tensor]:
        """Return the function of effects that gives the terms of rows, and the slot of each row."""
        slot = dataset[SLOT]
        width = slot.shape[1]
        slots_per_pack = self.most
        rows = row_by_row(dataset)
        real = tf.reshape(slot >= 0, [-1])
        row_slots = slots_of_rows(slot, slots_per_pack)

        def terms_of(effects: tf.Tensor) -> tf.Tensor:
            if slots_per_pack == 1:
                row_effects = tf.repeat(effects, width, axis=0)
            elif slots_per_pack <= _SETTINGS.max_compared:
                of_slots = tf.reshape(
                    effects, [-1, 1, slots_per_pack, self.groups.size]
                )
                match = _matches(slot, slots_per_pack)[..., tf.newaxis]
                chosen = tf.where(match, of_slots, tf.zeros_like(of_slots))
                of_rows = tf.reduce_sum(chosen, 2)
                row_effects = tf.reshape(of_rows, [-1, self.groups.size])
            else:
                row_effects = tf.gather(effects, row_slots)
            terms = self.log_lik(
                {**params, **self.groups.named(row_effects)}, dict(rows)
            )
            return tf.where(real, terms, tf.zeros_like(terms))

        return terms_of, row_slots

    def normal(self, params: Tensors, dataset: Tensors) -> Normal:
        """Return mode and information of the effects of every slot.

        If packs have the nodes of a quadrature, they are those of the packs; otherwise they are
        searched for.
        """
        if MODE not in dataset or self.groups.normal:
            fixed = {name: tf.stop_gradient(value) for name, value in params.items()}
            return find_normal(self.joint(fixed, dataset), self._start(fixed, dataset))
        fixed_normal = self._fixed_normal(dataset)
        if DRIFT not in dataset:
            return fixed_normal
        # Not a product with a matrix: that of a stack with one vector corrupts memory in the
        # gradient of TensorFlow 2.21 on oneDNN.
        offset = _offset_from_center(params, dataset)[:, tf.newaxis, tf.newaxis]
        change = tf.reduce_sum(dataset[DRIFT] * offset, -1)
        return fixed_normal.moved(tf.reshape(change, [-1, change.shape[-1]]))

    def nearest(self, params: Tensors, dataset: Tensors) -> Normal:
        """Return mode and information of the effects of every slot, right if a height is quadratic.

        Of another height they are those around which the nodes of the quadrature lie.
        """
        if not self.groups.normal:
            return self.normal(params, dataset)
        if MODE in dataset:
            fixed = {name: tf.stop_gradient(value) for name, value in params.items()}
            fixed_normal = move_if_narrow(
                self._log_density(fixed),
                self._start(fixed, dataset),
                self._fixed_normal(dataset),
            )
            return refit_quadratic(partial(self.heights, params, dataset), fixed_normal)
        return fit_quadratic(self.joint(params, dataset), self._start(params, dataset))

    def find_factors(
        self, target: Target, columns: Tensors
    ) -> GroupedPredictors | None:
        """Return linear predictors of the likelihood, if it is one of few of them.

        Args:
            target: Log posterior of which it is a part, without a preconditioner.
            columns: Some packs.
        """
        return find_predictors(self, target, columns)

    def _fixed_normal(self, dataset: Tensors) -> Normal:
        """Return mode and information of every slot as packs have them, at some parameters."""
        q = self.groups.size
        root = tf.reshape(dataset[ROOT], [-1, q, q])
        mode = tf.reshape(dataset[MODE], [-1, q])
        return Normal(mode, [[root[:, i, j] for j in range(q)] for i in range(q)])

    def _start(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        q = self.groups.size
        if START in dataset:
            return tf.reshape(dataset[START], [-1, q])
        slots = self.most * number_of_packs(dataset[SLOT])
        start = tf.constant(self.groups.start, next(iter(params.values())).dtype)
        return tf.broadcast_to(start, [slots, q])


def has_few_operations(packs: Mapping[str, Any]) -> bool:
    """Return whether the likelihood of packs is a few operations, which XLA compiles quickly.

    That is so if their nodes are fixed and their rows are narrow.

    Args:
        packs: Packs; tensors, or their shapes.
    """
    return MODE in packs and _are_narrow(packs)


def _are_narrow(packs: Mapping[str, Any]) -> bool:
    """Return whether rows have so few numbers that they are repeated for every node."""
    columns = [column for name, column in packs.items() if name not in COLUMNS]
    if any(isinstance(column, tf.SparseTensor) for column in columns):
        return False
    shapes = [column.shape for column in columns]
    if any(shape.rank is None or None in shape[1:] for shape in shapes):
        return False
    numbers = sum(int(np.prod(shape[2:])) for shape in shapes)
    return numbers <= _SETTINGS.max_repeated


def _offset_from_center(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the parameters, by the order of their names, less the center of packs, (packs, P)."""
    flat = tf.concat([tf.reshape(params[name], [-1]) for name in sorted(params)], 0)
    return flat - dataset[CENTER]


def _matches(slot: tf.Tensor, slots_per_pack: int) -> tf.Tensor:
    """Return whether a row is of a slot; those left over are of the first, (packs, width, most)."""
    return tf.maximum(slot, 0)[..., tf.newaxis] == tf.range(slots_per_pack)
